"""Cells with several values or a number are read in the notations that programs write, and nothing else is guessed."""

import json
import math
from decimal import Decimal

import numpy as np
import pytest
import torch

from roberta_plugin.finetuning.records import flag_in, flags_in, literal, number_in, texts_in, values_in

WORDS = ["it's", 'a "b"', "c, d", "\u092e"]
ARRAY = np.array(WORDS)
OF_ARRAY = list(ARRAY)


@pytest.mark.parametrize("write", [str, json.dumps, repr, lambda each: str(tuple(each)), lambda each: str(set(each))])
def test_lists_of_json_and_python_are_lists(write):
    assert sorted(values_in(write(WORDS), separator=",")) == sorted(WORDS) == sorted(values_in(write(WORDS)))
    assert values_in(write(["a"]), separator=",") == ["a"]
    assert values_in(write([0, 1.5, True, None])) is not None


@pytest.mark.parametrize("write", [str, repr])
def test_arrays_of_numpy_are_lists(write):
    for words in (ARRAY, ARRAY.astype(object), OF_ARRAY, np.array(["x" * 50] * 9)):
        assert values_in(write(words), separator=",") == list(words)
    for numbers in (np.array([0, 1, 0]), np.array([1.0, 0.0]), list(np.array([3, 4])), np.array([1, 0], dtype=np.int8)):
        assert values_in(write(numbers)) == list(numbers)
    assert values_in(write(np.array([True, False]))) == [True, False]
    squad = {"text": np.array(["a b"], dtype=object), "answer_start": np.array([515], dtype=np.int32)}
    assert literal(write(squad)) == {"text": ["a b"], "answer_start": [515]}


def test_what_is_no_list_is_divided_or_refused_and_never_called():
    assert values_in(" a, b c ,", separator=",") == ["a", "b c"] and values_in("a;b", separator=";") == ["a", "b"]
    assert values_in("(a), (b)", separator=",") == ["(a)", "(b)"] and values_in('"a, b"', separator=",") == ["a", "b"]
    assert values_in("[]", separator=",") == [] and values_in("a, b") is None and values_in(7, separator=",") is None
    for text in (
        "[a, b]",
        "{a,b}",
        "[1-2]",
        "[0 1 ... 0]",
        "{'a': 1}",
        "[f'a']",
        "[open('x')]",
        "[" * 9999 + "]" * 9999,
    ):
        with pytest.raises(
            ValueError, match=r'is no list in the notation of JSON or Python\. Write \["one", "two"\], or'
        ):
            values_in(text, separator=",")
    assert texts_in("['a', 'b']") == ["a", "b"] and texts_in("[1, 2]") is None and texts_in("[Music]") is None


def test_a_separator_within_brackets_cuts_nothing():
    """Neither lists as torch, pandas and R write them, nor labels with a comma."""
    written = (str(torch.tensor([0, 1, 0])), "Index(['a', 'b'], dtype='object')", 'c("a", "b")', "(a, b)")
    for text in (*written, "Food, Sports (football, tennis)"):
        with pytest.raises(
            ValueError, match=r'^"," cuts .* within brackets\. Write a list .*: \["one", "two \(a, b\)"\]'
        ):
            values_in(text, separator=",")
        assert len(values_in(text, separator=";")) == 1
    for text in ("a), b)", ":), :(", "f(x), [y]"):
        assert values_in(text, separator=",") == text.split(", ")


def test_numbers_are_those_of_json_and_nothing_is_guessed():
    known = {"1e-3": 1e-3, " -2 ": -2, ".5": 0.5, "5.": 5, 1: 1, 1.5: 1.5, Decimal("2.5"): 2.5, "+3E2": 300}
    assert {text: number_in(text) for text in known} == known
    others = (
        "1,5",
        "1.234,5",
        "1_000",
        "nan",
        "inf",
        "50%",
        "\u0661",
        "0x1",
        "",
        "1 2",
        "1e999",
        10**400,
        True,
        None,
        [1],
    )
    assert all(math.isnan(number_in(text)) for text in others)


def test_yes_and_no_are_read_alike_from_every_program():
    assert [flag_in(value) for value in (True, 1, 1.0, "1", "1.0", "True", "true ")] == [True] * 7
    assert [flag_in(value) for value in (False, 0, "0.0", "FALSE")] == [False] * 4
    assert [flag_in(value) for value in ("yes", 2, None, "")] == [None] * 4
    assert flags_in(["0", "1.0", True]) == [False, True, True] and flags_in(["1"]) is None and flags_in([0, 2]) is None
