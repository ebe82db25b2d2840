"""Equal compute: updates at an equal budget, and rules of the learning rate, beside the paper's Table 3."""

import pytest

from roberta_plugin.planner.equal_compute import equal_updates, scaled_rate

PAPER_TABLE_3 = ((256, 1_000_000, 1e-4), (2048, 125_000, 7e-4), (8192, 31_250, 1e-3))  # the paper writes 1M, 125K, 31K


def test_table_3_has_equal_sequences():
    for batch_size, num_updates, _ in PAPER_TABLE_3:
        assert equal_updates(256 * 1_000_000, of_update=batch_size) == num_updates


def test_shorter_sequences_get_more_updates_and_at_least_one():
    assert equal_updates(256 * 512 * 1_000_000, of_update=256 * 55) == 9_309_091
    assert equal_updates(6e18, of_update=3e12) == 2_000_000
    assert equal_updates(10, of_update=1000) == 1


def test_learning_rates_follow_their_rule():
    assert scaled_rate(1e-4, 256, 1024, rule="sqrt") == pytest.approx(2e-4)
    assert scaled_rate(1e-4, 256, 1024, rule="linear") == pytest.approx(4e-4)
    with pytest.raises(ValueError, match="sqrt or linear, got 'cube'"):
        scaled_rate(1e-4, 256, 1024, rule="cube")


def test_the_paper_s_learning_rate_for_2k_lies_between_the_rules():
    (small, _, rate), (large, _, chosen), _ = PAPER_TABLE_3
    assert scaled_rate(rate, small, large, rule="sqrt") < chosen < scaled_rate(rate, small, large, rule="linear")
