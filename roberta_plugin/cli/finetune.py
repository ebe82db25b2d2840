"""`roberta finetune`: the paper's whole procedure for a task, from official files to the official metric."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_plugin.cli.interrupts import terminated_like_interrupted
from roberta_plugin.cli.prepare import (
    add_data_options,
    add_task,
    add_task_options,
    named_values,
    raw_of,
    task_options,
)

if TYPE_CHECKING:
    from roberta_plugin.experiments.finetune import FinetuneResult, FinetuneSettings
    from roberta_plugin.training.resources import Resources


def add_parser(subparsers: Any) -> None:
    """Add `roberta finetune` and its options."""
    parser = subparsers.add_parser(
        "finetune",
        help="fine-tune on such a task as the paper does: grid, seeds, median, ensemble, predictions",
        description="Prepares the task's official files if needed, trains every cell of the paper's grid with every "
        "seed from a pretrained checkpoint, chooses the cell with the best median on the development set, evaluates "
        "its runs by the official metric and writes the predictions of their ensemble. Run the same command again: it "
        "resumes where it stopped. With more seeds or more cells of the grid, it trains only the new runs: the raw "
        "outputs of every evaluated run are stored, so that medians and ensembles do not need its weights. TASK custom "
        "is your own table: its grid depends on the number of examples. Below 1,000: lr 1e-5, 2e-5, 3e-5, batch 16, 20 "
        "epochs, 5 seeds; below 10,000: the same lr, batch 16 and 32, 10 epochs, 3 seeds; below 100,000: batch 32, 5 "
        "epochs, 3 seeds; above: lr 1e-5 and 3e-5, batch 32, 3 epochs, 3 seeds.",
    )
    add_task(parser)
    parser.add_argument(
        "--model",
        type=Path,
        required=True,
        help="pretrained checkpoint (.pt), ours or fairseq's; or the --output-dir of a finished `roberta finetune`, "
        "whose best run is taken, as the paper starts RTE, STS-B and MRPC from MNLI",
    )
    parser.add_argument("--output-dir", type=Path, required=True, help="where the runs and the results are written")
    parser.add_argument("--data", type=Path, help="prepared folder (default: OUTPUT_DIR/data, made from --raw)")
    add_data_options(parser)
    parser.add_argument(
        "--from-scratch", action="store_true", help="a baseline: the model's architecture with random weights"
    )
    parser.add_argument("--seeds", nargs="+", metavar="N", help="seeds of the runs (the paper's five: 1 to 5)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one run instead of the grid: the values in the middle of its axes, and the first seed",
    )
    parser.add_argument(
        "--folds",
        type=int,
        metavar="K",
        help="custom: cross-validation. K times the whole procedure, each with another Kth of the texts as development "
        "set; then mean and spread of the metrics",
    )
    parser.add_argument("--epochs", type=int, help="passes over the data, instead of the paper's number")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="AXIS=LABEL",
        help="keep one value of an axis of the grid, such as lr=1e-5, or some, as lr=1e-4,3e-4, instead of trying all",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="option of fairseq-train, such as bf16=true; batch-size=N is what a GPU takes at once, and update-freq "
        "follows from it so that the batch of the cell does not change",
    )
    parser.add_argument(
        "--select",
        metavar="METRIC",
        help="choose checkpoint and cell by this metric on the development set, instead of the recipe's: such as "
        "macro_f1, mcc, f1, mae or loss; a name that the task does not have lists those that it has",
    )
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time (1)")
    parser.add_argument(
        "--gpus-per-run",
        type=int,
        help="GPUs of each run, which share the paper's batch (1 if there are GPUs; 0: all runs share one GPU)",
    )
    parser.add_argument(
        "--keep",
        choices=("best", "weights", "all"),
        default="best",
        help="checkpoints of finished runs that are kept: `best`, the weights of each cell's best run, once the raw "
        "outputs of every run are stored (default; 4 bytes per parameter); `weights`, those of every run; `all`, the "
        "best and the last checkpoint with the optimizer's state (24 bytes per parameter and run). Unfinished runs "
        "keep all they need to resume",
    )
    parser.add_argument("--retries", type=int, default=0, help="how often a failed run is started again at once (0)")
    parser.add_argument(
        "--slurm",
        nargs="*",
        metavar="NAME=VALUE",
        help="run as a SLURM job array with these resources, under the names of slurm/README.md: time=8:00:00 "
        "partition=gpu gpus_per_node=1 sbatch.OPTION=VALUE env.NAME",
    )
    parser.add_argument("--device", help="where to evaluate (default: a GPU if there is one)")
    parser.add_argument("--grid-only", action="store_true", help="write the grid file for `roberta sweep`, and stop")
    add_task_options(parser, stages=("prepare", "score"))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prepare, train, evaluate; 1 if a run has failed."""
    from roberta_plugin.experiments.finetune import finetune

    report = functools.partial(print, flush=True)
    if args.folds is not None:
        from roberta_plugin.experiments.cross_validation import cross_validate

        with terminated_like_interrupted():
            validated = cross_validate(settings_of(args), num_folds=args.folds, report=report)
        codes = [show(result) for result in validated.folds]
        print(validated.table)
        return max(codes)
    with terminated_like_interrupted():  # else SIGTERM would leave the trainings running
        result = finetune(settings_of(args), report=report)
    return show(result)


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


def resources_of(texts: Sequence[str]) -> Resources:
    """The resources that the arguments of --slurm describe."""
    from roberta_plugin.training.resources import Resources, read_resources
    from roberta_plugin.training.settings import parse_pairs

    return read_resources(parse_pairs(texts, option="--slurm"), where="--slurm", kind=Resources)


def settings_of(args: argparse.Namespace) -> FinetuneSettings:
    """The settings that the arguments describe."""
    from roberta_plugin.experiments.finetune import FinetuneSettings

    options = task_options(args, args.task)
    return FinetuneSettings(
        task=args.task,
        model=args.model,
        output_dir=args.output_dir,
        data=args.data,
        raw=raw_of(args, options),
        tokenizer=args.tokenizer,
        max_length=args.max_length,
        options=options,
        from_scratch=args.from_scratch,
        seeds=args.seeds,
        quick=args.quick,
        epochs=args.epochs,
        only=named_values(args.only, "--only"),
        train_options=named_values(args.set, "--set"),
        select=args.select,
        num_parallel=args.parallel,
        gpus_per_run=args.gpus_per_run,
        retries=args.retries,
        keep=args.keep,
        slurm=None if args.slurm is None else resources_of(args.slurm),
        device=args.device,
        grid_only=args.grid_only,
        show_progress=True,
    )
