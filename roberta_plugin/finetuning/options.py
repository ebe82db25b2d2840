"""What a user can change about the preparation and the scoring of a task: one dataclass for each benchmark.

`roberta prepare`, `roberta finetune` and `roberta evaluate` make their options from the fields, `question_length`
becomes --question-length, with the help text that stands here. In Python, pass the dataclass:

    PrepareSettings(task="squad2", ..., options=SquadOptions(doc_stride=64))

None stands for "not given": a new folder is then prepared with the paper's value, and a folder that exists is used
with the value it was prepared with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import Field, dataclass, fields
from typing import Any

from roberta_plugin.finetuning.custom.options import CustomOptions as CustomOptions
from roberta_plugin.finetuning.option_fields import FileOptions
from roberta_plugin.finetuning.option_fields import Stage as Stage
from roberta_plugin.finetuning.option_fields import TaskOptions as TaskOptions
from roberta_plugin.finetuning.summaries.options import SummariesOptions as SummariesOptions
from roberta_plugin.settings import setting as _option


@dataclass(frozen=True, kw_only=True)
class GlueOptions(TaskOptions):
    """GLUE's tasks have no options."""


@dataclass(frozen=True, kw_only=True)
class SquadOptions(FileOptions):
    """Options of squad1 and squad2."""

    question_length: int | None = _option(
        None, "tokens of a question; longer ones are cut (64)", stage="prepare", smallest=1
    )
    doc_stride: int | None = _option(
        None,
        "tokens of the passage between the starts of two windows (128, or half the room for the passage)",
        stage="prepare",
        smallest=1,
    )
    strict: bool = _option(
        False, "refuse answers that are not at their answer_start, instead of looking for them", stage="prepare"
    )
    n_best: int | None = _option(None, "candidate answers written for each question (20)", stage="score", smallest=1)
    max_answer_length: int | None = _option(None, "most tokens of an answer (30)", stage="score", smallest=1)
    null_threshold: float | None = _option(
        None,
        "probability of no answer, from 0 to 1, above which a question is left unanswered (default: the threshold "
        "with the best F1 on the development set)",
        stage="score",
        smallest=0.0,
        largest=1.0,
        metavar="P",
        tasks=("squad2",),
    )


@dataclass(frozen=True, kw_only=True)
class RaceOptions(TaskOptions):
    """Options of race and multiple_choice."""

    question_length: int | None = _option(
        None, "tokens of question and option together; longer ones are cut (128)", stage="prepare", smallest=1
    )
    order: str | None = _option(
        None,
        "which text comes first in the model's input (passage); checkpoints of fairseq's sentence_ranking need "
        "question",
        stage="prepare",
        choices=("passage", "question"),
    )


@dataclass(frozen=True, kw_only=True)
class TaggingOptions(FileOptions):
    """Options of conll2003, wnut17 and tagging."""

    doc_stride: int | None = _option(
        None,
        "tokens between the starts of two windows of a text that does not fit into one (128)",
        stage="prepare",
        smallest=1,
    )
    label_pieces: str | None = _option(
        None,
        "which tokens of a word learn its tag (first); the first one also gives the prediction",
        stage="prepare",
        choices=("first", "all"),
    )
    context: str | None = _option(
        None,
        "what the model reads at once: each sentence alone (sentence), or a whole document in windows",
        stage="prepare",
        choices=("sentence", "document"),
    )
    tokens_column: str | None = _option(
        None,
        "column of the words: its number from 1 on (1), its name in the first line, or a field of JSON Lines (tokens)",
        stage="prepare",
        metavar="COLUMN",
    )
    tags_column: str | None = _option(
        None,
        "the same for the tags (the last column; the field tags or ner_tags)",
        stage="prepare",
        metavar="COLUMN",
    )
    scheme: str | None = _option(
        None,
        "how the files mark entities (default: found out); plain: the tags are no entities, such as parts of speech",
        stage="prepare",
        choices=("iob1", "iob2", "iobes", "bilou", "plain"),
    )
    types: str | None = _option(
        None,
        "types of the entities, separated by commas (default: those of the files)",
        stage="prepare",
        metavar="TYPES",
        tasks=("tagging",),
    )
    strict: bool = _option(
        False,
        "refuse tags that are not valid in their scheme, instead of reading them as conlleval does",
        stage="prepare",
    )
    valid_sequences: bool = _option(
        False, "choose the most probable sequence of tags among those that are valid", stage="score"
    )


@dataclass(frozen=True, kw_only=True)
class SuperGlueOptions(TaskOptions):
    """Options of WinoGrande; the other tasks of SuperGLUE have none."""

    size: str | None = _option(
        None,
        "size of the training set (xl)",
        stage="prepare",
        choices=("xs", "s", "m", "l", "xl"),
        tasks=("WinoGrande",),
    )


@dataclass(frozen=True, kw_only=True)
class ChoicesOptions(TaskOptions):
    """COPA, ReCoRD and CommonsenseQA have no options."""


# benchmark -> its options; the tasks of a benchmark are in `benchmarks.BENCHMARKS`
OPTIONS: dict[str, type[TaskOptions]] = {
    "glue": GlueOptions,
    "squad": SquadOptions,
    "race": RaceOptions,
    "superglue": SuperGlueOptions,
    "superglue.choices": ChoicesOptions,
    "tagging": TaggingOptions,
    "summaries": SummariesOptions,
    "custom": CustomOptions,
}


def fields_of(benchmark: str, task: str, *, stages: Iterable[Stage]) -> list[Field[Any]]:
    """The options that a task has in some stages."""
    return [
        item
        for item in fields(OPTIONS[benchmark])
        if item.metadata["stage"] in stages and task in item.metadata.get("tasks", (task,))
    ]
