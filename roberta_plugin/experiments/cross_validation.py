"""Cross-validation on own data: the whole procedure once for each fold, then mean and spread of its metrics.

    table --hash of the text--> K prepared folders, each with another Kth as development set
    each of them --finetune--> OUTPUT_DIR/fold-K-of-N/{data,runs,results}; their metrics --> OUTPUT_DIR/folds.md, .json

Each fold chooses its cell of the grid by the metric that is reported, which flatters it a little; with one cell, as by
`--quick`, there is no choice.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from roberta_plugin.experiments.evaluation import Evaluation, shown
from roberta_plugin.experiments.finetune import FinetuneResult, finetune
from roberta_plugin.experiments.finetuning_plan import Report
from roberta_plugin.experiments.settings import FinetuneSettings
from roberta_plugin.experiments.sweeps.report import markdown_table
from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.options import CustomOptions


@dataclass(frozen=True, kw_only=True)
class CrossValidation:
    """What `cross_validate` has done."""

    folds: Sequence[FinetuneResult]
    """The result of each fold."""
    table: str
    """Mean and spread over the folds, as Markdown; empty while runs are left to do."""


def cross_validate(
    settings: FinetuneSettings, *, num_folds: int, report: Report = lambda line: None
) -> CrossValidation:
    """Run the procedure for each fold; calling it again resumes where it stopped.

    Args:
        settings: as for `finetune`; own data, without a development set.
        num_folds: how many parts the texts are cut into.
        report: called with lines about the progress.

    Raises:
        ValueError: if the settings do not go with folds; otherwise as `finetune`.
    """
    folds: list[FinetuneResult] = []
    settings_of_all = settings_of_folds(settings, num_folds)
    for each in settings_of_all:  # a fold that cannot be prepared is found before hours of training
        finetune(replace(each, grid_only=True))
    for each in settings_of_all:
        report(f"fold {len(folds) + 1} of {num_folds}: {each.output_dir}")
        folds.append(finetune(each, report=report))
    table = ""
    if all(fold.evaluations for fold in folds):
        rows = rows_of([fold.evaluations for fold in folds])
        table = as_markdown(rows)
        for name, text in (("folds.md", table), ("folds.json", json.dumps(rows, indent=2) + "\n")):
            with atomic_write(settings.output_dir / name, "w") as file:
                file.write(text)
    return CrossValidation(folds=folds, table=table)


def settings_of_folds(settings: FinetuneSettings, num_folds: int) -> list[FinetuneSettings]:
    """The settings of each fold.

    Raises:
        ValueError: naming the option that does not go with folds.
    """
    options = settings.options
    if settings.task != "custom" or not isinstance(options, CustomOptions):
        raise ValueError(f"--folds goes with custom: {settings.task} has an official development set.")
    if num_folds < 2:
        raise ValueError(f"--folds must be 2 or more, got {num_folds}.")
    if options.valid or options.valid_share or options.fold:
        raise ValueError("--folds cuts the development sets from --train: leave --valid, --valid-share and --fold out.")
    if settings.data is not None:
        raise ValueError("--folds prepares one folder for each fold: leave --data out, and give --train.")
    return [
        replace(
            settings,
            output_dir=settings.output_dir / f"fold-{number}-of-{num_folds}",
            code=settings.output_dir,
            options=replace(options, fold=f"{number}/{num_folds}"),
        )
        for number in range(1, num_folds + 1)
    ]


def rows_of(folds: Sequence[Sequence[Evaluation]]) -> list[dict[str, float | str]]:
    """One row per split and metric: mean, standard deviation (n - 1) and range of the folds' medians over seeds.

    Folds that did not measure it, for want of a label, do not count; a metric of one fold alone is left out.

    Example: two folds with accuracies 80 and 90 -> mean 85, deviation 7.07, from 80 to 90.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for evaluations in folds:
        for evaluation in evaluations:
            for metric, value in evaluation.median.items():
                found.setdefault((evaluation.split, metric), []).append(value)
    return [
        {
            "split": split,
            "metric": metric,
            "mean": statistics.mean(values),
            "deviation": statistics.stdev(values),
            "smallest": min(values),
            "largest": max(values),
            "folds": len(values),
        }
        for (split, metric), values in found.items()
        if len(values) > 1
    ]


def as_markdown(rows: Sequence[dict[str, float | str]]) -> str:
    """The rows as a table; each fold counts with the median of its seeds."""
    cells = []
    for row in rows:
        metric = str(row["metric"])
        mean, deviation, smallest, largest = (
            f"{row[name]:.2f}" if "threshold" in metric else shown(metric, float(row[name]))
            for name in ("mean", "deviation", "smallest", "largest")
        )
        cells.append([str(row["split"]), metric, mean, deviation, f"{smallest} to {largest}", str(row["folds"])])
    return markdown_table(["split", "metric", "mean", "standard deviation", "min to max", "folds"], cells) + "\n"
