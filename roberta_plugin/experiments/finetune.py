"""The paper's fine-tuning procedure for a task, from official files to official metrics.

    official files --prepare--> prepared folder --paper's settings--> finetune.yaml --sweep--> runs/CELL/seed-N/
    runs of the best cell --evaluate--> results/: metrics of each run, their median, the ensemble, predictions

Calling it again with the same settings resumes where it stopped. `cross_validate` does it for each fold of own data:

    table --hash of the text--> K prepared folders, each with another Kth as development set
    each of them --finetune--> OUTPUT_DIR/fold-K-of-N/{data,runs,results}; their metrics --> OUTPUT_DIR/folds.md, .json

Each fold chooses its cell of the grid, its thresholds and, but for --checkpoint last, its checkpoints by the rows that
it is judged by, which flatters it. With --valid-share, a share of the other parts chooses all of that, and the fold,
the split `held_out`, only judges.

Example:
    from roberta_plugin.experiments.finetune import FinetuneSettings, finetune

    files = {"model": Path("roberta.base/model.pt"), "raw": Path("glue_data"), "tokenizer": Path("gpt2_bpe")}
    result = finetune(FinetuneSettings(task="RTE", **files, output_dir=Path("runs/RTE"), seeds=["1", "2"]))
    print(result.best_cell, result.table)
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_plugin.experiments.evaluation import Evaluation, evaluate, shown, store_outputs
from roberta_plugin.experiments.evaluation_report import write_report
from roberta_plugin.experiments.finetuning_plan import FinetunePlan, plan_finetuning
from roberta_plugin.experiments.settings import EvaluateSettings, SweepSettings
from roberta_plugin.experiments.settings import FinetuneSettings as FinetuneSettings
from roberta_plugin.experiments.sweeps.grid import Grid
from roberta_plugin.experiments.sweeps.report import best_cell, cell_results
from roberta_plugin.experiments.sweeps.report import write_report as write_sweep_report
from roberta_plugin.files import write_text
from roberta_plugin.finetuning.kinds.outputs import HELD_OUT
from roberta_plugin.finetuning.kinds.score_names import is_score
from roberta_plugin.finetuning.options import TaskOptions
from roberta_plugin.json_files import write_json
from roberta_plugin.launch.run_folder import RunFolder, not_best
from roberta_plugin.reports import markdown_table
from roberta_plugin.runs import DONE, RUNNING, WAITING

if TYPE_CHECKING:
    from roberta_plugin.experiments.sweeps.sweep import SweepReport

Report = Callable[[str], None]
_BESIDE = {"baseline": "baseline", "tf_idf": "TF-IDF"}  # metrics of an evaluation -> head of their column
_HONEST = (
    "held_out is each fold, which chose nothing: its mean is honest. valid is a share of the other rows, which chose "
    "{chosen}."
)
_FLATTERED = (
    "Each fold also chose its {chosen}, which flatters the mean; with --valid-share 0.1, other rows choose them."
)
_CHOSEN = "hyperparameter setting, threshold and temperature"


@dataclass(frozen=True, kw_only=True)
class FinetuneResult:
    """The outcome of `finetune`."""

    plan: FinetunePlan
    sweep: Mapping[str, Any] | None = None  # content of the sweep's report.json; None if nothing was trained
    evaluations: Sequence[Evaluation] = ()  # evaluations of the best cell's runs; empty while runs are left to do
    table: str = ""  # the evaluations beside the paper's numbers, as Markdown

    @property
    def best_cell(self) -> str | None:
        """The cell with the best median on the development set."""
        return self.sweep["best_cell"] if self.sweep else None

    @property
    def failures(self) -> Mapping[str, Any]:
        """Runs that have failed, with the reason."""
        return self.sweep["failures"] if self.sweep else {}


def finetune(settings: FinetuneSettings, *, report: Report = lambda line: None) -> FinetuneResult:
    """Prepare the data, train every cell of the paper's grid with every seed, and evaluate the best cell.

    Raises:
        ValueError: if settings, model and data do not fit each other; or if the prepared folder or a run exists and was
            made with other settings: the message names each difference.
    """
    if settings.folds is not None:
        raise ValueError("folds are for `cross_validate`: call it instead, or leave them out.")
    plan = plan_finetuning(settings)
    return carry_out(plan, report=report)


def carry_out(plan: FinetunePlan, *, report: Report) -> FinetuneResult:
    """Train what is left of a plan, and evaluate the best cell once no run is left to do; nothing with `grid_only`."""
    from roberta_plugin.experiments.sweeps.sweep import summarize

    for remark in plan.remarks:
        report(remark)
    if plan.settings.grid_only:
        return FinetuneResult(plan=plan)
    trained = run_grid(plan, report=report)
    report(summarize(trained))
    runs = plan.runs
    members = best_runs(plan.grid, runs)
    if not members:
        return FinetuneResult(plan=plan, sweep=trained.facts)
    evaluations = evaluate(evaluation_of(members, plan.evaluation))
    table = write_report(evaluations, plan.results)
    if plan.settings.keep == "best" and all(run.state() == DONE for run in runs):
        drop_weights(not_best(runs, plan.grid.metric), plan.evaluation)
        write_sweep_report(plan.grid, runs, root=runs[0].root, ensemble_size=len(members), in_words=plan.in_own_options)
    return FinetuneResult(plan=plan, sweep=trained.facts, evaluations=evaluations, table=table)


def run_grid(plan: FinetunePlan, *, report: Report) -> SweepReport:
    """Do all runs that are not done yet.

    On SLURM a run's outputs are computed in its job, and not where this command waits: that has no GPU.
    """
    from roberta_plugin.experiments.sweeps.sweep import train_grid

    settings, is_local = plan.settings, plan.settings.slurm is None
    after = partial(compute_outputs, data=plan.prepared.folder.resolve(), options=settings.options)
    if settings.splits:  # omitted by default: jobs of older folders run older code without this argument
        after = partial(after, splits=settings.splits)
    return train_grid(
        plan.grid,
        SweepSettings(
            grid=plan.grid.path,
            output_dir=plan.root,
            parallel=settings.parallel,
            retries=settings.retries if is_local else 0,
            gpus_per_run=plan.gpus_per_run if is_local else 0,
            slurm=None if is_local else {},
            job_name=settings.job_name,
            wait=not is_local,
            in_words=plan.in_own_options,
            after=None if is_local else after,
            code=settings.code or settings.output_dir,
            keep="all" if settings.keep == "all" else "weights",  # the runs of the best cell are evaluated first
        ),
        say=report,
    )


def evaluation_of(runs: Sequence[RunFolder], evaluation: EvaluateSettings) -> EvaluateSettings:
    """The evaluation of finished runs by their chosen checkpoints, or by the raw outputs that they have stored."""
    return replace(
        evaluation,
        checkpoints=[run.chosen_checkpoint() for run in runs],
        stored=[run.outputs for run in runs],
    )


def compute_outputs(
    run: RunFolder, *, data: Path, options: TaskOptions | None, splits: Sequence[str] | None = None
) -> None:
    """Store the raw outputs of a finished run on the splits that are evaluated."""
    settings = EvaluateSettings(data=data, checkpoints=(), output_dir=run.path, options=options, splits=splits)
    store_outputs(evaluation_of([run], settings))


def best_runs(grid: Grid, runs: Sequence[RunFolder]) -> list[RunFolder]:
    """The finished ones among `runs` of the cell that is best by them; none while one of them is left to do."""
    if any(run.state() in (RUNNING, WAITING) for run in runs):
        return []
    best = best_cell([cell for cell in cell_results(grid, runs) if cell.values], grid.metric)
    return [run for run in runs if best is not None and run.run.cell == best.name and run.state() == DONE]


def drop_weights(runs: Sequence[RunFolder], evaluation: EvaluateSettings) -> None:
    """Delete the checkpoints of finished runs.

    Their raw outputs are stored first: with more seeds or cells, another cell may become the best one.
    """
    store_outputs(evaluation_of([run for run in runs if run.has_weights()], evaluation))
    for path in [path for run in runs for path in run.checkpoints()]:
        path.unlink()


@dataclass(frozen=True, kw_only=True)
class CrossValidation:
    """The outcome of `cross_validate`."""

    folds: Sequence[FinetuneResult]  # the result of each fold
    table: str  # mean and spread over the folds, as Markdown; empty while runs are left to do


def cross_validate(settings: FinetuneSettings, *, report: Report = lambda line: None) -> CrossValidation:
    """Run the procedure for each of `settings.folds`; calling it again resumes where it stopped.

    The settings are as for `finetune`, of own data without a development set.
    """
    plans = [plan_finetuning(each) for each in fold_settings(settings)]  # all, before hours of training one
    folds: list[FinetuneResult] = []
    for plan in plans:
        report(f"fold {len(folds) + 1} of {len(plans)}: {plan.settings.output_dir}")
        folds.append(carry_out(plan, report=report))
    table = ""
    if all(fold.evaluations for fold in folds):
        rows = fold_rows([fold.evaluations for fold in folds])
        is_honest = any(row["split"] == HELD_OUT for row in rows)
        chosen = _CHOSEN if settings.checkpoint == "last" else f"checkpoint, {_CHOSEN}"
        table = f"{fold_table(rows)}\n{(_HONEST if is_honest else _FLATTERED).format(chosen=chosen)}\n"
        write_text(settings.output_dir / "folds.md", table)
        write_json(settings.output_dir / "folds.json", rows)
    return CrossValidation(folds=folds, table=table)


def fold_settings(settings: FinetuneSettings) -> list[FinetuneSettings]:
    """The settings of each fold."""
    num_folds = settings.folds
    assert num_folds is not None
    return [
        replace(
            settings,
            folds=None,
            output_dir=settings.output_dir / f"fold-{number}-of-{num_folds}",
            code=settings.output_dir,
            options=settings.task_options.with_fold(number, num_folds),
        )
        for number in range(1, num_folds + 1)
    ]


def fold_rows(folds: Sequence[Sequence[Evaluation]]) -> list[dict[str, float | str]]:
    """One row per split and metric: mean, standard deviation (n - 1) and range of the folds' medians over seeds.

    Beside it is the mean of each baseline. A fold without the metric, because a label is missing, does not count. A
    metric of only one fold is left out.

    Example: two folds with accuracies 80 and 90 -> mean 85, deviation 7.07, from 80 to 90.
    """
    values: dict[tuple[str, str, str], list[float]] = {}
    for evaluation in itertools.chain(*folds):
        for name in ("median", *_BESIDE):
            for metric, value in getattr(evaluation, name).items():
                values.setdefault((name, evaluation.split, metric), []).append(value)
    return [
        {
            "split": split,
            "metric": metric,
            "mean": statistics.mean(medians),
            "deviation": statistics.stdev(medians),
            "smallest": min(medians),
            "largest": max(medians),
            "folds": len(medians),
            **{
                each: statistics.mean(values[each, split, metric])
                for each in _BESIDE
                if (each, split, metric) in values
            },
        }
        for (name, split, metric), medians in values.items()
        if name == "median" and len(medians) > 1
    ]


def fold_table(rows: Sequence[dict[str, float | str]]) -> str:
    """The rows as a table; each fold counts with the median of its seeds."""
    cells = []
    beside = {name: head for name, head in _BESIDE.items() if any(name in row for row in rows)}
    for row in rows:
        metric = str(row["metric"])
        is_metric = is_score(metric)
        baselines = [shown(metric, float(row[name])) if is_metric and name in row else "" for name in beside]
        mean, deviation, smallest, largest = (
            shown(metric, float(row[name])) if is_metric else f"{row[name]:.2f}"
            for name in ("mean", "deviation", "smallest", "largest")
        )
        cells.append(
            [str(row["split"]), metric, mean, deviation, f"{smallest} to {largest}", str(row["folds"]), *baselines]
        )
    head = ["split", "metric", "mean", "standard deviation", "min to max", "folds", *beside.values()]
    return markdown_table(head, cells) + "\n"
