"""What each kind of task makes of a model's raw outputs."""

from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import roberta_plugin
from roberta_plugin.extensions.summaries.documents import Length, choose, lead
from roberta_plugin.extensions.texts.regression import decide
from roberta_plugin.extensions.texts.regression import training_groups as groups_of
from roberta_plugin.finetuning.benchmarks import kind_of_task
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds import KINDS, kind_class, own_kinds, table_kind, task_kinds
from roberta_plugin.finetuning.kinds.outputs import (
    Decisions,
    RawOutputs,
    mean_probabilities,
    probabilities,
    read_outputs,
    write_outputs,
)
from roberta_plugin.finetuning.kinds.tables import TableKind
from roberta_plugin.finetuning.options import own_kind_names
from roberta_plugin.prediction.settings import PredictSettings
from roberta_plugin.registry import HEADS
from tests.tiny_benchmarks import write_prepared


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_found_by_its_name_with_a_head_and_outputs_that_exist(name):
    kind, entry = kind_class(name), KINDS[name]
    assert kind.name == name
    assert kind.head in (*HEADS, "masked_lm", "")
    assert set(kind.outputs_by) <= {*kind.outputs, *kind.validated_outputs}
    assert issubclass(kind, TableKind) >= entry.is_own
    assert set(entry.options) <= {item.name for item in fields(PredictSettings)}
    assert entry.task_kind in ("", *task_kinds())


def test_a_kind_is_trained_by_a_task_that_names_its_head_as_the_kind_does():
    roberta_plugin.register()  # another test may not have imported fairseq before
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    trained = [kind_class(name) for name in KINDS if name not in ("fill_mask", "score")]
    for kind in trained:
        assert CRITERION_REGISTRY[kind.task].name == kind.task
        if kind.head not in ("", "masked_lm"):
            assert TASK_DATACLASS_REGISTRY[kind.task]().classification_head_name == kind.default_head_name


def test_kinds_of_tables_are_values_of_kind():
    assert {name.replace("_", "-") for name in own_kinds()} | {"pair"} == set(own_kind_names())
    with pytest.raises(ValueError, match=r"no kind 'pronoun' of own data, as prepared\.json has it; there are classif"):
        table_kind({"kind": "pronoun"})
    with pytest.raises(ValueError, match=r"window_pooling of prepared\.json is 'x', which is none of mean, max"):
        _ = table_kind({"kind": "classification", "window_pooling": "x"}).window_pooling
    with pytest.raises(ValueError, match="no kind of task 'sorting'; there are fill_mask"):
        kind_class("sorting")


def test_a_task_has_the_kind_of_its_benchmark():
    assert kind_of_task("squad2") == "question_answering" and kind_of_task("STS-B") == "regression"
    assert kind_of_task("custom") is kind_of_task("unknown") is None


def test_outputs_for_other_sequences_and_damaged_files_do_not_count(tmp_path):
    def split(name, **options):
        return write_prepared(tmp_path / name, num_options=1, **options).split("valid")

    folder, written = tmp_path / "outputs", split("set")
    assert read_outputs(folder, written) is None
    write_outputs(folder, RawOutputs(logits=np.random.default_rng(1).random((40, 2), dtype=np.float32)), written)
    assert read_outputs(folder, split("same")) is not None
    assert read_outputs(folder, split("other", seed=5)) is None
    path = folder / "valid.npz"
    path.write_bytes(path.read_bytes()[:200])
    assert read_outputs(folder, written) is None


def test_probabilities_are_those_of_a_softmax_over_each_questions_options():
    scores = np.random.default_rng(0).normal(scale=4, size=14).astype(np.float32)
    offsets = np.array([0, 4, 6, 11, 14])
    found = probabilities(scores, offsets)
    for start, stop in pairwise(offsets):
        expected = torch.from_numpy(scores[start:stop]).double().softmax(0).numpy()
        np.testing.assert_allclose(found[start:stop], expected, rtol=1e-12)
    large = probabilities(np.array([800, -800, 0, 0], dtype=np.float32), np.array([0, 2, 4]))
    assert large.tolist() == [1, 0, 0.5, 0.5]


def test_an_ensemble_averages_probabilities_and_not_scores():
    offsets = np.array([0, 3])
    for first, other, best in ((9, 1, 0), (2, 1.5, 1)):
        members = np.array([[first, 0, 0], [0, other, 0], [0, other, 0]], dtype=np.float32)
        chances = mean_probabilities([*members], offsets)
        np.testing.assert_allclose(chances, np.mean([probabilities(each, offsets) for each in members], axis=0))
        assert chances.argmax() == best


def test_a_number_is_given_or_found_by_the_answers_of_the_development_set():
    valid = Decisions("valid")
    assert valid.find("threshold", lambda: 0.3, is_labelled=True) == 0.3
    test = Decisions("test", valid.used)
    assert test.find("threshold", lambda: 0.9, is_labelled=True) == 0.3
    assert (valid.used, test.used) == ({"threshold": 0.3}, {"threshold": 0.3})
    for split in ("test", "held_out", "train"):
        with pytest.raises(ValueError, match=rf"not on the split {split}: evaluate `valid` too, or give --null-thresh"):
            Decisions(split).find("null_threshold", lambda: 0.9, is_labelled=True)
    with pytest.raises(ValueError, match=r"found by right answers, which the development set lacks: give --threshold"):
        Decisions("valid").find("threshold", lambda: 0.9, is_labelled=False)


@pytest.mark.parametrize("name", KINDS)
def test_every_number_that_predict_takes_is_declared_by_its_kind(name):
    """`decides_by` is what exports carry, and what models bring along."""
    entry = KINDS[name]
    assert set(kind_class(name).decides_by) == set(entry.options) & set(entry.numbers)


SENTENCES = ["a b c d", "e f", "g h i", "x a b c", "e f g"]  # of 16 words


def test_the_most_probable_sentences_without_a_common_trigram_in_the_order_of_the_text():
    def chosen(**options):
        return choose(np.array([0.6, 0.1, 0.4, 0.9, 0.5]), SENTENCES, Length(**options))

    assert chosen() == [2, 3, 4]
    assert chosen(no_trigram_blocking=True) == [0, 3, 4]
    assert chosen(num_sentences=1) == [3]
    assert chosen(num_sentences=9) == [1, 2, 3, 4]
    assert chosen(length_share=0.5, no_trigram_blocking=True) == [0, 3], "8 of 16 words"
    assert chosen(length_share=0.51, no_trigram_blocking=True) == [0, 3, 4]
    assert chosen(min_probability=0.5) == [3, 4]
    assert chosen(min_probability=0.99) == [3], "one sentence at least"
    assert chosen(length_share=0.0) == [3]
    assert chosen(length_share=1.0, no_trigram_blocking=True) == [0, 1, 2, 3, 4]
    assert choose(np.zeros(4), ["a", "b", "c", "d"], Length(num_sentences=2)) == [0, 1], "ties go to the earlier one"


def test_lead_is_the_beginning_of_the_same_length():
    assert lead(SENTENCES, Length()) == lead(SENTENCES, Length(min_probability=0.5)) == [0, 1, 2]
    assert lead(SENTENCES, Length(num_sentences=9)) == [0, 1, 2, 3, 4]
    assert lead(SENTENCES, Length(length_share=0.5)) == [0, 1, 2], "9 of 16 words"


def plain_choice(probabilities, sentences, number, *, is_blocking):
    """BertSum's loop: each candidate is compared with every chosen sentence."""

    def trigrams(sentence):
        tokens = sentence.split()
        return {tuple(tokens[start : start + 3]) for start in range(len(tokens) - 2)}

    chosen = []
    for candidate in sorted(range(len(sentences)), key=lambda each: -probabilities[each]):
        if is_blocking and any(trigrams(sentences[candidate]) & trigrams(sentences[each]) for each in chosen):
            continue
        chosen.append(candidate)
        if len(chosen) == number:
            break
    return sorted(chosen)


def test_the_choice_is_that_of_the_plain_program():
    rng = np.random.default_rng(0)
    blocked = 0
    for _ in range(100):
        sentences = [" ".join(rng.choice(list("abc"), rng.integers(1, 7))) for _ in range(rng.integers(1, 9))]
        probabilities = rng.random(len(sentences))
        for is_blocking in (True, False):
            found = choose(probabilities, sentences, Length(no_trigram_blocking=not is_blocking))
            assert found == plain_choice(probabilities, sentences, 3, is_blocking=is_blocking)
        blocked += plain_choice(probabilities, sentences, 3, is_blocking=True) != found
    assert blocked > 20


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
