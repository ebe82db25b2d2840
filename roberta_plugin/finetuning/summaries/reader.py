"""Raw files -> documents in sentences, with their summaries.

`summaries` reads tables of one document a row: JSON Lines, CSV, TSV or Parquet, plain or compressed
(`roberta_plugin/tables.py`), called train, valid (or dev, validation) and test, or the files that the options name.
The text is a string, which is split into sentences (`data/sentences.py`), or a list of sentences; so is the summary.

    {"id": "7", "text": "It rained. We stayed.\\n\\nThen it stopped.", "summary": "It rained."}

`cnn_dailymail` reads CNN/DailyMail: its stories, or such tables in Hugging Face's form, with the columns
id, article and highlights, whose lines are the sentences of the summary; Parquet in parts, as
train-00000-of-00003.parquet.

In some sets the sentences of a summary are run together without a space ("It rained.We stayed."): `summaries` parts
these.

CNN/DailyMail is distributed (Hermann et al. 2015) as stories, and lists of which of them belong to which split.

A story has paragraphs, and after each line `@highlight` a sentence of the summary. Either each split has a folder, such
as train/*.story, or lists of addresses say which story belongs to which split (all_train.txt, all_val.txt,
all_test.txt; the story of an address is the file called by the SHA-1 of the address).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import regex  # type: ignore[import-untyped]

from roberta_plugin.data.text_inputs_files import COMPRESSIONS
from roberta_plugin.finetuning.options import SummariesOptions
from roberta_plugin.finetuning.raw_files import read_text
from roberta_plugin.kinds.cells import texts_in
from roberta_plugin.kinds.records import one_line
from roberta_plugin.kinds.sentences import sentences_of
from roberta_plugin.tables import ENDINGS, Row, check_id, check_text, find_table, read_table

SPLITS = {"train": ("train",), "valid": ("valid", "dev", "val", "validation"), "test": ("test",)}
HUGGING_FACE = {"id_field": "id", "text_field": "article", "summary_field": "highlights"}
_ORDER = (".jsonl", *(ending for ending in ENDINGS if ending != ".jsonl"))  # of two files of a split, the first counts
_RUN_TOGETHER = regex.compile(r"(?<=[\p{Ll}\p{M}\p{Nd})%][.!?])(?=[\"']?\p{Lu})")
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


class Document(NamedTuple):
    """A document and, where it is known, its summary."""

    id: str
    sentences: tuple[str, ...]
    summary: tuple[str, ...] | None
    """Sentences of the summary."""


def find_files(task: str, raw: Path, options: SummariesOptions) -> dict[str, list[Path]]:
    """The files of each split."""
    found = find_stories(raw, SPLITS) if task == "cnn_dailymail" else {}
    if not any(found.values()):
        found = _tables(raw, options.files)
    found = {split: files for split, files in found.items() if files}
    if not found:
        wanted = "train, valid and test as .jsonl, .csv, .tsv or .parquet"
        if task == "cnn_dailymail":
            wanted = "folders train, valid and test with .story files, the lists all_train.txt, all_val.txt and "
            wanted += "all_test.txt beside folders with .story files, or train, validation and test as .parquet or "
            wanted += ".jsonl with the columns article and highlights"
        raise FileNotFoundError(f"{raw} holds no data for {task}: looked for {wanted}. Name the folder that has them.")
    return found


def _tables(raw: Path, named: dict[str, str]) -> dict[str, list[Path]]:
    found = {}
    for split, names in SPLITS.items():
        if split in named:
            found[split] = [find_table(raw, named[split], option=f"--{split}")]
            continue
        whole = [
            raw / f"{name}{ending}{packed}" for name in names for ending in _ORDER for packed in ("", *COMPRESSIONS)
        ]
        parts = [path for name in names for path in sorted(raw.glob(f"{name}-?????-of-?????.parquet"))]
        found[split] = [path for path in whole if path.is_file()][:1] or parts
    return found


def read_split(task: str, split: str, files: list[Path], options: SummariesOptions) -> Iterator[Document]:
    """The documents of a split; those of a test split may have no summary."""
    seen: dict[str, str] = {}
    is_stories = files[0].suffix == ".story"
    documents = _stories(files) if is_stories else _rows(task, split, files, options)
    for where, document in documents:
        if document.id in seen:
            raise ValueError(
                f"{where}: {seen[document.id]} has the id {document.id!r} too. Ids must differ: remove or rename one."
            )
        seen[document.id] = where
        yield document


def _stories(files: list[Path]) -> Iterator[tuple[str, Document]]:
    for path, article, highlights in read_stories(files):
        yield str(path), Document(path.stem, tuple(sentences_of(article)), _lines(highlights))


def _rows(task: str, split: str, files: list[Path], options: SummariesOptions) -> Iterator[tuple[str, Document]]:
    is_hugging_face = task == "cnn_dailymail"
    names = HUGGING_FACE if is_hugging_face else field_names(options)
    elsewhere = " of the task summaries" if is_hugging_face else ""
    for path in files:
        before = f"{path.stem}-" if len(files) > 1 else ""
        for row in read_table(path):
            text = row.value(names["text_field"], option=f"--text-field{elsewhere}")
            sentences = _sentences(text, names["text_field"], row.where, may_be_empty=is_hugging_face)
            summary = _summary_of(row, names["summary_field"], split, is_hugging_face)
            id_ = check_id(row.values.get(names["id_field"], f"{before}{row.line}"), row.where)
            yield row.where, Document(id_, sentences, summary)


def _summary_of(row: Row, name: str, split: str, is_hugging_face: bool) -> tuple[str, ...] | None:
    value = row.values.get(name)
    is_empty = value is None or value == [] or (isinstance(value, str) and not value.strip())
    if is_empty and split == "test" and (value is None or not is_hugging_face):
        return None
    if value is None:
        other = "or take the task summaries and" if is_hugging_face else "or"
        raise ValueError(f"{row.where} lacks {name!r}: add the summary, {other} name its field by --summary-field.")
    if is_hugging_face:
        return _lines(check_text(value, name, row.where, may_be_empty=True).splitlines())
    is_one = isinstance(value, str) and texts_in(value) is None
    return _sentences(parted(value) if is_one else value, name, row.where)


def field_names(options: SummariesOptions) -> dict[str, str]:
    """The columns of a table, by option."""
    return {
        "id_field": options.id_field or "id",
        "text_field": options.text_field or "text",
        "summary_field": options.summary_field or "summary",
    }


def _sentences(value: Any, name: str, where: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
    if (several := texts_in(value)) is not None:
        texts = [one_line(check_text(text, f"{name}, sentence {at}", where)) for at, text in enumerate(several, 1)]
        if not texts and not may_be_empty:
            raise ValueError(f"{where}: {name} has no sentence. Fill it in, or leave the entry out.")
        return tuple(texts)
    return tuple(sentences_of(check_text(value, name, where, may_be_empty=may_be_empty)))


def _lines(texts: list[str]) -> tuple[str, ...]:
    """Those that are not empty, each in one line."""
    return tuple(one_line(text) for text in texts if text.strip())


def parted(text: str) -> str:
    """A summary with its sentences in lines of their own where they are run together.

    Example: "It rained.We stayed." -> "It rained.\\nWe stayed.".
    """
    found: str = _RUN_TOGETHER.sub("\n", text)
    return found


def find_stories(raw: Path, splits: Mapping[str, tuple[str, ...]]) -> dict[str, list[Path]]:
    """The stories of each split, in folders or by lists; empty if there are none."""
    folders = {
        split: next((raw / name for name in names if (raw / name).is_dir()), None) for split, names in splits.items()
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


def read_stories(files: list[Path]) -> Iterator[tuple[Path, str, list[str]]]:
    """File, article and highlights of each story.

    Raises:
        ValueError: naming the file and the byte, if it is not UTF-8.
    """
    for path in files:
        article, *highlights = read_text(path).split(_HIGHLIGHT)
        yield path, article, highlights
