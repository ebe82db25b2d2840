"""Effective batch, number of GPUs -> batch of one GPU and updates to accumulate (`--update-freq`).

The paper's batches (8K sequences) are the same experiment on 1, 8 or 1,024 GPUs: only how they are shared out differs.
Batches are cut from one order of blocks (`tasks/epoch_iterator.py`), so an update sees the same blocks on any number
of GPUs, and 8 GPUs x 32 blocks x 32 accumulated = 8,192 blocks per update.
"""

from __future__ import annotations

from typing import NamedTuple


class BatchPlan(NamedTuple):
    """What one GPU takes at once, and how many times before an update; in sequences."""

    per_gpu: int
    update_freq: int


def plan_batch(effective: int, *, num_gpus: int, most_per_gpu: int) -> BatchPlan:
    """Share out `effective` sequences: exactly, with as few accumulated steps as `most_per_gpu` sequences allow.

    Raises:
        ValueError: if `effective` is not a multiple of `num_gpus`; names the nearest possible numbers.

    Example:
        plan_batch(8192, num_gpus=16, most_per_gpu=100)  ->  BatchPlan(per_gpu=64, update_freq=8)
    """
    for name, value in (
        ("effective batch", effective),
        ("number of GPUs", num_gpus),
        ("batch of one GPU", most_per_gpu),
    ):
        if value < 1:
            raise ValueError(f"The {name} must be at least 1, got {value}.")
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


def sequences_in_tokens(effective_tokens: int, *, tokens_per_sample: int) -> int:
    """The effective batch in sequences, for one that is given in tokens.

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
