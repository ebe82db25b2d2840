"""Base class of our tasks: fairseq's dictionary, new batches in every epoch, and fairseq's own options checked.

Values that no training can use are refused; a warning names options that have no effect on our tasks.
"""

from __future__ import annotations

import logging
import os
import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
from roberta_plugin.fairseq_workarounds.option_limits import check_limits, check_schedule
from roberta_plugin.models.compiling import Compiled
from roberta_plugin.optim.stages import parse

logger = logging.getLogger(__name__)

_FAIRSEQS_LR = 0.25
_OF_MEMORY = re.compile(r"allocate memory|out of memory|size calculation overflowed")  # torch's words


def check_training_options(cfg: Any) -> None:
    """Refuse values that no training can use.

    `cfg` may be the namespace of its command line, which has no sections.
    """
    check_limits(cfg)
    common = getattr(cfg, "common", cfg)
    switches = [
        name
        for name in ("cpu", "fp16", "fp16_no_flatten_grads", "memory_efficient_fp16")
        if getattr(common, name, None) is True
    ]
    if switches == ["cpu", "fp16"]:
        raise ValueError(
            "--fp16 does not work with --cpu, because fairseq collects the gradients on a GPU: give --bf16 instead, or "
            "--fp16-no-flatten-grads as well."
        )


def check_start_options(cfg: Any) -> None:
    """Refuse a training without options that fairseq does not insist on; its other programs need none of them."""
    if list(getattr(getattr(cfg, "optimization", cfg), "lr", None) or []) == [_FAIRSEQS_LR]:
        raise ValueError(
            f"--lr is missing, or is fairseq's default of {_FAIRSEQS_LR}, at which nothing is learned: give the peak "
            "learning rate, such as --lr 0.0005 for pretraining or --lr 0.00002 for fine-tuning."
        )
    check_schedule(cfg)
    dataset = getattr(cfg, "dataset", cfg)
    if dataset.max_tokens is None and dataset.batch_size is None:
        raise ValueError("The batch size is missing: give --batch-size, --max-tokens or both.")


class NoEffect(NamedTuple):
    """An option of fairseq's config, the values that change nothing anyway, and why the others have no effect."""

    section: str
    name: str
    harmless: Sequence[Any]
    reason: str


_WARM_UPS = "warmup_updates", "warmup_steps"  # tri_stage has the second
_DEFAULT_MULTIPLE = 8  # fairseq's default of --required-batch-size-multiple
_BY_VALIDATION = "patience", "keep_best_checkpoints"
_SMALLER_IS_BETTER = re.compile(r"ppl|(\w+_)?loss")
_LARGER_IS_BETTER = re.compile(r"(\w+_)?accuracy|f1|macro_f1|mcc")
_ORDER = "the order of an epoch's batches is a function of --seed and the epoch"
IGNORED = (
    NoEffect("dataset", "curriculum", (0,), f"{_ORDER}, the first epochs included"),
    NoEffect("dataset", "grouped_shuffling", (False,), f"{_ORDER}, and the GPUs of an update already get "
            "neighbouring batches, which are of similar length"),
    NoEffect("dataset", "update_ordered_indices_seed", (False,), f"{_ORDER}, so it already differs between epochs"),
    NoEffect("distributed_training", "fix_batches_to_gpus", (False,), "every epoch has new batches, and each rank "
            "reads what it needs from the memory-mapped file"),
    NoEffect("dataset", "dataset_impl", (None, "mmap"), "only mmap data can be read: binarize with `roberta binarize` "
            "or with `fairseq-preprocess --dataset-impl mmap`"),
    NoEffect("dataset", "required_seq_len_multiple", (1,), "use --pad-to-multiple"),
    NoEffect("dataset", "skip_invalid_size_inputs_valid_test", (False,), "no input is skipped: long lines are split "
            "into blocks, and blocks that the model cannot hold are refused"),
)  # fmt: skip


def ignored_options(cfg: Any) -> list[str]:
    """Warnings about options that are set in fairseq's configuration and have no effect.

    None if the task's part of it stands alone.
    """
    root = whole_config(cfg)
    texts = []
    for option in IGNORED:
        value = getattr(getattr(root, option.section, None), option.name, None)
        if value is not None and value not in option.harmless:
            texts.append(f"--{option.name.replace('_', '-')} {value} has no effect: {option.reason}")
    dataset = getattr(root, "dataset", None)
    multiple, batch_size = (getattr(dataset, name, None) for name in ("required_batch_size_multiple", "batch_size"))
    if multiple not in (None, _DEFAULT_MULTIPLE) and batch_size and batch_size > multiple and batch_size % multiple:
        texts.append(
            f"--required-batch-size-multiple {multiple} has no effect on --batch-size {batch_size}: only batches "
            "limited by --max-tokens are rounded"
        )
    if getattr(getattr(root, "optimization", None), "sentence_avg", False):
        criterion = getattr(getattr(root, "criterion", None), "_name", None)
        if criterion in ("roberta_masked_lm", "masked_lm"):
            texts.append(f"--sentence-avg has no effect on {criterion}: its loss is a mean over the predicted tokens")
    return [*texts, *unmade_decisions(root), *unreached_rates(root)]


def unmade_decisions(cfg: Any) -> list[str]:
    """Warnings about options that decide by validations where there are none, or by the wrong end of a metric."""
    checkpoint = getattr(cfg, "checkpoint", None)
    if getattr(getattr(cfg, "dataset", None), "disable_validation", False):
        decisions = {f"--{name.replace('_', '-')}": getattr(checkpoint, name, 0) > 0 for name in _BY_VALIDATION}
        schedule = getattr(getattr(cfg, "lr_scheduler", None), "_name", None)
        decisions["--lr-scheduler reduce_lr_on_plateau"] = schedule == "reduce_lr_on_plateau"
        return [
            f"{option} has no effect: it decides by validations, and --disable-validation leaves them out"
            for option, is_given in decisions.items()
            if is_given
        ]
    metric, is_maximized = (getattr(checkpoint, f"{name}best_checkpoint_metric", None) for name in ("", "maximize_"))
    if _SMALLER_IS_BETTER.fullmatch(str(metric)) and is_maximized:
        return [f"the worst checkpoint is kept as the best: leave out --maximize-best-checkpoint-metric for {metric}"]
    if _LARGER_IS_BETTER.fullmatch(str(metric)) and is_maximized is False:
        return [f"the worst checkpoint is kept as the best: give --maximize-best-checkpoint-metric for {metric}"]
    return []


def unreached_rates(cfg: Any) -> list[str]:
    """A warning if the training ends within its warm-up, which a first part of a longer training may, or if it goes on
    when its rate has fallen to 0."""
    scheduler, last = getattr(cfg, "lr_scheduler", None), getattr(getattr(cfg, "optimization", None), "max_update", 0)
    warm_up = peak_update(scheduler)
    schedule = getattr(scheduler, "total_num_update", None) or 0
    for end, option in ((schedule, "--total-num-update"), (last or 0, "--max-update")):
        if 0 < end < warm_up:
            return [f"--lr is never reached: the warm-up ends at update {warm_up:g}, and {option} is {end:g}"]
    if 0 < schedule < (last or 0) and getattr(scheduler, "end_learning_rate", None) == 0:
        return [
            f"nothing is learned after update {schedule:g}, where the learning rate is 0, and --max-update is {last}: "
            f"give --total-num-update {last} as well"
        ]
    return []


def peak_update(scheduler: Any) -> float:
    """The update at which the warm-up of a schedule ends: any of fairseq's, or linear_stages; 0 without one."""
    if stages := getattr(scheduler, "lr_stages", None):
        return float(max(parse(stages), key=lambda point: point.share).update)
    steps = next((number for name in _WARM_UPS if (number := getattr(scheduler, name, None))), 0)
    return float(steps)


def token_limit_name(cfg: Any, max_tokens: int) -> str:
    """Name of the option that set `max_tokens`: validation may have its own limit."""
    dataset = getattr(whole_config(cfg), "dataset", None)
    of_training, of_validation = (getattr(dataset, name, None) for name in ("max_tokens", "max_tokens_valid"))
    return "--max-tokens-valid" if max_tokens == of_validation != of_training else "--max-tokens"


def whole_config(cfg: Any) -> Any:
    """fairseq's whole configuration, of which `cfg` is a part; `cfg` itself if it is not an omegaconf node."""
    return cfg._get_root() if hasattr(cfg, "_get_root") else cfg


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


def check_launch(num_shards: int) -> None:
    """Refuse processes of torchrun that would each train alone and write the same files."""
    world_size = os.environ.get("WORLD_SIZE", "1")
    if "TORCHELASTIC_RUN_ID" in os.environ and world_size != "1" and num_shards == 1:
        raise ValueError(
            f"torchrun has started {world_size} processes, but fairseq's world size is 1, so each would train alone: "
            f"add --distributed-world-size {world_size} if each process has a GPU. On CPUs start the ranks without "
            "torchrun, as examples/README.gpu.md shows."
        )


def load_vocabulary(folder: Path) -> tuple[Dictionary, Vocabulary]:
    """Read a folder's dict.txt -> fairseq's dictionary with <mask>, and our vocabulary with the same ids."""
    path = folder / "dict.txt"
    vocabulary = Vocabulary.load(path)
    dictionary = Dictionary.load(str(path))
    dictionary.add_symbol("<mask>")
    assert len(dictionary) == len(vocabulary)
    logger.info(f"vocabulary: {len(vocabulary):,} symbols from {path}")
    return dictionary, vocabulary
