"""fairseq-train's options and their data -> what an update holds on average: sequences, tokens, pairs, predictions.

An update of 32 blocks holds 32 x 512 tokens only where every block is full. Blocks that end with their document, and
pairs of sentences, are shorter: their batches are measured, on a sample of the batches of the first epoch.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any, NamedTuple

import numpy as np

from roberta_plugin.training.arguments import OUR_TASK, to_config

_SAMPLED = 48  # batches: of blocks of a hundred tokens and more the mean is then known within a few thousandths
_SAMPLED_TOKENS = 4_000_000  # enough of them, where a batch is large


class UpdateSize(NamedTuple):
    """Means over the updates of an epoch."""

    sequences: float
    tokens: float
    """Padding left out."""
    pairs: float
    """Sum of the squared lengths of the sequences: pairs of positions that attend to each other."""
    predicted: float
    tokens_in_epoch: float
    """Tokens in an epoch; 0 if unknown."""

    def times(self, factor: float) -> UpdateSize:
        """The same for `factor` times as many batches in an update."""
        means = (self.sequences, self.tokens, self.pairs, self.predicted)
        return UpdateSize(*(value * factor for value in means), self.tokens_in_epoch)


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
    )
    if not len(batches):
        raise ValueError(f"{parsed.data} has no training data: binarize a longer text.")
    sums, num_sampled = np.zeros(4), 0
    # The last batch of an epoch is smaller and seldom: the sample is taken before it, where there is one before it.
    for number in np.random.default_rng(0).permutation(max(1, len(batches) - 1))[:_SAMPLED].tolist():
        arrays = dataset.make_batch(batches[number].passes, batches[number].indices)
        sums += [arrays["nsentences"], arrays["ntokens"], arrays["npairs"], arrays["predicted"]["number"]]
        num_sampled += 1
        if sums[1] > _SAMPLED_TOKENS:
            break
    means = sums / num_sampled
    of_batch = UpdateSize(*means.tolist(), tokens_in_epoch=float(means[1] * len(batches)))
    return of_batch.times(num_ranks * int(parsed.update_freq[0]))


def nominal_size(parsed: Namespace, *, num_ranks: int) -> UpdateSize:
    """The size of an update of full blocks, for data that is not here.

    Raises:
        ValueError: without --batch-size.
    """
    if not parsed.batch_size:
        raise ValueError("--batch-size is missing, and the data is not here to measure batches of --max-tokens.")
    length, count = parsed.tokens_per_sample, float(parsed.batch_size)
    tokens = count * length
    return UpdateSize(count, tokens, tokens * length, parsed.mask_prob * tokens, 0.0).times(
        num_ranks * int(parsed.update_freq[0])
    )
