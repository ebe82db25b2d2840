"""Files that appear complete or not at all: temporary name, fsync, rename.

For every file that must survive a killed process or a full disk.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

from roberta_plugin.locks import is_locked_by_us, try_lock

NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:3]
_UNFINISHED = re.compile(rf"\..+\.{_HOST}[0-9a-f]{{5}}\.tmp")  # of this host: another one's locks may not be seen here
_looked_at: set[Path] = set()


@contextmanager
def atomic_write(path: str | os.PathLike[str], mode: Literal["wb", "w"] = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`, and rename it to `path` when the block ends normally.

    After an exception `path` is unchanged and the temporary file is removed; the error of a full disk names `path`.
    Text (mode "w") is UTF-8 with "\\n" as line end. The temporary name is hidden and random, so several processes can
    write the same path: the last one stays. The temporary files of killed processes in that folder are removed.
    """
    path = Path(path)
    _remove_unfinished(path.parent)
    text_options: dict[str, Any] = {} if mode == "wb" else {"encoding": "utf-8", "newline": "\n"}
    while True:
        temporary = path.with_name(f".{path.name}.{_HOST}{secrets.token_hex(3)[1:]}.tmp")
        file = open(temporary, mode.replace("w", "x"), **text_options)  # noqa: SIM115
        if is_locked_by_us(file.fileno(), temporary):
            break
        file.close()  # another start has taken it for a leftover before it was locked
    with file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            with suppress(OSError):  # a full disk fails again here
                file.close()
            causes = (error, error.__context__)  # torch.save raises a RuntimeError while it handles the OSError
            full = next((each for each in causes if isinstance(each, OSError) and each.errno in NO_ROOM), None)
            if full is not None and full.filename is None:
                full.filename = os.fspath(path)
                raise full from None
            raise
    sync_folder(path.parent)


def _remove_unfinished(folder: Path) -> None:
    """Remove the temporary files of killed processes in a folder, which this process looks at once."""
    folder = folder.absolute()
    if folder in _looked_at or not folder.is_dir():
        return
    _looked_at.add(folder)
    with suppress(OSError):
        for entry in os.scandir(folder):
            if not _UNFINISHED.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            with suppress(OSError), open(entry.path, "r+b") as file:  # without locks, its owner may be alive
                if try_lock(file.fileno()):
                    os.unlink(entry.path)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file by `atomic_write`."""
    with atomic_write(path, "w") as file:
        file.write(text)


def replace_folder(folder: Path, *, by: Path) -> None:
    """Give the folder `by` the name of `folder`, which need not exist; an earlier `folder` is deleted last.

    If that fails, the earlier folder gets its name back.
    """
    earlier = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.old")
    try:
        if folder.is_dir():
            os.replace(folder, earlier)
        os.replace(by, folder)
    except BaseException:
        if earlier.is_dir() and not folder.exists():
            os.replace(earlier, folder)
        raise
    sync_folder(folder.parent)
    shutil.rmtree(earlier, ignore_errors=True)


@contextmanager
def hidden_folder(folder: Path) -> Iterator[Path]:
    """A new folder `.NAME.HEX.tmp` beside `folder`, removed at the end if it still has this name.

    It is locked, so that the next start can recognize the folders of killed processes, which it removes first.
    """
    remove_leftovers(folder)
    while True:
        temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
        temporary.mkdir(parents=True)
        with suppress(FileNotFoundError):  # another start has taken it for a leftover before it was locked
            descriptor = os.open(temporary, os.O_RDONLY)
            if is_locked_by_us(descriptor, temporary):
                break
            os.close(descriptor)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(descriptor)


def leftovers(folder: Path) -> list[Path]:
    """Left by killed processes beside `folder`: folders of `hidden_folder`, and earlier ones of `replace_folder`."""
    return list(_locked_leftovers(folder))


def remove_leftovers(folder: Path) -> None:
    """Remove the `leftovers`; an earlier folder whose successor did not come gets its name back."""
    for path in _locked_leftovers(folder):
        if path.suffix == ".old" and not folder.exists():
            os.replace(path, folder)
        shutil.rmtree(path, ignore_errors=True)


def _locked_leftovers(folder: Path) -> Iterator[Path]:
    """Each of the `leftovers`, locked until the next one is asked for."""
    pattern = re.compile(rf"\.{re.escape(folder.name)}\.[0-9a-f]{{8}}\.(tmp|old)")
    beside = list(folder.parent.iterdir()) if folder.parent.is_dir() else []
    for path in beside:
        if not pattern.fullmatch(path.name) or not path.is_dir():
            continue
        with suppress(OSError):  # gone meanwhile, or a file system without locks, where its owner may be alive
            descriptor = os.open(path, os.O_RDONLY)
            try:
                if try_lock(descriptor):
                    yield path
            finally:
                os.close(descriptor)


def files_below(folders: Iterable[Path], pattern: str) -> list[Path]:
    """The files in and below folders that match `pattern`, each once even if the folders overlap."""
    files = {}
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"There is no folder {folder}: check the path.")
        files.update({path.resolve(): path for path in folder.rglob(pattern) if path.is_file()})
    return sorted(files.values())


def cache_folder() -> Path:
    """The folder of this package among the user's caches; for users without a home, in the temporary folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if cache.startswith("~"):
        return Path(tempfile.gettempdir()) / f"roberta_plugin-{os.getuid()}"
    return Path(cache) / "roberta_plugin"


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable: on POSIX, a file's name is stored in its folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
