"""`roberta finetune`: the paper's whole procedure for a task, from official files to the official metric."""

from __future__ import annotations

import argparse
import functools
from typing import TYPE_CHECKING

from roberta_plugin.cli.interrupts import terminated_like_interrupted
from roberta_plugin.cli.prepare import add_task_options, task_options
from roberta_plugin.settings import add_options, from_arguments

if TYPE_CHECKING:
    from roberta_plugin.experiments.finetune import FinetuneResult, FinetuneSettings


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta finetune`; its options are the fields of `FinetuneSettings` and of the task's options."""
    from roberta_plugin.experiments.settings import FinetuneSettings

    parser.usage = "roberta finetune TASK --model MODEL --output-dir FOLDER [options]"
    parser.description = (
        "Prepares the task's official files if needed, trains every cell of the paper's grid with every seed from a "
        "pretrained checkpoint, chooses the cell with the best median on the development set, evaluates its runs by "
        "the official metric and writes the predictions of their ensemble. Run the same command again: it resumes "
        "where it stopped. With more seeds or more cells of the grid, it trains only the new runs: the raw outputs of "
        "every evaluated run are stored, so that medians and ensembles do not need its weights. TASK custom is your "
        "own table: its grid depends on the number of examples. Below 1,000: lr 1e-5, 2e-5, 3e-5, batch 16, 20 epochs, "
        "5 seeds; below 10,000: the same lr, batch 16 and 32, 10 epochs, 3 seeds; below 100,000: batch 32, 5 epochs, "
        "3 seeds; above: lr 1e-5 and 3e-5, batch 32, 3 epochs, 3 seeds."
    )
    add_options(parser, FinetuneSettings)
    add_task_options(parser, stages=("prepare", "score"))


def run(args: argparse.Namespace) -> int:
    """Prepare, train, evaluate; 1 if a run has failed."""
    from roberta_plugin.experiments.finetune import cross_validate, finetune

    report = functools.partial(print, flush=True)
    with terminated_like_interrupted():  # else SIGTERM would leave the trainings running
        settings = settings_of(args)
        if settings.folds is None:
            return show(finetune(settings, report=report))
        validated = cross_validate(settings, report=report)
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


def settings_of(args: argparse.Namespace) -> FinetuneSettings:
    """The settings that the arguments describe."""
    from roberta_plugin.experiments.settings import FinetuneSettings

    options = task_options(args, args.task)
    return from_arguments(FinetuneSettings, vars(args), options=options, show_progress=True)
