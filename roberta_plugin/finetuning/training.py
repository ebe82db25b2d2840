"""The training of a kind of task: its head, its batches, and its loss.

The registry has the `KindTraining` of each kind. fairseq's task (`tasks/finetuning.py`) and criterion
(`criterions/finetuning.py`) call it and have no code for single kinds.

fairseq divides the summed loss by the sum of the sample sizes. So each example, token or sentence of an update has the
same weight in the gradient, in whichever batch and on whichever rank it is.

Shapes: B examples in the batch, S sequences of all examples, T positions (or P of one packed row), C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset, WindowsDataset
from roberta_plugin.registry import KINDS


class Loss(NamedTuple):
    """The loss of a batch."""

    total: Tensor
    """The sum () over the examples, tokens or sentences that have a target."""
    sample_size: int | Tensor
    """The number of summands; fairseq divides by the sum over all batches and ranks of an update."""
    means: Mapping[str, tuple[Tensor, int | Tensor]] = MappingProxyType({})
    """Further means for the log: each a sum and its divisor."""


class Criterion(Protocol):
    """The part of the criterion that a loss uses."""

    options: Mapping[str, Any]
    training: bool

    @property
    def smoothing(self) -> float:
        """The share of the target that is spread over all labels."""

    def label_weights(self, logits: Tensor) -> Tensor | None:
        """The weight of each label (C,); None: all labels have the same."""


class TrainedKind(Protocol):
    """The part of a `kinds.base.Kind` that its training uses."""

    name: ClassVar[str]
    head: ClassVar[str]
    """The kind of its head."""
    settings: Mapping[str, Any]
    """The settings in the prepared folder."""

    @property
    def window_pooling(self) -> str | None:
        """How windows of a text are pooled; None: each example is one sequence."""

    def head_sizes(self) -> dict[str, int]:
        """Arguments of a new head."""


class KindTraining:
    """The training of kinds without special needs: one head, batches of examples; subclasses add the loss."""

    dataset_class: type[ExamplesDataset] = ExamplesDataset
    """The class of the batches."""
    inputs_class: type[ExamplesDataset] = ExamplesDataset
    """The class of the batches of `experiments/inference.py`, which need no labels."""
    means: ClassVar[tuple[str, ...]] = ()
    """Names in `Loss.means` that are not metrics of the kind."""

    def __init__(self, kind: TrainedKind, cfg: Any, vocabulary: Vocabulary) -> None:
        """`cfg` holds the options of the fairseq task."""
        self.kind, self.cfg, self.vocabulary = kind, cfg, vocabulary
        self.is_dummy = False
        """True while a rank that has run out of batches computes a batch only to keep step with the others."""
        if kind.window_pooling is not None:
            self.dataset_class = self.inputs_class = WindowsDataset

    @property
    def head_sizes(self) -> dict[str, int]:
        """Arguments of the new head."""
        return self.kind.head_sizes()

    def register_heads(self, model: Any) -> None:
        """Add the kind's head to a new model, if it has one; every model already has the masked-LM head."""
        name, kind = self.cfg.classification_head_name, self.kind.head
        if self.kind.window_pooling is not None:
            need_ours(model, "cannot read texts in windows (--long-texts):")
        if kind == "classification":
            model.register_classification_head(name, **self.head_sizes)
        elif kind not in ("", "masked_lm"):
            need_ours(model, f"has no {kind} heads:")
            model.register_head(name, kind, **self.head_sizes)

    def segments_of_start(self, number: int, start: Path | None) -> int:
        """The number of segment embeddings of the model; the checkpoint `start` has `number`."""
        return number

    def open_dataset(self, name: str, split: Any, **options: Any) -> ExamplesDataset:
        """The batches of a split; `name` is the split's name for fairseq, such as "train"."""
        return self.dataset_class(split, **options)

    def outputs(self, model: Any, sample: Mapping[str, Any]) -> Any:
        """The head's output for a batch: for a classification head (S, C), or (B, C) for examples of several windows.

        The model, ours or fairseq's, may be wrapped for data-parallel training.
        """
        pooling, windows = self.kind.window_pooling, {}
        if pooling is not None:
            windows["windows"] = {"first": sample["offsets"], "pooling": pooling}
        head = {"features_only": True, "classification_head_name": self.cfg.classification_head_name}
        outputs = model(**sample["net_input"], **head, **windows)[0]
        # A packed row may have more sequences: its padding.
        return outputs[: len(sample["net_input"]["src_lengths"])] if isinstance(outputs, Tensor) else outputs

    def loss(self, criterion: Criterion, outputs: Any, sample: Mapping[str, Any]) -> Loss:
        """The loss of a batch from `outputs`."""
        raise NotImplementedError(f"{type(self).__name__} has no loss")

    def judging(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The options of the criterion for scoring a validation; see `Kind.validated`."""
        return options


def find_training(kind: type[Any]) -> type[KindTraining]:
    """The training registered for a kind, or for its nearest base class that has one."""
    for each in kind.__mro__:
        name = str(vars(each).get("name"))
        if name in KINDS and KINDS[name].training:
            training: type[KindTraining] = KINDS.load(name, "training")
            return training
    return KindTraining


def need_ours(model: Any, lacks: str) -> None:
    """Refuse a model of fairseq for a feature of our models; `lacks` begins the message after the name of the class."""
    if not hasattr(model, "register_head"):
        raise ValueError(
            f"{type(model).__name__} {lacks} use --arch fast_roberta_base (or another size of fast_roberta), which "
            "loads checkpoints of fairseq's roberta as well."
        )


def by_example(logits: Tensor, first: Tensor) -> Tensor:
    """Logits (S,) of competing sequences, of which example b has those from first[b] to first[b + 1] -> (B, O).

    O = S - B + 1 bounds the number of sequences of an example, and is known without a device-to-host sync.

    Example: by_example([a, b, c, d, e], [0, 3, 5])  ->  [[a, b, c, -inf], [d, e, -inf, -inf]]
    """
    num_sequences, num_examples = len(logits), len(first) - 1
    rows = torch.arange(num_examples, device=logits.device)
    example = rows.repeat_interleave(first.diff(), output_size=num_sequences)  # (S,)
    place = torch.arange(num_sequences, device=logits.device) - first[example]  # (S,), within the example
    choices = logits.new_full((num_examples, num_sequences - num_examples + 1), -torch.inf)
    return choices.index_put((example, place), logits)
