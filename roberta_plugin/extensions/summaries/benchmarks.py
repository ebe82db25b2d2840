"""Extractive summaries: which sentences of a document to keep (Liu and Lapata 2019, "BertSumExt").

`summaries` reads tables with one document per row: JSON Lines, CSV, TSV or Parquet, plain or compressed
(`roberta_plugin/tables.py`), called train, valid (or dev, validation) and test, or the files that the options name.
Text and summary are strings, which are split into sentences (`data/sentences.py`), or lists of sentences.

    {"id": "7", "text": "It rained. We stayed.\\n\\nThen it stopped.", "summary": "It rained."}

`cnn_dailymail` reads CNN/DailyMail: its stories, or such tables in Hugging Face's form, with the columns
id, article and highlights, whose lines are the sentences of the summary. Parquet may be in parts, such as
train-00000-of-00003.parquet.

In some sets the sentences of a summary are run together without a space ("It rained.We stayed."). `summaries` separates
them.

CNN/DailyMail is distributed (Hermann et al. 2015) as stories, with a list of the stories of each split.

A story has paragraphs, and after each line `@highlight` a sentence of the summary. Either each split has a folder, such
as train/*.story, or lists of addresses say which story belongs to which split (all_train.txt, all_val.txt,
all_test.txt). The story of an address is in the file that is named by the SHA-1 of the address.

The grid has BertSumExt's settings where RoBERTa's paper has none, and the paper's Table 10 for GLUE otherwise. Liu and
Lapata 2019 (sections 3.2 and 4.2): two layers over the sentences, 50,000 updates, and a rate of 2e-3 times
min(step^-0.5, step * 10,000^-1.5), whose peak is 2e-5; with batches of about 36 documents (Liu 2019, arXiv 1903.10318),
they are 6 epochs of CNN/DailyMail's 287,227 documents. From RoBERTa's Table 10 are learning rates around this peak, a
warm-up of 6 %, linear decay, weight decay of 0.1, and 10 epochs for smaller sets. The checkpoint is chosen by the mean
of ROUGE-1 and ROUGE-2 on the development set.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import regex  # type: ignore[import-untyped]

from roberta_plugin.data.text_inputs_compressed import COMPRESSIONS
from roberta_plugin.extensions.summaries.documents import ORACLE_SENTENCES
from roberta_plugin.extensions.summaries.layout import SummaryLayout, sentences_of
from roberta_plugin.extensions.summaries.options import SummariesOptions
from roberta_plugin.finetuning.benchmarks.base import Benchmark, Training, by_split, known_files, named_files, read_text
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.records import one_line, texts_in
from roberta_plugin.progress import terminal_bar
from roberta_plugin.tables import ENDINGS, Row, check_id, check_text, read_table, with_unique_ids

SPLITS = {"train": ("train",), "valid": ("valid", "dev", "val", "validation"), "test": ("test",)}
HUGGING_FACE = {"id_field": "id", "text_field": "article", "summary_field": "highlights"}
_ORDER = (".jsonl", *(ending for ending in ENDINGS if ending != ".jsonl"))  # if a split has two files, the first counts
_RUN_TOGETHER = regex.compile(r"(?<=[\p{Ll}\p{M}\p{Nd})%][.!?])(?=[\"']?\p{Lu})")
_LISTS = (  # names of lists of addresses, by split; the first kind that exists counts
    {"train": ("all_train",), "valid": ("all_val", "all_valid"), "test": ("all_test",)},
    {"train": ("mapping_train",), "valid": ("mapping_valid",), "test": ("mapping_test",)},
    {
        split: tuple(f"{paper}wayback_{part}_urls" for paper in ("", "cnn_", "dailymail_"))
        for split, part in {"train": "training", "valid": "validation", "test": "test"}.items()
    },
)
_WANTED = {
    "summaries": "train, valid and test as .jsonl, .csv, .tsv, .parquet or folders of datasets",
    "cnn_dailymail": "folders train, valid and test with .story files, the lists all_train.txt, all_val.txt and "
    "all_test.txt beside folders with .story files, or train, validation and test as .parquet or .jsonl with the "
    "columns article and highlights",
}
_HIGHLIGHT = "@highlight"
_SHA1 = re.compile(r"[0-9a-f]{40}")


def files(task: str, raw: Path, options: SummariesOptions) -> dict[str, list[Path]]:
    """The files of each split."""
    paths = find_stories(raw, SPLITS) if task == "cnn_dailymail" else {}
    if not any(paths.values()):
        paths = _tables(raw, options)
    return known_files(paths, task, raw, wanted=_WANTED[task])


def _tables(raw: Path, options: SummariesOptions) -> dict[str, list[Path]]:
    paths = {}
    for split, names in SPLITS.items():
        whole = [
            raw / f"{name}{ending}{packed}" for name in names for ending in _ORDER for packed in ("", *COMPRESSIONS)
        ]
        parts = [path for name in names for path in sorted(raw.glob(f"{name}-?????-of-?????.parquet"))]
        folders = [raw / name for name in names if (raw / name / "state.json").is_file()]
        paths[split] = [path for path in whole if path.exists()][:1] or parts or folders[:1]
    return {**paths, **named_files(raw, options)}


def examples(task: str, split: str, paths: list[Path], options: SummariesOptions) -> Iterator[Example]:
    """The documents of a split. Texts and target are sentences; documents of a test split may have no target."""
    documents = read_stories(paths) if paths[0].suffix == ".story" else _rows(task, split, paths, options)
    places = ((str(each.path) if not each.line else each.where, each) for each in documents)
    return with_unique_ids(terminal_bar(places, f"{task} {split}", unit=" documents"), id_of=lambda each: each.id)


def _rows(task: str, split: str, paths: list[Path], options: SummariesOptions) -> Iterator[Example]:
    is_hugging_face = task == "cnn_dailymail"
    names = HUGGING_FACE if is_hugging_face else field_names(options)
    elsewhere = " of the task summaries" if is_hugging_face else ""
    for path in paths:
        before = f"{path.stem}-" if len(paths) > 1 else ""
        for row in read_table(path):
            text = row.value(names["text_field"], option=f"--text-field{elsewhere}")
            sentences = _sentences(text, names["text_field"], row.where, may_be_empty=is_hugging_face)
            summary = _read_summary(row, names["summary_field"], split, is_hugging_face)
            id_ = check_id(row.values.get(names["id_field"], f"{before}{row.line}"), row.where)
            yield Example(path, row.line, id_, sentences, summary)


def _read_summary(row: Row, name: str, split: str, is_hugging_face: bool) -> tuple[str, ...] | None:
    """The sentences of a summary; None if it is not known, which only a test split permits.

    In a table of your own, an empty cell says that it is not known. In Hugging Face's form, an empty cell is a summary
    without sentences, whose document is left out.
    """
    value, is_test = row.values.get(name), split == "test"
    is_empty = value == [] or (isinstance(value, str) and not value.strip())
    if is_test and (value is None or (is_empty and not is_hugging_face)):
        return None
    if value is None:
        other = "or use the task summaries and" if is_hugging_face else "or"
        raise ValueError(f"{row.where} has no {name!r}: add the summary, {other} name its field by --summary-field.")
    if is_hugging_face:  # "It rained .\nWe stayed ."
        return _lines(check_text(value, name, row.where, may_be_empty=True).splitlines())
    if isinstance(value, str) and texts_in(value, f"{row.where}, {name}") is None:  # "It rained.We stayed."
        value = separate_sentences(value)
    return _sentences(value, name, row.where)  # ["It rained.", "We stayed."], also as text


def field_names(options: SummariesOptions) -> dict[str, str]:
    """The columns of a table, by option."""
    return {
        "id_field": options.id_field or "id",
        "text_field": options.text_field or "text",
        "summary_field": options.summary_field or "summary",
    }


def _sentences(value: object, name: str, where: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
    if (several := texts_in(value, f"{where}, {name}")) is not None:
        texts = [one_line(check_text(text, f"{name}, sentence {at}", where)) for at, text in enumerate(several, 1)]
        if not texts and not may_be_empty:
            raise ValueError(f"{where}: {name} has no sentence. Fill it in, or leave the entry out.")
        return tuple(texts)
    return tuple(sentences_of(check_text(value, name, where, may_be_empty=may_be_empty)))


def _lines(texts: list[str]) -> tuple[str, ...]:
    """The texts that are not empty, each in one line."""
    return tuple(one_line(text) for text in texts if text.strip())


def separate_sentences(text: str) -> str:
    """Put sentences that are run together into lines of their own.

    Example: "It rained.We stayed." -> "It rained.\\nWe stayed.".
    """
    lines: str = _RUN_TOGETHER.sub("\n", text)
    return lines


def find_stories(raw: Path, splits: Mapping[str, tuple[str, ...]]) -> dict[str, list[Path]]:
    """The stories of each split, in folders or by lists; empty if there are none."""
    folders = {
        split: next((raw / name for name in names if (raw / name).is_dir()), None) for split, names in splits.items()
    }
    in_folders = {split: sorted(folder.glob("*.story")) for split, folder in folders.items() if folder is not None}
    if any(in_folders.values()):
        return in_folders
    for kind in _LISTS:
        lists = {
            split: sorted(path for name in names for path in raw.rglob(f"{name}.txt")) for split, names in kind.items()
        }
        if any(lists.values()):
            stories = {path.stem: path for path in raw.rglob("*.story")}
            return {split: _look_up_stories(paths, stories) for split, paths in lists.items()}
    return {}


def _look_up_stories(lists: list[Path], stories: dict[str, Path]) -> list[Path]:
    """The stories of the addresses in some lists, in their order."""
    listed: dict[str, Path] = {}
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
            listed[name] = stories[name]
    return list(listed.values())


def read_stories(paths: list[Path]) -> Iterator[Example]:
    """The document of each story.

    Raises:
        ValueError: naming the file and the byte, if it is not UTF-8.
    """
    for path in paths:
        article, *highlights = read_text(path).split(_HIGHLIGHT)
        yield Example(path, 0, path.stem, tuple(sentences_of(article)), _lines(highlights))


def settings(task: str, *, max_length: int, options: SummariesOptions) -> dict[str, Any]:
    """`Benchmark.settings`: the layout of the windows, and the columns of tables."""
    layout = SummaryLayout.with_defaults(
        max_length, sentence_length=options.sentence_length, doc_stride=options.doc_stride
    )
    lengths = {**asdict(layout), "oracle_sentences": options.oracle_sentences or ORACLE_SENTENCES}
    return {**lengths, **(field_names(options) if task == "summaries" else {})}


def _row(name: str, **more: Any) -> Benchmark:
    return Benchmark(
        name=name,
        kind="summary",
        same_head="summaries",
        files=partial(files, name),
        records=by_split(partial(examples, name)),
        settings=partial(settings, name),
        selection="rouge",
        official="rouge1",
        **more,
    )


TASKS = {
    "summaries": _row("summaries", training=Training(batches=(36,), num_seeds=3)),
    "cnn_dailymail": _row(
        "cnn_dailymail",
        on_hub=("abisee/cnn_dailymail", None),
        training=Training(lrs=("2e-5",), batches=(36,), epochs=6, num_seeds=3),
        paper={  # Liu and Lapata 2019, Table 2, BERT base
            "test": {
                "BertSumExt": {
                    **{"rouge1": 43.25, "rouge2": 20.24, "rougeLsum": 39.63},
                    **{"lead_rouge1": 40.42, "lead_rouge2": 17.62, "lead_rougeLsum": 36.67},
                    **{"oracle_rouge1": 52.59, "oracle_rouge2": 31.24, "oracle_rougeLsum": 48.87},
                }
            }
        },
    ),
}
