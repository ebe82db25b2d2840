"""A pretraining of many ranks: fairseq-train's arguments -> settings of a launch -> a SLURM job, or torchrun's ranks.

An update has the recipe's batch on any number of ranks. The job and torchrun's ranks keep the records of launch/, so
the same command resumes on another number of ranks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from roberta_plugin.launch.recipe import BATCHES, LaunchSettings, batch_of
from roberta_plugin.launch.resources import check_resources, read_resources
from roberta_plugin.launch.run_folder import read_status
from roberta_plugin.launch.slurm_commands import check_partition
from roberta_plugin.pretraining.recipe import Recipe
from roberta_plugin.record import options_of
from roberta_plugin.runs import RUN

if TYPE_CHECKING:
    from roberta_plugin.launch.rendezvous import RankInfo

_PLAN = "pretrain/plan"  # a key of the store where the ranks meet
_POLL_S = 0.2


def slurm_ranks(values: Mapping[str, Any], recipe: Recipe, folder: Path) -> LaunchSettings:
    """The resources that --slurm gives, without the training; by default, a node has the GPUs of the recipe."""
    default = {"gpus_per_node": str(recipe.gpus)} if recipe.device == "gpu" else {}
    values = {**default, **values, "output_dir": folder, "train": ()}
    return read_resources(values, where="--slurm", kind=LaunchSettings)


def torchrun_rank() -> RankInfo | None:
    """The rank of this process, if torchrun has started it."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    from roberta_plugin.launch.job import rank_of_torchrun

    return rank_of_torchrun()


def with_training(
    ranks: LaunchSettings,
    arguments: Sequence[str],
    recipe: Recipe,
    *,
    options: Mapping[str, str],
    asked: Mapping[str, Any],
) -> LaunchSettings:
    """The settings with fairseq-train's arguments, without what follows from the ranks; options of the user stay.

    The batch is the arguments' batch on as many GPUs as the recipe is for. The recipe follows from `asked`.
    """
    words, batch = list(arguments), {}
    if not options.keys() & {"--update-freq", "--update-sequences"}:
        training = {name.lstrip("-"): value for name, value in options_of(arguments).items()}
        batch = batch_of(training, gpus=recipe.gpus if recipe.device == "gpu" else 1)
    follows = {"--save-dir", "--distributed-world-size", *(["--update-freq"] if batch else [])}
    for name in follows.intersection(words) - options.keys():
        at = words.index(name)
        del words[at : at + 2]
    return replace(ranks, train=tuple(words), asked=asked, **batch)


def check_start(folder: Path, *, record: str, has_ranks: bool) -> None:
    """Refuse to go on alone with what many ranks began, and the other way round, for each has a record of its own."""
    if (folder / (record if has_ranks else RUN)).is_file():
        began = "without" if has_ranks else "with"
        raise ValueError(
            f"{folder} holds a training that began {began} --slurm or torchrun: go on likewise, or give another "
            "--output-dir."
        )


def check_cluster(ranks: LaunchSettings, *, is_to_submit: bool) -> None:
    """Refuse resources that SLURM would refuse, before a text is tokenized for the job."""
    check_resources(ranks)
    if is_to_submit:
        check_partition(ranks.partition, nodes=ranks.nodes)


def is_finished(ranks: LaunchSettings, *, updates: int) -> bool:
    """True if the launched training has made all its updates."""
    status = read_status(ranks.output_dir)
    return status is not None and status.phase == "finished" and status.update >= updates


def train_rank(rank: RankInfo, ranks: LaunchSettings | None = None, *, log: Path | None = None) -> int:
    """Train on this rank of torchrun, by the settings of rank 0, the only one that has any (and a log, and prints).

    Returns the exit code: 0 at the end, 128 + the number of a signal that has stopped the ranks.
    """
    from torch.distributed.rendezvous import rendezvous

    from roberta_plugin.launch import job

    store: Any = next(iter(rendezvous("env://")))[0]
    if ranks is not None:
        plan = {name: getattr(ranks, name) for name in ("train", "asked", *BATCHES)}
        store.set(_PLAN, json.dumps({"output_dir": str(ranks.output_dir), **plan}))
    while not store.check([_PLAN]):  # rank 0 may make a data-bin first; a wait inside torch could not be interrupted
        time.sleep(_POLL_S)
    values = json.loads(store.get(_PLAN))
    settings = LaunchSettings(**{**values, "output_dir": Path(values["output_dir"]), "train": tuple(values["train"])})
    with open(log or os.devnull, "a", encoding="utf-8") as file, redirect_stdout(_Tee(file, is_shown=log is not None)):
        return job.train_rank(settings, rank)


class _Tee:
    """Standard output that is written to a file, too."""

    def __init__(self, file: IO[str], *, is_shown: bool) -> None:
        self._files = [file, sys.stdout] if is_shown else [file]

    def write(self, text: str) -> int:
        for file in self._files:
            file.write(text)
        return len(text)

    def flush(self) -> None:
        for file in self._files:
            file.flush()
