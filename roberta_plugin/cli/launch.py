"""`roberta launch`: a fairseq-train recipe -> a job on a SLURM cluster."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_plugin.launch.recipe import REMOVED, LaunchSettings, load_recipe, located
from roberta_plugin.settings import add_options

if TYPE_CHECKING:
    from roberta_plugin.launch.submission import Submission


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta launch`; its options are the fields of `LaunchSettings`."""
    parser.usage = "roberta launch [--config FILE] [options] [-- DATA-BIN fairseq-train options]"
    parser.description = (
        "Submits fairseq-train to SLURM, one process per GPU, and keeps it running: when the cluster stops the job, it "
        "saves a checkpoint and resumes at the next update. Options given here win over the config file "
        "(slurm/README.md has its format). Arguments after -- are added to the file's fairseq-train options; a "
        "DATA-BIN in front of them replaces the file's data. Launching the same run folder again resumes from its "
        "checkpoints, on as many GPUs as are given now."
    )
    add_recipe_options(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="print the sbatch script and the commands, submit nothing"
    )


def add_recipe_options(parser: argparse.ArgumentParser) -> None:
    """Add --config, the fields of `LaunchSettings`, and fairseq-train's arguments."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file with any of these options, and train:")
    add_options(parser, LaunchSettings, skip=["train"], optional=["output_dir"])
    for name in REMOVED:
        parser.add_argument(f"--{name.replace('_', '-')}", help=argparse.SUPPRESS)
    parser.add_argument("train", nargs="*", metavar="-- DATA-BIN ...", help="fairseq-train's arguments")


def recipe_of(args: argparse.Namespace) -> LaunchSettings:
    """The recipe of the options that `add_recipe_options` has added."""
    return load_recipe(args.config, flags=_flags(args), train=args.train)


def _flags(args: argparse.Namespace) -> dict[str, Any]:
    names = {item.name for item in dataclasses.fields(LaunchSettings)} - {"train"} | REMOVED.keys()
    return {name: getattr(args, name) for name in names}


def run(args: argparse.Namespace) -> int:
    """Submit, or print what would be submitted."""
    from roberta_plugin.launch.submission import launch

    recipe = recipe_of(args)
    with located(args.config, flags=_flags(args), train=args.train):
        print(in_words(launch(recipe, dry_run=args.dry_run, config=args.config)))
    return 0


def in_words(submission: Submission) -> str:
    """What was submitted, or would be."""
    if submission.job_id is None:
        commands = "# commands: the first one submits the script above, the second is what each rank does"
        return "\n".join([submission.script.rstrip(), "", commands, *submission.commands])
    folder = submission.output_dir
    return f"job {submission.job_id}: logs in {folder}/logs, progress by `roberta jobs {folder}`"
