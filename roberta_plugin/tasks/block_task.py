"""What our tasks have in common: fairseq's dictionary, and batches that are made anew for every epoch."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary, iterators
from fairseq.tasks import FairseqTask

from roberta_plugin.data.block_batches import BlockBatches
from roberta_plugin.data.block_dataset import BlockDataset
from roberta_plugin.data.vocabulary import Vocabulary

from .epoch_iterator import BlockEpochIterator

logger = logging.getLogger(__name__)


class BlockTask(FairseqTask):  # type: ignore[misc]
    """A task whose datasets are `BlockDataset`s over one vocabulary."""

    def __init__(self, cfg: Any, dictionary: Dictionary, vocabulary: Vocabulary) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary
        self.vocabulary = vocabulary

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
        """
        self.check_limits(max_positions=max_positions, max_tokens=max_tokens)
        use_cache = not (disable_iterator_cache or update_epoch_batch_itr)
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
        return iterator

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


def load_vocabulary(folder: Path) -> tuple[Dictionary, Vocabulary]:
    """fairseq's dictionary with <mask>, and our vocabulary, of the dict.txt in a folder."""
    path = folder / "dict.txt"
    vocabulary = Vocabulary.load(path)
    dictionary = Dictionary.load(str(path))
    dictionary.add_symbol("<mask>")
    assert len(dictionary) == len(vocabulary)
    logger.info(f"vocabulary: {len(vocabulary):,} symbols from {path}")
    return dictionary, vocabulary
