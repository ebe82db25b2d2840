"""Thresholds and temperatures are given, or found on the development set, by every kind."""

import pytest

from roberta_plugin.finetuning.kinds import KINDS, kind_class
from roberta_plugin.finetuning.kinds.outputs import NUMBERS, Decisions


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
    assert set(kind_class(name).decides_by) == set(KINDS[name].options) & set(NUMBERS)
