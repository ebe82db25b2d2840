"""The registered fine-tuning tasks: what each adds to `FineTuningTask` and its kind (`roberta_plugin/kinds`).

roberta_sentence_prediction   texts and pairs: labels, numbers, ranking
squad2                        spans of a passage
race                          multiple choice
roberta_tagging               a tag for each word
roberta_summarization         sentences to keep
roberta_embedding             vectors of texts
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import torch
import torch.nn.functional as F
from fairseq.tasks import register_task
from omegaconf import II
from torch import Tensor

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.finetuning.examples_dataset import (
    DocumentsDataset,
    EmbeddingDataset,
    TaggingDataset,
    WindowsDataset,
)
from roberta_plugin.kinds.embedding import Embedding
from roberta_plugin.models.checkpoints.fitting import SEGMENTS
from roberta_plugin.settings import setting
from roberta_plugin.tasks.finetuning import FineTuningConfig, FineTuningTask, need_ours

logger = logging.getLogger(__name__)

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
    found = logits.float().log_softmax(dim=-1).gather(1, tokens.view(-1)[places, None])  # (M, V) -> (M, 1)
    sums = torch.zeros(len(lengths), 1, device=tokens.device).index_add(0, sequence, found)  # (M, 1) -> (S, 1)
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
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")


@register_task("roberta_summarization", dataclass=SummarizationConfig)
class SummarizationTask(FineTuningTask):
    """Scores each sentence of a document."""

    cfg: SummarizationConfig
    name = "roberta_summarization"
    dataset_class = inputs_class = DocumentsDataset

    def __init__(self, cfg: SummarizationConfig, *arguments: Any) -> None:
        super().__init__(cfg, *arguments)
        self.num_segments = 2 if cfg.alternating_segments else 0  # of the model

    @property
    def head_sizes(self) -> dict[str, int]:
        """See `FineTuningTask.head_sizes`."""
        return {"num_layers": self.cfg.sentence_layers}

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model with its head.

        Raises:
            ValueError: if the model cannot have one, or has no segments to alternate.
        """
        start = self.cfg.finetune_from_model
        is_new = self.cfg.alternating_segments and not from_checkpoint
        if is_new and start and Path(start).is_file() and SEGMENTS not in load_state(Path(start))["model"]:
            raise ValueError(
                f"--alternating-segments: {start} has no segment embeddings, which only models pretrained with "
                "--input-format segment-pair or sentence-pair have; RoBERTa has none. Leave the option out."
            )
        return super().build_model(cfg, from_checkpoint)

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

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """See `FineTuningTask`."""
        super().load_dataset(split, epoch, combine, **kwargs)
        if split == "train":
            self.datasets[split].mini_batch_size = self.cfg.mini_batch_size or None

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
        """See `BlockTask`."""
        self.is_dummy = ignore_grad
        return super().train_step(sample, model, criterion, optimizer, update_num, ignore_grad=ignore_grad, **options)

    def outputs(self, model: Any, sample: Mapping[str, Any]) -> Tensor:
        """The vectors of the S sequences of a batch (S, D)."""
        inputs = dict(sample["net_input"])
        recomputes = model.training and self.cfg.mini_batch_size > 0
        pooled = {**inputs.pop("pooled"), "pooling": self.kind.pooling, "recomputes": recomputes}
        vectors: Tensor = model(inputs["src_tokens"], pooled=pooled)[0]
        return F.normalize(vectors, dim=-1) if self.kind.normalizes else vectors
