"""Text files -> {split}.bin/.idx, dict.txt, the tokenizer's files and manifest.json: a data-bin.

Stage of the flow in `roberta_plugin/data/__init__.py`:

    inputs --plan_tasks--> tasks --worker processes--> part files --in order--> {split}.bin/.idx --> manifest.json

With the default rules .bin, .idx and dict.txt are those of fairseq's multiprocessing_bpe_encoder --keep-empty and
fairseq-preprocess --only-source, byte for byte and for any number of workers. A run that was stopped goes on with the
part files that it left in {split}.parts; nothing that was finished before is touched until the new files are complete.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.metadata
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from roberta_plugin.data.atomic_files import atomic_write
from roberta_plugin.data.binarize_parts import (
    Counts,
    Job,
    Task,
    is_done,
    parts_of,
    plan_tasks,
    read_part,
)
from roberta_plugin.data.binarize_workers import run_tasks
from roberta_plugin.data.manifest import file_record, read_manifest, sha256_of_file, sha256_of_json, write_manifest
from roberta_plugin.data.mmap_tokens import MmapTokensWriter, best_dtype
from roberta_plugin.data.text_inputs import FAIRSEQ_RULES, LineRules, find_inputs
from roberta_plugin.data.tokenizers import KINDS, load_tokenizer
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.machine import num_cores

_SMALLEST_PART, _LARGEST_PART = 2**20, 2**24  # bytes of text
_PARTS_OF_SMALL_CORPUS = 16  # enough for the workers of a usual machine
_BLANK = "blank_line_after_files"
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What is to be made of what; two equal plans make equal files."""

    inputs: list[tuple[str, int, int]]  # path, bytes, time of the last change
    split: str
    tokenizer: dict[str, Any]
    dict_sha256: str
    rules: dict[str, Any]
    part_bytes: int

    def as_json(self) -> Any:
        return json.loads(json.dumps(asdict(self)))


def binarize(
    inputs: Sequence[str | os.PathLike[str]],
    *,
    split: str,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    destination: str | os.PathLike[str],
    workers: int | None = None,
    progress: bool = True,
    rules: LineRules = FAIRSEQ_RULES,
    blank_line_after_files: bool = False,
    overwrite: bool = False,
    part_bytes: int | None = None,
) -> dict[str, Any]:
    """Write one split of a data-bin, or what is missing of it after a stop.

    Args:
        inputs: text files or patterns (see `text_inputs`), in the order of the corpus.
        split: train, valid, test or any other name.
        tokenizer: text -> tokenizer ids.
        vocabulary: tokenizer ids -> model ids.
        destination: folder of the data-bin; other splits of the same vocabulary may be there.
        workers: processes; by default as many as this process may use processors.
        progress: show a bar with MB/s and the time left.
        rules: what a line is; the default is fairseq's way.
        blank_line_after_files: put a blank line, the mark between documents, after each plain text file.
        overwrite: make a split again that is there, and replace one, finished or not, of another corpus.
        part_bytes: bytes of text that a worker does at a time and that a stopped run need not do again; by default a
            sixteenth of all text, between 1 and 16 MiB.

    Returns:
        The manifest.

    Raises:
        FileNotFoundError: if an input does not exist.
        FileExistsError: if the folder holds another corpus.
        ValueError: if a line or an archive cannot be read, or the folder has another vocabulary.
        OSError: if the files cannot be written.
    """
    workers = workers if workers is not None else num_cores()
    if workers < 1:
        raise ValueError(f"--workers must be 1 or more, got {workers}.")
    folder = Path(destination)
    plan = _make_plan(
        find_inputs(inputs), split, tokenizer, vocabulary, {**asdict(rules), _BLANK: blank_line_after_files}, part_bytes
    )
    manifest = read_manifest(folder)
    if manifest and not overwrite and _is_made(folder, manifest, plan):
        return manifest
    _check_vocabulary(folder, manifest, tokenizer, vocabulary)
    try:
        with _parts_folder(folder, plan, overwrite=overwrite) as parts:
            if not (folder / "dict.txt").exists():
                vocabulary.save(folder / "dict.txt")
            if not _has_tokenizer(folder):
                tokenizer.save(folder)
            job = Job(
                tokenizer=tokenizer,
                to_model=vocabulary.tokenizer_to_model(tokenizer).astype(best_dtype(vocabulary.num_binarized)),
                eos_id=vocabulary.eos_id,
                unk_id=vocabulary.unk_id,
                rules=rules,
                blank_line_after_files=blank_line_after_files,
                folder=parts,
                part_bytes=plan.part_bytes,
            )
            manifest = _run(job, plan, folder, vocabulary, workers=workers, progress=progress)
        shutil.rmtree(parts)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise OSError(
            f"{folder} cannot be written: {error.strerror}. Make room and run the same command again: it keeps the "
            "parts that are finished, and no earlier file was changed."
        ) from error
    return manifest


def _make_plan(
    paths: Sequence[str],
    split: str,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    rules: dict[str, Any],
    part_bytes: int | None,
) -> _Plan:
    if part_bytes is not None and part_bytes < 1:
        raise ValueError(f"--part-bytes must be 1 or more, got {part_bytes}.")
    if not re.fullmatch(r"[\w.-]+", split) or split.startswith("."):
        raise ValueError(f"A split is named by letters, digits, '_', '-' and '.', got {split!r}.")
    status = [os.stat(path) for path in paths]
    if part_bytes is None:
        share = sum(found.st_size for found in status) // _PARTS_OF_SMALL_CORPUS
        part_bytes = min(max(share, _SMALLEST_PART), _LARGEST_PART)
    return _Plan(
        inputs=[(path, found.st_size, found.st_mtime_ns) for path, found in zip(paths, status, strict=True)],
        split=split,
        tokenizer=tokenizer.description(),
        dict_sha256=sha256_of_json(vocabulary.as_text()),
        rules=rules,
        part_bytes=part_bytes,
    )


def _run(
    job: Job, plan: _Plan, folder: Path, vocabulary: Vocabulary, *, workers: int, progress: bool
) -> dict[str, Any]:
    """Encode what is not encoded yet, put the parts together, write the manifest."""
    paths, sizes = [path for path, _, _ in plan.inputs], [size for _, size, _ in plan.inputs]
    tasks = plan_tasks(paths, sizes, plan.part_bytes)
    hashes = run_tasks(
        job,
        [task for task in tasks if not is_done(job.folder, task)],
        paths_to_hash=paths,
        total_bytes=sum(sizes),
        workers=workers,
        progress=progress,
    )
    _check_unchanged(plan)
    counts = _merge(folder / plan.split, tasks, job)
    return _add_split(folder, plan, vocabulary, hashes, counts)


def _is_made(folder: Path, manifest: dict[str, Any], plan: _Plan) -> bool:
    """Whether the split is there, made by this very plan."""
    made = manifest["splits"].get(plan.split)
    if made is None or made["plan_sha256"] != sha256_of_json(plan.as_json()):
        return False
    return all(
        (folder / name).is_file() and (folder / name).stat().st_size == record["bytes"]
        for name, record in made["outputs"].items()
    )


def _check_vocabulary(
    folder: Path, manifest: dict[str, Any] | None, tokenizer: Tokenizer, vocabulary: Vocabulary
) -> None:
    """All splits of a folder share one vocabulary and one tokenizer."""
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


def _has_tokenizer(folder: Path) -> bool:
    return any(all((folder / name).is_file() for name in files) for files, _ in KINDS)


@contextmanager
def _parts_folder(folder: Path, plan: _Plan, *, overwrite: bool) -> Iterator[Path]:
    """The folder of part files, new or left by a run of the same plan, locked against a second run."""
    parts = folder / f"{plan.split}.parts"
    resumes = (parts / "plan.json").exists() and json.loads((parts / "plan.json").read_bytes()) == plan.as_json()
    if not resumes and not overwrite:
        present = [name for name in (f"{plan.split}.bin", f"{plan.split}.idx") if (folder / name).exists()]
        if present or (parts / "plan.json").exists():
            what = f"{present[0]} of another corpus" if present else f"an unfinished {plan.split} of another corpus"
            raise FileExistsError(
                f"{folder} holds {what}, or of other options. Write to another folder, or replace it with --overwrite."
            )
    parts.mkdir(parents=True, exist_ok=True)
    with open(parts / "lock", "w") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OSError(f"Another process writes {folder / plan.split}: wait until it has ended.") from None
        if not resumes:
            for old in [*parts.glob("*.part"), *parts.glob("*.done")]:
                old.unlink()
            with atomic_write(parts / "plan.json", "w") as file:
                json.dump(plan.as_json(), file)
        yield parts


def _check_unchanged(plan: _Plan) -> None:
    for path, size, changed in plan.inputs:
        found = os.stat(path)
        if (found.st_size, found.st_mtime_ns) != (size, changed):
            raise ValueError(f"{path} was changed while it was read: run the command again with --overwrite.")


def _merge(prefix: Path, tasks: Sequence[Task], job: Job) -> Counts:
    """Part files -> PREFIX.bin and PREFIX.idx."""
    counts = Counts()
    with MmapTokensWriter(prefix, job.to_model.dtype) as writer:
        for task in tasks:
            for path in parts_of(job.folder, task):
                part_counts, sizes, ids = read_part(path, job.to_model.dtype)
                writer.write(ids, sizes)
                counts += part_counts
    return counts


def _add_split(
    folder: Path, plan: _Plan, vocabulary: Vocabulary, hashes: Sequence[str], counts: Counts
) -> dict[str, Any]:
    """Write the manifest with this split and those that were there."""
    manifest = read_manifest(folder)
    inputs = [
        {"path": path, "bytes": size, "sha256": digest}
        for (path, size, _), digest in zip(plan.inputs, hashes, strict=True)
    ]
    outputs = {name: file_record(folder / name) for name in (f"{plan.split}.bin", f"{plan.split}.idx")}
    split = {
        "inputs": inputs,
        "rules": plan.rules,
        "counts": asdict(counts),
        "outputs": outputs,
        "plan_sha256": sha256_of_json(plan.as_json()),
    }
    common = {
        "made_by": {"roberta_plugin": _version()},
        "tokenizer": plan.tokenizer,
        "dict_sha256": sha256_of_file(folder / "dict.txt"),
        "num_symbols": vocabulary.num_binarized,
    }
    return write_manifest(folder, common, {**(manifest["splits"] if manifest else {}), plan.split: split})


def _version() -> str:
    try:
        return importlib.metadata.version("roberta_plugin")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"
