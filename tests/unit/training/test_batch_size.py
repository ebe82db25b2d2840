"""The effective batch is the same on any number of GPUs that can share it."""

import re

import pytest

from roberta_plugin.training.batch_size import plan_batch, sequences_in_tokens


@pytest.mark.parametrize(
    ("num_gpus", "most", "expected"),
    [
        (1, 32, (32, 256)),
        (8, 32, (32, 32)),
        (1024, 32, (8, 1)),
        (8, 24, (16, 64)),
        (256, 32, (32, 1)),
        (8192, 32, (1, 1)),
    ],
)
def test_the_papers_batch_is_shared_out_exactly(num_gpus, most, expected):
    plan = plan_batch(8192, num_gpus=num_gpus, most_per_gpu=most)
    assert plan == expected
    assert plan.per_gpu * plan.update_freq * num_gpus == 8192


def test_no_other_share_needs_fewer_steps():
    for effective in range(6, 300, 6):
        for most in range(1, 20):
            plan = plan_batch(effective, num_gpus=6, most_per_gpu=most)
            assert plan.per_gpu <= most
            assert plan.per_gpu * plan.update_freq * 6 == effective
            better = [size for size in range(plan.per_gpu + 1, most + 1) if (effective // 6) % size == 0]
            assert not better


def test_a_batch_that_cannot_be_shared_names_the_ways_out():
    with pytest.raises(
        ValueError, match=re.escape("8,192 sequences cannot be shared out evenly among 3 GPUs")
    ) as caught:
        plan_batch(8192, num_gpus=3, most_per_gpu=32)
    assert "take 2 GPUs" in str(caught.value)
    assert "8,190 or 8,193 sequences" in str(caught.value)


@pytest.mark.parametrize("values", [{"num_gpus": 0, "most_per_gpu": 4}, {"num_gpus": 2, "most_per_gpu": 0}])
def test_numbers_below_one_are_refused(values):
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        plan_batch(8, **values)


def test_tokens_are_whole_sequences():
    assert sequences_in_tokens(2**20, tokens_per_sample=512) == 2048
    with pytest.raises(ValueError, match=re.escape("take 999,936 or 1,000,448 tokens")):
        sequences_in_tokens(1_000_000, tokens_per_sample=512)
