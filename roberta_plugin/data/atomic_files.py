"""Files that appear whole or not at all: a temporary name, fsync, rename.

Beside the flow in `roberta_plugin/data/__init__.py`; whatever must survive a kill or a full disk is written with it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal


@contextmanager
def atomic_write(path: str | os.PathLike[str], mode: Literal["wb", "w"] = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`, and put it in the place of `path` when the with-statement ends well.

    After an exception, `path` is what it was before and the temporary file is gone. Text (mode "w") is UTF-8 with
    plain newlines. The temporary name is hidden and random, so several processes can write the same path: the last
    one to finish wins.
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
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable: on POSIX, the entry of a file belongs to its folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
