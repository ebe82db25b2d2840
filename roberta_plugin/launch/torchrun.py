"""One rank of a training that torchrun has started: recipes of `roberta launch` without SLURM.

torchrun starts the ranks, starts all of them again when one has failed (--max-restarts), and with --nnodes MIN:MAX also
when machines come or go. Every start begins at the newest whole checkpoint, and shares the recipe's batch out among the
ranks that there are now. Of the recipe, the batch, `checkpoint_minutes`, `env` and `train` count; what SLURM is asked
for does not. Nothing is copied: the ranks run the installed plugin.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from roberta_plugin.launch import checks, status
from roberta_plugin.launch.job import CheckedMain, prepare_checkpoints
from roberta_plugin.launch.recipe import LaunchSettings, complete
from roberta_plugin.launch.rendezvous import RankInfo, distributed_arguments
from roberta_plugin.stop_signals import StopSignals
from roberta_plugin.training import arguments as train_arguments
from roberta_plugin.training.job_environment import keep_secrets, written_variables

logger = logging.getLogger(__name__)

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def rank_of_torchrun(environment: Mapping[str, str] = os.environ) -> RankInfo:
    """This process's rank, which meets the others at the store of torchrun's agent; without torchrun, rank 0 of 1.

    Raises:
        ValueError: if only some of torchrun's variables are set.
    """
    missing = [name for name in _VARIABLES if name not in environment]
    if len(missing) == len(_VARIABLES):
        return RankInfo(rank=0, world_size=1, local_rank=0)
    if missing:
        raise ValueError(
            f"{', '.join(missing)} not set: start the ranks by `torchrun --no-python roberta train ...`, which sets "
            f"{', '.join(_VARIABLES)}."
        )
    rank, world_size, local_rank = (int(environment[name]) for name in _VARIABLES[:3])
    return RankInfo(rank=rank, world_size=world_size, local_rank=local_rank)


def train_rank(recipe: LaunchSettings, rank: RankInfo) -> int:
    """Train on this rank to the end (exit code 0) or until a signal stops all ranks (128 + its number).

    Raises:
        ValueError: if the recipe does not fit this number of ranks, or changes the settings of the run.
        FileNotFoundError: for a missing data folder.
    """
    recipe = dataclasses.replace(
        recipe,
        output_dir=recipe.output_dir.expanduser().absolute(),
        env=keep_secrets(recipe.env),
        nodes=1,
        gpus_per_node=rank.world_size,
    )
    with StopSignals((signal.SIGINT, signal.SIGTERM)) as stop:
        checks.check_recipe(recipe)
        os.environ.update(written_variables(recipe.env))
        form = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"  # fairseq's own
        logging.basicConfig(level=logging.INFO, stream=sys.stdout, format=form, force=True)
        arguments = complete(recipe)
        if rank.rank == 0:
            _prepare(recipe, arguments)
        hook = _train(recipe, rank, arguments, stop)
        hook.write_status("stopped" if hook.has_stopped else "finished")
        if not hook.has_stopped:
            return 0
        return 128 + (stop.received or signal.SIGTERM)  # a rank that got no signal stops for the sake of another


def _prepare(recipe: LaunchSettings, arguments: tuple[str, ...]) -> None:
    """On rank 0, while the others wait: check settings and checkpoints, write launch.json."""
    from roberta_plugin.fairseq_workarounds import save_dir_lock

    changes = checks.check_changes(recipe, arguments)
    recipe.save_dir.mkdir(parents=True, exist_ok=True)
    save_dir_lock.acquire(recipe.save_dir)
    logger.info(f"checkpoints in {recipe.save_dir}: {prepare_checkpoints(recipe.save_dir)}")
    status.write_launch(
        recipe.output_dir,
        status.Launch(
            job_id=None,
            name=recipe.job_name,
            num_gpus=recipe.num_gpus,
            batch_sequences=recipe.batch_sequences,
            batch_tokens=recipe.batch_tokens,
            snapshot="none: torchrun",
            arguments=arguments,
            changes=changes,
        ),
    )


def _train(recipe: LaunchSettings, rank: RankInfo, arguments: tuple[str, ...], stop: StopSignals) -> Any:
    from roberta_plugin.launch.update_hook import UpdateHook

    hook = UpdateHook(
        stop,
        output_dir=recipe.output_dir,
        job_id="",
        checkpoint_minutes=recipe.checkpoint_minutes,
        is_master=rank.rank == 0,
    )
    hook.write_status("starting")
    try:
        _train_with(hook, recipe, rank, arguments)
    except Exception:
        hook.write_status("failed")
        raise
    return hook


def _train_with(hook: Any, recipe: LaunchSettings, rank: RankInfo, arguments: tuple[str, ...]) -> None:
    from fairseq.distributed import utils as distributed_utils

    words = [*arguments, *distributed_arguments(rank, is_cpu=recipe.is_cpu)]
    logger.info(f"fairseq-train {' '.join(words)}")
    config = train_arguments.to_config(train_arguments.parse(words))
    with hook:
        distributed_utils.call_main(config, CheckedMain(rank.rank, rank.world_size))
