"""Effective batch, number of GPUs -> batch of one GPU and updates to accumulate (`--update-freq`).

The paper's batches (8K sequences) are the same experiment on 1, 8 or 1,024 GPUs: only how they are shared out differs.
Batches are cut from one order of blocks (`tasks/epoch_iterator.py`), so an update sees the same blocks on any number
of GPUs, and 8 GPUs x 32 blocks x 32 accumulated = 8,192 blocks per update. Where the number of GPUs does not divide the
batch, the sizes of the batches differ by one (`data/update_batches.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from roberta_plugin.data.rounding import ceil_div


class BatchPlan(NamedTuple):
    """Sequences of one forward pass on one GPU, and passes per update."""

    per_gpu: int
    update_freq: int


def plan_batch(effective: int, *, num_gpus: int, most_per_gpu: int, may_differ: bool = False) -> BatchPlan:
    """Divide `effective` sequences exactly, with as few accumulated steps as `most_per_gpu` sequences allow.

    Args:
        effective: sequences of an update on all GPUs.
        num_gpus: GPUs that share them.
        most_per_gpu: sequences in a batch of one GPU at most.
        may_differ: whether the sizes of batches may differ by one (--update-sequences of the pretraining task), where
            `num_gpus` does not divide `effective`; the plan then has the larger size.

    Raises:
        ValueError: if `effective` cannot be shared out; names the nearest possible numbers.

    Example:
        plan_batch(8192, num_gpus=16, most_per_gpu=100)  ->  BatchPlan(per_gpu=64, update_freq=8)
        plan_batch(8192, num_gpus=1016, most_per_gpu=32, may_differ=True)  ->  BatchPlan(per_gpu=9, update_freq=1):
        1,016 batches of 8 or 9
    """
    for name, value in (
        ("effective batch", effective),
        ("number of GPUs", num_gpus),
        ("batch of one GPU", most_per_gpu),
    ):
        if value < 1:
            raise ValueError(f"The {name} must be at least 1, got {value}.")
    if effective % num_gpus and may_differ:
        return _plan_different_sizes(effective, num_gpus=num_gpus, most_per_gpu=most_per_gpu)
    if effective % num_gpus:
        below = effective - effective % num_gpus
        batches = " or ".join(f"{batch:,}" for batch in (below, below + num_gpus) if batch)
        fewer = next(count for count in range(num_gpus, 0, -1) if effective % count == 0)
        raise ValueError(
            f"An effective batch of {effective:,} sequences cannot be shared out evenly among {num_gpus} GPUs: take "
            f"{fewer} GPUs, or a batch of {batches} sequences."
        )
    share = effective // num_gpus
    per_gpu = next(size for size in range(min(share, most_per_gpu), 0, -1) if share % size == 0)
    return BatchPlan(per_gpu, share // per_gpu)


def _plan_different_sizes(effective: int, *, num_gpus: int, most_per_gpu: int) -> BatchPlan:
    """The fewest steps in which `most_per_gpu` is not exceeded; from 2 on that leaves no batch empty."""
    update_freq = ceil_div(effective, num_gpus * most_per_gpu)
    num_batches = num_gpus * update_freq
    if num_gpus > effective:
        raise ValueError(
            f"An update of {effective:,} sequences leaves some of {num_gpus} GPUs without any: take {effective:,} GPUs "
            "at most, or a larger batch."
        )
    if num_batches > effective:  # follows from most_per_gpu = 1
        raise ValueError(
            f"An update of {effective:,} sequences cannot be shared out among {num_gpus} GPUs one sequence at a time: "
            "raise --batch-size to 2."
        )
    return BatchPlan(ceil_div(effective, num_batches), update_freq)


def sequences_in_tokens(effective_tokens: int, *, tokens_per_sample: int) -> int:
    """Convert an effective batch from tokens to sequences.

    Raises:
        ValueError: if `effective_tokens` is not a whole number of sequences.
    """
    if effective_tokens < 1 or effective_tokens % tokens_per_sample:
        below = max(1, effective_tokens // tokens_per_sample) * tokens_per_sample
        raise ValueError(
            f"An effective batch of {effective_tokens:,} tokens is not a whole number of sequences of "
            f"--tokens-per-sample {tokens_per_sample} tokens: take {below:,} or {below + tokens_per_sample:,} tokens."
        )
    return effective_tokens // tokens_per_sample
