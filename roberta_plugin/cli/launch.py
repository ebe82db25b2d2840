"""`roberta launch` and `roberta train`: a fairseq-train recipe -> a job on a SLURM cluster, or a rank of torchrun."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_plugin.cli.command import command
from roberta_plugin.launch.options_file import note_on_updates, recipe_files, train_of
from roberta_plugin.launch.recipe import LaunchSettings, load_recipe, located
from roberta_plugin.settings import check_roads, setting

if TYPE_CHECKING:
    from roberta_plugin.launch.submission import Submission


@dataclass(frozen=True, kw_only=True)
class ConfigSettings:
    """An option of `roberta launch` and `roberta train`."""

    config: Path | None = setting(None, "YAML file with any of these options, and train:", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class DryRunSettings:
    """An option of `roberta launch`."""

    dry_run: bool = setting(
        False, "print the sbatch script, the commands and an estimate of FLOPs, hours and memory; submit nothing"
    )


def add_train(parser: argparse.ArgumentParser) -> None:
    """Add fairseq-train's arguments."""
    parser.add_argument("train", nargs="*", metavar="-- DATA-BIN ...", help="fairseq-train's arguments")


def config_of(args: argparse.Namespace) -> Path | None:
    """The file that --config names."""
    return None if args.config is None else Path(args.config)


def load(args: argparse.Namespace) -> LaunchSettings:
    """The recipe of the arguments."""
    return load_recipe(config_of(args), flags=_flags(args), train=args.train)


def _flags(args: argparse.Namespace) -> dict[str, Any]:
    names = {item.name for item in dataclasses.fields(LaunchSettings) if item.metadata} - {"train"}
    return {name: getattr(args, name) for name in names}


@command(
    ConfigSettings,
    LaunchSettings,
    DryRunSettings,
    skip=("train",),
    optional=("output_dir",),
    add=add_train,
    usage="roberta launch [--config FILE] [options] [-- DATA-BIN fairseq-train options]",
)
def launch(args: argparse.Namespace) -> int:
    """Submits fairseq-train to SLURM, one process per GPU, and keeps it running: when the cluster stops the job, it
    saves a checkpoint and resumes at the next update. Options given here override the config file (slurm/README.md has
    its format). Arguments after -- are added to the file's fairseq-train options; a DATA-BIN in front of them replaces
    the file's data. Launching the same run folder again resumes from its checkpoints, on as many GPUs as are given now.
    """
    from roberta_plugin.launch import submission as submissions

    recipe, config = load(args), config_of(args)
    if note := note_on_length(recipe, config):
        print(f"# note: {note}")
    with located(config, flags=_flags(args), train=args.train):
        print(in_words(submissions.launch(recipe, dry_run=bool(args.dry_run), config=config)))
    return 0


def note_on_length(recipe: LaunchSettings, config: Path | None) -> str:
    """What the command and file leave as their recipe has it, though they change its number of updates."""
    files = [] if config is None else recipe_files(config)
    planned = [options for each in files if "max-update" in (options := train_of(each))]
    words = [part for text in recipe.train for part in (text.split("=", 1) if text.startswith("--") else [text])]
    options = {name[2:].replace("_", "-"): value for name, value in pairwise(words) if name.startswith("--")}
    return note_on_updates(options, planned[-1]) if planned else ""


def in_words(submission: Submission) -> str:
    """The job that was submitted, or the script and commands of a dry run."""
    if submission.job_id is None:
        commands = "# commands: the first one submits the script above, the second is what each rank does"
        estimate = [f"# estimate: {submission.estimate}"] if submission.estimate else []
        return "\n".join([submission.script.rstrip(), "", commands, *submission.commands, *estimate])
    folder = submission.output_dir
    return f"job {submission.job_id}: logs in {folder}/logs, progress by `roberta jobs {shlex.quote(str(folder))}`"


@command(
    ConfigSettings,
    LaunchSettings,
    skip=("train",),
    optional=("output_dir",),
    add=add_train,
    takes_further=True,  # refused below
    usage="torchrun [options] --no-python roberta train [--config FILE] [options] [-- DATA-BIN train options]",
)
def train(args: argparse.Namespace) -> int:
    """Trains the recipe of `roberta launch` as one rank of torchrun, or alone without torchrun. Every start begins at
    the newest whole checkpoint of the run folder, and the recipe's batch is shared out among the ranks; Ctrl-C and
    SIGTERM save a checkpoint first. Settings for SLURM are not used.
    """
    if args.further or not (args.config or args.output_dir):
        raise ValueError(
            "this verb is a rank of a recipe: give --config or --output-dir, and options of fairseq-train after --. To "
            "pretrain on your own text or data-bin: `roberta pretrain DATA`; to fine-tune: `roberta finetune TASK`."
        )
    from roberta_plugin.launch.job import rank_of_torchrun, train_rank

    check_roads(args, {"slurm": "without SLURM, as --config's settings for it have none"}, kind=LaunchSettings)
    return train_rank(load(args), rank_of_torchrun())
