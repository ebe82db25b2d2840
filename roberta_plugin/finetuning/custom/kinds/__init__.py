"""The kinds of own data, one file each. A new kind is a file here, a line of KINDS, and a value of --kind.

A kind that is not one text with a number or a label can bring its own files along: `CustomKind.write` writes the
prepared split, `CustomKind.outcome` reads it, and any fairseq task with a criterion of its name can be the one that
trains it.

base                what every kind offers: row -> example -> numbers, inputs; outputs -> predictions, metrics
classification      a text or a pair             -> one of several labels
multi_label         a text or a pair             -> any number of labels
regression          a text or a pair             -> a number
multiple_choice     a context, a question        -> one of several options
question_answering  a text, a question           -> a part of the text
tagging             the words of a text          -> a tag for each word
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from roberta_plugin.finetuning.custom.kinds.base import CustomKind


class Entry(NamedTuple):
    """A kind of own data."""

    class_name: str
    """Its class in the file of its name."""
    fairseq_task: str
    """The value of fairseq-train's --task, whose head and loss it has."""
    loss: str = ""
    """Which of the losses of roberta_sentence_prediction it has; empty: the one of its name."""


KINDS: dict[str, Entry] = {
    "classification": Entry("Classification", "roberta_sentence_prediction"),
    "multi_label": Entry("MultiLabel", "roberta_sentence_prediction"),
    "regression": Entry("Regression", "roberta_sentence_prediction"),
    "multiple_choice": Entry("MultipleChoice", "race"),
    "question_answering": Entry("QuestionAnswering", "squad2"),
    "tagging": Entry("Tagging", "roberta_tagging"),
}


def entry_of(name: str) -> Entry:
    """The line of a kind.

    Raises:
        ValueError: if there is no such kind.
    """
    if name not in KINDS:
        raise ValueError(f"There is no kind {name!r} of own data; there are {', '.join(KINDS)}.")
    return KINDS[name]


def kind_of(settings: Mapping[str, Any]) -> CustomKind:
    """The kind that a prepared folder's settings name; its file is imported by this call.

    Raises:
        ValueError: if there is no such kind.
    """
    name = str(settings["kind"])
    module = importlib.import_module(f"{__name__}.{name}")
    made: CustomKind = getattr(module, entry_of(name).class_name)(settings)
    return made
