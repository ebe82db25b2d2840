"""Code and packed environment -> each node's own disk, before the ranks start.

    RUN-DIR/snapshots/NUMBER/code ---+
                                     +--> NODE-LOCAL/roberta-RUN/JOB-ATTEMPT/{code,environment}, on every node
    environment.tar.gz --------------+

A thousand ranks that import torch from a shared file system open millions of small files there. With --node-local the
batch script runs this file once on each node, `python -I node_local.py copy ...`, which reads one archive, and starts
the ranks when it has succeeded on all nodes: no rank sees half a copy. It runs it again at the end, to remove the
copies; what a killed attempt leaves is removed by the run's next start on that node.

The standard library alone, any Python from 3.8 on, as `restart/`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

CODE, ENVIRONMENT = "code", "environment"
_DAMAGED: tuple[type[Exception], ...] = (tarfile.TarError, EOFError, zlib.error)  # what reading an archive may raise
with suppress(ImportError):  # a Python may have been built without it
    import lzma

    _DAMAGED += (lzma.LZMAError,)


class NodeLocalError(Exception):
    """This node cannot hold the copy."""


def copy(folder: Path, *, code: Path, environment: Path | None = None) -> None:
    """Copy the code, and unpack the environment, into `folder`; its neighbours, of earlier attempts, are removed.

    Args:
        folder: of this attempt; the folder above it is the run's own.
        code: the snapshot's folder.
        environment: a tar archive with bin/python at its top, as conda-pack and venv-pack write it.

    Raises:
        NodeLocalError: naming the folder or the archive; nothing is left of the copy then.
    """
    _make_private(folder.parent)
    for other in folder.parent.iterdir():
        if other != folder:
            _remove_tree(other)
    try:
        folder.mkdir()
    except FileExistsError as error:
        raise NodeLocalError(
            f"{folder} is there already: --node-local must name a folder on each node's own disk, not one that nodes "
            "share."
        ) from error
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        shutil.copytree(code, folder / CODE)
        if environment is not None:
            _unpack(environment, folder / ENVIRONMENT)
    except BaseException as error:
        remove(folder)
        if isinstance(error, OSError):  # shutil.Error, a list of what has failed, is one too
            raise _unwritable(folder, error) from error
        raise


def _unwritable(folder: Path, error: OSError) -> NodeLocalError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return NodeLocalError(f"{folder} cannot be written ({reason}): make room, or choose another --node-local.")


def remove(folder: Path) -> None:
    """Remove the copy of an attempt, and the run's folder if nothing else is in it."""
    _remove_tree(folder)
    with suppress(OSError):
        folder.parent.rmdir()


def _make_private(folder: Path) -> None:
    """Make the run's folder, which no other user may have made: the ranks will import what lies there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise NodeLocalError(
            f"{folder} cannot be made ({os.strerror(error.errno or 0)}): --node-local must name a folder that every "
            "node has on its own disk and that you can write to."
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise NodeLocalError(
            f"{folder} is a link, or others can write to it: remove it, or choose another --node-local."
        )


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack an environment, and let conda-unpack put in its new place."""
    options = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}  # Python before 3.8.17 knows no filters
    try:
        with tarfile.open(archive, "r|*") as file:  # as a stream: the archive is read once, from its beginning on
            file.extractall(folder, **options)  # type: ignore[arg-type]
    except OSError as error:
        if error.filename != str(archive):
            raise
        raise NodeLocalError(f"{archive} cannot be read on this node ({os.strerror(error.errno or 0)}).") from error
    except _DAMAGED as error:
        raise NodeLocalError(
            f"{archive} is not a whole tar archive ({error}): pack the environment again, to .tar, .tar.gz, .tar.bz2 "
            "or .tar.xz."
        ) from error
    python = folder / "bin" / "python"
    if not python.exists():
        raise NodeLocalError(
            f"{archive} holds no bin/python that works on this node: pack an environment with conda-pack or venv-pack. "
            "What venv-pack writes needs the Python that the environment was made from, on every node."
        )
    if (folder / "bin" / "conda-unpack").exists():
        done = subprocess.run([str(python), str(folder / "bin" / "conda-unpack")], stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise NodeLocalError(f"conda-unpack of {archive} failed: {done.stderr[-500:]}")


def _remove_tree(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    """One command of the batch script, on one node; 1 after an error, which is the attempt's reason to fail."""
    parser = argparse.ArgumentParser(description="Copy code and environment to this node's disk, or remove them.")
    parser.add_argument("action", choices=("copy", "remove"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--code", type=Path)
    parser.add_argument("--environment", type=Path)
    parser.add_argument("--output-dir", type=Path)
    args = parser.parse_args(arguments)
    if args.action == "remove":
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):  # SLURM's, to all processes of a requeued job
            signal.signal(number, signal.SIG_IGN)
        remove(args.folder)
        return 0
    begin = time.monotonic()
    try:
        copy(args.folder, code=args.code, environment=args.environment)
    except NodeLocalError as error:
        sys.stderr.write(f"{error}\n")
        _note_failure(args.output_dir, error)
        return 1
    sys.stderr.write(f"copied to {args.folder} in {time.monotonic() - begin:.1f} s\n")
    return 0


def _note_failure(output_dir: Path, error: NodeLocalError) -> None:
    """Let `restart/` know why the attempt fails, and on which node."""
    sys.path.append(str(Path(__file__).resolve().parent))
    from restart.attempts import note_failure  # type: ignore[import-not-found]

    host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    note_failure(
        output_dir,
        job_id=os.environ["SLURM_JOB_ID"],
        attempt=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
        rank=None,
        host=host,
        error=error,
        node=int(os.environ.get("SLURM_NODEID", 0)),
        nodes=[host],
        is_preflight=True,
    )


if __name__ == "__main__":
    sys.exit(main())
