"""Pairs of variants as pingouin compares them, another implementation of Games and Howell 1976."""

import json

import pytest

from roberta_plugin.experiments.studies.statistics import compare
from tests.parity.pingouin_results import FILE


@pytest.mark.parametrize("case", json.loads(FILE.read_text()), ids=lambda case: f"{len(case['samples'])} samples")
def test_pairs_are_pingouins(case):
    pairs = compare(case["samples"]).pairs
    assert len(pairs) == len(case["pairs"])
    for pair, (difference, p) in zip(pairs, case["pairs"], strict=True):
        assert pair.difference == pytest.approx(difference, rel=1e-9, abs=1e-12)
        assert pair.p == pytest.approx(p, rel=1e-5, abs=1e-9)
        assert (pair.low <= 0 <= pair.high) == (p > 0.05)
