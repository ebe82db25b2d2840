"""The folder that a conversion writes: it appears when it is complete, and replaces only what a conversion wrote."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roberta_plugin.files import atomic_write, sync_folder

RECORD = "conversion.json"


def check_output(folder: Path) -> None:
    """Refuse a folder that holds something else than an earlier conversion.

    Raises:
        ValueError: naming the folder.
    """
    if folder.is_file():
        raise ValueError(f"--output-dir {folder} is a file: name a new folder.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / RECORD).is_file():
        raise ValueError(
            f"--output-dir {folder} holds something else than an earlier export or import: name a new or empty folder."
        )


@contextlib.contextmanager
def output_folder(folder: Path, record: Mapping[str, Any]) -> Iterator[Path]:
    """A temporary folder beside `folder`, which takes its place when the block ends normally.

    Args:
        folder: see `check_output`.
        record: what is stored in conversion.json: from what, to which format.

    Raises:
        ValueError: as `check_output`.
    """
    check_output(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        with atomic_write(temporary / RECORD, "w") as file:
            json.dump(record, file, indent=2)
        check_output(folder)
        if folder.is_dir():
            shutil.rmtree(folder)
        os.replace(temporary, folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
