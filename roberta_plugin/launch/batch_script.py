"""The lines of the batch script around the command that starts the ranks.

    a free port, variables, modules, copies on the nodes    setup_lines
    srun ... submitit ... job.py                            submission.py, by submitit
    start again, or end                                     END_LINES

It runs on the first node, outside of any container.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
import zlib
from pathlib import Path

from roberta_plugin.launch.job import NODE_FOLDER_VARIABLE, PORT_VARIABLE
from roberta_plugin.launch.node_local import CODE, UNSET
from roberta_plugin.launch.node_local import ENVIRONMENT as PACKED
from roberta_plugin.launch.preemption import PREEMPTION
from roberta_plugin.launch.recipe import LaunchSettings
from roberta_plugin.launch.rendezvous import port_of
from roberta_plugin.launch.snapshot import ENVIRONMENT
from roberta_plugin.training.arguments import PACKAGE

REMOVE_S = 60  # for the removal of the copies on the nodes; a requeued job waits for two minutes anyway
WAIT_S = 600  # from the end of the first rank to that of the last, which may still write a checkpoint
END_LINES = ["end_attempt $?"]
NODE_PYTHON = f'"${NODE_FOLDER_VARIABLE}"/{PACKED}/bin/python'


def setup_lines(recipe: LaunchSettings, *, snapshot: Path) -> list[str]:
    """The batch script before srun: bash outlives the signals that are for its ranks, and the job's environment."""
    first_port = recipe.port or port_of(recipe.output_dir)
    code = shlex.quote(str(snapshot / "code")) if recipe.node_local is None else f'"${NODE_FOLDER_VARIABLE}"/{CODE}'
    return [
        f"trap : TERM USR1 {PREEMPTION.name.removeprefix('SIG')}",
        *_host_python(),
        *_end_attempt(recipe, snapshot=snapshot),
        f". {shlex.quote(str(snapshot / ENVIRONMENT))}",
        *_node_local_lines(recipe, snapshot=snapshot),
        *recipe.activation,
        f"export PYTHONPATH={code}${{PYTHONPATH:+:$PYTHONPATH}}",  # last, whatever a module sets
        f"port=$({_outside(snapshot, 'free_port.py')} {first_port})",
        f"export {PORT_VARIABLE}=${{port:-{first_port}}}",
        # srun would wait forever for a rank whose step daemon has died
        f"export SLURM_WAIT=${{SLURM_WAIT:-{WAIT_S}}}",
        *nccl_lines(recipe),
    ]


def nccl_lines(recipe: LaunchSettings) -> list[str]:
    """What NCCL does about a hang, unless the environment says otherwise.

    Its watchdog ends a rank whose collective has failed or timed out (`fairseq_workarounds/lost_ranks.py` sets the
    time), and each rank then writes its last collectives to RUN-DIR/logs: torch's flight recorder.
    """
    traces = shlex.quote(f"{recipe.output_dir}/logs/nccl_trace_")
    values = {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "600",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": traces,
    }
    return [] if recipe.is_cpu else [f"export {name}=${{{name}:-{value}}}" for name, value in values.items()]


def _end_attempt(recipe: LaunchSettings, *, snapshot: Path) -> list[str]:
    """What the script does at its end: `restart/` decides whether the job starts again, and gives its exit code.

    Ranks that were killed have left their copies on the nodes. To requeue the job would end the removal, which
    therefore comes first; after a stop the ranks have removed them, and the time that SLURM leaves may be short.
    """
    has_copies = recipe.node_local is not None
    remove = [
        f'on_each_node {REMOVE_S} remove "${NODE_FOLDER_VARIABLE}" & removal=$!',
        "[ $code -eq 0 ] || wait $removal",
    ]
    lines = [
        "end_attempt() {",
        "code=$1",
        *(remove if has_copies else []),
        f"{_outside(snapshot, 'restart')} --output-dir {shlex.quote(str(recipe.output_dir))} --code $code"
        f" --num-nodes {recipe.fewest_nodes} --max-requeues {recipe.max_requeues} --preemption-code {128 + PREEMPTION}",
        "decided=$?",
        "[ $decided -eq 126 ] || [ $decided -eq 127 ] && decided=$code  # there is no such Python on this node",
        *(["wait $removal"] if has_copies else []),
        "exit $decided",
        "}",
    ]
    return lines


def _node_local_lines(recipe: LaunchSettings, *, snapshot: Path) -> list[str]:
    """Let `node_local.py` copy the code, and unpack the environment, once on each node."""
    if recipe.node_local is None:
        return []
    output_dir = recipe.output_dir
    name = re.sub(r"[^\w.-]", "_", output_dir.name)
    folder = (
        f"{_checked_variables(recipe.node_local.rstrip('/'))}/roberta-{name}-{zlib.crc32(str(output_dir).encode()):08x}"
    )
    srun = "srun --nodes=$SLURM_JOB_NUM_NODES --ntasks=$SLURM_JOB_NUM_NODES --ntasks-per-node=1 --cpus-per-task=1"
    srun += " --kill-on-bad-exit=1 --open-mode=append --label"
    srun += f" --output={shlex.quote(f'{output_dir}/logs/%j_%n_log.out')}"
    arguments = ["--code", str(snapshot / "code"), "--output-dir", str(output_dir)]
    if recipe.packed_env is not None:
        arguments += ["--environment", str(recipe.packed_env)]
    seconds = math.ceil(recipe.preflight_seconds)
    return [
        f'export {NODE_FOLDER_VARIABLE}="{folder}/$SLURM_JOB_ID-${{SLURM_RESTART_COUNT:-0}}"',
        "on_each_node() {",
        "seconds=$1; shift",
        f'timeout --kill-after=10 "$seconds" {srun} {_outside(snapshot, "node_local.py")} "$@"',
        "}",
        "begun=$SECONDS",
        f'on_each_node {seconds} copy "${NODE_FOLDER_VARIABLE}" {shlex.join(arguments)} || {{',
        "code=$?",
        f'[ $((SECONDS - begun)) -ge {seconds} ] && {_outside(snapshot, "late_nodes.py")} "${NODE_FOLDER_VARIABLE}"'
        f" --output-dir {shlex.quote(str(output_dir))} --seconds {seconds}",
        "end_attempt $code",
        "}",
    ]


def _checked_variables(text: str) -> str:
    """The shell's variables in a text, so that one which is not set can be seen.

    Example:
        _checked_variables("$TMPDIR/x")  ->  "${TMPDIR:-[TMPDIR is not set]}/x"
    """
    return re.sub(r"\$\{?(\w+)\}?", lambda found: f"${{{found[1]}:-{UNSET.format(found[1])}}}", text)


def _host_python() -> list[str]:
    """The Python of the batch script, which runs outside of the container: this one, if the node has it."""
    own = shlex.quote(sys.executable)
    return [f"host_python={own}", '[ -x "$host_python" ] || host_python=python3']


def _outside(snapshot: Path, name: str) -> str:
    """The command that runs a file of this package which needs the standard library alone."""
    return f'"$host_python" -I {shlex.quote(str(snapshot / "code" / PACKAGE.name / "launch" / name))}'
