"""Read the files of a prepared folder and compare them with prepared.json; errors name the file.

Sizes are compared whenever a file is opened; SHA-256 hashes by `roberta inspect`, and before training or evaluation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.manifest import file_record, sha256_of_file

NAME = "prepared.json"
FORMAT = 2  # of prepared.json
OFFSETS = "first"  # SPLIT.first.npy holds the offsets
REMEDY = "copy the folder again, or make it again with `roberta prepare --overwrite`"


def records_of_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file in a folder, by name."""
    return {path.name: file_record(path) for path in sorted(folder.iterdir()) if path.is_file()}


def check_size(path: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Compare a file's size with prepared.json.

    Raises:
        FileNotFoundError: if the file is missing.
        ValueError: if the sizes differ.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist, but {path.parent / 'prepared.json'} lists it: the folder is incomplete, {REMEDY}."
        )
    record, found = files.get(path.name), path.stat().st_size
    if record is not None and found != record["bytes"]:
        raise ValueError(
            f"{path} has {found:,} bytes, but prepared.json says {record['bytes']:,}: it was cut off or replaced, "
            f"{REMEDY}."
        )


def hash_faults(folder: Path, files: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """A sentence for each file that is missing or was changed since the folder was made."""
    faults = []
    for name in names:
        if not (folder / name).is_file():
            faults.append(
                f"{folder / name} does not exist, but {folder / 'prepared.json'} lists it: the folder is incomplete, "
                f"{REMEDY}."
            )
        elif sha256_of_file(folder / name) != files[name]["sha256"]:
            faults.append(f"{folder / name} was changed since it was made: its SHA-256 differs from prepared.json.")
    return faults


def load_array(path: Path) -> NDArray[Any]:
    """Open a .npy file, memory-mapped.

    Raises:
        ValueError: if it is not one, or does not hold numbers.
    """
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy raises ValueError, EOFError, SyntaxError, tokenize.TokenError, struct.error ...
        raise ValueError(f"{path} is damaged ({type(error).__name__}: {error}): {REMEDY}.") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise ValueError(f"{path} does not hold an array of numbers: it is damaged, {REMEDY}.")
    return array


def check_column(path: Path, values: NDArray[Any], length: int) -> None:
    """Refuse a column of another shape than (length, ...), or with NaN or infinity.

    Raises:
        ValueError: naming the file.
    """
    if values.shape[:1] != (length,):
        raise ValueError(f"{path} has the shape {values.shape} instead of ({length},): {REMEDY}.")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"{path} holds NaN or infinity: it is damaged, {REMEDY}.")


def check_offsets(path: Path, offsets: NDArray[Any], num_examples: int, num_sequences: int) -> None:
    """Refuse `offsets` (N + 1,) that do not give each example at least one sequence and use all of them.

    Example: 2 examples, 5 sequences: [0, 3, 5] is right; [0, 3, 4] leaves a sequence out.

    Raises:
        ValueError: naming the file.
    """
    is_right = offsets.shape == (num_examples + 1,) and offsets.dtype.kind in "iu"
    if not is_right or offsets[0] != 0 or offsets[-1] != num_sequences or (np.diff(offsets) < 1).any():
        raise ValueError(
            f"{path} does not divide {num_sequences} sequences among {num_examples} examples: it is damaged, {REMEDY}."
        )


def check_labels(path: Path, values: NDArray[Any], num_labels: int) -> None:
    """Refuse labels outside 0 to num_labels - 1.

    Raises:
        ValueError: naming the file.
    """
    if len(values) and not 0 <= values.min() <= values.max() < num_labels:
        raise ValueError(
            f"{path} holds labels from {values.min()} to {values.max()}, but there are {num_labels}: it is damaged, "
            f"{REMEDY}."
        )


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Read a .jsonl file: one JSON object per line.

    Raises:
        ValueError: naming the file and the line that is not a JSON object.
    """
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number} is not valid JSON ({error}): {REMEDY}.") from error
            if not isinstance(record, dict):
                raise ValueError(f"{path}, line {number} holds {line[:40]!r} instead of a JSON object: {REMEDY}.")
            yield record


def content_fault(content: Any) -> str | None:
    """What is wrong with the content of prepared.json, as a clause; None if it is well-formed."""
    if not isinstance(content, dict) or "format" not in content:
        return "it was not written by `roberta prepare`"
    for name, kind in (("task", str), ("settings", dict), ("splits", dict)):
        if not isinstance(content.get(name), kind):
            return f"{name!r} is missing or has another type"
    if not isinstance(content["settings"].get("max_length", 1), int):
        return "the setting 'max_length' is not a whole number"
    if not isinstance(content["settings"].get("labels") or [], list):
        return "the setting 'labels' is not a list"
    for split, facts in content["splits"].items():
        if not isinstance(facts, dict) or not all(
            isinstance(facts.get(name), int) for name in ("examples", "sequences", "tokens", "records")
        ):
            return f"the counts of the split {split!r} are missing"
        if not all(isinstance(facts.get(name), list) for name in ("columns", "arrays")):
            return f"the columns of the split {split!r} are missing"
    files = content.get("files")
    if not isinstance(files, dict) or not all(
        isinstance(record, dict) and isinstance(record.get("bytes"), int) and isinstance(record.get("sha256"), str)
        for record in files.values()
    ):
        return "'files' lacks sizes or hashes"
    return None
