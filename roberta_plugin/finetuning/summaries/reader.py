"""Raw files -> documents in sentences, with their summaries.

`summaries` reads JSON Lines, one document a line, plain or compressed (.gz, .zst, .xz, .bz2): train.jsonl, valid.jsonl
(or dev.jsonl) and test.jsonl, or the files that the options name. The text is a string, which is split into sentences
(`data/sentences.py`), or a list of sentences; so is the summary.

    {"id": "7", "text": "It rained. We stayed.\\n\\nThen it stopped.", "summary": "It rained."}

`cnn_dailymail` reads the stories of CNN/DailyMail as they are distributed (Hermann et al. 2015): paragraphs, and after
each line `@highlight` a sentence of the summary. Either each split has a folder, such as train/*.story, or lists of
addresses say which story belongs to which split (all_train.txt, all_val.txt, all_test.txt; the story of an address is
the file called by the SHA-1 of the address).

In some sets the sentences of a summary are run together without a space ("It rained.We stayed."): these are parted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from roberta_plugin.data.sentences import split_line
from roberta_plugin.data.text_inputs_compressed import CountedFile, decompressed_pieces
from roberta_plugin.finetuning.raw_files import check_id, check_text, short
from roberta_plugin.finetuning.summaries.options import SummariesOptions

SPLITS = {"train": ("train",), "valid": ("valid", "dev", "val", "validation"), "test": ("test",)}
ID, TEXT, SUMMARY = "id", "text", "summary"
_COMPRESSED = ("", ".gz", ".zst", ".xz", ".bz2")
_LISTS = (  # names of lists of addresses, by split; the first kind that is there counts
    {"train": ("all_train",), "valid": ("all_val", "all_valid"), "test": ("all_test",)},
    {"train": ("mapping_train",), "valid": ("mapping_valid",), "test": ("mapping_test",)},
    {
        split: tuple(f"{paper}wayback_{part}_urls" for paper in ("", "cnn_", "dailymail_"))
        for split, part in {"train": "training", "valid": "validation", "test": "test"}.items()
    },
)
_HIGHLIGHT = "@highlight"
_SHA1 = re.compile(r"[0-9a-f]{40}")
_RUN_TOGETHER = re.compile(r"(?<=[a-z0-9)%][.!?])(?=[\"']?[A-Z])")
_PIECE = 1 << 20  # bytes that are read at a time


class Document(NamedTuple):
    """A document and, where it is known, its summary."""

    id: str
    sentences: tuple[str, ...]
    summary: tuple[str, ...] | None
    """Sentences of the summary."""


def find_files(task: str, raw: Path, options: SummariesOptions) -> dict[str, list[Path]]:
    """The files of each split.

    Raises:
        FileNotFoundError: if there are none, or one that is named does not exist.
    """
    found = _story_files(raw) if task == "cnn_dailymail" else _json_files(raw, options.files)
    found = {split: files for split, files in found.items() if files}
    if not found:
        wanted = "train.jsonl, valid.jsonl, test.jsonl"
        if task == "cnn_dailymail":
            wanted = "folders train, valid and test with .story files, or the lists all_train.txt, all_val.txt and "
            wanted += "all_test.txt beside folders with .story files"
        raise FileNotFoundError(f"{raw} holds no data for {task}: looked for {wanted}. Name the folder that has them.")
    return found


def _json_files(raw: Path, named: dict[str, str]) -> dict[str, list[Path]]:
    found = {}
    for split, names in SPLITS.items():
        if split in named:
            if not (raw / named[split]).is_file():
                raise FileNotFoundError(f"--{split} {named[split]}: {raw} has no such file. Name one that it has.")
            found[split] = [raw / named[split]]
            continue
        paths = [raw / f"{name}.jsonl{ending}" for name in names for ending in _COMPRESSED]
        found[split] = [path for path in paths if path.is_file()][:1]
    return found


def _story_files(raw: Path) -> dict[str, list[Path]]:
    folders = {
        split: next((raw / name for name in names if (raw / name).is_dir()), None) for split, names in SPLITS.items()
    }
    found = {split: sorted(folder.glob("*.story")) for split, folder in folders.items() if folder is not None}
    if any(found.values()):
        return found
    for kind in _LISTS:
        lists = {
            split: sorted(path for name in names for path in raw.rglob(f"{name}.txt")) for split, names in kind.items()
        }
        if any(lists.values()):
            stories = {path.stem: path for path in raw.rglob("*.story")}
            return {split: _listed(paths, stories) for split, paths in lists.items()}
    return {}


def _listed(lists: list[Path], stories: dict[str, Path]) -> list[Path]:
    """The stories of the addresses in some lists, in their order."""
    found: dict[str, Path] = {}
    for path in lists:
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
            address = line.strip()
            if not address:
                continue
            name = address.removesuffix(".story")
            name = name if _SHA1.fullmatch(name) else hashlib.sha1(address.encode()).hexdigest()
            if name not in stories:
                raise FileNotFoundError(
                    f"{path}, line {number}: the story of {address[:80]} would be {name}.story, and there is no such "
                    "file beside the list. Unpack the stories of both newspapers into the folder of --raw."
                )
            found[name] = stories[name]
    return list(found.values())


def read_split(task: str, split: str, files: list[Path], options: SummariesOptions) -> Iterator[Document]:
    """The documents of a split; those of a test split may have no summary.

    Raises:
        ValueError: naming the file, the line or id, the bad value and what would be right.
    """
    seen: dict[str, str] = {}
    documents = _stories(files) if task == "cnn_dailymail" else _records(files[0], split, options)
    for where, document in documents:
        if document.id in seen:
            raise ValueError(
                f"{where}: {seen[document.id]} has the id {document.id!r} too. Ids must differ: remove or rename one."
            )
        seen[document.id] = where
        yield document


def _stories(files: list[Path]) -> Iterator[tuple[str, Document]]:
    for path in files:
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: byte 0x{error.object[error.start]:02x} at {error.start} is not UTF-8. Save the file as UTF-8."
            ) from None
        article, *highlights = text.split(_HIGHLIGHT)
        summary = tuple(one_line(part) for part in highlights if part.strip())
        yield str(path), Document(path.stem, tuple(sentences_of(article)), summary)


def _records(path: Path, split: str, options: SummariesOptions) -> Iterator[tuple[str, Document]]:
    names = field_names(options)
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        try:
            content = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{where} is not valid JSON ({error}): write the file again.") from None
        if not isinstance(content, dict):
            raise ValueError(f"{where}: expected a JSON object, found {short(content)}.")
        text = names["text_field"]
        if text not in content:
            raise ValueError(f"{where} lacks {text!r}; it has {', '.join(content)}. Name the field by --text-field.")
        sentences = _sentences(content[text], text, where)
        name = names["summary_field"]
        if content.get(name) is None and split != "test":
            raise ValueError(f"{where} lacks {name!r}: add the summary, or name its field by --summary-field.")
        summary = content.get(name)
        if summary is not None:
            summary = _sentences(parted(summary) if isinstance(summary, str) else summary, name, where)
        id_ = check_id(content.get(names["id_field"], number), where)
        yield where, Document(id_, sentences, summary)


def field_names(options: SummariesOptions) -> dict[str, str]:
    """The fields of a line of JSON Lines, by option."""
    return {
        "id_field": options.id_field or ID,
        "text_field": options.text_field or TEXT,
        "summary_field": options.summary_field or SUMMARY,
    }


def _sentences(value: Any, name: str, where: str) -> tuple[str, ...]:
    if isinstance(value, list):
        texts = [one_line(check_text(text, f"{name}, sentence {at}", where)) for at, text in enumerate(value, start=1)]
        if not texts:
            raise ValueError(f"{where}: {name} has no sentence. Fill it in, or leave the entry out.")
        return tuple(texts)
    return tuple(sentences_of(check_text(value, name, where)))


def sentences_of(text: str) -> list[str]:
    """The sentences of a text, line by line.

    Example: "It rained. We stayed.\\n\\nWhy?" -> ["It rained.", "We stayed.", "Why?"].
    """
    return [sentence for line in text.splitlines() if line.strip() for sentence in split_line(one_line(line))]


def parted(text: str) -> str:
    """A summary with its sentences in lines of their own where they are run together.

    Example: "It rained.We stayed." -> "It rained.\\nWe stayed.".
    """
    return _RUN_TOGETHER.sub("\n", text)


def one_line(text: str) -> str:
    """The text with every run of white space replaced by one space."""
    return " ".join(text.split())


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, with their numbers."""
    with path.open("rb") as file:
        counted = CountedFile(file)
        suffix = counted.suffix()
        pieces: Iterator[bytes] = iter(partial(counted.read, _PIECE), b"")
        if suffix:
            pieces = (piece for piece, _ in decompressed_pieces(counted, suffix, str(path), _PIECE))
        number, rest = 0, b""
        for piece in chain(pieces, [b"\n"]):  # so that the last line ends
            *lines, rest = (rest + piece).split(b"\n")
            for raw in lines:
                number += 1
                if raw.strip():
                    yield number, _decoded(raw, path, number)


def _decoded(raw: bytes, path: Path, number: int) -> str:
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: byte 0x{raw[error.start]:02x} is not UTF-8. Save the file as UTF-8."
        ) from None
