"""Inputs and outputs of a run, whether the outputs exist already, complete or in part, and locks. Used by `pipeline`.

There are two locks: one per split, held for the whole run, and one for the folder, held briefly while files shared by
all splits are read and written. Both are hidden files that exist while they are held. All splits of a folder have one
vocabulary.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_plugin.data.manifest import read_manifest, sha256_of_files, write_manifest
from roberta_plugin.data.text_inputs_files import TextInput
from roberta_plugin.data.tokenizers import file_names, has_own_files, load_tokenizer
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.files import atomic_write
from roberta_plugin.json_files import sha256_of_json
from roberta_plugin.locks import release, remedy, try_lock, wait_for_lock
from roberta_plugin.record import Difference, differences, listed, option_name

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
            wait_for_lock(file.fileno(), path)
        elif not _got_lock(file.fileno(), path, name, waits_if):
            file.close()
            raise OSError(f"Another process is writing {name}: wait until it has finished.{remedy(path)}")
        if _is_same_file(path, file.fileno()):
            break
        release(path)
        file.close()  # its last owner deleted it: lock the file that has the name now
    try:
        yield
    finally:
        release(path)
        path.unlink(missing_ok=True)
        file.close()


def _got_lock(descriptor: int, path: Path, name: Path, waits_if: Callable[[], bool]) -> bool:
    """Lock an open file, unless a process holds it for longer than orphans do and is not to be waited for."""
    deadline, is_told = time.monotonic() + _SECONDS_OF_ORPHANS, False
    while not try_lock(descriptor, path):
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
    shared = ["dict.txt", "manifest.json", *file_names()]
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
    if has_own_files(folder) and load_tokenizer(folder).description() != description:
        raise ValueError(f"{folder} has the files of another tokenizer than the given one: write to another folder.")


def write_vocabulary(folder: Path, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    """Write dict.txt and the tokenizer's files if they are missing. Call it under the folder's lock."""
    if not (folder / "dict.txt").exists():
        vocabulary.save(folder / "dict.txt")
    if not has_own_files(folder):
        tokenizer.save(folder)


def clear_parts(parts: Path) -> None:
    """Create the folder of part files, or empty it."""
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(parents=True, exist_ok=True)


_SMALLEST_PART, _LARGEST_PART = 2**20, 2**24  # bytes of text
_PARTS_OF_SMALL_CORPUS = 16  # enough for the workers of an ordinary machine


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Inputs and outputs of a run; equal plans make equal files, unless an input is a pipe.

    `inputs` has absolute path or URL (without its secrets), bytes, modification time or version and format of each
    source.
    """

    sources: list[TextInput]
    inputs: list[tuple[str, int, int | str, str]]
    split: str
    tokenizer: dict[str, Any]
    dict_sha256: str
    rules: dict[str, Any]
    part_bytes: int

    @property
    def has_streams(self) -> bool:
        """True if an input is a pipe, which can neither be compared nor read again."""
        return any(source.is_stream for source in self.sources)

    def as_json(self) -> dict[str, Any]:
        """All fields but the sources, as JSON values."""
        content: dict[str, Any] = json.loads(
            json.dumps({name: value for name, value in vars(self).items() if name != "sources"})
        )
        return content


def make_plan(
    sources: Sequence[TextInput],
    split: str,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    rules: dict[str, Any],
    part_bytes: int | None,
) -> Plan:
    """A plan to binarize `sources` as `split`."""
    if not re.fullmatch(r"[\w.-]+", split) or split.startswith("."):
        raise ValueError(f"The name of a split may contain letters, digits, '_', '-' and '.', got {split!r}.")
    inputs = [source.identity() for source in sources]
    if part_bytes is None:
        share = sum(size for _, size, _, _ in inputs) // _PARTS_OF_SMALL_CORPUS
        part_bytes = min(max(share, _SMALLEST_PART), _LARGEST_PART)
    return Plan(
        sources=list(sources),
        inputs=inputs,
        split=split,
        tokenizer=tokenizer.description(),
        dict_sha256=hashlib.sha256(vocabulary.as_text().encode()).hexdigest(),
        rules=rules,
        part_bytes=part_bytes,
    )


def check_unchanged(plan: Plan, digests: Mapping[str, tuple[int, str]]) -> None:
    """Raise ValueError if an input has changed since the plan was made, or fewer bytes of it came than it has.

    `digests` has the bytes and the hash of inputs, by path.
    """
    for source, identity in zip(plan.sources, plan.inputs, strict=True):
        if source.identity(is_fresh=True) != identity:
            raise ValueError(f"{source.name} changed while it was being read: run the command again with --overwrite.")
        num_bytes, _ = digests.get(source.path, (identity[1], ""))
        if identity[1] not in (0, num_bytes):
            raise ValueError(
                f"{source.name} has {identity[1]:,} bytes, and {num_bytes:,} of them came: run the command again with "
                "--overwrite."
            )


def is_made(folder: Path, plan: Plan, workers: int) -> bool:
    """True if the split exists, made by this plan or from the same text with another path or modification time."""
    manifest = read_manifest(folder)
    entry = manifest["splits"].get(plan.split) if manifest else None
    if manifest is None or entry is None or plan.has_streams:
        return False
    for name, record in entry["outputs"].items():
        if not (folder / name).is_file() or (folder / name).stat().st_size != record["bytes"]:
            return False
    if entry.get("plan_sha256") in map(sha256_of_json, _as_kept(plan)):
        return True
    if _differences(folder, plan) or any(source.is_remote for source in plan.sources):
        return False
    digests = sha256_of_files([source.path for source in plan.sources], workers=workers)
    inputs = [(digest, text_format) for digest, (_, _, _, text_format) in zip(digests, plan.inputs, strict=True)]
    if inputs != [(each["sha256"], each["format"]) for each in entry["inputs"]]:
        return False
    with suppress(OSError):  # the next run need not hash; a read-only folder stays as it is
        _remember_plan(folder, plan)
    return True


def _remember_plan(folder: Path, plan: Plan) -> None:
    with folder_lock(folder):
        manifest = read_manifest(folder)
        if manifest and plan.split in manifest["splits"]:
            splits = manifest.pop("splits")
            splits[plan.split]["plan_sha256"] = sha256_of_json(plan.as_json())
            write_manifest(folder, manifest, splits)


def _differences(folder: Path, plan: Plan) -> list[Difference]:
    """How what a split or its part files were made from differs from `plan`; of texts, number and size are compared."""
    manifest, parts = read_manifest(folder), folder / f"{plan.split}.parts"
    entry = (manifest or {"splits": {}})["splits"].get(plan.split)
    if entry is not None:
        before = {**entry, **(manifest or {}), "sizes": [each["bytes"] for each in entry["inputs"]]}
    elif before := _planned(parts) or {}:
        before["sizes"] = [size for _, size, _, _ in before["inputs"]]
    else:
        return []
    now = {**plan.as_json(), "sizes": [size for _, size, _, _ in plan.inputs]}
    of_text = f"the text of {plan.split}"
    records = (
        {
            of_text: f"{sum(each['sizes']):,} bytes in {len(each['sizes'])} file{'s' * (len(each['sizes']) != 1)}",
            "tokenizer": each["tokenizer"],
            "dict.txt": each["dict_sha256"],
            **{"text_column" if name == "json_field" else name: value for name, value in each["rules"].items()},
            "part_bytes": each.get("part_bytes", plan.part_bytes),
        }
        for each in (before, now)
    )
    return differences(
        *records,
        free=lambda name: name == of_text and plan.has_streams,
        named=lambda name: name if name in (of_text, "dict.txt") else option_name(name),
    )


def _planned(parts: Path) -> dict[str, Any] | None:
    """The plan of a folder of part files; empty if it is damaged, None if there is none."""
    with suppress(FileNotFoundError):
        try:
            plan = json.loads((parts / "plan.json").read_bytes())
        except ValueError:
            return {}
        return plan if isinstance(plan, dict) and {"inputs", "tokenizer", "dict_sha256", "rules"} <= plan.keys() else {}
    return None


def is_planned(parts: Path, plan: Plan) -> bool | None:
    """True if the folder of part files belongs to this plan; None if it has no plan."""
    before = _planned(parts)
    return None if before is None else before in _as_kept(plan)


def _as_kept(plan: Plan) -> list[Any]:
    """The plan as this version keeps it, and as earlier ones did, with user and query of URLs."""
    now = plan.as_json()
    inputs = [
        [source.path if source.is_remote else path, *rest]
        for source, (path, *rest) in zip(plan.sources, plan.inputs, strict=True)
    ]
    return [now] if inputs == now["inputs"] else [now, {**now, "inputs": inputs}]


def prepare_parts(folder: Path, parts: Path, plan: Plan, *, overwrite: bool) -> None:
    """Prepare the folder of part files: new, or left by a run of the same plan."""
    is_same = is_planned(parts, plan)
    if not is_same and not overwrite:
        present = [name for name in (f"{plan.split}.bin", f"{plan.split}.idx") if (folder / name).exists()]
        if present or is_same is not None:
            what = f"{present[0]} of another corpus" if present else f"an unfinished {plan.split} of another corpus"
            change = listed(_differences(folder, plan))
            raise FileExistsError(
                f"{folder} contains {what}, or one made with other options{f': {change}' if change else ''}. Write to "
                "another folder, or replace it with --overwrite."
            )
    if is_same and not plan.has_streams:
        for path in parts.glob(".*.tmp"):
            path.unlink()
        return
    clear_parts(parts)
    with atomic_write(parts / "plan.json", "w") as file:
        json.dump(plan.as_json(), file)
