from types import SimpleNamespace

import pytest

from roberta_plugin.demo.mask_filling import MAX_WORDS, choose_clozes, fill
from roberta_plugin.hub import Filling

WORDS = {"method", "returns", "values", "sorted", "list"}
LINES = [f"The method returns the {kind} values of a sorted list." for kind in ("first", "second", "third", "fourth")]


def test_one_known_word_is_masked_in_each_sentence():
    clozes = choose_clozes(LINES, WORDS, count=3)
    assert len(clozes) == 3
    for cloze in clozes:
        assert cloze.text.count("<mask>") == 1
        assert cloze.word in WORDS
        assert cloze.text.replace("<mask>", cloze.word) in LINES
        assert " <mask>" in cloze.text


def test_the_choice_depends_on_the_sentences_alone():
    assert choose_clozes(LINES, WORDS) == choose_clozes(list(reversed(LINES)) + LINES, WORDS)
    assert len({cloze.word for cloze in choose_clozes(LINES * 2, WORDS)}) > 1


@pytest.mark.parametrize(
    "line",
    [
        "The method returns it.",
        "Returns x[0] of the method and some more values of it.",
        "the method returns values and begins without a capital letter here.",
        "The method returns " + "very " * MAX_WORDS + "many values.",
        "Nothing in this whole sentence is among those that are known.",
        "The method returns values. There is a second sentence in this line.",
    ],
)
def test_other_lines_are_left_out(line):
    assert choose_clozes([line], WORDS) == []


class Hub:
    """One token a word; answers with the words of the alphabet's beginning."""

    max_positions = 12
    tokenizer = SimpleNamespace(encode=str.split)

    def encode(self, text):
        return text.split()

    def fill_mask(self, text, topk):
        assert len(text.split()) <= self.max_positions
        return [Filling(text="", probability=0.1, token=f" {word}") for word in "abcdefgh"[:topk]]


def test_sentences_too_long_for_the_model_are_left_out(tmp_path):
    long = "The method returns all of these very many sorted values of a list that is long."
    (tmp_path / "test.txt").write_text("\n".join([*LINES, long]) + "\n")
    answers = fill(Hub(), tmp_path / "test.txt", count=10)
    assert {answer.text.replace("<mask>", answer.word) for answer in answers} == set(LINES)
    assert all(answer.words == ["a", "b", "c", "d", "e"] for answer in answers)
