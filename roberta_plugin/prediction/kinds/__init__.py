"""The kinds of tasks that a model can answer, one file each.

A new kind is a file here and a line of KINDS. Its class is derived from `base.Kind`, or from `base.TextKind` if a
classification head answers about a text or a pair.

base                interface of all kinds
fill_mask           a text with <mask>         -> the most probable tokens
classification      a text or a pair           -> a label, and all probabilities
multi_label         a text or a pair           -> any number of labels, and all probabilities
regression          a text or a pair           -> a number
multiple_choice     context, question, options -> the best option
question_answering  question, context          -> a span of the context
tagging             a text or its words        -> a tag for each word, and entities
summary             a text                     -> the sentences that sum it up
pronoun             a sentence with [it]       -> the phrase that the pronoun stands for
embedding           a text                     -> a vector
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from roberta_plugin.prediction.kinds.base import Kind


class Entry(NamedTuple):
    """A kind of task."""

    class_name: str
    """Its class in the file of its name."""
    fields: str
    """Fields of a record, for the help text."""
    trained_for: tuple[str, ...] = ()
    """Fine-tuning tasks, or kinds of `finetuning/glue/tasks.py` and `finetuning/custom/kinds`, that train for it."""


KINDS: dict[str, Entry] = {
    "fill_mask": Entry("FillMask", "text"),
    "classification": Entry("Classification", "text [text_pair]", ("classification",)),
    "multi_label": Entry("MultiLabel", "text [text_pair]", ("multi_label",)),
    "regression": Entry("Regression", "text [text_pair]", ("regression", "pair_ranking")),
    "multiple_choice": Entry(
        "MultipleChoice",
        "context question options",
        ("race", "multiple_choice", "COPA", "ReCoRD", "CommonsenseQA"),
    ),
    "question_answering": Entry("QuestionAnswering", "question context", ("squad1", "squad2", "question_answering")),
    "tagging": Entry("Tagging", "text or words", ("tagging",)),
    "summary": Entry("Summary", "text", ("summaries", "cnn_dailymail")),
    "pronoun": Entry("Pronoun", "text [candidates]", ("phrase_ranking",)),
    "embedding": Entry("Embedding", "text [text_pair]"),
}


def kind_class(name: str) -> type[Kind]:
    """The class of a kind; its file is imported by this call.

    Raises:
        ValueError: if there is no such kind.
    """
    if name not in KINDS:
        raise ValueError(f"--task-kind must be one of {', '.join(KINDS)}, got {name!r}.")
    module = importlib.import_module(f"{__name__}.{name}")
    found: type[Kind] = getattr(module, KINDS[name].class_name)
    return found


def kind_of_training(trained_on: Mapping[str, Any]) -> str | None:
    """The kind of a fine-tuned checkpoint (`finetuning/identity.py`); None if the checkpoint does not record it."""
    said = (trained_on.get("settings", {}).get("kind"), trained_on.get("task"))
    return next((name for name, entry in KINDS.items() if any(word in entry.trained_for for word in said)), None)
