"""`roberta evaluate`: metrics of fine-tuned checkpoints, or the table of all evaluations."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from roberta_plugin.cli.command import add_task_options, given_task_options, task_options
from roberta_plugin.settings import Checked, add_options, from_arguments, setting


@dataclass(frozen=True, kw_only=True)
class CollectSettings(Checked):
    """What to collect; the fields, like those of `EvaluateSettings`, are options of `roberta evaluate`."""

    results: tuple[Path, ...] = setting((), "folders to collect evaluations from", nargs="+")
    submission: Path | None = setting(
        None,
        "with --results: write the leaderboard's submission from the predictions",
        metavar="ZIP",
        goes_with={"results": ()},
    )
    leaderboard: Literal["glue", "superglue"] | None = setting(
        None, "with --submission: whose submission it is", default_text="glue", goes_with={"submission": ()}
    )
    allow_incomplete: bool = setting(
        False, "with --submission: write the zip even if tasks or rows are missing", goes_with={"submission": ()}
    )


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
    parser.add_argument(
        "task",
        nargs="?",
        type=without_minimal_pairs,
        choices=TASKS,
        metavar="TASK",
        help="with --help: whose options to show",
    )
    add_options(parser, EvaluateSettings, optional=("data", "checkpoints"))
    add_options(parser, CollectSettings)
    add_task_options(parser, stages=("score",))


def without_minimal_pairs(task: str) -> str:
    """The task; blimp and zorro, which were tasks of this verb, are told their script."""
    if task in ("blimp", "zorro"):
        raise argparse.ArgumentTypeError(
            f"minimal pairs are scored by a script of the repository: python examples/score_minimal_pairs.py {task} "
            "FOLDER MODEL ..."
        )
    return task


def run(args: argparse.Namespace) -> int:
    """Evaluate or collect, and print the table."""
    from roberta_plugin.experiments.evaluation import EvaluateSettings, evaluate, where_predictions_are
    from roberta_plugin.experiments.evaluation_report import write_report
    from roberta_plugin.experiments.finetuning_plan import checkpoint_of
    from roberta_plugin.finetuning.prepared import Prepared

    collected = from_arguments(CollectSettings, vars(args))
    if bool(collected.results) == bool(args.data and args.checkpoints):
        raise ValueError("Give either --data and --checkpoint, to evaluate, or --results, to collect evaluations.")
    if collected.results:
        if given := given_task_options(args):
            raise ValueError(
                f"{min(given.values())} goes with --data and --checkpoint: --results shows what was evaluated before."
            )
        return collect(collected, Path(args.output_dir))
    task = Prepared.open(Path(args.data)).task
    if args.task not in (None, task):
        raise ValueError(f"{args.data} is prepared for {task}, not for {args.task}: leave {args.task} out.")
    checkpoints = [checkpoint_of(Path(path), option="--checkpoint") for path in args.checkpoints]
    options = task_options(args, task)
    evaluations = evaluate(from_arguments(EvaluateSettings, vars(args), checkpoints=checkpoints, options=options))
    print(write_report(evaluations, Path(args.output_dir)))
    print(where_predictions_are(evaluations), end="")
    return 0


def collect(settings: CollectSettings, output_dir: Path) -> int:
    """Print and write the table of all evaluations, and write the submission if one is asked for."""
    from roberta_plugin.experiments.evaluation_report import find_evaluations, write_report

    print(write_report(find_evaluations(settings.results), output_dir))
    if settings.submission is not None:
        from roberta_plugin.finetuning.benchmarks.submission import LEADERBOARDS, write_submission

        leaderboard = LEADERBOARDS[settings.leaderboard or "glue"]
        write_submission(leaderboard, settings.submission, settings.results, allow_incomplete=settings.allow_incomplete)
        print(f"submission: {settings.submission}")
    return 0
