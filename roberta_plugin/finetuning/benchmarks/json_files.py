"""Tasks whose official files are JSON Lines, such as SuperGLUE's: rows -> examples, and the files of predictions.

The grid of a task has the settings in fairseq's READMEs or, if these have none, the paper's for GLUE (`base.Training`).
The numbers beside ours are from fairseq's examples/roberta, because the paper has none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from roberta_plugin.finetuning.benchmarks.base import (
    LABELLED,
    Benchmark,
    Entries,
    Numbers,
    as_json,
    by_split,
    find_files,
    read_rows,
)
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds.answering import Official
from roberta_plugin.tables import IN_MEMORY, Row, with_unique_ids

logger = logging.getLogger(__name__)

Texts = Callable[[Row], tuple[str, ...]]
"""A row, or a record for prediction -> its texts."""

FILES = {"train": ("train.jsonl",), "valid": ("val.jsonl",), "test": ("test.jsonl",)}


def json_task(
    name: str,
    *,
    kind: str,
    labels: Sequence[str],
    texts_of: Texts | None = None,
    spelt: Sequence[Any] = (),
    reader: Callable[..., Iterator[Any]] | None = None,
    examples_of: Callable[[str, list[Any]], Sequence[Any]] | None = None,
    rows_of: Callable[[Path], Iterable[Row]] = read_rows,
    folder: str = "",
    names: Mapping[str, Sequence[str]] = FILES,
    **row: Any,
) -> Benchmark:
    """A row of the table of benchmarks.

    Args:
        name: the task.
        kind: its kind.
        labels: the labels in the order of their numbers.
        texts_of: a row, or a record for prediction -> its texts.
        spelt: the labels as the official files spell them, if that differs.
        reader: a row -> its examples; None: one example, with `texts_of` and a label.
        examples_of: a split's name and its examples from `reader` -> the examples of the kind; None: unchanged.
        rows_of: an official file -> its rows.
        folder: name of the folder of the official files; empty: the name of the task.
        names: split -> names of its official file; the first that exists is read.
        row: further fields.
    """
    read = reader or partial(_example, texts_of=texts_of, labels=labels, spelt=spelt or labels)

    def files(raw: Path, options: Any) -> dict[str, list[Path]]:
        return {split: [path] for split, path in find_files(folder or name, raw, names).items()}

    def settings(*, max_length: int, options: Any) -> dict[str, Any]:
        return {"kind": kind, "labels": list(labels), "max_length": max_length}

    def examples(split: str, paths: list[Path], options: Any) -> Sequence[Any]:
        (path,) = paths
        made = ((row.where, example) for row in rows_of(path) for example in read(row, labelled=split in LABELLED))
        unique: list[Any] = list(with_unique_ids(made, id_of=lambda example: example.id))
        logger.info(f"{name}, {split}: {len(unique):,} rows")
        learned = unique if examples_of is None else examples_of(split, unique)
        if split == "train" and examples_of is not None:
            logger.info(f"{name}, {split}: {len(learned):,} of {len(unique):,} rows are learned from")
        return learned

    rules = Official()
    if texts_of is not None:
        rules = Official(is_pair=True, texts=lambda record: texts_of(Row(IN_MEMORY, 0, record)))
    fields: dict[str, Any] = {
        "files": files,
        "settings": settings,
        "metrics": ("accuracy",),
        "predictions": predictions(name),
        **row,
    }
    return Benchmark(name=name, kind=kind, records=by_split(examples), rules=rules, **fields)


def _example(
    row: Row, *, labelled: bool, texts_of: Any, labels: Sequence[str], spelt: Sequence[Any]
) -> Iterator[Example]:
    target = labels[row.label("label", spelt)] if labelled else None
    yield Example(row.path, row.line, row.number("idx"), texts_of(row), target)


def _objects(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One JSON object per row, such as {"idx": 0, "label": "true"}."""
    yield from as_json({"idx": entry["id"], "label": entry["prediction"]} for entry in entries)


def predictions(
    task: str,
    lines: Callable[[Iterable[Mapping[str, Any]]], Iterable[str]] = _objects,
    *,
    ending: str = "jsonl",
    official: Mapping[str, str] | None = None,
) -> Callable[[str, Entries], dict[str, Iterable[str]]]:
    """`Benchmark.predictions`: the leaderboard's name, such as BoolQ.jsonl, or TASK.SPLIT.jsonl.

    `official` has the leaderboard's names for splits, if they are not the name of the task. Labels are spelt as in
    SuperGLUE's baseline (jiant, `evaluate.py`).
    """

    def prediction_files(split: str, entries: Entries) -> dict[str, Iterable[str]]:
        name = (official or {}).get(split, task if split == "test" else f"{task}.{split}")
        return {f"{name}.{ending}": lines(entries())}

    return prediction_files


def readme(split: str, **numbers: float) -> Numbers:
    """Numbers of roberta.large in fairseq's READMEs."""
    return {split: {"RoBERTa large, fairseq's README": numbers}}
