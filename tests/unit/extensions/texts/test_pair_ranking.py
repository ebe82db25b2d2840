"""Sentences of a question that compete with each other."""

from pathlib import Path

import numpy as np

from roberta_plugin.extensions.texts.regression import decide
from roberta_plugin.extensions.texts.regression import training_groups as groups_of
from roberta_plugin.finetuning.examples import Example


def training_groups(*rows, seed=1):
    examples = [Example(Path("train.tsv"), 2, "0", texts, str(label)) for *texts, label in rows]
    return groups_of(examples, right_label="1", seed=seed)


def test_a_right_sentence_competes_with_the_others_of_its_question_or_with_none():
    rows = ("q1", "no", 0), ("q2", "yes", 1), ("q1", "right", 1), ("q3", "wrong", 0), ("q1", "also no", 0)
    first, _, third = training_groups(*rows)
    assert (first.question, first.sentences, first.answer) == ("q1", ("right", "no", "also no"), 0)
    assert (third.sentences, third.answer) == (("wrong",), 1), "without a right sentence, none is the answer"
    (group,) = training_groups(("q", "s", 1))
    assert group.sentences == ("s",), "of one question there are no rivals"


def test_where_there_are_none_a_sentence_of_another_question_is_drawn_and_always_the_same():
    lonely = [(f"q{number}", f"s{number}", 1) for number in range(50)]
    groups = training_groups(*lonely)
    assert all(len(group.sentences) == 2 and group.answer == 0 for group in groups)
    assert all(group.sentences[0] == f"s{number}" != group.sentences[1] for number, group in enumerate(groups))
    assert training_groups(*lonely) == groups != training_groups(*lonely, seed=2)
    assert len({group.sentences[1] for group in groups}) > 20


def test_the_best_of_a_question_is_the_answer_and_a_lone_pair_is_judged_by_its_sign():
    questions = np.array([7, 3, 7, 5, 3, 9])
    scores = np.array([-3.0, 1.0, -2.0, 0.5, 4.0, -0.5])
    assert decide(scores, questions).tolist() == [0, 0, 1, 1, 1, 0]
    assert decide(np.zeros(3), np.array([4, 4, 4])).tolist() == [1, 0, 0], "of equal ones the first"
    assert decide(np.zeros(1), np.array([4])).tolist() == [0]


def test_exactly_one_sentence_wins_where_several_compete():
    rng = np.random.default_rng(0)
    questions = rng.integers(0, 40, 200)
    decided = decide(rng.normal(size=200), questions)
    for question in set(questions.tolist()):
        members = decided[questions == question]
        assert members.sum() == 1 or len(members) == 1
    assert (np.bincount(questions) > 1).sum() > 30
