"""What the fine-tuning tasks share, and what each adds to it and its kind (`roberta_plugin/finetuning/kinds`).

A task has a prepared folder, its splits as datasets, and new heads on the model. The steps from official files to
batches are drawn in `roberta_plugin/finetuning/__init__.py`.

roberta_sentence_prediction   texts and pairs: labels, numbers, ranking
squad2                        spans of a passage
race                          multiple choice
roberta_tagging               a tag for each word
roberta_summarization         sentences to keep
roberta_embedding             vectors of texts
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.distributed import utils as distributed_utils
from fairseq.tasks import register_task
from omegaconf import II, MISSING
from torch import Tensor
from typing_extensions import override

from roberta_plugin.checkpoint_files import check_checkpoint
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.fairseq_workarounds import starts
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import kind_of
from roberta_plugin.finetuning.examples_dataset import (
    DocumentsDataset,
    EmbeddingDataset,
    ExamplesDataset,
    TaggingDataset,
    WindowsDataset,
)
from roberta_plugin.finetuning.kinds.embedding import Embedding
from roberta_plugin.finetuning.preparation import check_measurable
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.models.adapters import TARGETS, add_adapters, check_layers, freeze_layers
from roberta_plugin.models.checkpoints import num_segments_in
from roberta_plugin.optim.adamw import set_layer_depths
from roberta_plugin.settings import setting
from roberta_plugin.tasks.block_task import BlockTask, load_vocabulary, whole_config

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
    num_segments = 0
    """Segment embeddings of the model: those of the checkpoint that it begins with."""

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

        if hasattr(cfg, "best_checkpoint_metric"):
            check_selection(prepared, cfg.best_checkpoint_metric, cfg)

    @classmethod
    def check_start(cls, cfg: Any) -> None:
        """See `BlockTask`; also the metric that chooses checkpoints."""
        super().check_start(cfg)
        check_selection(Prepared.open(cfg.task.data), cfg.checkpoint.best_checkpoint_metric, cfg.dataset)

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
        outputs = model(**sample["net_input"], **self.head_arguments, **windows)[0]
        # a packed row may have more sequences: its padding
        return outputs[: len(sample["net_input"]["src_lengths"])] if isinstance(outputs, Tensor) else outputs

    @property
    def head_sizes(self) -> dict[str, int]:
        """Arguments of the new head."""
        return self.kind.head_sizes()

    def segments_of_start(self, start: Path | None) -> int:
        """Segment embeddings of the checkpoint that the training begins with."""
        number = num_segments_in(start) if start else 0
        if not torch.distributed.is_initialized():
            return number
        group = distributed_utils.get_global_group()  # rank 0 loads the checkpoint; others may not have the file
        return int(distributed_utils.broadcast_object(number, src_rank=0, group=group))

    def register_heads(self, model: Any) -> None:
        """Add the head of the task's kind to a new model, if it has one; the masked-LM head is there."""
        name, kind = self.cfg.classification_head_name, self.kind.head
        if kind == "classification":
            model.register_classification_head(name, **self.head_sizes)
        elif kind not in ("", "masked_lm"):
            need_ours(model, f"has no {kind} heads:")
            model.register_head(name, kind, **self.head_sizes)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model with the task's heads; to be trained, with its start's segments, frozen layers, adapters."""
        if not from_checkpoint:
            self.num_segments = self.segments_of_start(start_of(whole_config(self.cfg)))
        model = super().build_model(cfg, from_checkpoint)
        if self.num_segments:
            need_ours(model, "has no segment embeddings, and the model that it starts from has:")
        model.takes_segments = from_checkpoint  # by `roberta evaluate`, fairseq-validate and the like
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


SENTENCE_LAYERS = 2  # Liu and Lapata 2019, section 3.2: the best of 1, 2 and 3


@register_task("roberta_sentence_prediction", dataclass=FineTuningConfig)
class RobertaSentencePredictionTask(FineTuningTask):
    """Fine-tunes on one of GLUE's tasks or on own data, as the prepared folder says."""

    name = "roberta_sentence_prediction"

    def __init__(self, cfg: FineTuningConfig, *arguments: Any) -> None:
        super().__init__(cfg, *arguments)
        if self.kind.window_pooling is not None:
            self.dataset_class = self.inputs_class = WindowsDataset

    def register_heads(self, model: Any) -> None:
        """See `FineTuningTask.register_heads`; the models of fairseq cannot pool windows."""
        if self.kind.window_pooling is not None:
            need_ours(model, "cannot read texts in windows (--long-texts):")
        super().register_heads(model)

    def outputs(self, model: Any, sample: Mapping[str, Any]) -> Tensor:
        """Logits of the S sequences of a batch: (S, C) for labels, else (S, 1).

        Regression returns the value, phrase ranking the phrase's mean log-probability.
        """
        if self.kind.name == "phrase_ranking":
            return phrase_scores(model, sample, mask_id=self.vocabulary.mask_id)
        logits: Tensor = super().outputs(model, sample)
        return logits


def phrase_scores(model: Any, sample: Mapping[str, Any], *, mask_id: int) -> Tensor:
    """How well the phrases of a batch of kind `phrase_ranking` fit: scores (S, 1), in fp32; 0 if the phrase is empty.

    The score is the mean log-probability of the phrase's tokens, which are all masked at once and predicted by the
    masked-LM head, as in fairseq's examples/roberta/wsc/wsc_criterion.py. Works with our models and fairseq's.

    Shapes: B examples, S their sequences, T positions, M tokens of all phrases, V vocabulary.
    """
    inputs, lengths = sample["net_input"], sample["net_input"]["src_lengths"]
    counts = sample["offsets"].diff()
    before, after = (
        sample["columns"][name].repeat_interleave(counts, output_size=len(lengths)) for name in ("before", "after")
    )  # (B,) -> (S,)
    tokens = inputs["src_tokens"]
    begins = _begins(inputs) + before
    sizes = lengths - before - after  # of the phrases (S,)
    sequence = torch.arange(len(lengths), device=tokens.device).repeat_interleave(sizes)  # (M,), of each token
    within = torch.arange(len(sequence), device=tokens.device) - (sizes.cumsum(0) - sizes)[sequence]
    places = begins[sequence] + within  # (M,) in the flat tokens
    is_masked = torch.zeros_like(tokens, dtype=torch.bool).view(-1).index_fill(0, places, True).view_as(tokens)
    masked = tokens.masked_fill(is_masked, mask_id)
    logits, _ = model(**{**inputs, "src_tokens": masked}, masked_tokens=is_masked)  # (M, V)
    log_probs = logits.float().log_softmax(dim=-1).gather(1, tokens.view(-1)[places, None])  # (M, V) -> (M, 1)
    sums = torch.zeros(len(lengths), 1, device=tokens.device).index_add(0, sequence, log_probs)  # (M, 1) -> (S, 1)
    means: Tensor = sums / sizes.clamp(min=1)[:, None]
    return means


def _begins(inputs: Mapping[str, Any]) -> Tensor:
    """Where each sequence begins in the flat tokens (S,)."""
    lengths: Tensor = inputs["src_lengths"]
    if "packing" in inputs:
        return lengths.cumsum(0) - lengths
    width: int = inputs["src_tokens"].size(1)
    return torch.arange(len(lengths), device=lengths.device) * width


@dataclass
class Squad2Config(FineTuningConfig):
    """Options of the task."""

    classification_head_name: str = setting("span_head", "name of the new head in the checkpoint")


@register_task("squad2", dataclass=Squad2Config)
class Squad2Task(FineTuningTask):
    """Finds where the answer begins and ends in each window, and whether it is there."""

    cfg: Squad2Config
    name = "squad2"


@dataclass
class RobertaTaggingConfig(FineTuningConfig):
    """Options of the task."""

    classification_head_name: str = setting("token_head", "name of the new head in the checkpoint")


@register_task("roberta_tagging", dataclass=RobertaTaggingConfig)
class RobertaTaggingTask(FineTuningTask):
    """Finds the tag of each word at its first token."""

    cfg: RobertaTaggingConfig
    name = "roberta_tagging"
    dataset_class = TaggingDataset


@register_task("race", dataclass=FineTuningConfig)
class RaceTask(FineTuningTask):
    """Scores each option of a question; the highest score is the answer."""

    name = "race"


@dataclass
class SummarizationConfig(FineTuningConfig):
    """Options of the task."""

    classification_head_name: str = setting("summary_head", "name of the new head in the checkpoint")
    sentence_layers: int = setting(
        SENTENCE_LAYERS,
        "layers of a Transformer over the sentences of a document, before the linear classifier",
        smallest=0,
    )
    alternating_segments: bool = setting(
        False, "give the sentences segments 0 and 1 in turn, as BertSum does; for a model with segment embeddings"
    )


@register_task("roberta_summarization", dataclass=SummarizationConfig)
class SummarizationTask(FineTuningTask):
    """Scores each sentence of a document."""

    cfg: SummarizationConfig
    name = "roberta_summarization"
    dataset_class = inputs_class = DocumentsDataset

    @property
    @override
    def head_sizes(self) -> dict[str, int]:
        return {"num_layers": self.cfg.sentence_layers}

    @override
    def segments_of_start(self, start: Path | None) -> int:
        if not self.cfg.alternating_segments:  # all sentences are of the first
            return 0
        number = super().segments_of_start(start)
        if start and not number:
            check_checkpoint(start)  # of a damaged one, that is the reason
            raise ValueError(
                f"--alternating-segments: {start} has no segment embeddings, which only models pretrained with "
                "--input-format segment-pair or sentence-pair have; RoBERTa has none. Leave the option out."
            )
        return number or 2

    def outputs(self, model: Any, sample: Mapping[str, Any]) -> Any:
        """Logits of the sentences of a batch (V,)."""
        head = self.cfg.classification_head_name
        return model(**sample["net_input"], head=head, predicted=sample["sentences"])[0]


@dataclass
class RobertaEmbeddingConfig(FineTuningConfig):
    """Options of the task."""

    mini_batch_size: int = setting(
        0,
        "sequences that are in memory at a time in training; activations are computed twice, and the "
        "gradients are those of the whole batch. 0: all at once",
        smallest=0,
    )


@register_task("roberta_embedding", dataclass=RobertaEmbeddingConfig)
class RobertaEmbeddingTask(FineTuningTask):
    """Gives vectors to texts, as the prepared folder says."""

    cfg: RobertaEmbeddingConfig
    name = "roberta_embedding"
    dataset_class = inputs_class = EmbeddingDataset
    is_dummy = False
    """Whether the batch of this step only keeps a rank busy that has run out of batches."""

    def __init__(self, cfg: RobertaEmbeddingConfig, *arguments: Any) -> None:
        super().__init__(cfg, *arguments)
        assert isinstance(self.kind, Embedding)
        self.kind: Embedding = self.kind

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model; ValueError if it gives no vectors."""
        model = super().build_model(cfg, from_checkpoint)
        need_ours(model, "gives no vectors of texts:")
        return model

    @override
    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        super().load_dataset(split, epoch, combine, **kwargs)
        if split == "train":
            self.datasets[split].mini_batch_size = self.cfg.mini_batch_size or None

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
        self.is_dummy = ignore_grad
        return super().train_step(sample, model, criterion, optimizer, update_num, ignore_grad=ignore_grad, **options)

    def outputs(self, model: Any, sample: Mapping[str, Any]) -> Tensor:
        """The vectors of the S sequences of a batch (S, D)."""
        inputs = dict(sample["net_input"])
        recomputes = model.training and self.cfg.mini_batch_size > 0
        pooled = {**inputs.pop("pooled"), "pooling": self.kind.pooling, "recomputes": recomputes}
        vectors: Tensor = model(inputs["src_tokens"], pooled=pooled)[0]
        return F.normalize(vectors, dim=-1) if self.kind.normalizes else vectors
