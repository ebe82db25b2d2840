"""Files that appear complete or not at all: temporary name, fsync, rename.

For every file that must survive a killed process or a full disk.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@contextmanager
def atomic_write(path: str | os.PathLike[str], mode: Literal["wb", "w"] = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`, and rename it to `path` when the block ends normally.

    After an exception `path` is unchanged and the temporary file is removed; the error of a full disk names `path`.
    Text (mode "w") is UTF-8 with "\\n" as line end. The temporary name is hidden and random, so several processes can
    write the same path: the last one wins.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    text_options: dict[str, Any] = {} if mode == "wb" else {"encoding": "utf-8", "newline": "\n"}
    with open(temporary, mode.replace("w", "x"), **text_options) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            with suppress(OSError):  # a full disk fails again here
                file.close()
            if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None:
                error.filename = os.fspath(path)
            raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable: on POSIX, a file's name is stored in its folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
