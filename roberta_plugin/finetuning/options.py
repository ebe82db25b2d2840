"""What a user can change about the preparation and the scoring of a task: one dataclass for each benchmark.

`roberta prepare`, `roberta finetune` and `roberta evaluate` make their options from the fields, `question_length`
becomes --question-length, with the help text that stands here. In Python, pass the dataclass:

    PrepareSettings(task="squad2", ..., options=SquadOptions(doc_stride=64))

None stands for "not given": a new folder is then prepared with the paper's value, and a folder that exists is used
with the value it was prepared with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal

Stage = Literal["prepare", "score"]


def _option(default: Any, help_text: str, *, stage: Stage, **more: Any) -> Any:
    """A field that is an option: its help text, the stage it belongs to, and the values that it may have."""
    return field(default=default, metadata={"help": help_text, "stage": stage, **more})


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Options of a task; the subclasses have them."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: naming the option, the bad value and what would be right.
        """
        for item in fields(self):
            value, least, most = getattr(self, item.name), item.metadata.get("smallest"), item.metadata.get("largest")
            choices = item.metadata.get("choices")
            if value is None:
                continue
            if choices and value not in choices:
                raise ValueError(f"{flag(item)} must be {' or '.join(choices)}, got {value!r}.")
            if most is not None and not least <= value <= most:
                raise ValueError(f"{flag(item)} must be from {least:g} to {most:g}, got {value}.")
            if least is not None and not value >= least:
                raise ValueError(f"{flag(item)} must be {least} or more, got {value}.")

    def given(self, stage: Stage) -> dict[str, Any]:
        """The options of a stage that differ from their defaults, by field name.

        Example:
            SquadOptions(n_best=5, doc_stride=64).given("score")  ->  {"n_best": 5}
        """
        values = {item: getattr(self, item.name) for item in fields(self) if item.metadata["stage"] == stage}
        return {item.name: value for item, value in values.items() if value != item.default}


@dataclass(frozen=True, kw_only=True)
class GlueOptions(TaskOptions):
    """GLUE's tasks have no options."""


@dataclass(frozen=True, kw_only=True)
class SquadOptions(TaskOptions):
    """Options of squad1 and squad2."""

    question_length: int | None = _option(
        None, "tokens of a question; longer ones are cut (64)", stage="prepare", smallest=1
    )
    doc_stride: int | None = _option(
        None, "tokens of the passage between the starts of two windows (128)", stage="prepare", smallest=1
    )
    strict: bool = _option(
        False, "refuse answers that are not at their answer_start, instead of looking for them", stage="prepare"
    )
    train: str | None = _option(
        None, "file in --raw to train on, if its name differs from the official one", stage="prepare", metavar="FILE"
    )
    valid: str | None = _option(None, "the same for the development set", stage="prepare", metavar="FILE")
    test: str | None = _option(None, "the same for the test set", stage="prepare", metavar="FILE")
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

    @property
    def files(self) -> dict[str, str]:
        """Files that have other names than the official ones, by split."""
        named = {"train": self.train, "valid": self.valid, "test": self.test}
        return {split: name for split, name in named.items() if name is not None}


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
class SummariesOptions(TaskOptions):
    """Options of summaries and cnn_dailymail."""

    sentence_length: int | None = _option(
        None, "tokens of a sentence; longer ones are cut (200)", stage="prepare", smallest=1
    )
    doc_stride: int | None = _option(
        None,
        "tokens between the starts of two windows of a document that does not fit into one (half of --max-length)",
        stage="prepare",
        smallest=1,
    )
    oracle_sentences: int | None = _option(
        None, "most sentences of a document that are labelled as its summary (3)", stage="prepare", smallest=1
    )
    id_field: str | None = _option(
        None,
        "field of the id (id; without one, the number of the line)",
        stage="prepare",
        metavar="FIELD",
        tasks=("summaries",),
    )
    text_field: str | None = _option(
        None,
        "field of the text, or of a list of its sentences (text)",
        stage="prepare",
        metavar="FIELD",
        tasks=("summaries",),
    )
    summary_field: str | None = _option(
        None,
        "field of the summary, or of a list of its sentences (summary)",
        stage="prepare",
        metavar="FIELD",
        tasks=("summaries",),
    )
    train: str | None = _option(
        None,
        "file in --raw to train on, if its name differs from the usual ones",
        stage="prepare",
        metavar="FILE",
        tasks=("summaries",),
    )
    valid: str | None = _option(
        None, "the same for the development set", stage="prepare", metavar="FILE", tasks=("summaries",)
    )
    test: str | None = _option(None, "the same for the test set", stage="prepare", metavar="FILE", tasks=("summaries",))
    num_sentences: int | None = _option(None, "sentences of a summary (3)", stage="score", smallest=1)
    length_share: float | None = _option(
        None,
        "instead of a number of sentences: the share of the document's words, from 0 to 1, that a summary has at least",
        stage="score",
        smallest=0.0,
        largest=1.0,
        metavar="SHARE",
    )
    min_probability: float | None = _option(
        None,
        "instead of a number of sentences: choose those with this probability or more, from 0 to 1",
        stage="score",
        smallest=0.0,
        largest=1.0,
        metavar="P",
    )
    no_trigram_blocking: bool = _option(
        False, "also choose sentences that share three words in a row with one chosen before", stage="score"
    )

    def __post_init__(self) -> None:
        """Check the values, and that at most one option says how many sentences are chosen."""
        super().__post_init__()
        given = [
            name for name in ("num_sentences", "length_share", "min_probability") if getattr(self, name) is not None
        ]
        if len(given) > 1:
            flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ValueError(f"{flags} both say how many sentences are chosen: give one of them.")

    @property
    def files(self) -> dict[str, str]:
        """Files that have other names than the usual ones, by split."""
        named = {"train": self.train, "valid": self.valid, "test": self.test}
        return {split: name for split, name in named.items() if name is not None}


# benchmark -> its options; the tasks of a benchmark are in `benchmarks.BENCHMARKS`
OPTIONS: dict[str, type[TaskOptions]] = {"glue": GlueOptions, "squad": SquadOptions, "race": RaceOptions}
OPTIONS |= {"summaries": SummariesOptions}


def flag(item: Field[Any]) -> str:
    """An option as the command line spells it: `doc_stride` -> --doc-stride."""
    return f"--{item.name.replace('_', '-')}"


def fields_of(benchmark: str, task: str, *, stages: Iterable[Stage]) -> list[Field[Any]]:
    """The options that a task has in some stages."""
    return [
        item
        for item in fields(OPTIONS[benchmark])
        if item.metadata["stage"] in stages and task in item.metadata.get("tasks", (task,))
    ]
