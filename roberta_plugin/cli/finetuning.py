"""`roberta prepare` and `roberta finetune`: official files of a task, or custom data, to the official metric."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from roberta_plugin.cli.command import command
from roberta_plugin.experiments.settings import FinetuneSettings
from roberta_plugin.finetuning.preparation import PrepareSettings

if TYPE_CHECKING:
    from roberta_plugin.experiments.finetune import FinetuneResult


@command(PrepareSettings, stages=("prepare",), usage="roberta prepare TASK --output-dir FOLDER [options]")
def prepare(settings: PrepareSettings) -> int:
    """Reads the files as they are distributed, checks them, and writes the model's inputs with labels, ids and offsets.
    TASK custom reads your own tables: --train FILE, and the options of custom. The tokenizer must be that of the
    pretrained model: its data-bin, or any folder with the tokenizer's files and dict.txt.
    """
    from roberta_plugin.cli.text import tokenizer_folder
    from roberta_plugin.finetuning import preparation
    from roberta_plugin.finetuning.inspection import remarks

    if settings.tokenizer is not None:
        settings = dataclasses.replace(settings, tokenizer=tokenizer_folder(settings.tokenizer))
    prepared = preparation.prepare(settings)
    for name, facts in prepared.content["splits"].items():
        print(f"{name}: {facts['examples']:,} examples, {facts['sequences']:,} sequences, {facts['tokens']:,} tokens")
    print("".join(f"{remark}\n" for remark in remarks(prepared)), end="")
    return 0


@command(
    FinetuneSettings,
    stages=("prepare", "score"),
    usage="roberta finetune TASK --model MODEL --output-dir FOLDER [options]",
)
def finetune(settings: FinetuneSettings) -> int:
    """Prepares the task's official files if needed, trains every cell of the paper's grid with every seed from a
    pretrained checkpoint, chooses the cell with the best median on the development set, evaluates its runs by the
    official metric and writes the predictions of their ensemble. Run the same command again: it resumes where it
    stopped. With more seeds or more cells of the grid, it trains only the new runs: the raw outputs of every evaluated
    run are stored, so that medians and ensembles do not need its weights. TASK custom is your own table: its grid
    depends on the number of examples. Below 1,000: lr 1e-5, 2e-5, 3e-5, batch 16, 20 epochs, 5 seeds; below 10,000: the
    same lr, batch 16 and 32, 10 epochs, 3 seeds; below 100,000: batch 32, 5 epochs, 3 seeds; above: lr 1e-5 and 3e-5,
    batch 32, 3 epochs, 3 seeds.
    """
    from roberta_plugin.experiments import finetune as experiment

    settings = dataclasses.replace(settings, show_progress=True)
    report = functools.partial(print, flush=True)
    if settings.folds is None:
        return show(experiment.finetune(settings, report=report))
    validated = experiment.cross_validate(settings, report=report)
    codes = [show(result) for result in validated.folds]
    print(validated.table)
    return max(codes)


def show(result: FinetuneResult) -> int:
    """Print what a fine-tuning has found; 1 if a run has failed."""
    from roberta_plugin.experiments.evaluation import where_predictions_are

    if result.sweep is None:
        print(f"grid file: {result.grid_path}")
        return 0
    if not result.evaluations:
        print("Some runs are not done: run the same command again when they are, or to retry the failed ones.")
        return 1 if result.failures else 0
    print(result.table)
    print(where_predictions_are(result.evaluations), end="")
    print(f"results: {result.results}")
    if result.failures:
        print(
            f"Missing in this table: {len(result.failures)} of {result.sweep['num_runs']} runs have failed "
            f"({', '.join(result.failures)}). Run the same command again to retry them.",
        )
    return 1 if result.failures else 0
