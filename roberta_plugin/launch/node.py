"""Prepares a node before its ranks start: a copy of code and environment on its own disk, and a free port.

    RUN-DIR/.snapshots/NUMBER/code --+
                                     +--> NODE-LOCAL/roberta-RUN/JOB-ATTEMPT/{code,environment}, on every node
    environment.tar.gz --------------+

The batch script runs `python -I node.py port FIRST` on the node of rank 0 and, with --node-local, `node.py copy ...`
once on each node; the ranks start when it has succeeded on all of them, so that none sees half a copy. The last rank of
a node to exit removes the copy, because a job that is being cancelled cannot start anything more; where ranks were
killed the batch script does (`node.py remove`), and the run's next start there removes the rest.

The standard library alone, any Python from 3.8 on, as `restart.py`.
"""

from __future__ import annotations

import argparse
import atexit
import errno
import fcntl
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

CODE, ENVIRONMENT = "code", "environment"
UNSET = "[{} is not set]"  # the batch script's text for an unset variable in --node-local
NUM_TRIES = 200  # pairs of ports
LAST_PORT = 65534


class NodeLocalError(Exception):
    """This node cannot hold the copy."""


class SettingError(NodeLocalError):
    """No node could hold it: the option or the archive is wrong."""


def copy(folder: Path, *, code: Path, environment: Path | None = None) -> None:
    """Copy the code, and unpack the environment, into `folder`; its neighbours, of earlier attempts, are removed.

    Args:
        folder: this attempt's folder; the folder above it is the run's.
        code: the snapshot's folder.
        environment: a tar archive with bin/python at its top, as conda-pack and venv-pack write it.

    Raises:
        NodeLocalError: naming the folder or the archive; nothing is left of the copy then.
    """
    place = folder.parent.parent
    if UNSET.partition("}")[2] in str(place) or not place.is_absolute():
        raise SettingError(
            f"--node-local is {place} in this job: name a folder that every node has, by its full path, or set the "
            "variable by --env."
        )
    _make_private(folder.parent)
    for other in folder.parent.iterdir():
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    try:
        folder.mkdir()
    except FileExistsError as error:
        raise SettingError(
            f"{folder} is there already: --node-local must name a folder on each node's own disk, not one that nodes "
            "share."
        ) from error
    try:
        shutil.copytree(code, folder / CODE)
        if environment is not None:
            _unpack(environment, folder / ENVIRONMENT)
    except BaseException as error:
        remove(folder)
        if isinstance(error, OSError):
            raise NodeLocalError(
                f"{folder} cannot be written, or its source not read ({reason_of(error)}): make room, or choose "
                "another --node-local."
            ) from error
        raise


def reason_of(error: OSError) -> str:
    """Why a file or tree was not copied; the first entry of shutil's list of failures."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        return str(error.args[0][0][-1])
    return f"{os.strerror(error.errno)}: {error.filename}" if error.errno and error.filename else str(error)


def remove(folder: Path) -> None:
    """Remove the copy of an attempt, and the run's folder if nothing else is in it."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


def remove_at_exit(folder: Path) -> None:
    """On a rank: remove the copy when this process exits, if no other rank of this node still uses it."""
    with suppress(OSError):  # then the batch script removes it
        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        atexit.register(_remove_if_last, folder, descriptor)


def _remove_if_last(folder: Path, descriptor: int) -> None:
    with suppress(OSError):  # another rank has not exited yet
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(folder)


def _make_private(folder: Path) -> None:
    """Make the run's folder; refuse another user's folder, because the ranks import code from it."""
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
    options: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}  # Python from 3.8.17 on
    try:
        with tarfile.open(archive, "r|*") as file:  # as a stream: the archive is read once, from its beginning on
            file.extractall(folder, **options)
    except OSError:
        raise
    except Exception as error:  # of tarfile, or of one of its decompressors
        raise SettingError(
            f"{archive} is not a whole tar archive ({error}): pack the environment again, to .tar, .tar.gz, .tar.bz2 "
            "or .tar.xz."
        ) from error
    python = str(folder / "bin" / "python")
    failure = _failure_of([python, "-c", ""])
    if failure is not None:
        raise NodeLocalError(
            f"{archive} holds no bin/python that works on this node ({failure}): pack an environment with conda-pack "
            "or venv-pack, and choose a disk that is not mounted noexec. What venv-pack writes needs the Python that "
            "the environment was made from, on every node."
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


def free_pair(first: int) -> int:
    """The first free pair of ports of `first`, `first` + 2, ...: two runs may have been given one port.

    Raises:
        OSError: if all that were tried are taken.
    """
    for port in range(first, min(first + 2 * NUM_TRIES, LAST_PORT), 2):
        if _is_free(port) and _is_free(port + 1):
            return port
    raise OSError(f"ports {first} to {first + 2 * NUM_TRIES} are all taken")


def _is_free(port: int) -> bool:
    """Whether a server could listen at this port now, on all addresses; lingering connections do not matter."""
    for family in (socket.AF_INET6, socket.AF_INET) if socket.has_dualstack_ipv6() else (socket.AF_INET,):
        try:
            with socket.create_server(("", port), family=family, dualstack_ipv6=family == socket.AF_INET6):
                return True
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # no IPv6 address is configured
                return False
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """One command of the batch script, on one node; 1 after an error, which is the attempt's reason to fail."""
    parser = argparse.ArgumentParser(description="Copy code and environment to this node, or remove them; find a port.")
    parser.add_argument("action", choices=("copy", "remove", "port"))
    parser.add_argument("what", help="folder of the copy; the first port")
    for name in ("code", "environment", "output-dir"):
        parser.add_argument(f"--{name}", type=Path)
    args = parser.parse_args(arguments)
    if args.action == "port":
        sys.stdout.write(f"{free_pair(int(args.what))}\n")
        return 0
    _set_signals(_stop if args.action == "copy" else signal.SIG_IGN)
    try:
        if args.action == "copy":
            copy(Path(args.what), code=args.code, environment=args.environment)
        else:
            remove(Path(args.what))
    except NodeLocalError as error:
        sys.stderr.write(f"{error}\n")
        _note_failure(args.output_dir, error)
        return 1
    return 0


def _set_signals(handler: Any) -> None:
    """Handle SLURM's signals, which all processes of a requeued or cancelled job receive."""
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, handler)


def _stop(number: int, frame: object) -> None:
    """Exit, which removes the copy; SIGTERM comes from srun after another node's error, so its exit code is 1."""
    _set_signals(signal.SIG_IGN)
    sys.exit(1 if number == signal.SIGTERM else 128 + number)


def _note_failure(output_dir: Path, error: NodeLocalError) -> None:
    """Tell `restart.py` the node and the reason of the failure."""
    sys.path.append(str(Path(__file__).resolve().parent))
    from restart import note_failure  # type: ignore[import-not-found]

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
