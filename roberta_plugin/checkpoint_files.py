"""Checkpoint files: find damage, explain refusals, remove the remains of killed processes.

Two places read checkpoints and share these checks and messages: fairseq's own loading
(`fairseq_workarounds/checkpoint_loading.py`), and ours (`models/checkpoints/loading.py`) for files from unknown
sources. Both read with `weights_only=True`: tensors, plain values and argparse.Namespace, nothing that can run.

Since torch 1.6 a checkpoint is a zip archive with a CRC-32 of every tensor, which `torch.load` does not compare.
Checking them all costs 0.3 s of CPU time per GB (measured with zlib of CPython 3.11), and no extra reading, as loading
reads the file anyway: less than a second for a base model with Adam's state, two seconds for a large one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import re
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from roberta_plugin.locks import try_lock

_ZIP_START = b"PK\x03\x04"
REMEDY = "Use another checkpoint, or bring this one back from a copy."


def fault_of(path: str | os.PathLike[str], used: Iterable[Any] | None = None) -> str | None:
    """Describe the damage of a checkpoint file; None if the checksum of every part matches.

    Files of torch < 1.6, such as the released models of fairseq, are plain pickles without checksums: only an empty
    one is detected.

    Args:
        path: the file.
        used: the bytes of the tensors in use, as arrays; the others are then neither checked nor read.

    Raises:
        OSError: if there is no such file, or it cannot be read.
    """
    with open(path, "rb") as file:
        start = file.read(len(_ZIP_START))
        if not start:
            return "it is empty"
        if start != _ZIP_START and not zipfile.is_zipfile(file):
            return None
        try:
            with zipfile.ZipFile(file) as archive:
                wrong = archive.testzip() if used is None else _wrong_part(archive, used)
        except Exception as error:  # damage raises nearly anything: BadZipFile, EOFError, EINVAL of a seek ...
            if isinstance(error, OSError) and error.errno != errno.EINVAL:
                raise
            return f"it was cut off or overwritten ({error})"
    return None if wrong is None else f"the checksum of its part {wrong} is wrong"


def _wrong_part(archive: zipfile.ZipFile, used: Iterable[Any]) -> str | None:
    """The first damaged part that is not a tensor, or the size of the first used tensor that no checksum matches."""
    tensors = set()
    for entry in archive.infolist():
        if "/data/" in entry.filename:
            tensors.add((entry.file_size, entry.CRC))
        else:
            archive.read(entry)  # compares the checksum
    sums = ((content.nbytes, zlib.crc32(content)) for content in used)
    wrong = next((size for size, checksum in sums if (size, checksum) not in tensors), None)
    return None if wrong is None else f"of {wrong:,} bytes"


def check_checkpoint(path: str | os.PathLike[str], used: Iterable[Any] | None = None) -> None:
    """Refuse a damaged checkpoint before any of it is used; `used` as in `fault_of`.

    Raises:
        ValueError: if the file is damaged; names it, the damage and the remedy.
        OSError: if there is no such file, or it cannot be read.
    """
    fault = fault_of(path, used)
    if fault is not None:
        raise ValueError(f"The checkpoint {os.fspath(path)} is damaged: {fault}. {REMEDY}")


def check_claims(path: str | os.PathLike[str], content: Any) -> None:
    """Refuse a tensor that claims more memory than its file has bytes, as `torch.zeros(1).expand(10**9, 32)` does.

    Args:
        path: the file.
        content: the checkpoint as read: nested dictionaries and lists.

    Raises:
        ValueError: naming the file, both sizes and the remedy.
    """
    num_bytes = os.path.getsize(path)
    remaining, seen = [content], set()
    while remaining:
        value = remaining.pop()
        if id(value) in seen:  # a file may hold a list that holds itself
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            remaining += value.values()
        elif isinstance(value, list | tuple):
            remaining += value
        elif hasattr(value, "element_size") and value.numel() * value.element_size() > num_bytes:
            raise ValueError(
                f"{os.fspath(path)} has {num_bytes:,} bytes, and a tensor in it of shape {tuple(value.shape)} claims "
                f"{value.numel() * value.element_size():,} bytes of memory: no training wrote it. {REMEDY}"
            )


def unlisted_class(error: Exception) -> str | None:
    """The class or function for which torch refused to read a file; None if `error` has another cause."""
    found = re.search(r"(?:GLOBAL|class|function|type) ([\w.]+\.[\w.]+)", str(error))
    return found[1] if found and isinstance(error, pickle.UnpicklingError) else None


def explain_refusal(path: str | os.PathLike[str], error: Exception) -> str:
    """Explain in a sentence why `torch.load` failed; torch's own message advises to read the file unsafely."""
    name = unlisted_class(error)
    if name is not None:
        return (
            f"{os.fspath(path)} holds the Python object {name}, and reading it could run code of the file: it is not "
            "opened. Checkpoints of fairseq-train hold tensors and plain values only."
        )
    detail = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    detail = "" if isinstance(error, pickle.UnpicklingError) else f" ({detail})"
    return f"{os.fspath(path)} cannot be read as a checkpoint{detail}: it is cut off, damaged or of another format."


def lock_unfinished(file: int) -> None:
    """Lock an open temporary file (its descriptor), until it is closed or the process ends."""
    with contextlib.suppress(OSError):  # without locks, `remove_unfinished` cannot see that the file is in use
        try_lock(file)


def remove_unfinished(save_dir: Path) -> list[str]:
    """Remove partial checkpoints left by killed processes; return the names.

    Their names are temporary: ours are hidden, fairseq's own end in .pt.tmp. A file that another process is still
    writing stays.
    """
    removed = []
    for path in sorted({*save_dir.glob(".*.pt.*.tmp"), *save_dir.glob("*.pt.tmp")}):
        with open(path, "r+b") as file:
            try:
                is_free = try_lock(file.fileno())
            except OSError:  # a file system without locks
                is_free = True
            if not is_free:
                continue
            path.unlink()
            removed.append(path.name)
    return removed
