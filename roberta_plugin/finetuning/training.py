"""How a kind of task is trained: its head, its batches, and the loss of their outputs.

The registry has the `KindTraining` of each kind. The task of fairseq (`tasks/finetuning.py`) and its criterion
(`criterions/finetuning.py`) call it, and know no kind.

fairseq divides the summed loss by the sum of the sample sizes, so in a gradient each example, token or sentence of an
update weighs the same, in whichever batch and on whichever rank it is.

Shapes: B examples in the batch, S sequences of all of them, T positions (or P of one packed row), C classes.
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
    """The sum () over what is learned."""
    sample_size: int | Tensor
    """What fairseq divides it by, with those of all batches and ranks of an update."""
    means: Mapping[str, tuple[Tensor, int | Tensor]] = MappingProxyType({})
    """Further figures of the log: sums, and what they are divided by."""


class Criterion(Protocol):
    """What a loss asks of the criterion."""

    options: Mapping[str, Any]
    training: bool

    @property
    def smoothing(self) -> float:
        """The share of the target that is spread over all labels."""

    def label_weights(self, logits: Tensor) -> Tensor | None:
        """How much each label counts (C,), if not all the same."""


class TrainedKind(Protocol):
    """What a training asks of its kind, a `kinds.base.Kind`."""

    name: ClassVar[str]
    head: ClassVar[str]
    """The kind of its head."""
    settings: Mapping[str, Any]
    """As the prepared folder has them."""

    @property
    def window_pooling(self) -> str | None:
        """How windows of a text are pooled; None: each example is one sequence."""

    def head_sizes(self) -> dict[str, int]:
        """Arguments of a new head."""


class KindTraining:
    """How kinds without special needs are trained: one head, batches of examples; subclasses add the loss."""

    dataset_class: type[ExamplesDataset] = ExamplesDataset
    """Makes the batches."""
    inputs_class: type[ExamplesDataset] = ExamplesDataset
    """Makes the batches of `experiments/inference.py`, which need no labels."""
    means: ClassVar[tuple[str, ...]] = ()
    """Names in `Loss.means` that are not metrics of the kind."""

    def __init__(self, kind: TrainedKind, cfg: Any, vocabulary: Vocabulary) -> None:
        """`cfg` holds the options of the fairseq task."""
        self.kind, self.cfg, self.vocabulary = kind, cfg, vocabulary
        self.is_dummy = False
        """True while a batch only keeps a rank busy that has run out of batches."""
        if kind.window_pooling is not None:
            self.dataset_class = self.inputs_class = WindowsDataset

    @property
    def head_sizes(self) -> dict[str, int]:
        """Arguments of the new head."""
        return self.kind.head_sizes()

    def register_heads(self, model: Any) -> None:
        """Add the kind's head to a new model, if it has one; the masked-LM head is there."""
        name, kind = self.cfg.classification_head_name, self.kind.head
        if self.kind.window_pooling is not None:
            need_ours(model, "cannot read texts in windows (--long-texts):")
        if kind == "classification":
            model.register_classification_head(name, **self.head_sizes)
        elif kind not in ("", "masked_lm"):
            need_ours(model, f"has no {kind} heads:")
            model.register_head(name, kind, **self.head_sizes)

    def segments_of_start(self, number: int, start: Path | None) -> int:
        """Segment embeddings of the model; `number` is how many the checkpoint `start` has."""
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
        """Options of the criterion by which a validation is judged; see `Kind.validated`."""
        return options


def find_training(kind: type[Any]) -> type[KindTraining]:
    """The training that is registered for a kind, or for the nearest kind that it extends."""
    for each in kind.__mro__:
        name = str(vars(each).get("name"))
        if name in KINDS and KINDS[name].training:
            training: type[KindTraining] = KINDS.load(name, "training")
            return training
    return KindTraining


def need_ours(model: Any, lacks: str) -> None:
    """Refuse a model of fairseq for what only our models can do; `lacks` begins the message."""
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
