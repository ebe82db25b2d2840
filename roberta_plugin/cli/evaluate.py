"""`roberta evaluate`: the official metrics of fine-tuned checkpoints, or the table of all evaluations."""

from __future__ import annotations

import argparse
from pathlib import Path

from roberta_plugin.cli.prepare import add_task_options, given_task_options, task_options
from roberta_plugin.settings import add_options, from_arguments


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta evaluate`; its options are the fields of `EvaluateSettings` and of the task's options."""
    from roberta_plugin.experiments.evaluation import EvaluateSettings
    from roberta_plugin.finetuning.benchmarks import TASKS

    parser.usage = (
        "roberta evaluate (--data FOLDER --checkpoint FILE ... | --results FOLDER ...) --output-dir FOLDER [options]"
    )
    parser.description = (
        "With --data and --checkpoint: run the checkpoints over a split, and write metrics and prediction files into "
        "--output-dir; several checkpoints are also averaged, as an ensemble. With --results: one table of all "
        "evaluations in these folders, as results.md and results.json in --output-dir; and with --submission the zip "
        "file for a leaderboard."
    )
    parser.add_argument("task", nargs="?", choices=TASKS, metavar="TASK", help="with --help: whose options to show")
    add_options(parser, EvaluateSettings, optional=("data", "checkpoints"))
    parser.add_argument("--results", type=Path, nargs="+", help="folders to collect evaluations from")
    parser.add_argument(
        "--submission",
        type=Path,
        metavar="ZIP",
        help="with --results: write the leaderboard's submission from the predictions",
    )
    parser.add_argument(
        "--leaderboard", choices=("glue", "superglue"), help="with --submission: whose submission it is (glue)"
    )
    parser.add_argument(
        "--allow-incomplete",
        action="store_true",
        help="with --submission: write the zip even if tasks or rows are missing",
    )
    parser.add_argument("--no-progress", action="store_true", help="show no progress bar")
    add_task_options(parser, stages=("score",))


def run(args: argparse.Namespace) -> int:
    """Evaluate or collect, and print the table."""
    from roberta_plugin.experiments.evaluation import EvaluateSettings, evaluate, where_predictions_are
    from roberta_plugin.experiments.evaluation_report import find_evaluations, write_report
    from roberta_plugin.experiments.finetuning_plan import checkpoint_of
    from roberta_plugin.finetuning.prepared import Prepared

    if bool(args.results) == bool(args.data and args.checkpoints):
        raise ValueError("Give either --data and --checkpoint, to evaluate, or --results, to collect evaluations.")
    if args.leaderboard and args.results and not args.submission:
        raise ValueError(f"--leaderboard {args.leaderboard} goes with --submission: name the zip file to write.")
    if args.allow_incomplete and not args.submission:
        raise ValueError("--allow-incomplete goes with --submission: name the zip file to write.")
    if args.results:
        if given := given_task_options(args):
            raise ValueError(
                f"{min(given.values())} goes with --data and --checkpoint: --results shows what was evaluated before."
            )
        found = find_evaluations(args.results)
        print(write_report(found, Path(args.output_dir)))
        if args.submission:
            from roberta_plugin.finetuning.glue import submission as glue
            from roberta_plugin.finetuning.submission import write_submission
            from roberta_plugin.finetuning.superglue import submission as superglue

            leaderboard = superglue.LEADERBOARD if args.leaderboard == "superglue" else glue.LEADERBOARD
            write_submission(leaderboard, args.submission, args.results, allow_incomplete=args.allow_incomplete)
            print(f"submission: {args.submission}")
        return 0
    if args.submission or args.leaderboard:
        raise ValueError("--submission goes with --results: name the folders that hold the predictions.")
    task = Prepared.open(Path(args.data)).task
    if args.task not in (None, task):
        raise ValueError(f"{args.data} is prepared for {task}, not for {args.task}: leave {args.task} out.")
    checkpoints = [checkpoint_of(Path(path), option="--checkpoint") for path in args.checkpoints]
    options, has_bars = task_options(args, task), not args.no_progress
    evaluations = evaluate(
        from_arguments(EvaluateSettings, vars(args), checkpoints=checkpoints, options=options, show_progress=has_bars)
    )
    print(write_report(evaluations, Path(args.output_dir)))
    print(where_predictions_are(evaluations), end="")
    return 0
