"""The folder of a data-bin: locks, what a killed run leaves behind, and whether it is of one vocabulary.

Used by `binarize.py`. Two locks: one of each split, held for the whole run, and one of the folder, held for the moments
in which files that all splits share are read and written. Both are hidden files that exist while they are held.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roberta_plugin.data.tokenizers import KINDS, load_tokenizer
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary

_LOCK = ".lock"


@contextmanager
def split_lock(folder: Path, split: str) -> Iterator[None]:
    """Keep other runs away from a split.

    Raises:
        OSError: if another run has the lock.
    """
    with _lock(folder / f".{split}{_LOCK}", waits=False):
        yield


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Wait for the right to read and write what all splits of a folder share."""
    with _lock(folder / f".folder{_LOCK}", waits=True):
        yield


@contextmanager
def _lock(path: Path, *, waits: bool) -> Iterator[None]:
    while True:
        file = open(path, "a")  # noqa: SIM115
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except (BlockingIOError, PermissionError):
            file.close()
            name = path.name.removeprefix(".").removesuffix(_LOCK)
            raise OSError(f"Another process writes {path.parent / name}: wait until it has ended.") from None
        if _is_same_file(path, file.fileno()):
            break
        file.close()  # its last owner has deleted it: lock the one that has the name now
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        file.close()


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def leftovers(folder: Path, split: str) -> list[Path]:
    """Hidden files that a killed run has left, of this split or of what all splits share."""
    shared = ["dict.txt", "manifest.json", *(name for files, _ in KINDS for name in files)]
    names = [f"{split}.bin", f"{split}.idx", *shared]
    return [path for name in names for path in folder.glob(f".{name}.*.tmp")]


def remove_leftovers(folder: Path, split: str) -> None:
    """Remove what a killed run has left. To be called under both locks."""
    for path in leftovers(folder, split):
        path.unlink(missing_ok=True)


def check_vocabulary(
    folder: Path, manifest: dict[str, Any] | None, tokenizer: Tokenizer, vocabulary: Vocabulary
) -> None:
    """All splits of a folder share one vocabulary and one tokenizer.

    Raises:
        ValueError: if the folder has others than those given.
    """
    dictionary = folder / "dict.txt"
    if dictionary.exists() and dictionary.read_bytes() != vocabulary.as_text().encode():
        raise ValueError(
            f"{dictionary} is another vocabulary than the one given, and all files of a folder share one: write to "
            "another folder, or give this dict.txt."
        )
    description = tokenizer.description()
    if manifest and manifest["tokenizer"] != description:
        raise ValueError(f"{folder} was binarized with another tokenizer: write to another folder.")
    if _has_tokenizer(folder) and load_tokenizer(folder).description() != description:
        raise ValueError(f"{folder} holds the files of another tokenizer than the one given: write to another folder.")


def write_vocabulary(folder: Path, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    """Write dict.txt and the tokenizer's files, where they are not there yet. To be called under the folder's lock."""
    if not (folder / "dict.txt").exists():
        vocabulary.save(folder / "dict.txt")
    if not _has_tokenizer(folder):
        tokenizer.save(folder)


def _has_tokenizer(folder: Path) -> bool:
    return any(all((folder / name).is_file() for name in files) for files, _ in KINDS)


def clear_parts(parts: Path) -> None:
    """Make the folder of part files, or empty it."""
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(parents=True, exist_ok=True)
