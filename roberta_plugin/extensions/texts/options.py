"""Options of tables of texts with labels or numbers, and of the predictions of such models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roberta_plugin.finetuning.examples import weights_of, with_positive
from roberta_plugin.finetuning.options import TaskOptions, kinds_with, of_kinds, option
from roberta_plugin.settings import Checked, setting

_LABELS = of_kinds("classification", "pair")


@dataclass(frozen=True, kw_only=True)
class TextTableOptions(TaskOptions):
    """Options of `roberta prepare custom`."""

    if TYPE_CHECKING:  # options of all kinds
        kind: str | None
        text_pair_column: str | None
        labels: tuple[str, ...] | None
        delimiter: str | None

    positive_label: str | None = option(
        "classification with two labels: the label for f1, average_precision and thresholds",
        default_text="the second",
        goes_with=_LABELS,
        metavar="LABEL",
    )
    label_separator: str | None = option(
        "multi-label: separator of the labels of a row",
        default_text="a comma",
        goes_with=of_kinds("multi-label"),
        metavar="TEXT",
    )
    class_weights: tuple[str, ...] | None = option(
        "weights of the labels in the loss: none, balanced (inverse to their frequency), LABEL=WEIGHT for some labels "
        "(the others have 1), or a table with the columns label and weight",
        default_text="none",
        metavar="WEIGHTS",
        nargs="+",
    )
    tune_threshold: str | None = option(
        "classification: use the threshold with the best value of this metric on the development set; f1 is the F1 of "
        "--positive-label",
        stage="score",
        goes_with=_LABELS,
        excludes=("threshold",),
        choices=("f1", "macro_f1", "mcc", "accuracy", "acc_and_f1"),
    )
    calibrate: bool = option(
        "classification: divide the logits by the temperature with the smallest loss on the development set, in "
        "predictions too",
        stage="score",
        goes_with=_LABELS,
        default=False,
    )
    temperature: float | None = option(
        "classification: divide the logits by this number",
        stage="score",
        goes_with=_LABELS,
        excludes=("calibrate",),
        above=0.0,
        metavar="T",
    )

    def __post_init__(self) -> None:
        """Check the values. A prepared folder may record the weights as one text."""
        if isinstance(self.class_weights, str):
            object.__setattr__(self, "class_weights", (self.class_weights,))
        super().__post_init__()
        kind = self.kind or "classification"
        if self.class_weights not in (None, ("none",)) and kind not in kinds_with("class_weights"):
            raise ValueError(f"--class-weights goes with labels, and --kind {kind} has no labels: leave it out.")
        if kind == "pair" and self.text_pair_column is None:
            raise ValueError("--kind pair needs --text-pair-column: the column of the second text.")

    def recorded(self) -> dict[str, Any]:
        """The settings that a prepared folder of any kind records."""
        return {
            **super().recorded(),
            "label_separator": self.label_separator,
            "class_weights": weights_of(self.class_weights or ("none",), delimiter=self.delimiter),
            **({"labels": with_positive(self.labels, self.positive_label)} if self.labels else {}),
            **({"positive_label": self.positive_label} if self.positive_label else {}),
        }


@dataclass(frozen=True, kw_only=True)
class TextPredictOptions(Checked):
    """Options of `roberta predict`."""

    threshold: float | None = setting(
        None,
        "multi_label: predict a label if its probability reaches this; classification: the same for the second of two "
        "labels",
        default_text="the one that `roberta finetune` found, else 0.5",
        metavar="P",
        smallest=0,
        largest=1,
    )
    temperature: float | None = setting(
        None,
        "classification: divide the logits by this number",
        default_text="the temperature that `roberta finetune --calibrate` found, else 1",
        metavar="T",
        above=0,
    )


@dataclass(frozen=True, kw_only=True)
class GlueOptions(TaskOptions):
    """GLUE's tasks have no options."""


XNLI_LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")


@dataclass(frozen=True, kw_only=True)
class XnliOptions(TaskOptions):
    """Options of XNLI."""

    language: str | None = option(
        "language of the training text and of the development set that chooses checkpoints (en)", choices=XNLI_LANGUAGES
    )
