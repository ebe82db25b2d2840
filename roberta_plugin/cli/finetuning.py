"""`roberta prepare`, `finetune` and `evaluate`: official files of a task, or custom data, to the official metric."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roberta_plugin.cli.command import RESUMES, command, given_task_options, task_options, with_paths
from roberta_plugin.experiments.settings import EvaluateSettings, FinetuneSettings
from roberta_plugin.finetuning import preparation
from roberta_plugin.finetuning.preparation import PrepareSettings
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.registry import BENCHMARKS
from roberta_plugin.settings import Checked, check_roads, from_arguments, setting

if TYPE_CHECKING:
    from roberta_plugin.experiments.evaluation import Evaluation
    from roberta_plugin.experiments.finetune import FinetuneResult


@command(PrepareSettings, stages=("prepare",), usage="roberta prepare TASK --output-dir FOLDER [options]")
def prepare(settings: PrepareSettings) -> int:
    """Reads the files as they are distributed, checks them, and writes the model's inputs with labels, ids and offsets.
    TASK custom reads your own tables: --train FILE, and the options of custom. The tokenizer must be the one of the
    pretrained model: its data-bin, or any folder with the tokenizer's files and dict.txt.
    """
    prepared = preparation.prepare(settings)
    for name, facts in prepared.content["splits"].items():
        unknown = preparation.num_unknown(prepared, name)
        of_them = f", {unknown:,} of them unknown to the tokenizer" if unknown else ""
        counts = f"{facts['examples']:,} examples, {facts['sequences']:,} sequences, {facts['tokens']:,} tokens"
        print(f"{name}: {counts}{of_them}")
    print("".join(f"{remark}\n" for remark in preparation.remarks(prepared)), end="")
    return 0


@command(
    FinetuneSettings,
    stages=("prepare", "score"),
    usage="roberta finetune TASK --model MODEL --output-dir FOLDER [options]",
    if_interrupted=RESUMES,
)
def finetune(settings: FinetuneSettings) -> int:
    """Prepares the task's official files if needed, trains every hyperparameter setting of the paper's grid with every
    seed from a pretrained checkpoint, chooses the setting with the best median on the development set, evaluates its
    runs by the official metric and writes the predictions of their ensemble. Run the same command again: it resumes
    where it stopped. With more seeds or settings, it trains only the new runs: the raw outputs of every evaluated run
    are stored, so that medians and ensembles do not need its weights. TASK custom is your own table: its grid
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
    if result.sweep is None:
        print(f"grid file: {result.plan.grid.path}")
        return 0
    if not result.evaluations:
        print("Some runs are not done: run the same command again when they are, or to retry the failed ones.")
        return 1 if result.failures else 0
    print(result.table)
    show_predictions(result.evaluations)
    print(f"results: {result.plan.results}")
    if result.failures:
        print(
            f"Missing in this table: {len(result.failures)} of {result.sweep['num_runs']} runs have failed "
            f"({', '.join(result.failures)}). Run the same command again to retry them."
        )
    return 1 if result.failures else 0


def show_predictions(evaluations: Sequence[Evaluation]) -> None:
    """Print one line per split, which names its prediction files."""
    for each in evaluations:
        print(f"predictions, {each.split}: {', '.join(each.predictions)}")


def leaderboards() -> tuple[str, ...]:
    """The leaderboards that take predictions."""
    return tuple(dict.fromkeys(name for family in BENCHMARKS.values() for name in family.leaderboards))


@dataclass(frozen=True, kw_only=True)
class CollectSettings(Checked):
    """Evaluations to collect. The fields, like the fields of `EvaluateSettings`, are options of `roberta evaluate`."""

    results: tuple[Path, ...] = setting((), "folders to collect evaluations from", nargs="+")
    submission: Path | None = setting(
        None,
        "with --results: write the leaderboard's submission from the predictions",
        metavar="ZIP",
        goes_with={"results": ()},
    )
    leaderboard: str | None = setting(
        None,
        "with --submission: the leaderboard that it is for",
        default_text=next(iter(leaderboards()), None),
        choices=leaderboards,
        goes_with={"submission": ()},
    )


def add_task(parser: argparse.ArgumentParser) -> None:
    """Add TASK, for --help alone: the prepared folder has the task."""
    from roberta_plugin.finetuning.benchmarks import all_tasks

    parser.add_argument(
        "task", nargs="?", choices=all_tasks(), metavar="TASK", help="with --help: whose options to show"
    )


@command(
    EvaluateSettings,
    CollectSettings,
    optional=("data", "checkpoints"),
    stages=("score",),
    add=add_task,
    usage="roberta evaluate (--data FOLDER --checkpoint FILE ... | --results FOLDER ...) --output-dir FOLDER [options]",
)
def evaluate(args: argparse.Namespace) -> int:
    """With --data and --checkpoint: run the checkpoints over a split, and write metrics and prediction files into
    --output-dir; several checkpoints are also averaged, as an ensemble. With --results: one table of all evaluations in
    these folders, as results.md and results.json in --output-dir; and with --submission the zip file for a leaderboard.
    """
    from roberta_plugin.experiments import evaluation
    from roberta_plugin.experiments.evaluation_report import write_report

    collected = from_arguments(CollectSettings, vars(args))
    if bool(collected.results) == bool(args.data and args.checkpoints):
        raise ValueError("Give either --data and --checkpoint, to evaluate, or --results, to collect evaluations.")
    if collected.results:
        if options := given_task_options(args):
            raise ValueError(
                f"{min(options.values())} goes with --data and --checkpoint: --results shows what was evaluated before."
            )
        check_roads(
            args, {"evaluation": "with --results, which shows what was evaluated before"}, kind=EvaluateSettings
        )
        return collect(collected, Path(args.output_dir))
    task = Prepared.open(Path(args.data)).task
    if args.task not in (None, task):
        raise ValueError(f"{args.data} is prepared for {task}, not for {args.task}: leave {args.task} out.")
    settings = with_paths(from_arguments(EvaluateSettings, vars(args), options=task_options(args, task)))
    evaluations = evaluation.evaluate(settings)
    print(write_report(evaluations, Path(args.output_dir)))
    show_predictions(evaluations)
    return 0


def collect(settings: CollectSettings, output_dir: Path) -> int:
    """Print and write the table of all evaluations, and write the submission if one is asked for."""
    from roberta_plugin.experiments.evaluation_report import find_evaluations, write_report

    print(write_report(find_evaluations(settings.results), output_dir))
    if settings.submission is not None:
        from roberta_plugin.finetuning.benchmarks.submission import find_leaderboard, write_submission

        leaderboard = find_leaderboard(settings.leaderboard or leaderboards()[0])
        write_submission(leaderboard, settings.submission, settings.results)
        print(f"submission: {settings.submission}")
    return 0
