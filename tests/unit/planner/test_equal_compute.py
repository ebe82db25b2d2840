"""Equal compute: the paper's Table 3, rules of the learning rate, and unequal comparisons refused."""

import pytest

from roberta_plugin.planner.equal_compute import (
    PAPER_TABLE_3,
    batch_points,
    check_equal_tokens,
    equal_flops,
    equal_tokens,
    equal_updates,
    scaled_rate,
)


def test_table_3_has_equal_sequences():
    points = batch_points(
        [size for size, _, _ in PAPER_TABLE_3],
        num_updates=1_000_000,
        learning_rate=1e-4,
        batch_of_device=16,
        num_devices=8,
        learning_rates=[rate for _, _, rate in PAPER_TABLE_3],
    )
    assert [(point.batch_size, point.num_updates, point.learning_rate) for point in points] == list(PAPER_TABLE_3)
    assert [point.update_freq for point in points] == [2, 16, 64]
    assert {point.num_tokens for point in points} == {256 * 512 * 1_000_000}
    check_equal_tokens({str(point.batch_size): point.num_tokens for point in points})


def test_learning_rates_follow_their_rule():
    assert scaled_rate(1e-4, 256, 1024, rule="sqrt") == pytest.approx(2e-4)
    assert scaled_rate(1e-4, 256, 1024, rule="linear") == pytest.approx(4e-4)
    assert scaled_rate(1e-4, 256, 1024, rule="same") == 1e-4
    # The paper's choice for 2K lies between the two rules.
    assert scaled_rate(1e-4, 256, 2048, rule="sqrt") < 7e-4 < scaled_rate(1e-4, 256, 2048, rule="linear")
    with pytest.raises(ValueError, match="sqrt, linear or same, got 'cube'"):
        scaled_rate(1e-4, 256, 1024, rule="cube")


def test_updates_at_equal_tokens_and_flops():
    assert equal_tokens(256 * 512 * 1_000_000, tokens_in_update=256 * 55) == 9_309_091
    assert equal_flops(6e18, flops_of_update=3e12) == 2_000_000
    assert equal_updates(1_000_000, 256, 8192) == 31_250


def test_what_is_not_equal_is_refused():
    with pytest.raises(ValueError, match="not a multiple of 8,192"):
        equal_updates(1000, 256, 8192)
    with pytest.raises(ValueError, match="not a multiple of the 96 that 3 devices"):
        batch_points([256], num_updates=10, learning_rate=1e-4, batch_of_device=32, num_devices=3)
    with pytest.raises(ValueError, match="2 learning rates for 1 batch sizes"):
        batch_points([256], num_updates=10, learning_rate=1e-4, batch_of_device=32, learning_rates=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"long sees 1,100 and short 1,000"):
        check_equal_tokens({"short": 1000, "long": 1100})
    check_equal_tokens({"short": 1000, "long": 1005})
