"""fairseq-train's options and data -> average size of an update: sequences, tokens, pairs, predictions.

An update of 32 blocks holds 32 x 512 tokens only where every block is full. Blocks that end with their document, and
pairs of sentences, are shorter: the lengths of the first epoch's blocks are added up. The last update of an epoch takes
the batches that are left, which may be fewer than the ranks and --update-freq ask for.
"""

from __future__ import annotations

import math
from argparse import Namespace
from typing import Any, NamedTuple

import numpy as np

from roberta_plugin.training.arguments import OUR_TASK, to_config

_SAMPLED_BLOCKS = 2**21  # in a larger corpus, this number from the beginning of the first epoch's random order
_BLOCKS_AT_ONCE = 2**17


class UpdateSize(NamedTuple):
    """Means over the updates of an epoch."""

    sequences: float
    tokens: float
    """Without padding."""
    pairs: float
    """Sum of the squared lengths of the sequences: pairs of positions that attend to each other."""
    predicted: float
    tokens_in_epoch: float
    """Tokens in an epoch; 0 if unknown."""

    def times(self, factor: float) -> UpdateSize:
        """The size with `factor` times as many batches in an update."""
        return UpdateSize(
            sequences=self.sequences * factor,
            tokens=self.tokens * factor,
            pairs=self.pairs * factor,
            predicted=self.predicted * factor,
            tokens_in_epoch=self.tokens_in_epoch,
        )


def measured_size(parsed: Namespace, *, num_ranks: int) -> UpdateSize:
    """The size of an update of pretraining, by the batches that the task makes of its data.

    Args:
        parsed: options as `arguments.parse` returns them.
        num_ranks: processes that share an update.

    Raises:
        FileNotFoundError: if the data is not there.
        ValueError: for options that the task refuses.
    """
    from fairseq import tasks

    config = to_config(parsed)
    if parsed.task != OUR_TASK:
        raise ValueError(f"--task {parsed.task}: only batches of --task {OUR_TASK} can be measured.")
    task: Any = tasks.setup_task(config.task)
    task.load_dataset(config.dataset.train_subset, combine=True, epoch=1)
    dataset = task.dataset(config.dataset.train_subset)
    batches = dataset.batches(
        1,
        max_tokens=config.dataset.max_tokens,
        max_sentences=config.dataset.batch_size,
        required_batch_size_multiple=config.dataset.required_batch_size_multiple,
        batches_per_update=num_ranks * int(parsed.update_freq[0]),
    )
    if not len(batches):
        raise ValueError(f"{parsed.data} has no training data: binarize a longer text.")
    order = dataset.order(1)
    sampled = min(len(order), _SAMPLED_BLOCKS)
    num_tokens = num_pairs = 0
    for start in range(0, sampled, _BLOCKS_AT_ONCE):
        addresses = order.addresses(start, min(start + _BLOCKS_AT_ONCE, sampled))
        lengths = dataset.lengths_of(addresses).astype(np.int64)
        num_tokens += int(lengths.sum())
        num_pairs += int((lengths**2).sum())
    sequences = len(order) / len(batches)
    of_batch = UpdateSize(
        sequences=sequences,
        tokens=sequences * num_tokens / sampled,
        pairs=sequences * num_pairs / sampled,
        predicted=parsed.mask_prob * sequences * num_tokens / sampled,
        tokens_in_epoch=len(order) * num_tokens / sampled,
    )
    num_updates = math.ceil(len(batches) / (num_ranks * int(parsed.update_freq[0])))  # the last may have fewer batches
    return of_batch.times(len(batches) / num_updates)


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
