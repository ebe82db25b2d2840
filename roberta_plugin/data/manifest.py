"""manifest.json: sources and options of a data-bin, with hashes to check it.

{"format": 2,
 "tokenizer": {...}, "dict_sha256": "...", "num_symbols": 50264, "made_by": {...},
 "splits": {"train": {"inputs": [{"path", "bytes", "sha256", "format"}], "rules": {...}, "counts": {...},
                      "outputs": {"train.bin": {"bytes", "sha256"}, ...}, "dict_sha256", "plan_sha256"}}}

`rules` are the options that decide what a line is; by `plan_sha256` the same command again does nothing.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from roberta_plugin.json_files import parse_json, write_json

NAME = "manifest.json"
_FORMAT = 2
_SPECIALS = 4  # <s> <pad> </s> <unk>, which are not in dict.txt
_BYTES_AT_ONCE = 2**20


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The manifest of a data-bin; None if it has none, like the folders of fairseq-preprocess."""
    path = Path(folder) / NAME
    if not path.is_file():
        return None
    try:
        manifest = parse_json(path.read_bytes())
        is_known = manifest["format"] == _FORMAT
        if is_known:
            _check_form(manifest)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}): delete it, or binarize into another folder.") from error
    if not is_known:
        raise ValueError(
            f"{path} has format {manifest['format']!r}, but this version reads format {_FORMAT}: binarize again, or "
            "use the version of roberta_plugin that wrote it."
        )
    return dict(manifest)


def check_folder(folder: str | os.PathLike[str], *, num_symbols: int) -> None:
    """Compare the dict.txt and the file sizes of a data-bin with its manifest, if it has one.

    Args:
        folder: the data-bin.
        num_symbols: symbols of its dict.txt, including specials but not <mask>.

    Raises:
        ValueError: naming the file that changed after the data were made.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest is None:
        return
    path = folder / "dict.txt"
    try:
        if sha256_of_file(path) != manifest["dict_sha256"]:
            raise ValueError(
                f"{path} is not the one that {NAME} says the data were made with: it has {num_symbols - _SPECIALS:,} "
                f"lines, that one had {manifest['num_symbols'] - _SPECIALS:,}, or its lines differ. Token ids would "
                "mean other symbols. Restore the original file, or binarize again."
            )
        for split in manifest["splits"].values():
            for name, record in split["outputs"].items():
                if (folder / name).is_file() and os.path.getsize(folder / name) != record["bytes"]:
                    raise ValueError(
                        f"{folder / name} has {os.path.getsize(folder / name):,} bytes, but {NAME} says "
                        f"{record['bytes']:,}: copy it again, or binarize again."
                    )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / NAME} is damaged ({error!r}): delete it, or binarize again.") from error


def _check_form(manifest: dict[str, Any]) -> None:
    """Raise KeyError, TypeError or ValueError if something is missing that readers rely on."""
    if not isinstance(manifest["tokenizer"]["kind"], str) or not isinstance(manifest["dict_sha256"], str):
        raise TypeError("tokenizer or dict_sha256")
    for name, split in manifest["splits"].items():
        for key, kind in (("inputs", list), ("outputs", dict), ("rules", dict), ("counts", dict)):
            if not isinstance(split.get(key), kind):
                raise TypeError(f"splits.{name}.{key}")
        for record in (*split["inputs"], *split["outputs"].values()):
            if not isinstance(record["bytes"], int) or not isinstance(record["sha256"], str):
                raise TypeError(f"splits.{name}: bytes or sha256")
        if not all(isinstance(record["format"], str) for record in split["inputs"]):
            raise TypeError(f"splits.{name}: format")


def write_manifest(folder: str | os.PathLike[str], common: dict[str, Any], splits: dict[str, Any]) -> dict[str, Any]:
    """Write the manifest of a data-bin from the `common` entries and the entries of each split."""
    manifest = {**common, "format": _FORMAT, "splits": dict(sorted(splits.items()))}
    write_json(Path(folder) / NAME, manifest, ensure_ascii=False)
    return manifest


def sha256_of_file(path: str | os.PathLike[str], *, on_read: Callable[[], None] = lambda: None) -> str:
    """SHA-256 of a file in hexadecimal, as `sha256sum` prints it; `on_read` is called regularly."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(_BYTES_AT_ONCE):
            digest.update(data)
            on_read()
    return digest.hexdigest()


def sha256_of_files(paths: Sequence[str | os.PathLike[str]], *, workers: int) -> list[str]:
    """SHA-256 of files, hashed in several threads: hashing releases the interpreter lock."""
    is_stopped = threading.Event()

    def check_stop() -> None:
        if is_stopped.is_set():
            raise InterruptedError

    with ThreadPoolExecutor(workers) as executor:
        try:
            return list(executor.map(lambda path: sha256_of_file(path, on_read=check_stop), paths))
        finally:
            is_stopped.set()


def file_record(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Size and hash of a file."""
    return {"bytes": os.path.getsize(path), "sha256": sha256_of_file(path)}
