"""Questions with options: their inputs, answers and accuracies."""

import numpy as np
import pytest

from roberta_plugin.extensions.choices.kind import ChoiceLayout, accuracies, answers, question_with_option
from tests.tiny_benchmarks import words_tokenizer

VOCABULARY = words_tokenizer()[1]


BOS, EOS = VOCABULARY.bos_id, VOCABULARY.eos_id


@pytest.mark.parametrize(
    ("question", "option", "expected"),
    [
        ("What is it ?", "a cup", "What is it ? a cup"),
        ("Tom  _  his dog .", "lost", "Tom lost his dog ."),
        ("It was _.", r"\1 or \g<0>", r"It was \1 or \g<0>."),
        ("Both _ and _ .", "men", "Both men and men ."),
        ("He ____ .", "ran", "He ran ."),
        ("He _ .", "wrote a_b", "He wrote a_b ."),
        ("", " ran off", "ran off"),
        ("Why ?\n", "To\r\nget (\n) it", "Why ? To get ( ) it"),
        ("A _ b", " a\nb\r\nc\rd  e\t\u00a0f \n", "A a b c d e f b"),
    ],
)
def test_the_option_stands_in_the_blank_or_after_the_question_with_single_spaces(question, option, expected):
    assert question_with_option(question, option) == expected


def tokens(start, count):
    return np.arange(start, start + count, dtype=np.int32)


@pytest.mark.parametrize("order", ["passage", "question"])
@pytest.mark.parametrize("num_passage", [1, 25, 26, 27, 30, 500])
@pytest.mark.parametrize("num_question", [1, 9, 10, 11, 300])
def test_the_question_is_cut_to_its_limit_and_then_the_passage_and_the_last_symbol_stays(
    num_passage, num_question, order
):
    layout = ChoiceLayout(max_length=40, question_length=10, order=order)
    found = layout.join(VOCABULARY, tokens(100, num_passage), tokens(10, num_question)).tolist()
    question = min(num_question, 10)
    passage = min(num_passage, 40 - 4 - question)
    texts = [list(range(100, 100 + passage)), list(range(10, 10 + question))]
    first, second = texts if order == "passage" else reversed(texts)
    assert found == [BOS, *first, EOS, EOS, *second, EOS] and len(found) <= 40


def test_defaults_are_the_papers():
    layout = ChoiceLayout.with_defaults(512)
    assert layout == ChoiceLayout(max_length=512, question_length=128, order="passage")
    found = layout.join(VOCABULARY, tokens(1000, 900), tokens(2000, 900))
    assert len(found) == 512
    assert found.tolist().index(EOS) == 1 + 512 - 4 - 128
    said = "--max-length 132 leaves no token for the passage: question and option may have 128"
    with pytest.raises(ValueError, match=said):
        ChoiceLayout.with_defaults(132)


def test_accuracies_are_exact_quotients_for_each_level_and_all():
    given = np.array([0, 1, 2, 0, 1, 3, 0])
    labels = np.array([0, 1, 1, 0, 0, 3, 1])
    levels = np.array([0, 0, 0, 1, 1, 1, 1])
    assert accuracies(given, labels, levels) == {
        "accuracy": 100 * 4 / 7,
        "accuracy_middle": 100 * 2 / 3,
        "accuracy_high": 100 * 2 / 4,
    }
    assert accuracies(given, labels, np.full(7, -1)) == {"accuracy": 100 * 4 / 7}
    labels[3:] = -1
    assert accuracies(given, labels, levels) == {"accuracy": 100 * 2 / 3, "accuracy_middle": 100 * 2 / 3}
    assert accuracies(given, np.full(7, -1), levels) == {}


def test_the_answer_is_the_most_probable_option_and_the_first_of_equal_ones():
    chances = np.array([0.2, 0.5, 0.3, 0.5, 0.5])
    assert answers(chances, np.array([0, 3, 5])).tolist() == [1, 0]
