"""A fine-tuning probe: every pretrained model of a study x the paper's grid x seeds, as one sweep; official metrics.

One sweep for all models, and not one `roberta finetune` after the other, so that many runs go on at a time, here or as
one job array. For each model the cell with the best median on the development set counts, as in the paper (section
5.1).

    OUTPUT/fine-tuning/PROBE/ data/                          the prepared folder, shared by all models
                              grid.json                      the grid file
                              runs/model-VARIANT-seed-N_.../ as in every sweep; weights go when outputs are stored
                              results/VARIANT/seed-N/        evaluations and predictions of the best cell
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_plugin.experiments.evaluation import (
    PREFIX,
    EvaluateSettings,
    Evaluation,
    evaluate,
    store_outputs,
)
from roberta_plugin.experiments.finetuning_grid import grid_of
from roberta_plugin.experiments.finetuning_start import check_model, starting_model
from roberta_plugin.experiments.studies.checks import task_options
from roberta_plugin.experiments.studies.settings import TuningProbe
from roberta_plugin.experiments.sweeps.grid import Grid, grid_from
from roberta_plugin.experiments.sweeps.report import best_cell, cells_of
from roberta_plugin.experiments.sweeps.run import DONE, FAILED, OUTPUTS, RunFolder
from roberta_plugin.experiments.sweeps.sweep import check_options
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.preparation import PrepareSettings, check_same, prepare
from roberta_plugin.finetuning.prepared import NAME, Prepared

MODEL_AXIS = "model"


@dataclass(frozen=True, kw_only=True)
class Model:
    """A pretrained model of the study."""

    variant: str
    seed: str
    checkpoint: Path

    @property
    def label(self) -> str:
        """Its label on the axis of models."""
        return f"{self.variant}-seed-{self.seed}"


def is_prepared(folder: Path) -> bool:
    """Whether a probe's data is there."""
    return (folder / "data" / NAME).is_file()


def prepared_folder(probe: TuningProbe, folder: Path) -> Prepared:
    """The prepared data of a probe, made from the official files if they are not there.

    Raises:
        FileNotFoundError: if official files or the tokenizer are missing.
        ValueError: if they cannot be used, or the folder was prepared with other settings.
    """
    data, options = folder / "data", task_options(probe)
    if not is_prepared(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return prepare(
            PrepareSettings(
                task=probe.task,
                raw=probe.raw,
                tokenizer=probe.tokenizer,
                output_dir=data,
                max_length=probe.max_length,
                options=options,
            )
        )
    prepared = Prepared.open(data)
    check_same(prepared, raw=probe.raw, tokenizer=probe.tokenizer, max_length=probe.max_length, options=options)
    return prepared


def tuning_grid(probe: TuningProbe, prepared: Prepared, models: Sequence[Model], *, num_ranks: int) -> dict[str, Any]:
    """The content of the grid file: axes are the models, then those of the paper's grid.

    Of a model whose checkpoint is not there any more, only the names of the runs are right: enough to read results.

    Raises:
        ValueError: if the probe's grid or options do not fit the task, or a model does not fit the data.
    """
    choices = {}
    for model in models:
        choices[model.label] = {"finetune-from-model": str(model.checkpoint.resolve())}
        if model.checkpoint.is_file():
            start = starting_model(model.checkpoint)
            check_model(start, prepared)
            choices[model.label] = {**start.options, **choices[model.label]}
    recipe = benchmark_of(probe.task).recipe(probe.task, prepared, epochs=probe.epochs)
    content = grid_of(
        recipe,
        data=prepared.folder,
        model={},
        checkpoint=None,
        changes={**({} if num_ranks else {"cpu": "true"}), **probe.train},
        only=probe.grid,
        seeds=probe.seeds,
        slurm=None,
        num_ranks=max(1, num_ranks),
    )
    return {**content, "axes": {MODEL_AXIS: choices, **content["axes"]}}


def num_cells(probe: TuningProbe, prepared: Prepared) -> int:
    """Cells of the grid of one model."""
    axes = tuning_grid(probe, prepared, [], num_ranks=0)["axes"]
    count = 1
    for name, choices in axes.items():
        count *= 1 if name == MODEL_AXIS else len(choices)
    return count


def check_options_of(probe: TuningProbe, prepared: Prepared, path: Path) -> None:
    """Refuse options that fairseq-train does not know, before a model is there to start from.

    Args:
        probe: the probe.
        prepared: its data.
        path: of the study, for messages.

    Raises:
        ValueError: naming the file and the probe.
    """
    content = tuning_grid(probe, prepared, [], num_ranks=0)
    content["axes"] = {**content["axes"], MODEL_AXIS: {"any": {"arch": "fast_roberta_base"}}}
    try:
        check_options(grid_from(content, path))
    except ValueError as error:
        raise ValueError(f"{path}: probes, {probe.name}: {error}") from error


def run_folders(grid: Grid, folder: Path) -> list[RunFolder]:
    """The folders of all runs."""
    return [RunFolder((folder / "runs").resolve(), run, grid.metric) for run in grid.runs]


def results_of(
    probe: TuningProbe, model: Model, grid: Grid, folder: Path, *, device: str | None, only_read: bool = False
) -> dict[str, Any] | None:
    """Official metrics of a model's best cell; None while runs of it are left to do.

    A cell with a failed run is left out: a learning rate at which a run diverges is not the best one.
    The raw outputs of every run are stored first, and then the weights are deleted: more cells or seeds may be added.
    With `only_read` nothing is written or deleted, and a cell that is not evaluated yet gives None as well.

    Returns:
        "value": the median over seeds; "seeds": the value of each; "cell"; "medians" of all cells by the log's metric.
    """
    folders = [one for one in run_folders(grid, folder) if one.run.settings[MODEL_AXIS] == model.label]
    cells = [cell for cell in cells_of(grid, folders) if cell.values and cell.is_complete]
    best = best_cell(cells, grid.metric)
    if best is None or any(one.state() not in (DONE, FAILED) for one in folders):
        return None

    def of(runs: Sequence[RunFolder]) -> EvaluateSettings:
        return EvaluateSettings(
            data=folder / "data",
            checkpoints=[one.checkpoint() or one.path / "checkpoints" / "checkpoint_best.pt" for one in runs],
            output_dir=folder / "results" / model.variant / f"seed-{model.seed}",
            splits=["valid"],
            options=task_options(probe),
            device=device,
            stored=[one.path / OUTPUTS for one in runs],
        )

    chosen = [one for one in folders if one.run.cell == best.name]
    evaluation = stored_evaluation(of(chosen)) if only_read else evaluate(of(chosen))[0]
    if evaluation is None:
        return None
    if not only_read:
        _give_up_weights(folders, chosen, of)
    seeds = {
        one.run.seed: member["metrics"][probe.metric] for one, member in zip(chosen, evaluation.members, strict=True)
    }
    return {
        "value": statistics.median(seeds.values()),
        "seeds": seeds,
        "metric": probe.metric,
        "cell": {name: label for name, label in chosen[0].run.settings.items() if name != MODEL_AXIS},
        "medians": {cell.name: cell.median for cell in cells},
    }


def _give_up_weights(
    folders: Sequence[RunFolder], chosen: Sequence[RunFolder], of: Callable[[Sequence[RunFolder]], EvaluateSettings]
) -> None:
    """Store the raw outputs of the runs that were not evaluated, and delete the weights of all that are done."""
    done = [one for one in folders if one.state() == DONE]
    others = [one for one in done if one not in chosen and one.checkpoint() is not None]
    if others:
        store_outputs(of(others))
    for one in done:
        for path in sorted((one.path / "checkpoints").glob("checkpoint*.pt")):
            path.unlink()


def stored_evaluation(settings: EvaluateSettings) -> Evaluation | None:
    """What an earlier `evaluate` of the same runs found on the development set; None if there was none."""
    path = settings.output_dir / f"{PREFIX}valid.json"
    if not path.is_file():
        return None
    found = Evaluation.read(path)
    # CELL/seed-N only: the study may have moved
    runs = [Path(member["checkpoint"]).parts[-4:-2] for member in found.members]
    return found if runs == [checkpoint.parts[-4:-2] for checkpoint in settings.checkpoints] else None
