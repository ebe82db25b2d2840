"""Official files: where they are, their rows or text, and what identifies their content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.tables import Row, files_of, read_table

LABELLED = ("train", "valid")
"""Splits that every task needs, and whose labels are public."""
MOST_NAMES = 8  # RACE has a file for each passage


def describe(files: Sequence[Path]) -> dict[str, Any]:
    """What a prepared folder remembers of its source, wherever the files lie.

    That is their number and bytes, one SHA-256 over their contents, and the names of the first ones.
    """
    digest = hashlib.sha256()
    num_bytes = 0
    files = [file for path in files for file in files_of(path)]
    for path in files:
        content = path.read_bytes()
        num_bytes += len(content)
        digest.update(hashlib.sha256(content).digest())
    names = [path.name for path in files[:MOST_NAMES]]
    return {"files": len(files), "bytes": num_bytes, "sha256": digest.hexdigest(), "names": names}


def read_text(path: Path) -> str:
    """The content of a file, without the byte order mark that some editors write.

    Raises:
        ValueError: naming the file and the byte, if it is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: byte 0x{error.object[error.start]:02x} at {error.start} is not UTF-8. Save the file as UTF-8."
        ) from None


def find_files(task: str, raw: Path, files: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """The file of each split that `raw`, or its folder of the task's name, has.

    Of the names that `files` has for a split, the first that exists is taken.
    """
    folder = raw / task if (raw / task).is_dir() else raw
    found = {}
    for split, names in files.items():
        path = next((folder / name for name in names if (folder / name).is_file()), None)
        if path is not None:
            found[split] = path
        elif split in LABELLED:
            raise FileNotFoundError(
                f"{folder} holds no {' or '.join(names)}: {task} needs the official files, unchanged; give the "
                f"folder that holds them, or the one that holds {task}/."
            )
    return found


def named_files(raw: Path, names: Mapping[str, str]) -> dict[str, list[Path]]:
    """The files in `raw` that options name by split."""
    found = {split: [raw / name] for split, name in names.items()}
    for split, (path,) in found.items():
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist: --{split} must name a file in {raw}.")
    return found


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of an official file."""
    row = None
    for row in read_table(path):
        yield row
    if row is None:
        raise ValueError(f"{path} is empty. Fetch it again.")
