"""What our tasks have in common: fairseq's dictionary, and batches that are made anew for every epoch."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary, iterators
from fairseq.tasks import FairseqTask

from roberta_plugin.data.block_batches import BlockBatches
from roberta_plugin.data.block_dataset import BlockDataset
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.fairseq_workarounds import gradient_sums, interruption
from roberta_plugin.tasks.epoch_iterator import BlockEpochIterator
from roberta_plugin.tasks.ignored_options import ignored_options

logger = logging.getLogger(__name__)


class BlockTask(FairseqTask):  # type: ignore[misc]
    """A task whose datasets are `BlockDataset`s over one vocabulary."""

    announces_stops = True
    """All ranks hear when one of them has got a signal to stop: see `train_step` and `reduce_metrics`."""

    def __init__(self, cfg: Any, dictionary: Dictionary, vocabulary: Vocabulary) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary
        self.vocabulary = vocabulary
        self._has_warned_of_ignored_options = False
        self._iterators: weakref.WeakSet[BlockEpochIterator] = weakref.WeakSet()

    def check_limits(self, *, max_positions: int | None, max_tokens: int | None) -> None:
        """Refuse blocks that the model or a batch cannot hold, naming the option."""
        raise NotImplementedError

    def get_batch_iterator(
        self,
        dataset: Any,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        max_positions: int | None = None,
        ignore_invalid_inputs: bool = False,
        required_batch_size_multiple: int = 1,
        seed: int = 1,
        num_shards: int = 1,
        shard_id: int = 0,
        num_workers: int = 0,
        epoch: int = 1,
        data_buffer_size: int = 0,
        disable_iterator_cache: bool = False,
        skip_remainder_batch: bool = False,
        grouped_shuffling: bool = False,
        update_epoch_batch_itr: bool = False,
    ) -> iterators.EpochBatchIterating:
        """fairseq's epoch iterator over batches that are made anew for every epoch.

        fairseq freezes the batches of the first epoch and shuffles only their order; here the batches are a function
        of (seed, epoch), and each carries its epoch to the data-loader workers, which outlive epochs.

        Raises:
            ValueError: if a block can be longer than the model's positions or than --max-tokens.
            RuntimeError: if torchrun has started several processes, and fairseq trains alone in each.
        """
        check_launch(num_shards)
        self._warn_of_ignored_options()
        self.check_limits(max_positions=max_positions, max_tokens=max_tokens)
        self._end_old_workers()
        # fairseq's update_epoch_batch_itr wants new batches in every epoch, which there are anyhow
        use_cache = not disable_iterator_cache
        if use_cache and dataset in self.dataset_to_epoch_iter:
            return self.dataset_to_epoch_iter[dataset]
        iterator = BlockEpochIterator(
            make_batches=partial(
                batches_of_epoch,
                dataset,
                max_tokens=max_tokens,
                max_sentences=max_sentences,
                required_batch_size_multiple=required_batch_size_multiple,
            ),
            update_freq=self.update_freq,
            equal_shares=lambda: str(self.cfg.ddp_backend) == "fully_sharded",
            dataset=dataset,
            collate_fn=dataset.collater,
            seed=seed,
            num_shards=num_shards,
            shard_id=shard_id,
            num_workers=num_workers,
            epoch=epoch,
            buffer_size=data_buffer_size,
            skip_remainder_batch=skip_remainder_batch,
            grouped_shuffling=grouped_shuffling,
        )
        if use_cache:
            self.dataset_to_epoch_iter[dataset] = iterator
        self._iterators.add(iterator)
        return iterator

    def _warn_of_ignored_options(self) -> None:
        if not self._has_warned_of_ignored_options:
            self._has_warned_of_ignored_options = True
            for sentence in ignored_options(self.cfg):
                logger.warning(sentence)

    def _end_old_workers(self) -> None:
        for iterator in list(self._iterators):
            if not any(iterator.dataset is dataset for dataset in self.datasets.values()):
                iterator.close()
                self._iterators.discard(iterator)
                self.dataset_to_epoch_iter.pop(iterator.dataset, None)

    def update_freq(self, epoch: int) -> int:
        """Batches of one rank that make up an update of the epoch (1-based), as fairseq reads --update-freq."""
        values = self.cfg.update_freq
        if isinstance(values, str):  # options of a task by itself, outside fairseq's config
            return 1
        return int(values[min(epoch, len(values)) - 1])

    def train_step(
        self, sample: Any, model: Any, criterion: Any, optimizer: Any, *arguments: Any, **options: Any
    ) -> tuple[Any, Any, dict[str, Any]]:
        """fairseq's step with one batch: loss, sample size and logging output."""
        gradient_sums.before_backward(optimizer, model)
        loss, sample_size, logging_output = super().train_step(
            sample, model, criterion, optimizer, *arguments, **options
        )
        return loss, sample_size, interruption.announce(logging_output)

    def reduce_metrics(self, logging_outputs: Iterable[Mapping[str, Any]], criterion: Any) -> None:
        """Log what the criterion logs of an update, from the logging outputs of all ranks."""
        outputs = list(logging_outputs)
        interruption.hear(outputs)
        super().reduce_metrics(outputs, criterion)

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Tell the model the epoch, as fairseq's task does."""
        model.set_epoch(epoch)

    @property
    def source_dictionary(self) -> Dictionary:
        """fairseq's own dictionary object, with <mask>; the ids are those of `self.vocabulary`."""
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        """The same dictionary: inputs and targets share one vocabulary."""
        return self.dictionary


def batches_of_epoch(dataset: BlockDataset, epoch: int, first_block: int, **limits: Any) -> BlockBatches:
    """What the epoch iterator asks for: the batches of all ranks, from a block of the epoch on."""
    return dataset.batches(epoch, first_block=first_block, **limits)


def check_launch(num_shards: int) -> None:
    """Refuse several processes of torchrun that would each train all by itself, into the same files."""
    world_size = os.environ.get("WORLD_SIZE", "1")
    if "TORCHELASTIC_RUN_ID" in os.environ and world_size != "1" and num_shards == 1:
        raise RuntimeError(
            f"torchrun has started {world_size} processes, and fairseq trains alone in each of them, for its world "
            f"size is 1: give --distributed-world-size {world_size} where each process has a GPU. On CPUs start the "
            "ranks without torchrun, as examples/README.pretraining.md says."
        )


def load_vocabulary(folder: Path) -> tuple[Dictionary, Vocabulary]:
    """fairseq's dictionary with <mask>, and our vocabulary, of the dict.txt in a folder."""
    path = folder / "dict.txt"
    vocabulary = Vocabulary.load(path)
    dictionary = Dictionary.load(str(path))
    dictionary.add_symbol("<mask>")
    assert len(dictionary) == len(vocabulary)
    logger.info(f"vocabulary: {len(vocabulary):,} symbols from {path}")
    return dictionary, vocabulary
