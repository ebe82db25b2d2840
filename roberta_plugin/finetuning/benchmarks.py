"""All fine-tuning tasks, by the module that has their rows (`benchmark.Benchmark`), or the folder whose `tasks` has."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from roberta_plugin.finetuning.options import (
    CustomOptions,
    GlueOptions,
    RaceOptions,
    SquadOptions,
    Stage,
    SummariesOptions,
    SuperGlueOptions,
    TaggingOptions,
    TaskOptions,
    XnliOptions,
)
from roberta_plugin.settings import flag, from_arguments

if TYPE_CHECKING:
    from roberta_plugin.finetuning.benchmark import Benchmark
    from roberta_plugin.finetuning.prepared import Prepared
    from roberta_plugin.kinds.base import Kind
    from roberta_plugin.kinds.records import WhiteSpace

SMALLER_IS_BETTER = ("loss", "mae", "rmse")  # of the metrics; the others grow with the quality


class Folder(NamedTuple):
    """A folder with rows."""

    kind: str
    """The kind of its tasks; empty: their settings name it."""
    tasks: tuple[str, ...]
    """As the command line names them."""
    options: type[TaskOptions] = TaskOptions


BENCHMARKS: dict[str, Folder] = {
    "glue": Folder(
        "", ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "QNLI-ranking", "RTE", "WNLI"), GlueOptions
    ),
    "xnli": Folder("classification", ("XNLI",), XnliOptions),
    "squad": Folder("question_answering", ("squad1", "squad2"), SquadOptions),
    "race": Folder("multiple_choice", ("race", "multiple_choice"), RaceOptions),
    "tagging": Folder("tagging", ("conll2003", "wnut17", "tagging"), TaggingOptions),
    "summaries": Folder("summary", ("summaries", "cnn_dailymail"), SummariesOptions),
    "superglue": Folder("", ("WSC", "WinoGrande", "BoolQ", "CB", "SuperRTE", "WiC", "MultiRC"), SuperGlueOptions),
    "superglue.choices": Folder("multiple_choice", ("COPA", "ReCoRD", "CommonsenseQA")),
    "custom": Folder("", ("custom",), CustomOptions),
}
TASKS = tuple(task for folder in BENCHMARKS.values() for task in folder.tasks)


def benchmark_name_of(task: str) -> str:
    """The name of the benchmark that serves a task."""
    for name, folder in BENCHMARKS.items():
        if task in folder.tasks:
            return name
    raise ValueError(f"There is no fine-tuning task {task!r}; there are {', '.join(TASKS)}.")


def benchmark_of(task: str) -> Benchmark:
    """The row of a task; its module is imported by this call."""
    name = benchmark_name_of(task)
    is_folder = Path(__file__).with_name(name).is_dir()
    module = importlib.import_module(f"roberta_plugin.finetuning.{name}{'.tasks' if is_folder else ''}")
    found: Benchmark = module.TASKS[task]
    return found


def options_for(task: str, values: Mapping[str, Any] | None = None) -> TaskOptions:
    """The options of a task with these values or texts, by field name; None: not given.

    Example:
        options_for("race", {"order": "question"})  ->  RaceOptions(order="question")
    """
    given = {name: value for name, value in (values or {}).items() if value is not None}
    known = {item.name: flag(item) for item in option_fields(task)}
    for name in given.keys() - known.keys():
        has = f"it has {', '.join(known.values())}" if known else "it has none"
        raise ValueError(f"--{name.replace('_', '-')} is not an option of {task}: {has}.")
    return from_arguments(_options_of(task), given)


def checked_options(task: str, options: TaskOptions | None) -> TaskOptions:
    """The options, or the paper's if there are none."""
    if options is None:
        return options_for(task)
    if type(options) is not _options_of(task):
        raise ValueError(f"{task} has {_options_of(task).__name__}, got {options}.")
    return options_for(task, {**options.given("prepare"), **options.given("score")})


def option_fields(task: str, *, stages: Sequence[Stage] = ("prepare", "score")) -> list[Field[Any]]:
    """The options that a task has in some stages, in order."""
    return [
        item
        for item in fields(_options_of(task))
        if item.metadata["stage"] in stages and task in item.metadata.get("tasks", (task,))
    ]


def _options_of(task: str) -> type[TaskOptions]:
    return BENCHMARKS[benchmark_name_of(task)].options


def kind_of_task(task: str) -> str | None:
    """The kind of a benchmark's tasks; None if their settings name it, or if there is no such task."""
    return next((folder.kind or None for folder in BENCHMARKS.values() if task in folder.tasks), None)


def white_space_of(kind: type[Kind], task: str) -> WhiteSpace:
    """What a model of a kind reads of a text's white space; SuperGLUE's choices keep what they have inside."""
    return "stripped" if task in BENCHMARKS["superglue.choices"].tasks else kind.white_space


def kind_of(prepared: Prepared) -> Kind:
    """The kind of a prepared folder; its file is imported by this call."""
    return benchmark_of(prepared.task).kind_for(prepared.settings)


def selectable(prepared: Prepared) -> tuple[str, ...]:
    """The metrics by which checkpoints can be chosen; a validation logs them."""
    return (*kind_of(prepared).metrics(), "loss")
