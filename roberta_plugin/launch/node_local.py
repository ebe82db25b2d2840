"""Code and packed environment -> each node's own disk, before the ranks start.

    RUN-DIR/.snapshots/NUMBER/code --+
                                     +--> NODE-LOCAL/roberta-RUN/JOB-ATTEMPT/{code,environment}, on every node
    environment.tar.gz --------------+

A thousand ranks that import torch from a shared file system open millions of small files there. With --node-local the
batch script runs this file once on each node, `python -I node_local.py copy ...`, which reads one archive, and starts
the ranks when it has succeeded on all nodes: no rank sees half a copy (`late_nodes.py` says which are not ready in
time). The last rank of a node to exit removes the copy, because a job that is being cancelled cannot start anything
more; where ranks were killed the batch script does, and what a killed attempt leaves is removed by the run's next start
on that node.

The standard library alone, any Python from 3.8 on, as `restart/`.
"""

from __future__ import annotations

import argparse
import atexit
import fcntl
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
from typing import Any

CODE, ENVIRONMENT = "code", "environment"
COPIED = "copied to {} in "  # what the log of a node says when it is ready
UNSET = "[{} is not set]"  # what the batch script writes for a variable of --node-local that it does not have
_DAMAGED: tuple[type[Exception], ...] = (tarfile.TarError, EOFError, zlib.error)  # what reading an archive may raise
with suppress(ImportError):  # a Python may have been built without it
    import lzma

    _DAMAGED += (lzma.LZMAError,)


class NodeLocalError(Exception):
    """This node cannot hold the copy."""


class SettingError(NodeLocalError):
    """No node could hold it: the option or the archive is wrong."""


def copy(folder: Path, *, code: Path, environment: Path | None = None) -> None:
    """Copy the code, and unpack the environment, into `folder`; its neighbours, of earlier attempts, are removed.

    Args:
        folder: of this attempt; the folder above it is the run's own.
        code: the snapshot's folder.
        environment: a tar archive with bin/python at its top, as conda-pack and venv-pack write it.

    Raises:
        NodeLocalError: naming the folder or the archive; nothing is left of the copy then.
    """
    _check_place(folder.parent.parent)
    _make_private(folder.parent)
    for other in folder.parent.iterdir():
        if other != folder:
            _remove_tree(other)
    try:
        folder.mkdir()
    except FileExistsError as error:
        raise SettingError(
            f"{folder} is there already: --node-local must name a folder on each node's own disk, not one that nodes "
            "share."
        ) from error
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        shutil.copytree(code, folder / CODE, copy_function=_copy_file)
        if environment is not None:
            _unpack(environment, folder / ENVIRONMENT)
    except BaseException as error:
        remove(folder)
        if isinstance(error, OSError):
            raise _unwritable(folder, error) from error
        raise


def _check_place(folder: Path) -> None:
    """Refuse what variables have made of --node-local in this job, if it is no folder to import from."""
    if UNSET.partition("}")[2] in str(folder):
        raise SettingError(
            f"--node-local is {folder} in this job: name a folder that every node has, or set the variable by --env."
        )
    if not folder.is_absolute() or os.pathsep in str(folder):
        raise SettingError(f"--node-local is {folder} in this job: it must be a full path, and without a colon.")


def _copy_file(source: str, target: str) -> None:
    """Copy a file; the first error ends the copy of the whole tree, which would otherwise go on with a full disk."""
    try:
        shutil.copy2(source, target)
    except OSError as error:
        if error.filename == source and error.filename2 is None:  # it was opened
            raise NodeLocalError(f"{source} cannot be read on this node ({os.strerror(error.errno or 0)}).") from error
        raise _unwritable(Path(target), error) from error


def _unwritable(path: Path, error: OSError) -> NodeLocalError:
    return NodeLocalError(f"{path} cannot be written ({reason_of(error)}): make room, or choose another --node-local.")


def reason_of(error: OSError) -> str:
    """Why a file or a tree of files was not copied; of shutil's list of all that has failed, the first."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        return str(error.args[0][0][-1])
    return os.strerror(error.errno) if error.errno else str(error)


def remove(folder: Path) -> None:
    """Remove the copy of an attempt, and the run's folder if nothing else is in it."""
    _remove_tree(folder)
    with suppress(OSError):
        folder.parent.rmdir()


def remove_at_exit(folder: Path) -> None:
    """On a rank: remove the copy when this process exits, if no other rank of this node uses it any more."""
    with suppress(OSError):  # then the batch script removes it
        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        atexit.register(_remove_if_last, folder, descriptor)


def _remove_if_last(folder: Path, descriptor: int) -> None:
    with suppress(OSError):  # another rank has not exited yet
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(folder)


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
    if os.statvfs(folder.parent).f_flag & os.ST_NOEXEC:
        raise NodeLocalError(
            f"{folder.parent} is on a disk that is mounted noexec, and no Python of --packed-env can run there: choose "
            "another --node-local."
        )
    options = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}  # Python before 3.8.17 knows no filters
    try:
        with tarfile.open(archive, "r|*") as file:  # as a stream: the archive is read once, from its beginning on
            file.extractall(folder, **options)  # type: ignore[arg-type]
    except OSError as error:
        if error.filename != str(archive):
            raise
        raise NodeLocalError(f"{archive} cannot be read on this node ({os.strerror(error.errno or 0)}).") from error
    except _DAMAGED as error:
        raise SettingError(
            f"{archive} is not a whole tar archive ({error}): pack the environment again, to .tar, .tar.gz, .tar.bz2 "
            "or .tar.xz."
        ) from error
    python = str(folder / "bin" / "python")
    failure = _failure_of([python, "-c", ""])
    if failure is not None:
        raise NodeLocalError(
            f"{archive} holds no bin/python that works on this node ({failure}): pack an environment with conda-pack "
            "or venv-pack. What venv-pack writes needs the Python that the environment was made from, on every node."
        )
    if (folder / "bin" / "conda-unpack").exists():
        failure = _failure_of([python, str(folder / "bin" / "conda-unpack")])
        if failure is not None:
            raise SettingError(f"conda-unpack of {archive} failed: {failure}")


def _failure_of(command: Sequence[str]) -> str | None:
    """Run a program; why it failed, or None."""
    try:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    except OSError as error:
        return os.strerror(error.errno or 0)
    if done.returncode == 0:
        return None
    return done.stderr.decode(errors="replace").strip()[-500:] or f"exit code {done.returncode}"


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
        _set_signals(signal.SIG_IGN)
        remove(args.folder)
        return 0
    _set_signals(_stop)
    begin = time.monotonic()
    try:
        copy(args.folder, code=args.code, environment=args.environment)
    except NodeLocalError as error:
        sys.stderr.write(f"{error}\n")
        _note_failure(args.output_dir, error)
        return 1
    sys.stderr.write(f"{COPIED.format(args.folder)}{time.monotonic() - begin:.1f} s\n")
    return 0


def _set_signals(handler: Any) -> None:
    """What to do about SLURM's signals, which go to all processes of a job that is requeued or cancelled."""
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, handler)


def _stop(number: int, frame: object) -> None:
    """End, with nothing left of the copy; SIGTERM comes from srun after another node's error, and has its code."""
    _set_signals(signal.SIG_IGN)
    sys.exit(1 if number == signal.SIGTERM else 128 + number)


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
        nodes=[] if isinstance(error, SettingError) else [host],
        is_preflight=not isinstance(error, SettingError),
    )


if __name__ == "__main__":
    sys.exit(main())
