"""One rank of a training, started by submitit or torchrun: checkpoints, fairseq-train, then finished or stopped.

SLURM announces preemption and the time limit by a signal to every process of a job, data-loader workers included.
submitit's own handler leaves the training at once, in the middle of an update; here a signal is only noted, and
`update_hook.py` asks for it after each update. A stop (preemption, time limit, SIGTERM) ends in one checkpoint, and
rank 0 says so in status.json. A rank that dies takes the others with it (srun --kill-on-bad-exit), and the first one
that fails notes why. Whether the job starts again is decided by the batch script (`restart.py`), outside of any
container: the ranks never ask SLURM anything.

fairseq resumes from `checkpoint_last.pt` alone: if that is cut off it stops, if it is missing it starts over silently.
Here every start checks all checkpoints first; broken ones are renamed, never deleted.

torchrun serves without SLURM. It starts the ranks, restarts all of them when one has failed (--max-restarts), and with
--nnodes MIN:MAX also when machines come or go. Every start divides the recipe's batch among the present ranks. The
recipe's batch, `checkpoint_minutes`, `env` and `train` are used; its requests to SLURM have no effect. The code is not
copied: the ranks run the installed plugin.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import submitit
import torch
import torch.distributed as dist

from roberta_plugin.checkpoint_files import fault_of, remove_unfinished, updates_of
from roberta_plugin.files import atomic_write
from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.launch import preflight, restart
from roberta_plugin.launch.process import tracker_variables
from roberta_plugin.launch.recipe import LaunchSettings
from roberta_plugin.launch.recipe_checks import check_changes, check_recipe
from roberta_plugin.launch.rendezvous import RankInfo, attempt, distributed_arguments, port_of, rank_from_environment
from roberta_plugin.launch.resources import written_variables
from roberta_plugin.launch.run_folder import ITSELF, Attempt, RunFolder, add_jobs
from roberta_plugin.runs import DONE, FAILED, write_record
from roberta_plugin.stop_signals import StopSignals

logger = logging.getLogger(__name__)

PORT_VARIABLE = "ROBERTA_PORT"  # the batch script has looked for a free one
PREEMPTION = signal.Signals[f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}"]
STOP_SIGNALS = (PREEMPTION, signal.SIGTERM)
LAST = "checkpoint_last.pt"
NAMES = re.compile(r"checkpoint(_last|_best|_\d+_\d+|\d+)\.pt")
CHECKPOINT_SECONDS = 1800.0  # reading a large checkpoint from a busy file system takes minutes
_TORCHRUNS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")  # variables


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """One training, from its last checkpoint to its end or to the next stop."""

    recipe: LaunchSettings
    arguments: tuple[str, ...]

    def __call__(self) -> str:
        """Train on this rank; returns when the training is finished, and exits when it was stopped.

        All ranks but the first exit in any case: submitit would write a file for each.
        """
        is_first = int(os.environ.get("SLURM_PROCID", 0)) == 0
        try:
            hook = self._start()
        except Exception as error:
            self._note_failure(error)
            if is_first:
                raise
            traceback.print_exc()
            sys.exit(1)
        if hook.has_stopped or not is_first:
            sys.exit(0)  # without a result, as submitit sees it; an error code would end the other ranks too early
        return f"finished at update {hook.update}"

    def _start(self) -> Any:
        with StopSignals(STOP_SIGNALS) as stop:
            rank_info = rank_from_environment(
                num_nodes=self.recipe.nodes,
                ranks_per_node=self.recipe.gpus_per_node,
                port=int(os.environ.get(PORT_VARIABLE) or self.recipe.port or port_of(self.recipe.output_dir)),
            )
            _log_to_stdout()
            hook = self._train(rank_info, stop)
            for number in STOP_SIGNALS:  # they come too late, and submitit would requeue the job once more
                stop.handlers_before[number] = signal.SIG_IGN
            return hook

    def _end(self, hook: Any, rank_info: RankInfo) -> None:
        """Do the last steps while the other ranks still wait, so that all end together."""
        from roberta_plugin.launch.report import REPORT, write_report

        hook.write_status("stopped" if hook.has_stopped else "finished")
        if rank_info.rank == 0 and not hook.has_stopped:
            try:
                write_report(self.recipe.output_dir)
            except Exception as error:  # a plotting error does not undo a finished training
                logger.warning(f"{REPORT} could not be written ({error}): try `roberta jobs report`")

    def _note_failure(self, error: Exception) -> None:
        restart.note_failure(
            self.recipe.output_dir,
            job_id=os.environ["SLURM_JOB_ID"],
            attempt=attempt(),
            rank=int(os.environ.get("SLURM_PROCID", 0)),
            host=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
            node=int(os.environ.get("SLURM_NODEID", 0)),
            error=error,
            nodes=getattr(error, "nodes", ()),
            is_preflight=isinstance(error, preflight.PreflightError),
        )

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """The callable that submitit runs after a restart: this one, which resumes from the checkpoints."""
        return submitit.helpers.DelayedSubmission(self)

    def _train(self, rank_info: RankInfo, stop: StopSignals) -> Any:
        hook = _update_hook(self.recipe, rank_info, stop, job_id=os.environ["SLURM_JOB_ID"])
        hook.write_status("starting")
        seconds = self.recipe.preflight_seconds
        store = preflight.meet(rank_info, seconds=seconds)
        finding = preflight.ALL_WELL
        if not self.recipe.is_cpu:
            finding = preflight.check_device(rank_info.local_rank, num_gpus=rank_info.ranks_per_node)
        preflight.check_ranks(store, rank_info, finding, seconds=seconds)
        prepare = functools.partial(locked_checkpoints, self.recipe.save_dir)
        said = preflight.from_rank_zero(store, rank_info, "checkpoint", prepare, seconds=CHECKPOINT_SECONDS)
        logger.info(f"checkpoints in {self.recipe.save_dir}: {said}")
        if rank_info.rank == 0:
            restart.note_start(self.recipe.output_dir, job_id=os.environ["SLURM_JOB_ID"], attempt=attempt())

        from roberta_plugin.fairseq_workarounds import heartbeats

        heartbeats.on_lost.append(self._note_failure)
        end = functools.partial(self._end, hook, rank_info)
        _run_fairseq(hook, rank_info, self.arguments, recipe=self.recipe, at_end=end)
        return hook


class RunJob:
    """A task of the array: check the GPUs, do one run, stop in order when SLURM takes the node away.

    `after` is called with the folder of a run that is done: in its job, where the GPUs are.
    """

    def __init__(self, *, num_gpus: int = 0, after: Callable[[RunFolder], None] | None = None) -> None:
        self._num_gpus, self._after = num_gpus, after
        self._attempt: Attempt | None = None

    def __call__(self, folder: RunFolder) -> str:
        """The state the run is left in, or "elsewhere" if another process trains it.

        Raises:
            RuntimeError: if the run has failed, so that the task of the array fails too.
        """
        if self._num_gpus > (num_visible := torch.cuda.device_count()) and "--cpu" not in folder.run.arguments:
            missing = f"node {socket.gethostname()}: torch sees {num_visible} GPUs, and the run needs {self._num_gpus}"
            error = preflight.PreflightError(f"{missing}. {preflight.REPORT_IT}.")
            folder.fail(str(error))
            raise error  # fairseq-train would train on the processor
        self._attempt = folder.start()
        state = self._attempt.wait() if self._attempt else "elsewhere"
        if state == FAILED:
            raise RuntimeError(
                f"{folder.run.name}: {(folder.failure() or {}).get('reason')}; see {folder.path}/log.txt"
            )
        if self._after and folder.state() == DONE:  # also where an earlier start of this job has done the run
            self._after(folder)
        return state

    def checkpoint(self, folder: RunFolder) -> Any:
        """Called by submitit when the task is preempted or its time is up: stop, and be called again later."""
        if self._attempt:
            self._attempt.stop()
        again = RunJob(num_gpus=self._num_gpus, after=self._after)
        return submitit.helpers.DelayedSubmission(again, folder)


def rank_of_torchrun(environment: Mapping[str, str] = os.environ) -> RankInfo:
    """This process's rank, which meets the others at the store of torchrun's agent; without torchrun, rank 0 of 1.

    Raises:
        ValueError: if only some of torchrun's variables are set.
    """
    missing = [name for name in _TORCHRUNS if name not in environment]
    if len(missing) == len(_TORCHRUNS):
        return RankInfo(rank=0, world_size=1, local_rank=0)
    if missing:
        raise ValueError(
            f"{', '.join(missing)} not set: start the ranks by `torchrun --no-python roberta train ...`, which sets "
            f"{', '.join(_TORCHRUNS)}."
        )
    rank, world_size, local_rank = (int(environment[name]) for name in _TORCHRUNS[:3])
    return RankInfo(rank=rank, world_size=world_size, local_rank=local_rank)


def train_rank(recipe: LaunchSettings, rank: RankInfo) -> int:
    """Train on this rank to the end (exit code 0) or until a signal stops all ranks (128 + its number).

    Raises:
        ValueError: if the recipe does not fit this number of ranks, or changes the settings of the run.
        FileNotFoundError: for a missing data folder.
    """
    recipe = recipe.resolved(nodes=1, gpus_per_node=rank.world_size)
    with StopSignals((signal.SIGINT, signal.SIGTERM)) as stop:
        arguments = check_recipe(recipe)
        os.environ.update(written_variables(recipe.env))
        _log_to_stdout()
        if rank.rank == 0:  # the others wait for it
            changes = check_changes(recipe, arguments)
            recipe.save_dir.mkdir(parents=True, exist_ok=True)
            logger.info(f"checkpoints in {recipe.save_dir}: {locked_checkpoints(recipe.save_dir)}")
            write_record(recipe.output_dir, recipe.record(arguments, changes=changes, snapshot="none: torchrun"))
            add_jobs(recipe.output_dir, {ITSELF: ""})
        hook = _update_hook(recipe, rank, stop, job_id="")
        hook.write_status("starting")
        try:
            _run_fairseq(hook, rank, arguments, recipe=recipe)
        except Exception:
            hook.write_status("failed")
            raise
        hook.write_status("stopped" if hook.has_stopped else "finished")
        if not hook.has_stopped:
            return 0
        return 128 + (stop.received or signal.SIGTERM)  # a rank that got no signal stops for the sake of another


def _log_to_stdout() -> None:
    form = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"  # fairseq's own
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format=form, force=True)


def _update_hook(recipe: LaunchSettings, rank: RankInfo, stop: StopSignals, *, job_id: str) -> Any:
    from roberta_plugin.launch.update_hook import UpdateHook

    minutes = recipe.checkpoint_minutes
    return UpdateHook(
        stop, output_dir=recipe.output_dir, job_id=job_id, checkpoint_minutes=minutes, is_master=rank.rank == 0
    )


def _run_fairseq(
    hook: Any,
    rank: RankInfo,
    arguments: tuple[str, ...],
    *,
    recipe: LaunchSettings,
    at_end: Callable[[], None] = lambda: None,
) -> None:
    """fairseq-train on this rank, with `hook` after every update."""
    from fairseq.distributed import utils as distributed_utils

    os.environ.update(tracker_variables(recipe.output_dir, name=recipe.job_name, user=os.environ))
    words = [*arguments, *distributed_arguments(rank, is_cpu=recipe.is_cpu)]
    logger.info(f"fairseq-train {' '.join(words)}")
    config = train_arguments.to_config(train_arguments.parse(words))
    with hook:
        distributed_utils.call_main(config, CheckedMain(rank.rank, rank.world_size, at_end=at_end))


class CheckedMain:
    """fairseq's main, after a check of its process group; then `at_end`, before its last barrier."""

    def __init__(self, rank: int, world_size: int, *, at_end: Callable[[], None] = lambda: None) -> None:
        self._expected = (rank, world_size)
        self._at_end = at_end

    def __call__(self, config: Any) -> None:
        """Train.

        Raises:
            RuntimeError: if this process is not the expected rank, or the number of ranks is another.
        """
        import fairseq_cli.train

        actual = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        if actual != self._expected:
            rank, world_size = self._expected
            raise RuntimeError(f"fairseq trains as rank {actual[0]} of {actual[1]}, not {rank} of {world_size}.")
        host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        # printed, for fairseq keeps every rank but the first from logging
        sys.stdout.write(f"rank {actual[0]} of world size {actual[1]} on {host}\n")
        sys.stdout.flush()
        fairseq_cli.train.main(config)
        self._at_end()


def locked_checkpoints(save_dir: Path) -> str:
    """`prepare_checkpoints`, once no other training can touch them."""
    from roberta_plugin.fairseq_workarounds import checkpoints

    checkpoints.lock_save_dir(save_dir)
    return prepare_checkpoints(save_dir)


def prepare_checkpoints(save_dir: Path) -> str:
    """Make the newest whole checkpoint checkpoint_last.pt; return messages for the user.

    Raises:
        ValueError: if there are checkpoints and none is whole: starting over silently would hide the loss.
    """
    said = []
    for name in remove_unfinished(save_dir):
        said.append(f"removed {name}, which was cut off while it was written")
    paths = [path for path in save_dir.glob("checkpoint*.pt") if NAMES.fullmatch(path.name)]
    if not paths:
        return "; ".join([*said, "no checkpoint yet: the training begins"])

    updates = {path: updates_of(path) for path in paths}
    order = sorted(paths, key=lambda path: (updates[path] is not None, updates[path], path.name == LAST), reverse=True)
    broken = []
    for path in order:
        if updates[path] is not None and is_whole(path):
            break
        broken.append(path)
    else:
        raise ValueError(
            f"None of the checkpoints in {save_dir} is whole ({', '.join(sorted(path.name for path in paths))}): bring "
            f"one back from a copy, or remove them all to start over."
        )
    broken += [other for other in order if updates[other] is None and other not in broken]
    for other in broken:
        other.rename(other.with_name(f"{other.name}.broken"))
        said.append(f"{other.name} is broken and was put aside as {other.name}.broken")
    if path.name != LAST:
        with open(path, "rb") as source, atomic_write(save_dir / LAST) as target:
            shutil.copyfileobj(source, target, 16 * 2**20)
        said.append(f"{LAST} was missing, broken or older: it is now a copy of {path.name}")
    return "; ".join([*said, f"resuming from {path.name}, update {updates[path]}"])


def is_whole(path: Path) -> bool:
    """True if the checksum of every part of the file matches."""
    try:
        return fault_of(path) is None
    except OSError:
        return False
