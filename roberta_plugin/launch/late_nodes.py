"""The nodes that have no copy of `node_local.py` yet when the time for it is up.

The batch script runs this file on the first node, `python -I late_nodes.py FOLDER ...`. By then all tasks have ended; a
node is late if its log does not say that it has copied. If only some are, the attempt has failed because of them, and
the next one starts without them.

The standard library alone, any Python from 3.8 on, as `restart/`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

from node_local import COPIED, NodeLocalError  # type: ignore[import-not-found]
from restart.attempts import note_failure  # type: ignore[import-not-found]

_END_OF_LOG = 1 << 16  # bytes that are read: a log may also have the training of earlier attempts


def main(arguments: Sequence[str] | None = None) -> int:
    """Say which nodes are late, and let `restart/` know."""
    parser = argparse.ArgumentParser(description="Name the nodes that have no copy of code and environment.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    args = parser.parse_args(arguments)
    job_id, nodes = os.environ["SLURM_JOB_ID"], nodes_of_job()
    late = late_nodes(args.folder, nodes, output_dir=args.output_dir, job_id=job_id)
    if not 0 < len(late) < len(nodes):  # all, or nobody knows: no node is to blame
        sys.stderr.write(f"not all nodes had their copy after {args.seconds} s: raise --preflight-seconds\n")
        return 0
    names, first = list(late.values()), min(late)
    error = NodeLocalError(
        f"{len(nodes) - len(late)} of {len(nodes)} nodes had their copy after {args.seconds} s, but not "
        f"{', '.join(names)}: raise --preflight-seconds, or leave slow nodes out by --exclude."
    )
    sys.stderr.write(f"{error}\n")
    note_failure(
        args.output_dir,
        job_id=job_id,
        attempt=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
        rank=None,
        host=late[first],
        error=error,
        node=first,
        nodes=names,
        is_preflight=True,
    )
    return 0


def late_nodes(folder: Path, nodes: Sequence[str], *, output_dir: Path, job_id: str) -> dict[int, str]:
    """Of the nodes of a job, those whose logs do not say that `folder` is complete, with their numbers."""
    ready = COPIED.format(folder).encode()
    logs = {number: output_dir / "logs" / f"{job_id}_{number}_log.out" for number in range(len(nodes))}
    return {number: nodes[number] for number, log in logs.items() if ready not in _end_of(log)}


def nodes_of_job() -> list[str]:
    """Names of the nodes in the order of their numbers; empty if SLURM does not say."""
    command = ["scontrol", "show", "hostnames", os.environ.get("SLURM_JOB_NODELIST", "")]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    nodes = done.stdout.decode(errors="replace").split()
    return nodes if len(nodes) == int(os.environ.get("SLURM_JOB_NUM_NODES") or 0) else []


def _end_of(log: Path) -> bytes:
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _END_OF_LOG))
            return file.read()
    except OSError:
        return b""


if __name__ == "__main__":
    sys.exit(main())
