"""Files of a prepared folder, read with errors that name them, and compared with what prepared.json says of them.

Sizes are compared whenever a file is opened; SHA-256 by `roberta inspect`, and before a training or an evaluation.
Folders made before prepared.json had them ("files") are read without.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.manifest import file_record, sha256_of_file

REMEDY = "copy the folder again, or make it again with `roberta prepare --overwrite`"


def records_of_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file in a folder, by name."""
    return {path.name: file_record(path) for path in sorted(folder.iterdir()) if path.is_file()}


def check_size(path: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Compare a file's size with what prepared.json says.

    Raises:
        FileNotFoundError: if the file is missing.
        ValueError: if it has another size.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist, and {path.parent / 'prepared.json'} lists it: the folder is incomplete, {REMEDY}."
        )
    record, found = files.get(path.name), path.stat().st_size
    if record is not None and found != record["bytes"]:
        raise ValueError(
            f"{path} has {found:,} bytes, and prepared.json says {record['bytes']:,}: it was cut off or replaced, "
            f"{REMEDY}."
        )


def hash_faults(folder: Path, files: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """A sentence for each of these files that is not what it was when the folder was made."""
    faults = []
    for name in names:
        if not (folder / name).is_file():
            faults.append(
                f"{folder / name} does not exist, and {folder / 'prepared.json'} lists it: the folder is incomplete, "
                f"{REMEDY}."
            )
        elif sha256_of_file(folder / name) != files[name]["sha256"]:
            faults.append(f"{folder / name} was changed since it was made: its SHA-256 is not that in prepared.json.")
    return faults


def load_array(path: Path) -> NDArray[Any]:
    """A .npy file, memory-mapped.

    Raises:
        ValueError: if it is none, or holds no numbers.
    """
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy raises ValueError, EOFError, SyntaxError, tokenize.TokenError, struct.error ...
        raise ValueError(f"{path} is damaged ({type(error).__name__}: {error}): {REMEDY}.") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise ValueError(f"{path} holds no array of numbers: it is damaged, {REMEDY}.")
    return array


def check_column(path: Path, values: NDArray[Any], length: int) -> None:
    """Refuse a column (length,) of another shape, or with a number that is none.

    Raises:
        ValueError: naming the file.
    """
    if values.shape != (length,):
        raise ValueError(f"{path} has the shape {values.shape} where {length} values belong: {REMEDY}.")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"{path} holds a value that is no finite number: it is damaged, {REMEDY}.")


def check_offsets(path: Path, first: NDArray[Any], num_examples: int, num_sequences: int) -> None:
    """Refuse a `first` that does not share all sequences out to the examples.

    Raises:
        ValueError: naming the file.
    """
    is_right = first.shape == (num_examples + 1,) and first.dtype.kind in "iu"
    if not is_right or first[0] != 0 or first[-1] != num_sequences or (np.diff(first) < 1).any():
        raise ValueError(
            f"{path} does not share {num_sequences} sequences out to {num_examples} examples: it is damaged, {REMEDY}."
        )


def check_labels(path: Path, values: NDArray[Any], num_labels: int) -> None:
    """Refuse a column of labels with a number that is none of 0 to num_labels - 1.

    Raises:
        ValueError: naming the file.
    """
    if len(values) and not 0 <= values.min() <= values.max() < num_labels:
        raise ValueError(
            f"{path} holds numbers from {values.min()} to {values.max()} for {num_labels} labels: it is damaged, "
            f"{REMEDY}."
        )


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a .jsonl file, a line each.

    Raises:
        ValueError: naming the file and the line that is none.
    """
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number} is no JSON ({error}): {REMEDY}.") from error
            if not isinstance(record, dict):
                raise ValueError(f"{path}, line {number} holds no record but {line[:40]!r}: {REMEDY}.")
            yield record


def content_fault(content: Any) -> str | None:
    """What is wrong with the content of prepared.json, in words; None if it has the form it should have."""
    if not isinstance(content, dict) or "format" not in content:
        return "it is no record of a preparation"
    for name, kind in (("task", str), ("settings", dict), ("splits", dict)):
        if not isinstance(content.get(name), kind):
            return f"{name!r} is missing or of another kind"
    if not isinstance(content["settings"].get("max_length", 1), int):
        return "the setting 'max_length' is no whole number"
    for split, facts in content["splits"].items():
        if not isinstance(facts, dict) or not all(
            isinstance(facts.get(name), int) for name in ("examples", "sequences", "tokens", "records")
        ):
            return f"the counts of the split {split!r} are missing"
        if not all(isinstance(facts.get(name), list) for name in ("columns", "arrays")):
            return f"the columns of the split {split!r} are missing"
    files = content.get("files", {})
    if not isinstance(files, dict) or not all(
        isinstance(record, dict) and isinstance(record.get("bytes"), int) and isinstance(record.get("sha256"), str)
        for record in files.values()
    ):
        return "'files' does not say sizes and hashes"
    return None
