"""What the fine-tuning tasks have in common: a prepared folder, its splits as datasets, new heads on the model.

The steps from official files to batches are drawn in `roberta_plugin/finetuning/__init__.py`.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from omegaconf import II, MISSING
from torch import Tensor

from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import kind_of
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.models.adapters import TARGETS, add_adapters, check_layers, freeze_layers
from roberta_plugin.optim.adamw import set_layer_depths
from roberta_plugin.settings import setting
from roberta_plugin.tasks.block_task import BlockTask, load_vocabulary

logger = logging.getLogger(__name__)


@dataclass
class FineTuningConfig(FairseqDataclass):
    """Options of a fine-tuning task."""

    data: str = setting(MISSING, "folder made by `roberta prepare`")
    max_positions: int = setting(512, "number of positions of the pretrained model", smallest=1)
    classification_head_name: str = setting("sentence_classification_head", "name of the new head in the checkpoint")
    pad_to_multiple: int = setting(
        1, "pad every batch to a multiple of this many tokens (8 suits tensor cores)", smallest=1
    )
    pack_sequences: bool = setting(
        False, "lay the sequences of a batch end to end instead of padding them; attention stays within a sequence"
    )
    freeze_layers: int = setting(0, "do not train the embeddings and this many of the lower layers", smallest=0)
    lora_rank: int = setting(
        0,
        "train low-rank adapters (LoRA) of this rank and the heads, instead of the encoder's weights; 8 is "
        "usual, with learning rates of 1e-4 to 1e-3. 0: no adapters",
        smallest=0,
    )
    lora_alpha: float = setting(8.0, "what the adapters add is multiplied by this, and divided by the rank", above=0)
    lora_targets: str = setting(
        "q_proj,v_proj", f"linear layers with adapters, separated by commas: {', '.join(TARGETS)}"
    )
    seed: int = II("common.seed")
    update_freq: list[int] = II("optimization.update_freq")
    ddp_backend: str = II("distributed_training.ddp_backend")


class FineTuningTask(BlockTask):
    """Trains heads, and the encoder under them, on a prepared folder."""

    cfg: FineTuningConfig
    name: ClassVar[str]
    """The task's name for --task."""
    dataset_class: type[ExamplesDataset] = ExamplesDataset
    """What makes the batches."""
    inputs_class: type[ExamplesDataset] = ExamplesDataset
    """What makes those of `experiments/inference.py`, which need no labels."""

    def __init__(
        self, cfg: FineTuningConfig, prepared: Prepared, dictionary: Dictionary, vocabulary: Vocabulary
    ) -> None:
        super().__init__(cfg, dictionary, vocabulary)
        self.prepared = prepared
        self.kind = kind_of(prepared)

    @classmethod
    def setup_task(cls, cfg: FineTuningConfig, **kwargs: Any) -> "FineTuningTask":
        """Check the options and open the prepared folder."""
        cls.check_options(cfg)
        prepared = Prepared.open(cfg.data)
        return cls(cfg, prepared, *load_vocabulary(prepared.folder))

    @classmethod
    def check_options(cls, cfg: Any) -> None:
        """See `OwnGroup`; the prepared folder has to be there."""
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

    @property
    def head_arguments(self) -> dict[str, Any]:
        """Arguments of the model's forward, ours or fairseq's, that select the task's head."""
        return {"features_only": True, "classification_head_name": self.cfg.classification_head_name}

    @property
    def label_dictionary(self) -> Dictionary:
        """Names of the labels as fairseq's tasks have them: label number i is symbol number i + nspecial."""
        dictionary = Dictionary()
        for label in self.prepared.settings.get("labels") or ():
            dictionary.add_symbol(str(label))
        return dictionary

    def outputs(self, model: Any, sample: Mapping[str, Any]) -> Any:
        """The head's logits for a batch: (S, C), a `SpanLogits` (S, T), or of each token (S, T, C).

        Of examples of several windows, (B, C).
        """
        pooling, windows = self.kind.window_pooling, {}
        if pooling is not None:
            windows["windows"] = {"first": sample["offsets"], "pooling": pooling}
        found = model(**sample["net_input"], **self.head_arguments, **windows)[0]
        # a packed row may have more sequences: its padding
        return found[: len(sample["net_input"]["src_lengths"])] if isinstance(found, Tensor) else found

    @property
    def head_sizes(self) -> dict[str, int]:
        """Arguments of the new head."""
        return self.kind.head_sizes()

    def register_heads(self, model: Any) -> None:
        """Add the head of the task's kind to a new model, if it has one; the masked-LM head is there."""
        name, kind = self.cfg.classification_head_name, self.kind.head
        if kind == "classification":
            model.register_classification_head(name, **self.head_sizes)
        elif kind not in ("", "masked_lm"):
            need_ours(model, f"has no {kind} heads:")
            model.register_head(name, kind, **self.head_sizes)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model with the task's heads; to be trained, with frozen layers and adapters."""
        model = super().build_model(cfg, from_checkpoint)
        self.register_heads(model)
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

    def reduce_metrics(self, logging_outputs: Iterable[Mapping[str, Any]], criterion: Any) -> None:
        """Log what the criterion logs, and the metrics of a validation."""
        super().reduce_metrics(logging_outputs, criterion)
        criterion.log_validation()

    def state_dict(self) -> dict[str, Any]:
        """What is saved with every checkpoint: on which data it was trained."""
        return {identity.KEY: identity.of(self.prepared)}

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
        self.datasets[split] = self.dataset_class(
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


def need_ours(model: Any, lacks: str) -> None:
    """Refuse a model of fairseq for what only our models can do; `lacks` begins the message."""
    if not hasattr(model, "register_head"):
        raise ValueError(
            f"{type(model).__name__} {lacks} use --arch fast_roberta_base (or another size of fast_roberta), which "
            "loads checkpoints of fairseq's roberta as well."
        )


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
