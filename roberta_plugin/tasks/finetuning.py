"""The task of fine-tuning: a prepared folder, its splits as datasets, and new heads on the model.

There is one class for all fine-tuning. It is registered with fairseq by each name of `registry.TRAININGS`, and the kind
of the prepared folder brings head, batches and loss (`finetuning/training.py`). The steps from official files to
batches are drawn in `roberta_plugin/finetuning/__init__.py`.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from fairseq.data import Dictionary
from fairseq.distributed import utils as distributed_utils
from omegaconf import MISSING
from typing_extensions import override

from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.fairseq_workarounds import starts
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import kind_of
from roberta_plugin.finetuning.preparation import check_measurable
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.finetuning.training import KindTraining, find_training, need_ours
from roberta_plugin.models.adapters import TARGETS, add_adapters, check_layers, freeze_layers
from roberta_plugin.models.checkpoints import num_segments_in
from roberta_plugin.optim.adamw import set_layer_depths
from roberta_plugin.tasks.block_task import BlockTask, load_vocabulary
from roberta_plugin.tasks.block_task_checks import whole_config
from roberta_plugin.tasks.finetuning_options import FineTuningConfig as FineTuningConfig

logger = logging.getLogger(__name__)


class FineTuningTask(BlockTask):
    """Trains heads, and the encoder under them, on a prepared folder."""

    cfg: FineTuningConfig
    name: ClassVar[str]
    """The task's name for --task."""
    num_segments = 0
    """Segment embeddings of the model: those of the checkpoint that it begins with."""

    def __init__(
        self, cfg: FineTuningConfig, prepared: Prepared, dictionary: Dictionary, vocabulary: Vocabulary
    ) -> None:
        super().__init__(cfg, dictionary, vocabulary)
        self.prepared = prepared
        self.kind = kind_of(prepared)
        self.training: KindTraining = find_training(type(self.kind))(self.kind, cfg, vocabulary)

    @classmethod
    def setup_task(cls, cfg: FineTuningConfig, **kwargs: Any) -> "FineTuningTask":
        """Check the options and open the prepared folder."""
        cls.check_options(cfg)
        prepared = Prepared.open(cfg.data)
        return cls(cfg, prepared, *load_vocabulary(prepared.folder))

    @classmethod
    def check_options(cls, cfg: Any) -> None:
        """Also refuse a prepared folder that is missing or does not fit the options."""
        super().check_options(cfg)
        if not cfg.data or cfg.data == MISSING:
            raise ValueError("The data folder is missing: give the folder that `roberta prepare` wrote, first of all.")
        prepared = Prepared.open(cfg.data)
        kind = kind_of(prepared)
        if kind.task != cls.name:
            raise ValueError(f"{cfg.data} is prepared for {prepared.task}: give --task {kind.task}, not {cls.name}.")
        if cfg.pack_sequences and not kind.can_pack:
            raise ValueError(f"--pack-sequences does not go with --task {cls.name}: leave it out.")
        check_light_training(cfg)
        longest = prepared.settings["max_length"]
        if longest > cfg.max_positions:
            raise ValueError(
                f"{cfg.data} has sequences of up to {longest} tokens, and --max-positions is {cfg.max_positions}: "
                f"prepare it again with --max-length {cfg.max_positions}, or start from a model with more positions."
            )

        if hasattr(cfg, "best_checkpoint_metric"):
            check_selection(prepared, cfg.best_checkpoint_metric, cfg)

    @classmethod
    def check_start(cls, cfg: Any) -> None:
        """Also refuse a metric that cannot choose checkpoints."""
        super().check_start(cfg)
        check_selection(Prepared.open(cfg.task.data), cfg.checkpoint.best_checkpoint_metric, cfg.dataset)

    @property
    def label_dictionary(self) -> Dictionary:
        """Names of the labels as fairseq's tasks have them: label number i is symbol number i + nspecial."""
        dictionary = Dictionary()
        for label in self.prepared.settings.get("labels") or ():
            dictionary.add_symbol(str(label))
        return dictionary

    def outputs(self, model: Any, sample: Mapping[str, Any]) -> Any:
        """The output of the task's head for a batch; see `KindTraining.outputs`."""
        return self.training.outputs(model, sample)

    def segments_of_start(self, start: Path | None) -> int:
        """Segment embeddings of the checkpoint that the training begins with."""
        number = num_segments_in(start) if start else 0
        if torch.distributed.is_initialized():
            group = distributed_utils.get_global_group()  # rank 0 loads the checkpoint; others may not have the file
            number = int(distributed_utils.broadcast_object(number, src_rank=0, group=group))
        return self.training.segments_of_start(number, start)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model with the task's heads; to be trained, with its start's segments, frozen layers, adapters."""
        if not from_checkpoint:
            self.num_segments = self.segments_of_start(start_of(whole_config(self.cfg)))
        model = super().build_model(cfg, from_checkpoint)
        if self.num_segments:
            need_ours(model, "has no segment embeddings, and the model that it starts from has:")
        model.takes_segments = from_checkpoint  # by `roberta evaluate`, fairseq-validate and the like
        self.training.register_heads(model)
        if not from_checkpoint and self.cfg.freeze_layers:
            freeze_layers(model, self.cfg.freeze_layers)
        if not from_checkpoint and self.cfg.lora_rank:
            need_ours(model, "has no adapters: leave --lora-rank out, or")
            add_adapters(
                model,
                rank=self.cfg.lora_rank,
                alpha=self.cfg.lora_alpha,
                targets=self.cfg.lora_targets.split(","),
                first_layer=self.cfg.freeze_layers,
            )
        set_layer_depths(model)
        return model

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the task's own criterion."""
        name = getattr(cfg, "_name", None) or getattr(cfg, "criterion", None)
        if name != self.name:
            raise ValueError(f"--task {self.name} goes with --criterion {self.name}, not with --criterion {name}.")
        return super().build_criterion(cfg, from_checkpoint)

    @override
    def train_step(
        self,
        sample: Any,
        model: Any,
        criterion: Any,
        optimizer: Any,
        update_num: int,
        ignore_grad: bool = False,
        **options: Any,
    ) -> tuple[Any, Any, dict[str, Any]]:
        self.training.is_dummy = ignore_grad
        return super().train_step(sample, model, criterion, optimizer, update_num, ignore_grad=ignore_grad, **options)

    def reduce_metrics(self, logging_outputs: Iterable[Mapping[str, Any]], criterion: Any) -> None:
        """Log what the criterion logs, and the metrics of a validation."""
        super().reduce_metrics(logging_outputs, criterion)
        criterion.log_validation()

    def state_dict(self) -> dict[str, Any]:
        """What is saved with every checkpoint: on which data it was trained."""
        return {identity.KEY: identity.describe(self.prepared)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing is taken over: what a checkpoint says of its data is compared, in `finetuning/identity.py`."""

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Open a split of the prepared folder, whose right answers must be known.

        Raises:
            ValueError: if they are not, as in a test file, or if a file was changed.
        """
        prepared = self.prepared.split(split)
        for fault in self.prepared.changed_files(split):
            raise ValueError(fault)
        if lacks := self.kind.lacks(prepared):
            raise ValueError(
                f"{self.prepared.folder}: the split {split!r} {lacks}, so there is no loss: `roberta evaluate` writes "
                "predictions for it."
            )
        if len(prepared) == 0:
            raise ValueError(f"{self.prepared.folder}: the split {split!r} has no examples.")
        self.datasets[split] = self.training.open_dataset(
            split,
            prepared,
            pad_id=self.vocabulary.pad_id,
            vocab_size=len(self.vocabulary),
            seed=self.cfg.seed,
            pad_to_multiple=self.cfg.pad_to_multiple,
            pack=self.cfg.pack_sequences,
            max_length=self.prepared.settings["max_length"],
        )
        sequences = prepared.sequences
        logger.info(
            f"{self.prepared.folder}, {split}: {len(prepared):,} examples, {len(sequences):,} sequences, "
            f"{sequences.num_tokens:,} tokens, the longest {int(sequences.sizes.max())}"
        )

    def check_limits(self, *, max_positions: int | None, max_tokens: int | None) -> None:
        """The length of sequences was checked at the start, and a batch is checked when batches are cut."""

    def max_positions(self) -> int:
        """Positions of the model; it takes their number from here where it has no option of its own."""
        return int(self.cfg.max_positions)


def check_selection(prepared: Prepared, metric: str, cfg: Any) -> None:
    """Refuse a metric that the first validation split of `cfg`, which chooses checkpoints, cannot measure."""
    if not cfg.disable_validation:
        check_measurable(prepared, cfg.valid_subset.split(",")[0], metric, option="--best-checkpoint-metric")


def start_of(cfg: Any) -> Path | None:
    """The file that fairseq's `load_checkpoint` will read, by its whole configuration; None for new weights."""
    checkpoint = getattr(cfg, "checkpoint", None)
    if checkpoint is None:
        return None
    return starts.start_file(checkpoint)


def check_light_training(cfg: Any) -> None:
    """Refuse layers and targets that the model does not have; `cfg` may have the model's options, too."""
    if hasattr(cfg, "encoder_layers"):
        check_layers(cfg.freeze_layers, total=cfg.encoder_layers, rank=cfg.lora_rank)
    for target in cfg.lora_targets.split(","):
        if target not in TARGETS:
            raise ValueError(
                f"--lora-targets {cfg.lora_targets}: there is no linear layer {target!r}. Give some of "
                f"{', '.join(TARGETS)}, with commas between them."
            )
