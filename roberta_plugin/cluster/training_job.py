"""The callable that submitit runs on every rank: pre-flight, fairseq-train, then finished or started again.

A stop (preemption, time limit, SIGTERM) ends in one checkpoint and in `scontrol requeue` by rank 0, through
submitit's own handler, so that its counting of time limits holds. A rank that dies takes the others with it
(srun --kill-on-bad-exit), and the batch script starts the job again (`submission.py`).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import submitit
import torch.distributed as dist

from . import checkpoints, preflight, slurm_commands, status, train_arguments
from .preemption import PREEMPTION, StopSignals
from .recipe import Recipe
from .rendezvous import Place, distributed_arguments, place_from_environment, port_of

logger = logging.getLogger(__name__)

CHECKPOINT_SECONDS = 1800.0  # reading a large checkpoint from a busy file system takes minutes


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """One training, from wherever it stands to its end or to the next stop."""

    recipe: Recipe
    arguments: tuple[str, ...]

    def __call__(self) -> str:
        """Train on this rank; returns when the training is finished, and exits when it was stopped."""
        with StopSignals() as stop:
            place = place_from_environment(
                num_nodes=self.recipe.nodes,
                ranks_per_node=self.recipe.gpus_per_node,
                port=self.recipe.port or port_of(self.recipe.run_dir),
            )
            form = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"  # fairseq's own
            logging.basicConfig(level=logging.INFO, stream=sys.stdout, format=form, force=True)
            hook = self._train(place, stop)
        if hook.has_stopped:
            self._leave(place, hook, stop.handlers_before[PREEMPTION])
        hook.write_status("finished")
        return f"finished at update {hook.update}"

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """What submitit runs when the job starts again: the same, for the checkpoints say where to go on."""
        return submitit.helpers.DelayedSubmission(self)

    def _train(self, place: Place, stop: StopSignals) -> Any:
        from .update_hook import UpdateHook

        hook = UpdateHook(
            stop,
            run_dir=self.recipe.run_dir,
            job_id=os.environ["SLURM_JOB_ID"],
            checkpoint_minutes=self.recipe.checkpoint_minutes,
            is_master=place.rank == 0,
        )
        hook.write_status("starting")
        seconds = self.recipe.preflight_seconds
        store = preflight.meet(place, seconds=seconds)
        check_device: Callable[[Place], str] = _nothing_to_check if self.recipe.is_cpu else preflight.check_device
        preflight.check_ranks(store, place, check_device, seconds=seconds)
        preflight.check_all_reduce(store, place, is_cpu=self.recipe.is_cpu)
        said = preflight.from_rank_zero(
            store, place, "checkpoint", self._prepare_checkpoints, seconds=CHECKPOINT_SECONDS
        )
        logger.info(f"checkpoints in {self.recipe.save_dir}: {said}")

        arguments = [*self.arguments, *distributed_arguments(place, is_cpu=self.recipe.is_cpu)]
        logger.info(f"fairseq-train {' '.join(arguments)}")
        config = train_arguments.to_config(train_arguments.parse(arguments))
        from fairseq.distributed import utils as distributed_utils

        with hook:
            distributed_utils.call_main(config, _CheckedMain(place))
        return hook

    def _prepare_checkpoints(self) -> str:
        """Rank 0's look at the checkpoints, once no other training can touch them; returns what a user should know."""
        from roberta_plugin.fairseq_workarounds import save_dir_lock

        save_dir_lock.acquire(self.recipe.save_dir)
        return checkpoints.prepare(self.recipe.save_dir)

    def _leave(self, place: Place, hook: Any, submitits_handler: Callable[..., None]) -> None:
        """Start the job again at the next update, or say why not; does not return."""
        if place.rank:
            sys.exit(0)  # an error code would end rank 0 before it is done
        job_id = os.environ["SLURM_JOB_ID"]
        if not slurm_commands.is_to_go_on(job_id):
            hook.write_status("stopped")
            raise RuntimeError(f"Stopped after update {hook.update}, which is saved: job {job_id} was cancelled.")
        if status.attempt() >= self.recipe.max_requeues:
            hook.write_status("stopped")
            raise RuntimeError(
                f"Stopped after update {hook.update}, which is saved: the job has started again {status.attempt()} "
                f"times, and --max-requeues is {self.recipe.max_requeues}. Launch it again to go on."
            )
        hook.write_status("requeued")
        submitits_handler(PREEMPTION)
        raise AssertionError("submitit's handler returned")


class _CheckedMain:
    """fairseq's main, after one look at the process group that fairseq has made."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def __call__(self, config: Any) -> None:
        import fairseq_cli.train

        found = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        expected = (self._place.rank, self._place.world_size)
        if found != expected:
            raise RuntimeError(f"fairseq trains as rank {found[0]} of {found[1]}, not {expected[0]} of {expected[1]}.")
        # printed, for fairseq keeps every rank but the first from logging
        sys.stdout.write(f"rank {found[0]} of world size {found[1]} on {self._place.host}\n")
        sys.stdout.flush()
        fairseq_cli.train.main(config)


def _nothing_to_check(place: Place) -> str:
    return preflight.ALL_WELL
