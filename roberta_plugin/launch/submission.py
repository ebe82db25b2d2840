"""Resources and a callable -> batch script -> job or array of jobs, by submitit; a dry run writes nothing.

    a free port, variables, modules                         setup_lines
    srun ... submitit ... job.py                            by submitit
    start again, or end                                     END_LINES, `restart.py`

The script runs on the first node, outside of any container. `launch` submits the one run of a recipe, `submit_runs`
the jobs of a sweep as an array, each on one node, where submitit requeues jobs after preemption or time-out.

Jobs run a copy of the code, FOLDER/.snapshots/NUMBER/code: roberta_plugin, and a user directory of the recipe's own.
Beside it are recipe.json, the config file and environment.sh, the values of --env, which only their owner can read, and
which hold no secrets. Editing the checkout afterwards changes neither a waiting job nor one that starts again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import platform
import secrets
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError

from roberta_plugin.extras import installed_fairseqs, version_of
from roberta_plugin.files import NO_ROOM
from roberta_plugin.launch.arguments import PACKAGE, parse, user_dir_of, with_code
from roberta_plugin.launch.job import PORT_VARIABLE, PREEMPTION, RunJob, TrainingJob
from roberta_plugin.launch.options_file import recipe_files
from roberta_plugin.launch.process import tracker_variables, variables_shown
from roberta_plugin.launch.recipe import LaunchSettings
from roberta_plugin.launch.recipe_checks import check_changes, check_no_job, check_recipe
from roberta_plugin.launch.rendezvous import RankInfo, distributed_arguments, port_of
from roberta_plugin.launch.resources import (
    Resources,
    check_text,
    dropped_variables,
    keep_secrets,
    redacted_copy,
    submitit_parameters,
    written_variables,
)
from roberta_plugin.launch.run_folder import ARRAY_LOGS, ITSELF, JOBS, RunFolder, add_jobs
from roberta_plugin.launch.slurm_commands import check_partition, submission_environment
from roberta_plugin.locks import one_writer
from roberta_plugin.runs import write_record

MAX_TIMEOUTS = 100  # a run of a sweep may need many time limits
# From the end of the first rank to the end of the last. Without it, srun would wait forever for a rank whose step
# daemon has died. SLURM's KillWait (30 s) comes on top. The ranks end together, when rank 0 has written all it has to.
WAIT_S = 10
END_LINES = ["end_attempt $?"]
ENVIRONMENT = "environment.sh"
SNAPSHOTS = ".snapshots"  # hidden: a user looks for other files in a run folder
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A submitted job, or the result of a dry run, where `job_id` is None."""

    job_id: str | None
    output_dir: Path
    script: str
    commands: tuple[str, ...]
    estimate: str = ""  # of a dry run


class _Executor(submitit.SlurmExecutor):
    """submitit's executor, which also serves where SLURM is not installed: for a dry run."""

    @classmethod
    def affinity(cls) -> int:
        """Usable; whether there is an sbatch is checked by `check_partition`."""
        return 2


def launch(recipe: LaunchSettings, *, dry_run: bool = False, config: Path | None = None) -> Submission:
    """Check the recipe, copy code and config into the run folder, and submit the job.

    The file `config`, from which the recipe was read, is kept in the run folder.

    Raises:
        ValueError: for a recipe that cannot work, with the remedy; also if sbatch refuses it.
        FileNotFoundError: for a missing data folder.
        PermissionError: for a run folder that cannot be written to.
    """
    recipe = recipe.resolved()
    arguments = check_recipe(recipe)
    changes = check_changes(recipe, arguments)
    if not dry_run:
        check_partition(recipe.partition, nodes=recipe.nodes)
        recipe.save_dir.mkdir(parents=True, exist_ok=True)
    # of two launches at the same time, the second finds the first one's job
    with contextlib.nullcontext() if dry_run else one_writer(recipe.output_dir / JOBS):
        snapshot = next_folder(recipe.output_dir)
        executor = _Executor(recipe.output_dir / "logs", python=_python(recipe))
        executor.update_parameters(**sbatch_parameters(recipe, snapshot=snapshot))
        shown = shlex.join(["sbatch", f"{recipe.output_dir}/logs/JOB_submission.sh"])
        submission = Submission(
            job_id=None,
            output_dir=recipe.output_dir,
            script=executor._make_submission_file_text(executor._submitit_command_str, ""),
            commands=(shown, rank_command(recipe, arguments)),
        )
        if dry_run:
            return dataclasses.replace(submission, estimate=estimate_of(recipe, arguments))
        check_no_job(recipe.output_dir)
        taken = take_snapshot(recipe, arguments=arguments, config=config)
        assert taken == snapshot
        job = TrainingJob(recipe=without_secrets(recipe), arguments=with_code(arguments, snapshot / "code"))
        with _calling_sbatch(recipe, folder=executor.folder):
            job_id = str(executor.submit(job).job_id)
        write_record(recipe.output_dir, recipe.record(arguments, changes=changes, snapshot=str(snapshot)))
        add_jobs(recipe.output_dir, {ITSELF: job_id})
    return dataclasses.replace(submission, job_id=job_id)


def estimate_of(recipe: LaunchSettings, arguments: Sequence[str]) -> str:
    """The hours and memory of the training, in words, for GPUs of the type that the recipe asks for."""
    from roberta_plugin.launch.estimate import estimate

    parsed = parse(arguments)
    parsed.distributed_world_size = recipe.num_gpus
    return estimate(parsed, gpu=(recipe.gpu_type or "").upper())


def submit_runs(
    folders: Sequence[RunFolder],
    *,
    root: Path,
    name: str,
    code: Path,
    num_parallel: int,
    resources: Resources,
    after: Callable[[RunFolder], None] | None = None,
) -> dict[str, str]:
    """Submit the runs of a sweep as one array. At most `num_parallel` tasks run at a time.

    All nodes see the file system of `root`. `after` is what a job does with the folder of its run when that is done.
    Returns the job id of each run, by its name.

    Raises:
        ValueError: if SLURM is not there, sbatch refuses, or the resources cannot work.
    """
    resources = dataclasses.replace(resources, env=keep_secrets(resources.env))
    check_partition(resources.partition, nodes=resources.nodes)
    write_environment(code.parent, resources.env)
    executor = _array_executor(root, name=name, code=code, num_parallel=num_parallel, resources=resources)
    with _calling_sbatch(resources, folder=executor.folder):
        jobs = executor.map_array(RunJob(num_gpus=resources.gpus_per_node, after=after), folders)
    submitted = {folder.run.name: str(job.job_id) for folder, job in zip(folders, jobs, strict=True)}
    add_jobs(root, submitted)
    return submitted


def array_script(*, num_runs: int, root: Path, name: str, num_parallel: int, resources: Resources) -> str:
    """The batch script by which `submit_runs` would submit the runs of a sweep, for a dry run: nothing is written."""
    code = next_folder(root) / "code"
    executor = _array_executor(root, name=name, code=code, num_parallel=num_parallel, resources=resources)
    executor.parameters["map_count"] = num_runs
    script: str = executor._make_submission_file_text(executor._submitit_command_str, "")
    return script


def _array_executor(
    root: Path, *, name: str, code: Path, num_parallel: int, resources: Resources
) -> submitit.SlurmExecutor:
    check_text({"--output-dir": root, "the job's name": name})
    executor = _Executor(root / ARRAY_LOGS, max_num_timeout=MAX_TIMEOUTS, python=_host_program(resources))
    executor.update_parameters(
        **submitit_parameters(resources, ntasks_per_node=1, has_gpus=True),
        job_name=name,
        array_parallelism=num_parallel,
        setup=environment_lines(resources, snapshot=code.parent),
    )
    return executor


@contextlib.contextmanager
def _calling_sbatch(resources: Resources, *, folder: Path) -> Iterator[None]:
    """While entered, submitit calls sbatch without the settings that it would inherit from a surrounding job.

    The job inherits this process's environment by `resources.inherit`. The files that submitit writes to `folder` hold
    what `setup` and `sbatch` say; others can read them at no time.
    """
    options = {name for name in ("account", "partition", "qos") if getattr(resources, name)}
    options |= resources.sbatch_options.keys()
    folder.mkdir(parents=True, exist_ok=True)
    mode = folder.stat().st_mode
    try:
        _chmod(folder, 0o700)
        dropped = dropped_variables(resources.env, resources.inherit)
        # submitit prints what sbatch says of a refusal, which is also in its exception
        with submission_environment(options=options, dropped=dropped), contextlib.redirect_stderr(io.StringIO()):
            yield
    except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError) as error:
        said = "; ".join(line.removeprefix("sbatch: error: ") for line in str(error).strip().splitlines())
        raise ValueError(f"sbatch refused the job: {said}") from error
    finally:
        for path in (*folder.glob("*.sh"), *folder.glob("*.pkl")):
            _chmod(path, 0o600)
        _chmod(folder, stat.S_IMODE(mode))


def _chmod(path: Path, mode: int) -> None:
    with contextlib.suppress(OSError):  # a colleague's; or a job that has begun has renamed its own
        path.chmod(mode)


def sbatch_parameters(recipe: LaunchSettings, *, snapshot: Path) -> dict[str, Any]:
    """submitit's parameters for the recipe: one failing rank ends the job; each node has a log."""
    parameters = submitit_parameters(recipe, ntasks_per_node=recipe.gpus_per_node, has_gpus=not recipe.is_cpu)
    # --distribution=block: ranks fill one node after the other, as rendezvous.py expects
    parameters["additional_parameters"] = {"distribution": "block", **parameters["additional_parameters"]}
    log = f"--output={recipe.output_dir}/logs/%j_%n_log.out"
    srun = ["--kill-on-bad-exit=1", "--open-mode=append", "--label", log, f"--cpus-per-task={recipe.cpus_per_gpu}"]
    if recipe.container is not None and recipe.container_runtime == "pyxis":
        mounts = [f"{recipe.output_dir}:{recipe.output_dir}", recipe.container_mounts]
        srun.append(f"--container-image={recipe.container}")
        srun.append(f"--container-mounts={','.join(mount for mount in mounts if mount)}")
    return parameters | {
        "job_name": recipe.job_name,
        "stderr_to_stdout": True,
        "setup": setup_lines(recipe, snapshot=snapshot),
        "teardown": END_LINES,
        "srun_args": srun,
    }


def rank_command(recipe: LaunchSettings, arguments: tuple[str, ...]) -> str:
    """The equivalent fairseq-train command of a rank, with SLURM's variables where ranks differ."""
    rank_info = RankInfo(
        rank=0,
        world_size=recipe.num_gpus,
        local_rank=0,
        ranks_per_node=recipe.gpus_per_node,
        hosts=("FIRST-NODE",),
        port=recipe.port or port_of(recipe.output_dir),
    )
    distributed = distributed_arguments(rank_info, is_cpu=recipe.is_cpu)
    for option, variable in (("--distributed-rank", "$SLURM_PROCID"), ("--device-id", "$SLURM_LOCALID")):
        if option in distributed and not (option == "--device-id" and recipe.is_cpu):
            distributed[distributed.index(option) + 1] = variable
    dropped = dropped_variables(recipe.env, recipe.inherit)
    environment = {**os.environ, **written_variables(recipe.env)}.keys() - dropped
    variables = variables_shown(tracker_variables(recipe.output_dir, name=recipe.job_name, user=environment), arguments)
    return f"{variables}fairseq-train {shlex.join(arguments)} {' '.join(distributed)}"


def _host_program(resources: Resources) -> str:
    """Python of a job: this Python, or the Python of its conda environment.

    It must not look into the working directory first (-P): that would be the checkout, not the snapshot.
    """
    return "python3 -P" if resources.conda else f"{shlex.quote(sys.executable)} -P"


def _python(recipe: LaunchSettings) -> str:
    """Python of the ranks."""
    if recipe.container is None:
        return _host_program(recipe)
    if recipe.container_runtime == "pyxis":
        return "python3 -P"
    mounts = [f"--bind {shlex.quote(mount)}" for mount in (recipe.container_mounts or "").split(",") if mount]
    output_dir = f"--bind {shlex.quote(str(recipe.output_dir))}"
    return " ".join(["apptainer exec --nv", output_dir, *mounts, shlex.quote(recipe.container), "python3 -P"])


def environment_lines(resources: Resources, *, snapshot: Path) -> list[str]:
    """The variables of --env, modules, conda and `setup`, then PYTHONPATH with the snapshot's code in front."""
    code = shlex.quote(str(snapshot / "code"))
    return [
        f". {shlex.quote(str(snapshot / ENVIRONMENT))}",
        *resources.activation,
        f"export PYTHONPATH={code}${{PYTHONPATH:+:$PYTHONPATH}} PYTHONSAFEPATH=1",
    ]


def setup_lines(recipe: LaunchSettings, *, snapshot: Path) -> list[str]:
    """The batch script before srun: ignore signals meant for the ranks; set up the environment, whose lines may end it.

    Outside of any container runs this Python, if the node has it, with the standard library only: `rendezvous.py` finds
    a free port, and at the end of the script `restart.py` decides whether the job restarts, and gives its exit code.

    NCCL's watchdog ends a rank whose collective has failed or timed out (`fairseq_workarounds/heartbeats.py` sets the
    time), and each rank then writes its last collectives to RUN-DIR/logs: torch's flight recorder.
    """
    first_port = recipe.port or port_of(recipe.output_dir)
    output_dir, here = (
        shlex.quote(str(path)) for path in (recipe.output_dir, snapshot / "code" / PACKAGE.name / "launch")
    )
    nccl = {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "600",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": shlex.quote(f"{recipe.output_dir}/logs/nccl_trace_"),
    }
    defaults = {"SLURM_WAIT": str(WAIT_S), **({} if recipe.is_cpu else nccl)}
    return [
        f"trap : TERM USR1 {PREEMPTION.name.removeprefix('SIG')}",
        f"host_python={shlex.quote(sys.executable)}",
        '[ -x "$host_python" ] || host_python=python3',
        "end_attempt() {",
        '[ -z "${decided:-}" ] || exit $decided',
        "code=$1",
        f'"$host_python" -I {here}/restart.py --output-dir {output_dir} --code $code --num-nodes {recipe.nodes}'
        f" --max-requeues {recipe.max_requeues} --preemption-code {128 + PREEMPTION}",
        "decided=$?",
        "[ $decided -eq 126 ] || [ $decided -eq 127 ] && decided=$code  # there is no such Python on this node",
        "exit $decided",
        "}",
        "trap 'end_attempt $?' EXIT  # a line of the environment may end the script",
        *environment_lines(recipe, snapshot=snapshot),
        "set +eu  # `set -e` in one of these lines must not end the script when a rank fails",
        f'port=$("$host_python" -I {here}/rendezvous.py {first_port})',
        f"export {PORT_VARIABLE}=${{port:-{first_port}}}",
        *(f"export {name}=${{{name}:-{value}}}" for name, value in defaults.items()),  # unless the environment has them
    ]


def take_snapshot(recipe: LaunchSettings, *, arguments: tuple[str, ...], config: Path | None) -> Path:
    """Copy code and config into the run folder; return the new snapshot's folder."""
    folder = next_folder(recipe.output_dir)
    user_dir = user_dir_of(arguments)
    copy_code(folder, user_dirs=() if user_dir is None else (user_dir,))
    record = {
        "recipe": dataclasses.asdict(without_secrets(recipe)),
        "fairseq_train": arguments,
        "python": platform.python_version(),
        "packages": {name: version_of(name) for name in ("torch", "numpy", "submitit")} | installed_fairseqs(),
    }
    write_for_owner(folder / "recipe.json", json.dumps(record, indent=1, default=str) + "\n")
    write_environment(folder, recipe.env)
    for file in [] if config is None else reversed(recipe_files(config)):
        write_for_owner(folder / file.path.name, redacted_copy(file.path, recipe.env))
    return folder


def copy_code(folder: Path, *, user_dirs: Collection[Path]) -> None:
    """Copy this package, and user directories, into `folder`/code, which appears when it is whole.

    Raises:
        ValueError: if something cannot be copied, as a link that leads nowhere.
    """
    unfinished = folder / f".code.{secrets.token_hex(4)}.tmp"
    for source in (PACKAGE, *user_dirs):
        try:
            shutil.copytree(source, unfinished / source.name, ignore=IGNORED)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            reason = reason_of(error)
            remedy = "repair the file, or take it out; a link must lead to a file and not into its own folder."
            if any(os.strerror(number) in reason for number in NO_ROOM):
                remedy = "free some space there, and run the same command again."
            raise ValueError(f"{source} cannot be copied to {folder} ({reason}): {remedy}") from error
    unfinished.rename(folder / "code")


def reason_of(error: OSError) -> str:
    """Why a file or tree was not copied; the first entry of shutil's list of failures."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        return str(error.args[0][0][-1])
    return f"{os.strerror(error.errno)}: {error.filename}" if error.errno and error.filename else str(error)


def sweep_snapshot(root: Path, *, user_dirs: Collection[Path], renew: bool) -> tuple[Path, bool]:
    """The code of a sweep's runs: the first start copies it, and later edits do not change it.

    With `renew` it is the present code from now on. Returns the folder to put in front of PYTHONPATH, and whether the
    present code differs from it.

    Raises:
        ValueError: if two user directories have the same name.
    """
    names = [PACKAGE.name, *(path.name for path in user_dirs)]
    if len(set(names)) < len(names):
        raise ValueError(f"The grid's user directories {', '.join(map(str, user_dirs))} have a name twice: rename one.")
    whole = [code for code in root.glob(f"{SNAPSHOTS}/*/code") if all((code / name).is_dir() for name in names)]
    before = sorted(whole, key=lambda code: int(code.parent.name))
    if before:
        code = before[-1]
        is_outdated = any(_differs(source, code / source.name) for source in (PACKAGE, *user_dirs))
        if not (renew and is_outdated):
            return code, is_outdated
    folder = next_folder(root)
    copy_code(folder, user_dirs=user_dirs)
    return folder / "code", False


def _differs(source: Path, copy: Path) -> bool:
    """True if a folder of code differs from its copy."""

    def files(folder: Path) -> dict[Path, bytes]:
        paths = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        names = {path.relative_to(folder): path for path in paths}
        return {name: path.read_bytes() for name, path in names.items() if not str(name).startswith(".")}

    return files(source) != files(copy)


def without_secrets(recipe: LaunchSettings) -> LaunchSettings:
    """The recipe without the values of --env."""
    return dataclasses.replace(recipe, env=tuple(f"{text.partition('=')[0]}=..." for text in recipe.env))


def write_environment(folder: Path, env: Iterable[str]) -> None:
    """Write the variables of --env to `folder`/environment.sh, for a batch script to source, but for secrets."""
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in written_variables(env).items()]
    write_for_owner(folder / ENVIRONMENT, "".join(lines))


def write_for_owner(path: Path, text: str) -> None:
    """Write a file that others cannot read, not even for a moment."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def next_folder(output_dir: Path) -> Path:
    """The folder of the next snapshot. Snapshots of earlier launches stay."""
    taken = [int(path.name) for path in (output_dir / SNAPSHOTS).glob("*") if path.name.isdigit()]
    return output_dir / SNAPSHOTS / str(max(taken, default=-1) + 1)
