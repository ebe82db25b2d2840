"""Text files -> {split}.bin/.idx, dict.txt, the tokenizer's files and manifest.json: a data-bin.

Stage of the flow in `roberta_plugin/data/__init__.py`:

    inputs --plan_tasks--> tasks --worker processes--> part files --worker processes--> {split}.bin/.idx, manifest.json

With the default rules .bin, .idx and dict.txt are as from fairseq's multiprocessing_bpe_encoder --keep-empty and
fairseq-preprocess --only-source, byte for byte and for any number of workers. A run that was stopped resumes with the
part files in {split}.parts, whose text it compares; existing files stay untouched until the new ones are complete.
While the parts are merged, the disk holds the tokens twice.

A split of mostly unknown tokens or mostly bad lines is refused. A suspicious split is written with a warning and
advice.

Without a dict.txt, one is made of the training text, as fairseq-preprocess does without --srcdict. Example: "bbbb aa c"
in a tokenizer of single letters -> the lines "b 4", "a 2", "c 1", then madeupword0000 0 for a total of 8 with the four
special symbols.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from roberta_plugin import __version__
from roberta_plugin.data.binarize.parts import Counts, Job, PartsInOrder, Reading, plan_tasks, read_part
from roberta_plugin.data.binarize.plan import (
    Plan,
    check_unchanged,
    check_vocabulary,
    folder_lock,
    is_made,
    is_planned,
    leftovers,
    lock_files,
    make_plan,
    prepare_parts,
    remove_leftovers,
    split_lock,
    write_vocabulary,
)
from roberta_plugin.data.binarize.workers import start_workers
from roberta_plugin.data.manifest import file_record, read_manifest, sha256_of_file, write_manifest
from roberta_plugin.data.mmap_tokens import SharedFiles, best_dtype
from roberta_plugin.data.sentences import paragraphs_path
from roberta_plugin.data.text_inputs import InputSettings
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import MADE_UP, SPECIALS, Row, Vocabulary
from roberta_plugin.files import NO_ROOM, atomic_write
from roberta_plugin.json_files import sha256_of_json
from roberta_plugin.machine import num_cores
from roberta_plugin.settings import Checked, setting

MAX_UNKNOWN = 0.5  # share of the tokens of the text, without </s>
_SUSPICIOUS_UNKNOWN = 0.05
_MAX_BAD = 0.5  # share of the lines
_SUSPICIOUS_BAD = 0.1
_FEWEST_TOKENS = 0.01  # per byte of text; real text has 0.2 to 0.7
_BYTES_TO_JUDGE_BY = 10**5
ONE_DOCUMENT = (
    "no blank line between documents, so all text is 1 document: if each file is a document, give "
    "--blank-line-after-files; if each line is one, put a blank line after each, as `sed G FILE` does"
)


def unknown_share(counts: Counts) -> float:
    """Share of <unk> among the tokens of the text, </s> not counted."""
    return counts.unknown / max(1, counts.tokens - counts.items)


def refuse_nonsense(split: str, counts: Counts, *, max_unknown: float) -> None:
    """Refuse to write an implausible split.

    Raises:
        ValueError: if it has no text, more than `max_unknown` of its tokens are unknown, or most lines are bad.
    """
    if unknown_share(counts) > max_unknown:
        raise ValueError(
            f"{unknown_share(counts):.1%} of the tokens of {split} are unknown: the dict.txt does not belong to the "
            "tokenizer, is cut off, or was made from other text. Nothing was written. To accept it, give "
            "--max-unknown 1."
        )
    if counts.tokens == counts.items:
        raise ValueError(f"There is no text for the split {split}, only blank lines or nothing. Nothing was written.")
    if _bad_share(counts) > _MAX_BAD:
        raise ValueError(
            f"{_bad_share(counts):.1%} of the lines of {split} are not UTF-8 text (or not valid records), too many for "
            "--skip-bad-lines. Nothing was written. Convert the input, or check --format and --text-column."
        )


def warnings_about(manifest: dict[str, Any], split: str) -> list[str]:
    """Warnings about a split that was written."""
    entry = manifest["splits"][split]
    counts = Counts(**entry["counts"])
    warnings = []
    if counts.text_bytes > _BYTES_TO_JUDGE_BY and counts.tokens < _FEWEST_TOKENS * counts.text_bytes:
        warnings.append(
            f"{counts.text_bytes / 1e6:,.1f} MB of input gave only {counts.tokens:,} tokens; is --text-column right?"
        )
    if unknown_share(counts) > _SUSPICIOUS_UNKNOWN:
        warnings.append(
            f"{unknown_share(counts):.1%} of its tokens are unknown; is the dict.txt complete, "
            "and does it belong to the tokenizer?"
        )
    if _bad_share(counts) > _SUSPICIOUS_BAD:
        warnings.append(f"{_bad_share(counts):.1%} of its lines were bad and skipped; is it UTF-8 text?")
    num_texts = sum(record["format"] == "text" for record in entry["inputs"])
    if num_texts and counts.items > 1 and not counts.blank_lines:
        warnings.append(f"{'it has' if num_texts == 1 else f'its {num_texts} files have'} {ONE_DOCUMENT}")
    return [*warnings, *_repeated_inputs(manifest["splits"], split)]


def _bad_share(counts: Counts) -> float:
    return counts.bad_lines / max(1, counts.items + counts.bad_lines)


def _repeated_inputs(splits: dict[str, Any], split: str) -> list[str]:
    paths = {record["sha256"]: record["path"] for record in splits[split]["inputs"] if record["bytes"]}
    paths.pop("", None)  # of a table by URL
    return [
        f"{paths[record['sha256']]} has the same content as {record['path']} of the split {other}"
        for other, entry in splits.items()
        if other != split
        for record in entry["inputs"]
        if record["sha256"] in paths
    ]


_BLANK = "blank_line_after_files"
_NAMES = {"text_column": "json_field"}  # in manifests, since earlier versions


@dataclass(frozen=True, kw_only=True)
class BinarizeSettings(InputSettings):
    """How to binarize; the fields are options of `roberta binarize`."""

    workers: int | None = setting(None, "number of processes", smallest=1, default_text="the number of usable cores")
    blank_line_after_files: bool = setting(
        False, "end each text file with a blank line, so that its last document does not run into the next file"
    )
    max_unknown: float = setting(
        MAX_UNKNOWN,
        "refuse a split if a larger share of its tokens is <unk>",
        metavar="SHARE",
        smallest=0,
        largest=1,
    )
    overwrite: bool = setting(False, "replace existing splits, also splits of another corpus")
    part_bytes: int | None = setting(
        None,
        "bytes of text per part, the unit of work that a stopped run does not repeat",
        smallest=1,
        default_text="a sixteenth of the text, between 1 and 16 MiB",
    )


def binarize(
    inputs: Sequence[str | os.PathLike[str]],
    *,
    split: str,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    destination: str | os.PathLike[str],
    settings: BinarizeSettings | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Write one split of a data-bin, or the rest of it after an interruption.

    Args:
        inputs: text files, URLs, pipes or patterns (see `text_inputs`), in the order of the corpus.
        split: train, valid, test or any other name.
        tokenizer: text -> tokenizer ids.
        vocabulary: tokenizer ids -> model ids.
        destination: folder of the data-bin; it may contain other splits of the same vocabulary.
        settings: by default lines are read as fairseq reads them.
        progress: show MB/s and the time left, in a bar on a terminal, else in lines.

    Returns:
        The manifest.

    Raises:
        FileExistsError: if the folder holds another corpus.
        ValueError: if a line or an archive cannot be read, the folder has another vocabulary, or dict.txt does not
            belong to the tokenizer.
        OSError: if the files cannot be written.
    """
    settings = settings or BinarizeSettings()
    workers, rules = settings.workers or num_cores(), settings.rules
    to_model = vocabulary.tokenizer_to_model(tokenizer).astype(best_dtype(vocabulary.num_binarized))
    if (to_model == vocabulary.unk_id).all():
        raise ValueError(
            "The dict.txt has none of the tokenizer's symbols: it is empty, or belongs to another tokenizer."
        )
    folder = Path(destination)
    sources = settings.sources(inputs)
    all_rules = {_NAMES.get(name, name): value for name, value in asdict(rules).items()}
    all_rules[_BLANK] = settings.blank_line_after_files
    if not rules.split_sentences:
        del all_rules["split_sentences"]  # as in the manifests of earlier versions
    plan = make_plan(sources, split, tokenizer, vocabulary, all_rules, settings.part_bytes)
    parts = folder / f"{split}.parts"
    unfinished = parts.exists() or leftovers(folder, split) or lock_files(folder, split)
    if not (settings.overwrite or unfinished) and is_made(folder, plan, workers):
        return read_manifest(folder) or {}
    folder.mkdir(parents=True, exist_ok=True)

    def another_makes_it() -> bool:
        return is_planned(parts, plan) is not False

    with _full_disk_explained(folder), split_lock(folder, split, waits_if=another_makes_it):
        with folder_lock(folder):
            remove_leftovers(folder, split)
        if not settings.overwrite and is_made(folder, plan, workers):
            shutil.rmtree(parts, ignore_errors=True)
            return read_manifest(folder) or {}
        with folder_lock(folder):
            check_vocabulary(folder, read_manifest(folder), tokenizer, vocabulary)
            prepare_parts(folder, parts, plan, overwrite=settings.overwrite)
        job = Job(
            tokenizer=tokenizer,
            to_model=to_model,
            eos_id=vocabulary.eos_id,
            unk_id=vocabulary.unk_id,
            rules=rules,
            blank_line_after_files=settings.blank_line_after_files,
            folder=parts,
            part_bytes=plan.part_bytes,
        )
        manifest = _run(job, plan, folder, vocabulary, workers, progress=progress, max_unknown=settings.max_unknown)
        shutil.rmtree(parts)
    return manifest


@contextmanager
def _full_disk_explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise OSError(
            f"{folder} cannot be written: {error.strerror}. Free some space and run the same command again: it "
            "keeps the finished parts, and no earlier file was changed."
        ) from error


def _run(
    job: Job,
    plan: Plan,
    folder: Path,
    vocabulary: Vocabulary,
    workers: int,
    *,
    progress: bool,
    max_unknown: float,
) -> dict[str, Any]:
    """Encode the missing parts, merge all parts, write the manifest."""
    sizes = [size for _, size, _, _ in plan.inputs]
    tasks = plan_tasks(plan.sources, sizes, plan.part_bytes)
    done = PartsInOrder(job.folder, tasks, job.to_model.dtype)
    with start_workers(job, tasks, workers=workers, progress=progress) as pool:
        digests = pool.encode(
            tasks,
            [source for source in plan.sources if not (source.is_hashed_when_read or source.is_remote)],
            num_bytes=None if plan.has_streams or 0 in sizes else sum(sizes),
            meanwhile=done.count_and_hash,
        )
        check_unchanged(plan, digests)
        is_complete = done.count()
        assert is_complete, "a part is missing"
        try:
            refuse_nonsense(plan.split, done.counts, max_unknown=max_unknown)
        except ValueError:
            shutil.rmtree(job.folder)  # the parts are useless with another dict.txt
            raise
        files = SharedFiles(
            prefix=job.folder / plan.split,
            dtype=job.to_model.dtype,
            num_items=done.counts.items,
            num_tokens=done.counts.tokens,
        )
        files.create()
        pool.place(files, done.placements, meanwhile=done.count_and_hash)
    outputs = _records(files, plan.split, done.sha256())
    files.sync()
    paragraphs = Path(paragraphs_path(folder / plan.split))
    with folder_lock(folder):
        manifest = read_manifest(folder)
        check_vocabulary(folder, manifest, job.tokenizer, vocabulary)  # another split may have been written meanwhile
        write_vocabulary(folder, job.tokenizer, vocabulary)
        paragraphs.unlink(missing_ok=True)
        if job.rules.split_sentences:
            with atomic_write(paragraphs) as file:
                for placement in done.placements:
                    file.write(read_part(placement.path, job.to_model.dtype, checks=False).begins.data)
            outputs[paragraphs.name] = file_record(paragraphs)
        files.publish(folder / plan.split)
        return _add_split(folder, manifest, plan, vocabulary, digests, done.counts, outputs)


def _records(files: SharedFiles, split: str, bin_sha256: str) -> dict[str, Any]:
    """Size and SHA-256 of the .bin and .idx."""
    bin_path, index_path = files.paths
    return {
        f"{split}.bin": {"bytes": bin_path.stat().st_size, "sha256": bin_sha256},
        f"{split}.idx": {"bytes": index_path.stat().st_size, "sha256": sha256_of_file(index_path)},
    }


def _add_split(
    folder: Path,
    manifest: dict[str, Any] | None,
    plan: Plan,
    vocabulary: Vocabulary,
    digests: dict[str, tuple[int, str]],
    counts: Counts,
    outputs: dict[str, Any],
) -> dict[str, Any]:
    """Write the manifest with this split and the existing ones."""
    inputs = []
    for source, (path, size, _, text_format) in zip(plan.sources, plan.inputs, strict=True):
        num_bytes, digest = digests.get(source.path, (size, ""))  # of a table by URL, one column is read
        inputs.append({"path": path, "bytes": num_bytes, "sha256": digest, "format": text_format})
    split = {
        "inputs": inputs,
        "rules": plan.rules,
        "counts": asdict(counts),
        "outputs": outputs,
        "plan_sha256": sha256_of_json(plan.as_json()),
    }
    common = {
        "made_by": {"roberta_plugin": __version__},
        "tokenizer": plan.tokenizer,
        "dict_sha256": sha256_of_file(folder / "dict.txt"),
        "num_symbols": vocabulary.num_binarized,
    }
    return write_manifest(folder, common, {**(manifest["splits"] if manifest else {}), plan.split: split})


_PART_BYTES = 2**24
_PADDING_FACTOR = 8


@dataclass(frozen=True, kw_only=True)
class DictionarySettings(Checked):
    """How to make a dict.txt; the fields are options of `roberta binarize`, and one that is given makes a new file."""

    threshold: int | None = setting(
        None, "make dict.txt from --train without symbols that occur less often than this", smallest=0
    )
    nwords: int | None = setting(
        None, "make dict.txt from --train with this many symbols, <s> <pad> </s> <unk> included"
    )
    padding_factor: int | None = setting(
        None,
        "make dict.txt from --train and pad its size to a multiple of this with madeupwordNNNN",
        default_text=_PADDING_FACTOR,
        smallest=1,
    )


def build_vocabulary(
    inputs: Sequence[str | os.PathLike[str]],
    *,
    tokenizer: Tokenizer,
    settings: DictionarySettings,
    reading: InputSettings,
    workers: int | None = None,
    progress: bool = True,
) -> Vocabulary:
    """Count the tokens of a text and list those that occur, most frequent first.

    The settings are as fairseq-preprocess's --thresholdsrc, --nwordssrc and --padding-factor.

    Raises:
        ValueError: if an input is a pipe, which cannot be read twice, or there is no text.
    """
    sources = reading.sources(inputs)
    if pipes := [source.name for source in sources if source.is_stream]:
        raise ValueError(
            f"{pipes[0]} is a pipe, but making a dict.txt needs to read the text twice: write it to a file, or give "
            "--dict."
        )
    job = Reading(tokenizer=tokenizer, rules=reading.rules, blank_line_after_files=False, part_bytes=_PART_BYTES)
    sizes = [source.size for source in sources]
    tasks = plan_tasks(sources, sizes, _PART_BYTES)
    with start_workers(job, tasks, workers=workers or num_cores(), progress=progress) as pool:
        counts = pool.count_ids(tasks, num_bytes=sum(sizes))
    listed = {
        symbol: int(count)
        for symbol, count in zip(tokenizer.symbols, counts, strict=True)
        if count and symbol not in SPECIALS
    }
    if not listed:
        raise ValueError("There is no text to make a dict.txt from: give text with --train, or a dict.txt with --dict.")
    # as in fairseq: ties in the order of their names
    frequent = sorted(listed, key=lambda symbol: (-listed[symbol], symbol))
    if settings.nwords is not None and settings.nwords > 0:
        frequent = frequent[: max(0, settings.nwords - len(SPECIALS))]
    rows = [Row(symbol, listed[symbol]) for symbol in frequent if listed[symbol] >= (settings.threshold or 0)]
    factor = _PADDING_FACTOR if settings.padding_factor is None else settings.padding_factor
    num_made_up = -(len(rows) + len(SPECIALS)) % factor if factor > 1 else 0
    return Vocabulary([*rows, *(Row(f"{MADE_UP}{number:04d}", 0) for number in range(num_made_up))])
