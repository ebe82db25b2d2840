"""The folder of a data-bin: locks, leftovers of killed runs, and one vocabulary for all splits.

Used by `pipeline`. There are two locks: one per split, held for the whole run, and one for the folder, held briefly
while files shared by all splits are read and written. Both are hidden files that exist while they are held.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roberta_plugin.data.tokenizers import FILES, KINDS, load_tokenizer
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.locks import try_lock, wait_for_lock

logger = logging.getLogger(__name__)

_LOCK = ".lock"
_SECONDS_OF_ORPHANS = 3.0  # the workers of a killed run hold its lock for a moment, until they have noticed


@contextmanager
def split_lock(folder: Path, split: str, *, waits_if: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Keep other runs from writing a split; wait for one that has the lock while `waits_if` allows.

    Raises:
        OSError: if another run has the lock.
    """
    with _lock(folder / f".{split}{_LOCK}", waits_if=waits_if):
        yield


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Wait for exclusive access to the files that all splits of a folder share."""
    with _lock(folder / f".folder{_LOCK}", waits_if=None):
        yield


@contextmanager
def _lock(path: Path, *, waits_if: Callable[[], bool] | None) -> Iterator[None]:
    while True:
        file = open(path, "a")  # noqa: SIM115
        name = path.parent / path.name.removeprefix(".").removesuffix(_LOCK)
        if waits_if is None:
            wait_for_lock(file.fileno())
        elif not _got_lock(file.fileno(), name, waits_if):
            file.close()
            raise OSError(f"Another process is writing {name}: wait until it has finished.")
        if _is_same_file(path, file.fileno()):
            break
        file.close()  # its last owner deleted it: lock the file that has the name now
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        file.close()


def _got_lock(descriptor: int, name: Path, waits_if: Callable[[], bool]) -> bool:
    """Lock an open file, unless a process holds it for longer than orphans do and is not to be waited for."""
    deadline, is_told = time.monotonic() + _SECONDS_OF_ORPHANS, False
    while not try_lock(descriptor):
        if time.monotonic() > deadline:
            if not waits_if():
                return False
            if not is_told:
                logger.warning(f"Another process is writing {name} from the same text: waiting until it has finished.")
            is_told = True
        time.sleep(0.1)
    return True


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def lock_files(folder: Path, split: str) -> list[Path]:
    """The files of the locks that a run holds, or has left when it was killed."""
    return [path for name in (split, "folder") if (path := folder / f".{name}{_LOCK}").exists()]


def leftovers(folder: Path, split: str) -> list[Path]:
    """Hidden files that a killed run left, of this split or shared by all splits; its locks are not among them."""
    shared = ["dict.txt", "manifest.json", *FILES]
    names = [f"{split}.bin", f"{split}.idx", *shared]
    return [path for name in names for path in folder.glob(f".{name}.*.tmp")]


def remove_leftovers(folder: Path, split: str) -> None:
    """Remove the files of a killed run. Call it under both locks."""
    for path in leftovers(folder, split):
        path.unlink(missing_ok=True)


def check_vocabulary(
    folder: Path, manifest: dict[str, Any] | None, tokenizer: Tokenizer, vocabulary: Vocabulary
) -> None:
    """Check that the folder has the given vocabulary and tokenizer; all splits of a folder share them.

    Raises:
        ValueError: if the folder has other ones.
    """
    dictionary = folder / "dict.txt"
    if dictionary.exists() and dictionary.read_bytes() != vocabulary.as_text().encode():
        raise ValueError(
            f"{dictionary} is another vocabulary than the given one, but all splits of a folder share one: write to "
            "another folder, or give this dict.txt."
        )
    description = tokenizer.description()
    if manifest and manifest["tokenizer"] != description:
        raise ValueError(f"{folder} was binarized with another tokenizer: write to another folder.")
    if _has_tokenizer(folder) and load_tokenizer(folder).description() != description:
        raise ValueError(f"{folder} has the files of another tokenizer than the given one: write to another folder.")


def write_vocabulary(folder: Path, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    """Write dict.txt and the tokenizer's files if they are missing. Call it under the folder's lock."""
    if not (folder / "dict.txt").exists():
        vocabulary.save(folder / "dict.txt")
    if not _has_tokenizer(folder):
        tokenizer.save(folder)


def _has_tokenizer(folder: Path) -> bool:
    return any(all((folder / name).is_file() for name in files) for files, _ in KINDS)


def clear_parts(parts: Path) -> None:
    """Create the folder of part files, or empty it."""
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(parents=True, exist_ok=True)
