"""Base class of our tasks: fairseq's dictionary, and new batches in every epoch."""

from __future__ import annotations

import logging
import re
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary, iterators
from fairseq.optim import AMPOptimizer
from fairseq.tasks import FairseqTask

from roberta_plugin.data.block_batches import BlockBatches
from roberta_plugin.data.block_dataset import BlockDataset
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.fairseq_import import OwnGroup
from roberta_plugin.fairseq_workarounds import half_precision, stopping
from roberta_plugin.fairseq_workarounds.epoch_iterator import BlockEpochIterator
from roberta_plugin.models.compiling import Compiled
from roberta_plugin.tasks.block_task_checks import (
    check_launch,
    check_start_options,
    check_training_options,
    ignored_options,
    whole_config,
)

logger = logging.getLogger(__name__)

_OF_MEMORY = re.compile(r"allocate memory|out of memory|size calculation overflowed")  # torch's words


class BlockTask(OwnGroup, FairseqTask):  # type: ignore[misc]
    """A task whose datasets are `BlockDataset`s over one vocabulary."""

    announces_stops = True
    """Ranks share stop signals through their logging outputs: see `train_step` and `reduce_metrics`."""

    def __init__(self, cfg: Any, dictionary: Dictionary, vocabulary: Vocabulary) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary
        self.vocabulary = vocabulary
        self._has_warned_of_ignored_options = False
        self._iterators: weakref.WeakSet[BlockEpochIterator] = weakref.WeakSet()
        self.count_updates: Callable[[], int] = int
        """The number of updates of the training; 0 where no training has told the task (`resuming.load_checkpoint`)."""

    @classmethod
    def check_start(cls, cfg: Any) -> None:
        """Refuse options and data that cannot work, before fairseq builds or logs anything.

        Raises:
            OSError: naming the data that are missing.
        """
        check_training_options(cfg)
        check_start_options(cfg)
        cls.check_options(cfg.task)

    def check_limits(self, *, max_positions: int | None, max_tokens: int | None) -> None:
        """Refuse blocks that the model or a batch cannot hold, naming the option."""
        raise NotImplementedError

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model; with --pack-sequences refuse one that would attend across packed sequences."""
        try:
            model = super().build_model(cfg, from_checkpoint)
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and not _OF_MEMORY.search(str(error)):
                raise
            raise ValueError(
                "The model does not fit into this machine's memory: lower --encoder-embed-dim, "
                "--encoder-ffn-embed-dim, "
                f"--encoder-layers or --max-positions. ({str(error).strip().splitlines()[0]:.200})"
            ) from error
        if self.cfg.pack_sequences and not getattr(model, "supports_packing", False):
            raise ValueError(
                f"--pack-sequences needs a model that keeps the sequences of a row apart, and {type(model).__name__} "
                "does not: use --arch fast_roberta_base (or another size of fast_roberta), or drop --pack-sequences."
            )
        return model

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
        """An epoch iterator that makes new batches in every epoch (see `epoch_iterator.py`).

        Each batch carries its epoch to the data-loader workers, which outlive epochs.

        Raises:
            ValueError: if a block can be longer than the model's positions or than --max-tokens, or for an option of
                fairseq with a value that no training can use, or if torchrun started several processes and fairseq's
                world size is 1.
        """
        check_launch(num_shards)
        check_training_options(whole_config(self.cfg))
        self._warn_of_ignored_options()
        self.check_limits(max_positions=max_positions, max_tokens=max_tokens)
        self._end_old_workers()
        # fairseq's update_epoch_batch_itr asks for new batches in every epoch: they are new in any case
        use_cache = not disable_iterator_cache
        if use_cache and dataset in self.dataset_to_epoch_iter:
            return self.dataset_to_epoch_iter[dataset]
        dataset.limit_width(max_tokens=max_tokens, max_sentences=max_sentences)
        iterator = BlockEpochIterator(
            make_batches=partial(
                batches_of_epoch,
                dataset,
                max_tokens=max_tokens,
                max_sentences=max_sentences,
                required_batch_size_multiple=required_batch_size_multiple,
                batches_per_update=lambda epoch: num_shards * self.update_freq(epoch),
            ),
            most_updates=self.updates_left(dataset),
            update_freq=self.update_freq,
            count_updates=lambda: self.count_updates(),
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

    def updates_left(self, dataset: Any) -> int | None:
        """The most updates of an epoch that begins or resumes now; None: all that it has."""
        return None

    def update_freq(self, epoch: int) -> int:
        """Batches of one rank per update in `epoch` (1-based), as fairseq reads --update-freq."""
        values = self.cfg.update_freq
        if isinstance(values, str):  # a task's options outside fairseq's config
            return 1
        return int(values[min(epoch, len(values)) - 1])

    def train_step(
        self, sample: Any, model: Any, criterion: Any, optimizer: Any, *arguments: Any, **options: Any
    ) -> tuple[Any, Any, dict[str, Any]]:
        """fairseq's step with one batch; the logging output also says whether this rank got a stop signal."""
        how = {"update_num": options.get("update_num", 0), "autocasts": isinstance(optimizer, AMPOptimizer)}
        try_compiled(model, criterion, sample, **how)
        half_precision.before_backward(optimizer, model)
        loss, sample_size, logging_output = super().train_step(
            sample, model, criterion, optimizer, *arguments, **options
        )
        return loss, sample_size, stopping.add_stop(logging_output)

    def reduce_metrics(self, logging_outputs: Iterable[Mapping[str, Any]], criterion: Any) -> None:
        """Log the criterion's metrics; take stop signals of any rank from the logging outputs."""
        outputs = list(logging_outputs)
        stopping.note_stop(outputs)
        super().reduce_metrics(outputs, criterion)

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Set the model's epoch, as fairseq's task does."""
        model.set_epoch(epoch)

    @property
    def source_dictionary(self) -> Dictionary:
        """fairseq's own dictionary object, with <mask>; the ids are those of `self.vocabulary`."""
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        """That of the inputs: both share one vocabulary."""
        return self.dictionary


def batches_of_epoch(
    dataset: BlockDataset, epoch: int, first_block: int, *, batches_per_update: Callable[[int], int], **limits: Any
) -> BlockBatches:
    """The batches of all ranks from `first_block` to the end of the epoch."""
    return dataset.batches(epoch, first_block=first_block, batches_per_update=batches_per_update(epoch), **limits)


def try_compiled(model: Any, criterion: Any, sample: Any, *, update_num: int, autocasts: bool) -> None:
    """Before the first update, run a batch forward and backward and keep nothing, if parts of the model are compiled.

    Where the compiler fails on one rank, all ranks go on without it, so that they compute the same.
    """
    while isinstance(getattr(model, "module", None), torch.nn.Module):  # a wrapper, which adds up gradients of ranks
        if "Sharded" in type(model.module).__name__:
            return
        model = model.module
    compiled = getattr(model, "compiled", None)
    if not isinstance(compiled, Compiled) or compiled.is_tried:
        return
    compiled.is_tried = True
    model.train()
    model.set_num_updates(update_num)
    device = next(model.parameters()).device
    if not compiled.has_given_up:
        with torch.autocast(device.type, enabled=autocasts):
            compiled.try_out(lambda: criterion(model, sample)[0], model)
    if not holds_on_all_ranks(not compiled.has_given_up, device):
        compiled.give_up()


def holds_on_all_ranks(answer: bool, device: torch.device) -> bool:
    """Whether it is True on every rank; the answer itself where there is one."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return answer
    answers = torch.tensor(int(answer), device=device)
    torch.distributed.all_reduce(answers, op=torch.distributed.ReduceOp.MIN)
    return bool(answers)


def load_vocabulary(folder: Path) -> tuple[Dictionary, Vocabulary]:
    """Read a folder's dict.txt -> fairseq's dictionary with <mask>, and our vocabulary with the same ids."""
    path = folder / "dict.txt"
    vocabulary = Vocabulary.load(path)
    dictionary = Dictionary.load(str(path))
    dictionary.add_symbol("<mask>")
    assert len(dictionary) == len(vocabulary)
    logger.info(f"vocabulary: {len(vocabulary):,} symbols from {path}")
    return dictionary, vocabulary
