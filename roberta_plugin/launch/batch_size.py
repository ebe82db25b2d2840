"""The batch of an update: how it is shared out among GPUs, and its average size in sequences, tokens and predictions.

The paper's batches (8K sequences) are the same experiment on 1, 8 or 1,024 GPUs: only how they are shared out differs.
Batches are cut from one order of blocks (`fairseq_workarounds/epoch_iterator.py`), so an update sees the same blocks on
any number of GPUs, and 8 GPUs x 32 blocks x 32 accumulated = 8,192 blocks per update. Where the number of GPUs does not
divide the batch, the sizes of the batches differ by one (`data/block_batches.py`).

An update of 32 blocks holds 32 x 512 tokens only where every block is full. Blocks that end with their document, and
pairs of sentences, are shorter: the lengths of the first epoch's blocks are added up. The last update of an epoch takes
the batches that are left, which may be fewer than the ranks and --update-freq ask for.
"""

from __future__ import annotations

import math
from argparse import Namespace
from typing import Any, NamedTuple

import numpy as np

from roberta_plugin.data.rounding import ceil_div
from roberta_plugin.launch.arguments import OUR_TASK, to_config

_SAMPLED_BLOCKS = 2**21  # in a larger corpus, this number from the beginning of the first epoch's random order
_BLOCKS_AT_ONCE = 2**17


class BatchPlan(NamedTuple):
    """Sequences of one forward pass on one GPU, and passes per update."""

    per_gpu: int
    update_freq: int


def plan_batch(effective: int, *, num_gpus: int, most_per_gpu: int, may_differ: bool = False) -> BatchPlan:
    """Divide `effective` sequences exactly, with as few accumulated steps as `most_per_gpu` sequences allow.

    With `may_differ`, the sizes of batches differ by one (--update-sequences of the pretraining task) where `num_gpus`
    does not divide `effective`; the plan then has the larger size.

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


class UpdateSize(NamedTuple):
    """Means over the updates of an epoch."""

    sequences: float
    tokens: float  # without padding
    pairs: float  # sum of the squared lengths of the sequences: pairs of positions that attend to each other
    predicted: float
    tokens_in_epoch: float  # tokens in an epoch; 0 if unknown


def task_of(parsed: Namespace) -> tuple[Any, Any]:
    """The pretraining task of the options, whose batches can be measured, and fairseq's configuration of them.

    Raises:
        ValueError: for options that the task refuses.
    """
    from fairseq import tasks

    config = to_config(parsed)
    if parsed.task != OUR_TASK:
        raise ValueError(f"--task {parsed.task}: only batches of --task {OUR_TASK} can be measured.")
    return tasks.setup_task(config.task), config


def measured_size(task: Any, config: Any, split: str, *, num_ranks: int) -> UpdateSize:
    """The size of an update of training on a split, by the batches that the task (`task_of`) makes of its data.

    Raises:
        ValueError: if the data have no batch.
    """
    task.load_dataset(split, combine=True, epoch=1)
    dataset = task.dataset(split)
    batches_per_update = num_ranks * int(config.optimization.update_freq[0])
    batches = dataset.batches(
        1,
        max_tokens=config.dataset.max_tokens,
        max_sentences=config.dataset.batch_size,
        required_batch_size_multiple=config.dataset.required_batch_size_multiple,
        batches_per_update=batches_per_update,
    )
    if not len(batches):
        raise ValueError(f"{config.task.data} has no training data: binarize a longer text.")
    order = dataset.order(1)
    sampled = min(len(order), _SAMPLED_BLOCKS)
    num_tokens = num_pairs = 0
    for start in range(0, sampled, _BLOCKS_AT_ONCE):
        addresses = order.addresses(start, min(start + _BLOCKS_AT_ONCE, sampled))
        lengths = dataset.lengths_of(addresses).astype(np.int64)
        num_tokens += int(lengths.sum())
        num_pairs += int((lengths**2).sum())
    num_updates = math.ceil(len(batches) / batches_per_update)  # the last may have fewer batches
    sequences = len(order) / num_updates
    return UpdateSize(
        sequences=sequences,
        tokens=sequences * num_tokens / sampled,
        pairs=sequences * num_pairs / sampled,
        predicted=config.task.mask_prob * sequences * num_tokens / sampled,
        tokens_in_epoch=len(order) * num_tokens / sampled,
    )


def nominal_size(parsed: Namespace, *, num_ranks: int) -> UpdateSize:
    """The size of an update of full blocks, for data on another machine.

    Raises:
        ValueError: without --batch-size and --max-tokens.
    """
    length = parsed.tokens_per_sample
    limits = [parsed.batch_size, parsed.max_tokens and parsed.max_tokens // length]
    if not any(limits):
        raise ValueError("The batch size is missing: give --batch-size, --max-tokens or both.")
    count = float(min(limit for limit in limits if limit))
    count *= num_ranks * int(parsed.update_freq[0])
    count = getattr(parsed, "update_sequences", None) or count
    tokens = count * length
    return UpdateSize(count, tokens, tokens * length, parsed.mask_prob * tokens, 0.0)
