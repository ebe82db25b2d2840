"""Locks on files that end with the processes that hold them (flock); a child inherits them with the descriptor.

Some file systems have no flock, as Lustre without `-o flock` and some of FUSE and NFS. There, a file NAME.owner beside
the locked one, made once, names host and process, and the holder's descriptor bears O_NONBLOCK, which means nothing to
a plain file: /proc shows which processes of this machine, the holder or its children, have it. So such a lock, too,
ends with the processes that hold it, if they run on this machine. Of another machine, only the file is known.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

NO_FLOCK = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
_SECONDS_FOR_OTHER_HOSTS = 60.0  # what `wait_for_lock` waits for is held briefly
_warned: list[int] = []  # file systems without flock
TRAINING_LOCK = "training.lock"  # in a folder of checkpoints, held by the rank 0 that saves there


def try_lock(descriptor: int, path: Path | None = None) -> bool:
    """Lock an open file for this process and its children; return False if another process holds the lock.

    Without flock, the file NAME.owner beside `path` takes its place.

    Raises:
        OSError: if there is no flock and no `path`.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if path is None or error.errno not in NO_FLOCK:
            raise
        if (device := os.fstat(descriptor).st_dev) not in _warned:
            _warned.append(device)
            logger.warning(f"{path.parent} has no file locks ({error.strerror}): {owner_file(path)} takes their place.")
        return _try_owner(descriptor, path)
    return True


def is_locked_by_us(descriptor: int, path: Path) -> bool:
    """Lock an open file or folder, unless another process holds it or has renamed it; True where there are no locks."""
    try:
        return try_lock(descriptor) and os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
    except OSError:  # a file system without locks
        return True


def wait_for_lock(descriptor: int, path: Path | None = None) -> None:
    """Lock an open file as `try_lock` does, but wait for a process that holds it.

    Raises:
        OSError: if a process of another machine holds a lock without flock for too long: it may have been killed.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    except OSError as error:
        if path is None or error.errno not in NO_FLOCK:
            raise
    deadline = time.monotonic() + _SECONDS_FOR_OTHER_HOSTS
    while not try_lock(descriptor, path):
        if time.monotonic() > deadline and _is_elsewhere(_owner(path)):
            raise OSError(f"{path.parent} is locked.{remedy(path)}")
        time.sleep(0.1)


@contextmanager
def one_writer(path: Path) -> Iterator[None]:
    """Hold the lock of a file to be written, once no other process does; without one where there are no locks."""
    with open(path.with_name(f".{path.name}.lock"), "wb") as lock:
        locked = Path(lock.name)
        try:
            wait_for_lock(lock.fileno(), locked)
        except OSError as error:
            logger.info(f"{path.parent} has no file locks ({error}): {path.name} may be written twice")
        try:
            yield
        finally:
            release(locked)


@contextmanager
def only_process(folder: Path, refusal: str, *, patience_s: float = 0.0) -> Iterator[int]:
    """Hold FOLDER/.lock for this process and those that it starts; yields the descriptor.

    Raises:
        ValueError: `refusal`, if another process holds it for longer than `patience_s`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "ab") as file:  # its time stays
        path, deadline = Path(file.name), time.monotonic() + patience_s
        while not try_lock(file.fileno(), path):
            if time.monotonic() > deadline:
                raise ValueError(refusal + remedy(path))
            time.sleep(0.2)
        try:
            yield file.fileno()
        finally:
            release(path)


def is_locked(path: Path) -> bool:
    """True if a process holds the lock; False if there is no such file."""
    try:
        return _is_flocked(path)
    except OSError as error:
        if error.errno not in NO_FLOCK:
            raise
    return _is_held(path, _owner(path))


def _is_flocked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def owner_file(path: Path) -> Path:
    """The file that names the holder of the lock of `path` where there is no flock."""
    return path.with_name(f"{path.name}.owner")


def remedy(path: Path) -> str:
    """A sentence to add to a refusal if only its owner file says that a lock is held; empty where flock works."""
    owner = _owner(path)
    if not _is_elsewhere(owner):
        return ""
    return (
        f" {owner_file(path)} says that process {owner.get('pid')} on {owner.get('host')} works there, and this file "
        "system has no locks to ask: if that process has ended, delete this file."
    )


def release(path: Path) -> None:
    """Give back a lock of this process that has no flock; any other ends with its descriptor."""
    if _owner(path) == process_identity(os.getpid()):
        owner_file(path).unlink(missing_ok=True)


def process_identity(pid: int | None) -> dict[str, Any]:
    """A process by host, number and start time, because numbers are used again; from Linux's /proc."""
    try:
        since = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        since = ""
    return {"host": socket.gethostname(), "pid": pid, "since": since}


def _try_owner(descriptor: int, path: Path) -> bool:
    """Lock a file without flock, by a file that only one process can make. Files of ended processes are replaced."""
    file = owner_file(path)
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}.tmp")
    temporary.write_text(json.dumps(process_identity(os.getpid())), encoding="utf-8")
    try:
        if file.exists():
            before = _owner(path)
            if _is_held(path, before):
                return False
            _take_away(path, before)
        _mark(descriptor, True)  # before the file is there, or it would seem to be left by an ended process
        is_ours = _make(file, temporary)
    finally:
        temporary.unlink(missing_ok=True)
    _mark(descriptor, is_ours)
    return is_ours


def _make(file: Path, temporary: Path) -> bool:
    """Give a new file a name that only one process can give."""
    try:
        os.link(temporary, file)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        try:
            with open(file, "xb") as new:
                new.write(temporary.read_bytes())
        except FileExistsError:
            return False
    return True


def _mark(descriptor: int, is_lock: bool) -> None:
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_NONBLOCK if is_lock else flags & ~os.O_NONBLOCK)


def _take_away(path: Path, before: dict[str, Any]) -> None:
    """Remove the owner file that says `before`; if another process has just replaced it, it stays."""
    file = owner_file(path)
    moved = file.with_name(f".{file.name}.{secrets.token_hex(4)}.old")
    with suppress(FileNotFoundError):
        os.rename(file, moved)
        if _read_owner(moved) != before:
            with suppress(OSError):
                os.link(moved, file)
        moved.unlink()


def _owner(path: Path) -> dict[str, Any]:
    """Who has locked `path` without flock; empty if nobody has, or the file is damaged."""
    return _read_owner(owner_file(path))


def _read_owner(file: Path) -> dict[str, Any]:
    try:
        owner = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _is_elsewhere(owner: dict[str, Any]) -> bool:
    return bool(owner) and owner.get("host") != socket.gethostname()


def _is_held(path: Path, owner: dict[str, Any]) -> bool:
    """True if a lock without flock is held by a process of this machine, or another machine claims it."""
    if not owner or _is_elsewhere(owner):
        return bool(owner)
    if any(map(_has_mark, _descriptors(path))):
        return True
    pid = owner.get("pid")
    is_known = os.access(f"/proc/{pid}/fd", os.R_OK)  # not of another user, nor ended, nor without /proc
    return not is_known and _is_alive(pid) and owner == process_identity(pid)


def _is_alive(pid: Any) -> bool:
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (OSError, ValueError, TypeError):
        return False
    return True


def _has_mark(descriptor: Path) -> bool:
    """True if a descriptor, as /proc/PID/fd/N, is marked as a lock's."""
    try:
        shown = (descriptor.parent.parent / "fdinfo" / descriptor.name).read_text()
    except OSError:
        return False
    flags = next((line.split()[1] for line in shown.splitlines() if line.startswith("flags:")), "0")
    return bool(int(flags, 8) & os.O_NONBLOCK)


def holders(path: Path) -> list[int]:
    """The processes of this machine that have the file open."""
    return list(dict.fromkeys(int(descriptor.parent.parent.name) for descriptor in _descriptors(path)))


def _descriptors(path: Path) -> Iterator[Path]:
    """The open descriptors of a file in all processes of this machine, as /proc/PID/fd/N."""
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            for entry in folder.iterdir():
                with suppress(OSError):
                    if os.path.samefile(entry, path):
                        yield entry


def ended_training(save_dir: Path) -> str:
    """The training that last locked a folder of checkpoints, if it has ended; empty if alive or unknown.

    Unknown on another machine: not every file system shares locks between machines.

    Example: "process 4711 on node1".
    """
    path = save_dir / TRAINING_LOCK
    try:
        holder = path.read_text(encoding="utf-8", errors="replace").strip()
        is_known = holder.endswith(f" on {socket.gethostname()}") and not _is_flocked(path)
    except OSError:  # no such file, or a file system without locks
        return ""
    return holder if is_known else ""
