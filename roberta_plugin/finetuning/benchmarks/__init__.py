"""Official files -> records of a kind: all fine-tuning tasks, each one a row (`base.Benchmark`) of a module.

Extensions register the modules (`registry.BENCHMARKS`).

    base        the class of a row, and common parts: official files, prepare, recipe, score
    tsv_files   tasks of TSV files, as in GLUE
    json_files  tasks of JSON Lines, as in SuperGLUE
    submission  prediction files       -> the zip of a leaderboard
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from typing import TYPE_CHECKING, Any

from roberta_plugin.finetuning.options import Stage, TaskOptions
from roberta_plugin.registry import BENCHMARKS, KINDS, owners_elsewhere, problems
from roberta_plugin.settings import flag, from_arguments

if TYPE_CHECKING:
    from roberta_plugin.finetuning.benchmarks.base import Benchmark
    from roberta_plugin.finetuning.kinds.base import Kind
    from roberta_plugin.finetuning.prepared import Prepared
    from roberta_plugin.finetuning.records import WhiteSpace


def all_tasks() -> tuple[str, ...]:
    """All fine-tuning tasks; the modules of their rows are not imported."""
    return tuple(task for family in BENCHMARKS.values() for task in family.tasks)


def options_class(task: str) -> type[TaskOptions]:
    """The dataclass of a task's options."""
    options: type[TaskOptions] = BENCHMARKS.load(_family_of(task), "options")
    return options


def _family_of(task: str) -> str:
    for name, family in BENCHMARKS.items():
        if task in family.tasks:
            return name
    raise ValueError(unknown_task(task))


def unknown_task(task: object) -> str:
    """The message about a task that no installed extension has."""
    known = ", ".join(all_tasks())
    sentences = (
        f"There is no fine-tuning task {task!r}; there are {known}.",
        "Correct the name, or install the package that has it.",
    )
    return " ".join([*sentences, *problems])


def benchmark_of(task: str) -> Benchmark:
    """The row of a task; its module is imported by this call."""
    row: Benchmark = BENCHMARKS.load(_family_of(task), "rows")[task]
    return row


def options_for(task: str, values: Mapping[str, Any] | None = None) -> TaskOptions:
    """The options of a task with values or texts by field name; None: not given.

    Example:
        options_for("race", {"order": "question"})  ->  RaceOptions(order="question")
    """
    values = {name: value for name, value in (values or {}).items() if value is not None}
    flags = {item.name: flag(item) for item in option_fields(task)}
    for name in values.keys() - flags.keys():
        has = f"it has {', '.join(flags.values())}" if flags else "it has none"
        raise ValueError(f"--{name.replace('_', '-')} is not an option of {task}: {has}.")
    return from_arguments(options_class(task), values)


def checked_options(task: str, options: TaskOptions | None) -> TaskOptions:
    """The options, checked and complete; None: the paper's values."""
    if options is None:
        return options_for(task)
    if type(options) is not options_class(task):
        raise ValueError(f"{task} has {options_class(task).__name__}, got {options}.")
    return options_for(task, {**options.given("prepare"), **options.given("score")})


def option_fields(task: str, *, stages: Sequence[Stage] = ("prepare", "score")) -> list[Field[Any]]:
    """The options that a task has in some stages, in order."""
    return [
        item
        for item in fields(options_class(task))
        if item.metadata["stage"] in stages and task in item.metadata.get("tasks", (task,))
    ]


def kind_of_task(task: str) -> str | None:
    """The kind of a task; None for tables of your own, whose settings have it, and if there is no such task."""
    return (benchmark_of(task).kind or None) if task in all_tasks() else None


def brought_by(task: str, settings: Mapping[str, Any]) -> list[dict[str, str]]:
    """The extensions of other packages that have a task or its kind (`registry.owners_elsewhere`)."""
    kind = kind_of_task(task) or settings.get("kind")
    families = ((BENCHMARKS, name) for name, family in BENCHMARKS.items() if task in family.tasks)
    return owners_elsewhere(*families, *([(KINDS, str(kind))] if kind in KINDS else []))


def white_space_of(kind: type[Kind], task: str) -> WhiteSpace:
    """How a model of a kind, fine-tuned on a task, reads the white space of a text."""
    return (benchmark_of(task).rules.white_space if task in all_tasks() else None) or kind.white_space


def kind_of(prepared: Prepared) -> Kind:
    """The kind of a prepared folder; its file is imported by this call."""
    return benchmark_of(prepared.task).kind_for(prepared.settings)
