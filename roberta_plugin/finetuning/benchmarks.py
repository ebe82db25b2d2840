"""The table of all fine-tuning tasks: which benchmark serves which task, and what a benchmark offers.

A benchmark is a package of this folder whose module `benchmark` has the names of `Benchmark`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from roberta_plugin.finetuning.options import OPTIONS, Stage, TaskOptions, fields_of
from roberta_plugin.kinds import kind_class
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.settings import flag, from_arguments

if TYPE_CHECKING:
    from roberta_plugin.data.tokenizers.base import Tokenizer
    from roberta_plugin.data.vocabulary import Vocabulary
    from roberta_plugin.finetuning.prepared import Prepared
    from roberta_plugin.kinds.base import Kind

SMALLER_IS_BETTER = ("loss", "mae", "rmse")  # of the metrics; the others grow with the quality

# benchmark -> the kind of its tasks, or "" if their settings name it; and the tasks that it serves, as the command line
# names them
BENCHMARKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "glue": (
        "",
        ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "QNLI-ranking", "RTE", "WNLI"),
    ),
    "squad": ("question_answering", ("squad1", "squad2")),
    "race": ("multiple_choice", ("race", "multiple_choice")),
    "tagging": ("tagging", ("conll2003", "wnut17", "tagging")),
    "summaries": ("summary", ("summaries", "cnn_dailymail")),
    "superglue": ("", ("WSC", "WinoGrande", "BoolQ", "CB", "SuperRTE", "WiC", "MultiRC")),
    "superglue.choices": ("multiple_choice", ("COPA", "ReCoRD", "CommonsenseQA")),
    "custom": ("", ("custom",)),
}
TASKS = tuple(task for _, tasks in BENCHMARKS.values() for task in tasks)


@dataclass(frozen=True, kw_only=True)
class PaperRecipe:
    """How the paper trains a task, in the form of a grid file: values are strings."""

    train: Mapping[str, Any]
    """Options of fairseq-train that all runs share, without data, model and checkpoint."""
    axes: Mapping[str, Any]
    """Axes of the grid."""
    seeds: Sequence[str]
    """One run of each cell per seed."""
    metric: Mapping[str, str]
    """The metric that selects the checkpoint and the cell, as the log names it."""
    official: str = ""
    """The metric of `Benchmark.score` that models are compared by; empty: that of `metric`."""
    starts_from: str = ""
    """The task whose fine-tuned model the paper starts from; empty: the pretrained model."""

    @property
    def compared_by(self) -> str:
        """The metric of `Benchmark.score` that models are compared by; the log says tuned_f1 for f1 at a threshold."""
        return self.official or self.metric["value"].removeprefix("tuned_")


class Benchmark(Protocol):
    """What a benchmark's module `benchmark` offers."""

    PAPER: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]
    """Task -> split -> row of the paper -> metric -> number."""

    def settings(self, task: str, *, max_length: int, options: Any) -> dict[str, Any]:
        """The settings that a folder prepared with these options records.

        Raises:
            ValueError: if `max_length` leaves no room for what the options ask for.
        """

    def raw_files(self, task: str, raw: Path, options: Any) -> list[Path]:
        """The official files that are prepared, split by split.

        Raises:
            FileNotFoundError: if `raw` does not hold them.
        """

    def prepare(
        self,
        task: str,
        raw: Path,
        output: Path,
        *,
        tokenizer: Tokenizer,
        vocabulary: Vocabulary,
        max_length: int,
        options: Any,
    ) -> None:
        """Write the prepared folder `output` from the official files in `raw`.

        Args:
            task: one of the benchmark's tasks.
            raw: folder of the official files.
            output: folder to write.
            tokenizer: of the model to fine-tune.
            vocabulary: the same.
            max_length: most tokens of a sequence.
            options: the benchmark's dataclass of `options.py`.

        Raises:
            FileNotFoundError: if `raw` does not hold the files.
            ValueError: naming the file, the line or entry and the remedy, if a file is not as it should be.
        """

    def recipe(self, task: str, prepared: Prepared, *, epochs: int | None = None) -> PaperRecipe:
        """The paper's settings for a prepared folder; `epochs` replaces the paper's number."""

    def score(
        self,
        task: str,
        prepared: Prepared,
        split: str,
        members: Sequence[RawOutputs],
        *,
        folder: Path | None,
        options: Any,
    ) -> dict[str, float]:
        """Official metrics of one model or of an ensemble, whose members' probabilities are averaged.

        Args:
            task: one of the benchmark's tasks.
            prepared: the data.
            split: which split of it.
            members: raw outputs of each model.
            folder: where the prediction files are written; None: nowhere.
            options: the benchmark's dataclass of `options.py`.

        Returns:
            Metrics from 0 to 100, unrounded; empty for a split without labels.
        """

    def details(
        self, task: str, prepared: Prepared, split: str, members: Sequence[RawOutputs], *, options: Any
    ) -> dict[str, Any]:
        """What a report shows besides the metrics; only some benchmarks have this function.

        Args:
            task: one of the benchmark's tasks.
            prepared: the data.
            split: which split of it.
            members: raw outputs of each model.
            options: the benchmark's dataclass of `options.py`.

        Returns:
            JSON values, of which `experiments/evaluation_details.py` shows: `num_examples`; `intervals`, metric -> the
            ends of its confidence interval; `not_measured`, metrics that the split cannot tell; `baseline`, metric ->
            what a constant answer gets; `classes`, a row per label with `label`, `precision`, `recall` and `f1`, which
            are None if no example has the label, and `support`; `confusion`, `labels` and `counts`. Empty for a
            split without labels.
        """

    def prediction_files(self, task: str, split: str) -> Sequence[str]:
        """Names of the prediction files of a split, relative to the `folder` of `score`."""


def benchmark_name_of(task: str) -> str:
    """The name of the benchmark that serves a task.

    Raises:
        ValueError: if there is no such task.
    """
    for name, (_, tasks) in BENCHMARKS.items():
        if task in tasks:
            return name
    raise ValueError(f"There is no fine-tuning task {task!r}; there are {', '.join(TASKS)}.")


def benchmark_of(task: str) -> Benchmark:
    """The benchmark that serves a task; its module is imported by this call."""
    module = importlib.import_module(f"roberta_plugin.finetuning.{benchmark_name_of(task)}.benchmark")
    return cast(Benchmark, module)


def options_for(task: str, values: Mapping[str, Any] | None = None) -> TaskOptions:
    """The options of a task with these values or texts, by field name; None: not given.

    Raises:
        ValueError: naming an option that the task does not have, or a value that it cannot have.

    Example:
        options_for("race", {"order": "question"})  ->  RaceOptions(order="question")
    """
    given = {name: value for name, value in (values or {}).items() if value is not None}
    known = {item.name: flag(item) for item in option_fields(task)}
    for name in given.keys() - known.keys():
        has = f"it has {', '.join(known.values())}" if known else "it has none"
        raise ValueError(f"--{name.replace('_', '-')} is not an option of {task}: {has}.")
    return from_arguments(OPTIONS[benchmark_name_of(task)], given)


def checked_options(task: str, options: TaskOptions | None) -> TaskOptions:
    """The options, or the paper's if there are none.

    Raises:
        ValueError: if they are those of another task.
    """
    if options is None:
        return options_for(task)
    if type(options) is not OPTIONS[benchmark_name_of(task)]:
        raise ValueError(f"{task} has {OPTIONS[benchmark_name_of(task)].__name__}, got {options}.")
    return options_for(task, {**options.given("prepare"), **options.given("score")})


def option_fields(task: str, *, stages: Sequence[Stage] = ("prepare", "score")) -> list[Field[Any]]:
    """The options that a task has in some stages, in order."""
    return fields_of(benchmark_name_of(task), task, stages=stages)


def kind_of_task(task: str) -> str | None:
    """The kind of a benchmark's tasks; None if their settings name it, or if there is no such task."""
    return next((kind or None for kind, tasks in BENCHMARKS.values() if task in tasks), None)


def kind_of(prepared: Prepared) -> Kind:
    """The kind of a prepared folder; its file is imported by this call.

    Raises:
        ValueError: if there is no such task, or no such kind.
    """
    benchmark_name_of(prepared.task)
    name = kind_of_task(prepared.task) or prepared.settings.get("kind")
    return kind_class(str(name))(prepared.settings, task_name=prepared.task)


def selectable(prepared: Prepared) -> tuple[str, ...]:
    """The metrics that a validation on a prepared folder logs, by which checkpoints can be chosen."""
    return (*kind_of(prepared).metrics(), "loss")
