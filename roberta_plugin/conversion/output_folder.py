"""The folder that a conversion writes: it appears when complete, and replaces only earlier conversions.

Its conversion.json lists its files, so that files added later are noticed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.files import atomic_write, replace_folder
from roberta_plugin.json_files import read_json

RECORD = "conversion.json"


def check_output(folder: Path, *, sources: Sequence[Path | None] = ()) -> None:
    """Refuse a folder that holds foreign files, or the model to be converted.

    Args:
        folder: the folder to write.
        sources: files and folders that are read; None is ignored.

    Raises:
        ValueError: naming the folder.
    """
    target = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output-dir {folder} is a file: name a new folder.")
    if Path.cwd().resolve().is_relative_to(target):
        raise ValueError(f"--output-dir {folder} is the current folder or above it: name a new folder.")
    for source in sources:
        if source is not None and source.resolve().is_relative_to(target):
            raise ValueError(f"--output-dir {folder} holds {source}, which is read: name another folder.")
    if not folder.is_dir():
        return
    found = {path.name for path in folder.iterdir()}
    foreign = sorted(found - set(_written(folder)) - {RECORD})
    if foreign or (found and RECORD not in found):
        raise ValueError(
            f"--output-dir {folder} holds something else than an earlier export or import, such as "
            f"{(foreign or sorted(found))[0]}: name a new or empty folder."
        )


@contextlib.contextmanager
def output_folder(folder: Path, record: Mapping[str, Any]) -> Iterator[Path]:
    """A temporary folder beside `folder`, which takes its place when the block ends normally.

    Args:
        folder: see `check_output`.
        record: the content of conversion.json: source and target format.

    Raises:
        ValueError: as `check_output`, or if the folder cannot be made.
    """
    check_output(folder)
    target = folder.resolve()  # a link to a folder stays one
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
    except OSError as error:
        raise ValueError(
            f"--output-dir {folder} cannot be made ({error.strerror}): name one in a folder that you may write to."
        ) from error
    try:
        yield temporary
        names = sorted(path.name for path in temporary.iterdir())
        for name in names:
            _sync(temporary / name)
        with atomic_write(temporary / RECORD, "w") as file:
            json.dump({**record, "files": names}, file, indent=2)
        check_output(folder)
        replace_folder(target, by=temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _written(folder: Path) -> list[str]:
    """Names of the files that a conversion wrote into a folder."""
    record = read_json(folder / RECORD, keys=["files"], remedy="name a new folder")
    return [str(name) for name in record["files"]] if record else []


def _sync(path: Path) -> None:
    """Make the content of a file durable, which writers of other packages do not."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
