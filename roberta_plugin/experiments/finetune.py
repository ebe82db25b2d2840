"""The paper's fine-tuning procedure for a task, from official files to official metrics.

    official files --prepare--> prepared folder --paper's settings--> finetune.yaml --sweep--> runs/CELL/seed-N/
    runs of the best cell --evaluate--> results/: metrics of each run, their median, the ensemble, predictions

Calling it again with the same settings resumes where it stopped.

Example:
    from roberta_plugin.experiments.finetune import FinetuneSettings, finetune

    files = {"model": Path("roberta.base/model.pt"), "raw": Path("glue_data"), "tokenizer": Path("gpt2_bpe")}
    result = finetune(FinetuneSettings(task="RTE", **files, output_dir=Path("runs/RTE"), seeds=["1", "2"]))
    print(result.best_cell, result.table)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from roberta_plugin.experiments.evaluation import EvaluateSettings, Evaluation, evaluate, store_outputs
from roberta_plugin.experiments.evaluation_report import write_report
from roberta_plugin.experiments.finetuning_grid import as_yaml, grid_of, quickened
from roberta_plugin.experiments.finetuning_settings import FinetuneSettings as FinetuneSettings
from roberta_plugin.experiments.finetuning_start import (
    Start,
    check_model,
    check_positions,
    check_start,
    starting_model,
    tokenizer_of,
)
from roberta_plugin.experiments.learning_curve import write_learning_curve
from roberta_plugin.experiments.sweeps.grid import Grid, grid_from
from roberta_plugin.experiments.sweeps.run import DONE, OUTPUTS, RUNNING, WAITING, RunFolder
from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.benchmarks import SMALLER_IS_BETTER, benchmark_of, selectable
from roberta_plugin.finetuning.inspection import remarks
from roberta_plugin.finetuning.options import TaskOptions
from roberta_plugin.finetuning.paper_settings import MAX_LENGTH
from roberta_plugin.finetuning.preparation import PrepareSettings, check_same, prepare
from roberta_plugin.finetuning.prepared import NAME, Prepared
from roberta_plugin.training.options_file import named_options

GRID = "finetune.yaml"
Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class FinetuneResult:
    """What `finetune` has done."""

    prepared: Prepared
    """The data."""
    grid_path: Path
    """The grid file, which `roberta sweep` reads too."""
    runs: Path
    """Folder of the runs and of the sweep's report.md, report.json and report.png."""
    results: Path
    """Folder of the evaluations, the prediction files and the table."""
    sweep: Mapping[str, Any] | None = None
    """Content of the sweep's report.json; None if nothing was trained."""
    evaluations: Sequence[Evaluation] = ()
    """Evaluations of the best cell's runs; empty while runs are left to do."""
    table: str = ""
    """The evaluations beside the paper's numbers, as Markdown."""

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

    Args:
        settings: what to do.
        report: called with lines about the progress, such as `print`.

    Raises:
        FileNotFoundError: if a file that the settings name does not exist.
        ValueError: if settings, model and data do not fit each other; or if the prepared folder or a run exists and was
            made with other settings: the message names each difference.
    """
    import roberta_plugin

    roberta_plugin.register()
    start = starting_model(settings.model)
    prepared = prepared_data(settings, start)
    grid = write_grid(settings, prepared, start, report=report)
    for remark in remarks(prepared):
        report(remark)
    result = FinetuneResult(
        prepared=prepared,
        grid_path=grid.path,
        runs=settings.output_dir / "runs",
        results=settings.output_dir / "results",
    )
    if settings.grid_only:
        return result
    facts = run_grid(settings, grid, data=prepared.folder, report=report)
    evaluations, table = evaluate_best(settings, prepared, grid, facts) if is_finished(facts) else ([], "")
    return replace(result, sweep=facts, evaluations=evaluations, table=table)


def prepared_data(settings: FinetuneSettings, start: Start) -> Prepared:
    """The prepared folder, made from the official files if it does not exist.

    Raises:
        ValueError: if it is for another task, or was prepared with other settings.
    """
    folder, max_length = settings.data or settings.output_dir / "data", settings.max_length
    if settings.raw is not None:
        max_length = min(MAX_LENGTH, start.max_positions) if max_length is None else max_length
        if not (folder / NAME).is_file():
            check_positions(start, settings.task, max_length=max_length, options=settings.task_options)
            tokenizer, dictionary = tokenizer_of(settings, start)
            prepare(
                PrepareSettings(
                    task=settings.task,
                    raw=settings.raw,
                    tokenizer=tokenizer,
                    dictionary=dictionary,
                    output_dir=folder,
                    max_length=max_length,
                    options=settings.options,
                )
            )
    prepared = Prepared.open(folder)
    if prepared.task != settings.task:
        raise ValueError(f"{folder} is prepared for {prepared.task}, not for {settings.task}: give another --data.")
    check_same(
        prepared, raw=settings.raw, tokenizer=settings.tokenizer, max_length=max_length, options=settings.options
    )
    return prepared


def write_grid(settings: FinetuneSettings, prepared: Prepared, start: Start, *, report: Report) -> Grid:
    """Write the grid file of all runs, for the user; return the grid, whose options are checked.

    Raises:
        ValueError: if settings and model do not fit each other, or if a run exists and was made with other settings.
    """
    from roberta_plugin.experiments.sweeps.sweep import check_options

    check_model(start, prepared)
    for split, what in (("train", "to train on"), ("valid", "to choose checkpoints by")):
        if split not in prepared.splits:
            raise ValueError(
                f"{prepared.folder} has no split {split!r} {what}; it has {', '.join(prepared.splits)}: add its file "
                f"to the raw files, delete {prepared.folder}, and run the same command again."
            )
    recipe = benchmark_of(settings.task).recipe(settings.task, prepared, epochs=settings.epochs)
    if settings.quick:
        recipe = quickened(recipe)
    if recipe.starts_from and start.checkpoint == settings.model:
        report(
            f"The paper starts {settings.task} from its {recipe.starts_from} model: to do the same, give --model the "
            f"output folder of `roberta finetune {recipe.starts_from}`."
        )
    options = named_options(settings.train_options, where="--set")
    select = selected_metric(settings, prepared, options.pop("best-checkpoint-metric", None))
    num_gpus = gpus_of_a_run(settings)
    content = grid_of(
        recipe,
        data=prepared.folder,
        model=start.options,
        checkpoint=None if settings.from_scratch else start.checkpoint,
        changes={
            **({} if num_gpus else {"cpu": "true"}),
            **options,
        },
        only=settings.only,
        seeds=settings.seeds,
        slurm=settings.slurm,
        metric=select,
        num_ranks=max(1, num_gpus),
    )
    path = settings.output_dir / GRID
    without_slurm = {name: section for name, section in json.loads(as_yaml(content)).items() if name != "slurm"}
    grid = grid_from(without_slurm, path)
    check_options(grid, is_written=False)
    for folder in run_folders(settings, grid):
        folder.check()  # before the file that describes them is replaced
    has_runs = (settings.output_dir / "runs").is_dir()
    check_start(None if settings.from_scratch else start, prepared, settings.output_dir, has_runs=has_runs)
    settings.output_dir.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, "w") as file:
        file.write(as_yaml(content))
    return replace(grid, slurm=settings.slurm)


def selected_metric(settings: FinetuneSettings, prepared: Prepared, by_set: str | None) -> tuple[str, str] | None:
    """The metric that --select names, or --set best-checkpoint-metric, and its goal; None: the recipe's.

    Raises:
        ValueError: if a validation of the task does not log it: names those that it does.
    """
    name, option = (settings.select, "--select") if settings.select else (by_set, "--set best-checkpoint-metric")
    if name is None:
        return None
    if by_set not in (None, name):
        raise ValueError(f"--select {name} and --set best-checkpoint-metric={by_set} contradict each other.")
    known = selectable(prepared)
    if name not in known:
        raise ValueError(f"{option} {name}: {settings.task} is not validated by it, but by {', '.join(known)}.")
    return name, "min" if name in SMALLER_IS_BETTER else "max"


def run_folders(settings: FinetuneSettings, grid: Grid) -> list[RunFolder]:
    """The folders of all runs."""
    root = (settings.output_dir / "runs").resolve()
    return [RunFolder(root, run, grid.metric) for run in grid.runs]


def gpus_of_a_run(settings: FinetuneSettings) -> int:
    """GPUs that a run has: those that SLURM is asked for, or of this machine's; 0: it computes on the CPU."""
    if settings.slurm is not None:
        return settings.slurm.gpus_per_node
    import torch

    num_gpus = gpus_per_run(settings)
    return max(1, num_gpus) if torch.cuda.is_available() else num_gpus


def gpus_per_run(settings: FinetuneSettings) -> int:
    """GPUs that each run on this machine has for itself; by default 1 if there are any."""
    import torch

    if settings.gpus_per_run is None:
        return 1 if torch.cuda.is_available() else 0
    return settings.gpus_per_run


def run_grid(settings: FinetuneSettings, grid: Grid, *, data: Path, report: Report) -> dict[str, Any]:
    """Do all runs that are not done yet; return the content of the sweep's report.json.

    On SLURM a run's outputs are computed in its job, and not where this command waits: that has no GPU.
    """
    from roberta_plugin.experiments.sweeps.sweep import SweepSettings, summary_of, sweep

    is_local = settings.slurm is None
    outcome = sweep(
        SweepSettings(
            grid=grid.path,
            output_dir=settings.output_dir / "runs",
            parallel=settings.parallel,
            retries=settings.retries if is_local else 0,
            gpus_per_run=gpus_per_run(settings) if is_local else 0,
            slurm=None if is_local else {},
            job_name=settings.job_name,
            wait=not is_local,
            after=None if is_local else partial(compute_outputs, data=data.resolve(), options=settings.options),
            code=settings.code or settings.output_dir,
            keep="all" if settings.keep == "all" else "weights",  # the runs of the best cell are evaluated first
        ),
        grid=grid,
        say=report,
    )
    report(summary_of(outcome))
    return dict(outcome.facts)


def compute_outputs(run: RunFolder, *, data: Path, options: TaskOptions | None) -> None:
    """Store the raw outputs of a finished run on every split but train."""
    store_outputs(
        EvaluateSettings(
            data=data,
            checkpoints=[run.path / "checkpoints" / "checkpoint_best.pt"],
            output_dir=run.path,
            options=options,
            stored=[run.path / OUTPUTS],
        )
    )


def is_finished(facts: Mapping[str, Any]) -> bool:
    """Whether no run is running or waiting, and there is a best cell."""
    return bool(facts["best_cell"]) and not any(facts["states"].get(state, 0) for state in (RUNNING, WAITING))


def evaluate_best(
    settings: FinetuneSettings, prepared: Prepared, grid: Grid, facts: Mapping[str, Any]
) -> tuple[list[Evaluation], str]:
    """Evaluate the best cell's finished runs on every split but train; then delete checkpoints that are not kept.

    The raw outputs of every run are stored first: with more seeds or cells, another cell may become the best one.

    Returns:
        The evaluations, and their table.
    """
    from roberta_plugin.experiments.sweeps.keep import keep_best, not_best
    from roberta_plugin.experiments.sweeps.report import write_report as write_sweep_report

    def of(runs: Sequence[RunFolder]) -> EvaluateSettings:
        return EvaluateSettings(
            data=prepared.folder,
            checkpoints=[folder.path / "checkpoints" / "checkpoint_best.pt" for folder in runs],
            output_dir=settings.output_dir / "results",
            options=settings.options,
            device=settings.device,
            show_progress=settings.show_progress,
            selection=grid.metric.value,
            stored=[folder.path / OUTPUTS for folder in runs],
        )

    folders = run_folders(settings, grid)
    members = [folder for folder in folders if folder.run.cell == facts["best_cell"] and folder.state() == DONE]
    evaluations = evaluate(of(members))
    if any(evaluation.details for evaluation in evaluations):
        is_regression = "mae" in selectable(prepared)
        write_learning_curve(members, grid.metric, settings.output_dir / "results", is_regression=is_regression)
    table = write_report(evaluations, settings.output_dir / "results")
    if settings.keep == "best" and all(folder.state() == DONE for folder in folders):
        store_outputs(of(not_best(folders, grid.metric)))
        keep_best(folders, grid.metric)
        write_sweep_report(grid, folders, root=folders[0].root, ensemble_size=len(members))
    return evaluations, table
