"""The interface of all kinds of tasks, and the fields of records.

Shapes: N questions, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from roberta_plugin.finetuning.glue.tasks import TASKS
from roberta_plugin.finetuning.superglue.texts import TEXTS
from roberta_plugin.hub import RobertaHub
from roberta_plugin.json_files import read_json
from roberta_plugin.prediction.settings import PredictSettings
from roberta_plugin.tables import IN_MEMORY, Row

DEFAULT_THRESHOLD = 0.5
THRESHOLDS = {"threshold": "models of several labels", "null_threshold": "models that find answers"}
OF_KINDS = {  # options of some kinds
    "num_sentences": ("summary",),
    "length_share": ("summary",),
    "no_trigram_blocking": ("summary",),
    "valid_sequences": ("tagging",),
    "head": (
        *("classification", "multi_label", "regression", "multiple_choice"),
        *("question_answering", "tagging", "summary"),
    ),
}

Answer = dict[str, Any] | ValueError
"""The answer to a record, or the reason why there is none."""


class Kind(ABC):
    """Answers of one kind, by one model."""

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]] = ("text",)
    """Fields of a record that --text-column and --text-pair-column stand for."""
    threshold: ClassVar[str] = ""
    """Name of the setting that is its threshold; empty if it has none."""

    def __init__(self, hub: RobertaHub, settings: PredictSettings) -> None:
        """Check that the model can give such answers.

        Raises:
            ValueError: if it cannot.
        """
        self.hub, self.settings = hub, settings
        for name, what in THRESHOLDS.items():
            if getattr(settings, name) is not None and name != self.threshold:
                raise ValueError(f"--{name.replace('_', '-')} goes with {what}, and this one is for {self.name}.")
        for name, kinds in OF_KINDS.items():
            if getattr(settings, name) not in (None, False) and self.name not in kinds:
                goes_with = " or ".join(kinds)
                raise ValueError(f"--{name.replace('_', '-')} goes with {goes_with}, and this is {self.name}.")
        if settings.text_pair_column is not None and len(self.columns) == 1:
            raise ValueError(f"--text-pair-column goes with models of two texts, and this one is for {self.name}.")
        self.trained = hub.trained_on.get("settings", {})
        self.max_length = settings.max_length or min(
            self.trained.get("max_length", hub.max_positions), hub.max_positions
        )
        if self.max_length > hub.max_positions:
            raise ValueError(
                f"--max-length {self.max_length}: the model has {hub.max_positions} positions. Give at most that."
            )

    def chosen_threshold(self) -> float:
        """The threshold that is given, or that of the development set if the model is the output folder of `roberta
        finetune`, or 0.5.

        Raises:
            ValueError: if the file that has it is damaged.
        """
        given: float | None = getattr(self.settings, self.threshold)
        if given is not None or not self.settings.model.is_dir():
            return DEFAULT_THRESHOLD if given is None else given
        path = self.settings.model / "results" / "evaluation_valid.json"
        remedy = f"give --{self.threshold.replace('_', '-')}"
        metrics = (read_json(path, keys=["ensemble"], remedy=remedy) or {}).get("ensemble", {})
        return float(next((metrics[name] for name in THRESHOLDS if name in metrics), DEFAULT_THRESHOLD))

    def question(self, record: Mapping[str, Any]) -> Any:
        """`read` of a result of `with_columns`, whose errors name the columns of the record.

        Raises:
            ValueError: naming the column and the remedy.
        """
        try:
            return self.read(self.with_columns(record))
        except ValueError as error:
            text = str(error)
            for name, column in self._chosen_columns(record).items():
                text = text.replace(f"the field {name!r}", f"the column {column!r}")
            raise ValueError(text) from None

    def with_columns(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The record with the chosen columns under the names that `read` looks for, and its id under `id`.

        Raises:
            ValueError: naming the option and the columns that there are, if one is missing.
        """
        return {**record, **{name: record[column] for name, column in self._chosen_columns(record).items()}}

    def _chosen_columns(self, record: Mapping[str, Any]) -> dict[str, str]:
        """Name of a field that `read` looks for -> the column that the settings or the training give for it."""
        result = {}
        names = {"text_column": self.columns[0], "text_pair_column": self.columns[-1], "id_column": "id"}
        for option, name in names.items():
            column = getattr(self.settings, option)
            is_known = option == "id_column" or len(self.columns) > 1  # as the columns of own data that it learned from
            if column is None and is_known and self.trained.get(option) in record:
                column = self.trained[option]
            if column is None:
                continue
            if column not in record:
                raise ValueError(
                    f"there is no column {column!r}; there are {', '.join(record)}. Name one of them by "
                    f"--{option.replace('_', '-')}."
                )
            result[name] = column
        return result

    @abstractmethod
    def read(self, record: Mapping[str, Any]) -> Any:
        """The fields of a record, checked.

        Raises:
            ValueError: naming the field and the remedy.
        """

    @abstractmethod
    def answer(self, questions: Sequence[Any]) -> list[Answer]:
        """The answers to results of `read`, in order."""

    def class_head(self) -> str:
        """The classification head to use.

        Raises:
            ValueError: if there is none, or more than one and none is chosen.
        """
        return chosen_head(self.hub.heads_of("classification"), self.settings.head, kind=self.name)

    def score_head(self) -> str:
        """The classification head to use, which has one output.

        Raises:
            ValueError: if it has several, or as `class_head`.
        """
        head = self.class_head()
        if (outputs := self.hub.num_classes(head)) != 1:
            raise ValueError(
                f"The head {head} has {outputs} outputs, one for each class: give --task-kind classification."
            )
        return head


def text_columns(hub: RobertaHub) -> tuple[str, ...]:
    """The columns of the text or the two texts that the model was fine-tuned on; empty if unknown."""
    settings = hub.trained_on.get("settings", {})
    if "text_column" in settings:  # own data
        return tuple(name for name in (settings["text_column"], settings.get("text_pair_column")) if name)
    task = TASKS.get(str(hub.trained_on.get("task")))
    return () if task is None else task.sentences


class Texts(NamedTuple):
    """A text or a pair."""

    first: str
    second: str | None = None


class TextKind(Kind):
    """A kind that reads a text or a pair, and answers by the logits of a classification head."""

    columns = ("text", "text_pair")
    head: str
    """Its name; set by each kind."""

    def read(self, record: Mapping[str, Any]) -> Texts:
        """See `Kind.read`."""
        return texts_of(record, self.hub)

    def logits(self, questions: Sequence[Texts]) -> tuple[Tensor, list[bool]]:
        """Logits (N, C), and which texts were cut, which is done as in fine-tuning."""
        inputs = sequences_of(self.hub, questions, max_length=self.max_length)
        sequences = [sequence for sequence, _ in inputs]
        logits = self.hub.class_logits(sequences, self.head, max_tokens=self.settings.batch_tokens)
        return logits, [is_cut for _, is_cut in inputs]


def chosen_head(heads: Sequence[str], wanted: str | None, *, kind: str) -> str:
    """The head called `wanted`, or the only one.

    Raises:
        ValueError: if there is none, or more than one and none is chosen.
    """
    if wanted is not None and wanted not in heads:
        raise ValueError(f"--head {wanted}: the model has {', '.join(heads) or 'no head'} for {kind}.")
    if wanted is None and len(heads) != 1:
        if not heads:
            raise ValueError(f"The model has no head for {kind}: fine-tune it first, or give another --task-kind.")
        raise ValueError(f"The model has the heads {', '.join(heads)}: choose one with --head.")
    return wanted or heads[0]


def text_of(record: Mapping[str, Any], *names: str) -> str:
    """The text of the first of these fields that the record has.

    Raises:
        ValueError: if it has none, or the field holds no text.
    """
    name = next((name for name in names if name in record), None)
    if name is None:
        raise ValueError(
            f"the field {names[0]!r} is missing; found {', '.join(record) or 'none'}. Add it, or name the "
            "column by --text-column (that of a second text by --text-pair-column)."
        )
    value = record[name]
    if not isinstance(value, str) or not value.strip():
        what = "is empty" if value is None or isinstance(value, str) else f"holds {str(value)[:40]} instead of a text"
        raise ValueError(f"the field {name!r} {what}. Give a text, or leave the record out.")
    return value


def texts_of(record: Mapping[str, Any], hub: RobertaHub) -> Texts:
    """The fields text and text_pair, or those that the model was fine-tuned on.

    Raises:
        ValueError: if there is no text, or one text only for a model of pairs.
    """
    name = str(hub.trained_on.get("task"))
    if name in TEXTS and "text" not in record:
        return Texts(*TEXTS[name](Row(IN_MEMORY, 0, record)))
    columns = ("text", "text_pair") if name in TEXTS else text_columns(hub)
    first = text_of(record, "text", *columns[:1])
    names = [name for name in ("text_pair", *columns[1:]) if name in record]
    if not names:
        if len(columns) == 2:
            raise ValueError(
                f"the field {columns[1]!r} is missing, and the model was fine-tuned on pairs of texts; text_pair is "
                "read too. Add one."
            )
        return Texts(first)
    if len(columns) == 1:
        raise ValueError(f"the model was fine-tuned on single texts, and the record has {names[0]!r}. Leave it out.")
    return Texts(first, text_of(record, *names))


def sequences_of(hub: RobertaHub, texts: Sequence[Texts], *, max_length: int) -> list[tuple[NDArray[np.int32], bool]]:
    """The model's input of each text or pair as in fine-tuning, and whether it was cut to `max_length` tokens."""
    encoder = hub.codec.encoder
    firsts = encoder.ids_of_all([text.first.strip() for text in texts])
    seconds = iter(encoder.ids_of_all([text.second.strip() for text in texts if text.second is not None]))
    result = []
    for text, first in zip(texts, firsts, strict=True):
        second = None if text.second is None else next(seconds)
        sequence = encoder.join(first, second, max_length=max_length)
        whole = len(first) + 2 if second is None else len(first) + len(second) + 4
        result.append((sequence, whole > len(sequence)))
    return result


def marked(content: dict[str, Any], *, is_cut: bool) -> dict[str, Any]:
    """The answer, with a mark if the text was cut."""
    return {**content, "truncated": True} if is_cut else content
