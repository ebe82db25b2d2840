"""SuperGLUE's tasks of classification and of competing phrases, and WinoGrande, in one table.

First stage of the map in `finetuning/superglue/__init__.py`. Where fairseq's READMEs give settings, they are the grid;
the others have the paper's for GLUE (`benchmark.Training`). The numbers beside ours are those of fairseq's
examples/roberta: the paper has none.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from roberta_plugin.finetuning.benchmark import (
    Benchmark,
    Entries,
    Files,
    Numbers,
    Training,
    all_files,
    as_json,
    by_split,
)
from roberta_plugin.finetuning.options import SuperGlueOptions
from roberta_plugin.finetuning.raw_files import LABELLED, find_files, read_rows
from roberta_plugin.finetuning.superglue.texts import (
    CB_LABELS,
    boolq_texts,
    cb_texts,
    multirc_texts,
    read_multirc,
    rte_texts,
    wic_texts,
)
from roberta_plugin.finetuning.superglue.winograd import (
    answer_list,
    read_winogrande,
    read_wsc,
    training_rows,
    with_listed_answers,
)
from roberta_plugin.kinds.base import Official
from roberta_plugin.kinds.examples import Example
from roberta_plugin.kinds.phrases import SchemaExample
from roberta_plugin.tables import IN_MEMORY, Row, with_unique_ids

logger = logging.getLogger(__name__)

SIZES = ("xs", "s", "m", "l", "xl")  # of WinoGrande's training set
FILES = {"train": ("train.jsonl",), "valid": ("val.jsonl",), "test": ("test.jsonl",)}
_OFFICIAL = {("SuperRTE", "test"): "RTE", ("SuperRTE", "ax_b"): "AX-b", ("SuperRTE", "ax_g"): "AX-g"}


class Reader(Protocol):
    """What makes examples of a row."""

    def __call__(self, row: Row, *, labelled: bool) -> Iterator[Example | SchemaExample]:
        """The examples of a row, one or more."""


def task(
    name: str,
    *,
    labels: Sequence[str],
    texts_of: Callable[[Row], tuple[str, str]] | None = None,
    spelt: Sequence[Any] = (),
    reader: Reader | None = None,
    kind: str = "classification",
    folder: str = "",
    names: Mapping[str, Sequence[str]] = FILES,
    **row: Any,
) -> Benchmark:
    """A row of the table.

    Args:
        texts_of: the texts of a row, or of a record that is to be predicted.
        spelt: the labels in the official files, if they spell them otherwise.
        reader: what makes the examples of a row; None: it is one, with `texts_of` and a label.
        folder: of the official files; empty: called like the task.
        names: split -> names of its official file; the first that exists is read. `{size}` is the option --size.
        row: further fields.
    """
    read = reader or partial(_example, texts_of=texts_of, labels=labels, spelt=spelt or labels)
    has_options = name == "WinoGrande"  # which compete; answers may be in a list beside the file

    def files(raw: Path, options: SuperGlueOptions) -> dict[str, list[Path]]:
        size = options.size or SIZES[-1]
        named = {split: [each.format(size=size) for each in several] for split, several in names.items()}
        return {split: [path] for split, path in find_files(folder or name, raw, named).items()}

    def source_files(files: Files) -> list[Path]:
        paths = all_files(files)
        return paths + [listed for path in paths if has_options and (listed := answer_list(path)) is not None]

    def settings(*, max_length: int, options: SuperGlueOptions) -> dict[str, Any]:
        size = {"size": options.size or SIZES[-1]} if has_options else {}
        return {"kind": kind, "labels": list(labels), "max_length": max_length, **size}

    def examples(split: str, paths: list[Path], options: SuperGlueOptions) -> Sequence[Any]:
        (path,) = paths
        rows = with_listed_answers(path, read_rows(path)) if has_options else read_rows(path)
        made = ((row.where, example) for row in rows for example in read(row, labelled=split in LABELLED))
        found: list[Any] = list(with_unique_ids(made, id_of=lambda example: example.id))
        logger.info(f"{name}, {split}: {len(found):,} rows")
        if kind != "phrase_ranking" or split != "train":
            return found
        learned = training_rows(found, are_rivals_options=has_options)
        logger.info(f"{name}, {split}: {len(learned):,} of {len(found):,} rows are learned from")
        return [SchemaExample("", schema, 1) for schema in learned]

    rules = Official()
    if texts_of is not None:
        rules = Official(is_pair=True, texts=lambda record: texts_of(Row(IN_MEMORY, 0, record)))
    fields: dict[str, Any] = {"metrics": ("accuracy",), "predictions": predictions(name), **row}
    return Benchmark(
        name=name,
        kind=kind,
        files=files,
        source_files=source_files,
        settings=settings,
        records=by_split(examples),
        rules=rules,
        **fields,
    )


def _example(
    row: Row, *, labelled: bool, texts_of: Any, labels: Sequence[str], spelt: Sequence[Any]
) -> Iterator[Example]:
    target = labels[row.label("label", spelt)] if labelled else None
    yield Example(row.path, row.line, row.number("idx"), texts_of(row), target)


def _objects(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One JSON object per row: {"idx": 0, "label": "true"}."""
    yield from as_json({"idx": entry["id"], "label": entry["prediction"]} for entry in entries)


def _paragraphs(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of MultiRC, one per paragraph: {"idx": 0, "passage": {"questions": [{"idx": 0, "answers": [...]}]}},
    where an answer is {"idx": 0, "label": 1}."""
    nested: dict[int, dict[int, list[dict[str, int]]]] = {}
    for entry in entries:
        paragraph, question, answer = entry["id"]
        answers = nested.setdefault(paragraph, {}).setdefault(question, [])
        answers.append({"idx": answer, "label": int(entry["prediction"])})
    for paragraph, questions in nested.items():
        listed = [{"idx": question, "answers": answers} for question, answers in questions.items()]
        yield json.dumps({"idx": paragraph, "passage": {"questions": listed}})


def _plain(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of WinoGrande, one per row: 1 or 2."""
    return (entry["prediction"] for entry in entries)


def predictions(
    task: str,
    lines: Callable[[Iterable[Mapping[str, Any]]], Iterable[str]] = _objects,
    *,
    ending: str = "jsonl",
) -> Callable[[str, Entries], dict[str, Iterable[str]]]:
    """`Benchmark.predictions`: the leaderboard's name, such as BoolQ.jsonl, or TASK.SPLIT.jsonl.

    Labels are spelt as SuperGLUE's baseline writes them (jiant, `evaluate.py`).
    """

    def found(split: str, entries: Entries) -> dict[str, Iterable[str]]:
        name = _OFFICIAL.get((task, split), task if split == "test" else f"{task}.{split}")
        return {f"{name}.{ending}": lines(entries())}

    return found


def readme(split: str, **numbers: float) -> Numbers:
    """Numbers of roberta.large in fairseq's READMEs."""
    return {split: {"RoBERTa large, fairseq's README": numbers}}


# fairseq's examples/roberta/wsc/README.md: {1,2,3}e-5, batches of 16, 32 or 64 rows, 2,000 updates, 250 of warm-up, and
# cross-entropy over the phrases instead of the margin. Its batches count rows with label 0, which have no loss; ours
# have the others only, 259 of 554 in the official set: half as many.
_WSC = Training(
    batches=(8, 16, 32),
    updates=2000,
    warm_up=250 / 2000,
    weight_decay="0.01",
    options={"phrase-cross-entropy": "true"},
)
# The same README: 1e-5, 32, 23,750 updates with 2,375 of warm-up, which are 19 epochs of the largest size; alpha 5 and
# beta 0.4, the criterion's defaults.
_WINOGRANDE = Training(lrs=("1e-5",), batches=(32,), epochs=19, warm_up=0.1, weight_decay="0.01")

_TRUTH = ("false", "true")
_ROWS = (
    task(
        "WSC",
        reader=read_wsc,
        kind="phrase_ranking",
        labels=("False", "True"),
        training=_WSC,
        paper=readme("valid", accuracy=91.3),
    ),
    task(
        "WinoGrande",
        reader=read_winogrande,
        kind="phrase_ranking",
        labels=("2", "1"),  # label 1: the first option is right
        names={
            "train": ("train_{size}.jsonl", "train.jsonl"),
            "valid": ("dev.jsonl", "val.jsonl"),
            "test": ("test.jsonl",),
        },
        predictions=predictions("WinoGrande", _plain, ending="lst"),
        training=_WINOGRANDE,
        paper=readme("test", accuracy=78.1),
    ),
    task(
        "BoolQ",
        texts_of=boolq_texts,
        labels=_TRUTH,
        spelt=(False, True),
        paper=readme("valid", accuracy=86.9),
    ),
    task(
        "CB",
        texts_of=cb_texts,
        labels=CB_LABELS,
        metrics=("accuracy", "macro_f1"),
        official="accuracy",
        starts_from="MNLI",
        paper=readme("valid", accuracy=98.2),
    ),
    task(
        "SuperRTE",  # GLUE's RTE has other files
        texts_of=rte_texts,
        labels=("not_entailment", "entailment"),
        folder="RTE",
        names={**FILES, "ax_b": ("../AX-b/AX-b.jsonl", "AX-b.jsonl"), "ax_g": ("../AX-g/AX-g.jsonl", "AX-g.jsonl")},
        starts_from="MNLI",
        paper=readme("valid", accuracy=89.5),
    ),
    task(
        "WiC",
        texts_of=wic_texts,
        labels=_TRUTH,
        spelt=(False, True),
        paper=readme("valid", accuracy=75.6),
    ),
    task(
        "MultiRC",
        reader=read_multirc,
        texts_of=multirc_texts,
        labels=("0", "1"),
        metrics=("f1a", "exact_match"),
        official="f1a",
        selection="f1",  # F1a is the F1 of label 1 over all answers
        predictions=predictions("MultiRC", _paragraphs),
        paper=readme("valid", f1a=85.7),
    ),
)
TASKS = {row.name: row for row in _ROWS}
