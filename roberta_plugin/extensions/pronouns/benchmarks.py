"""WNLI of GLUE, WSC of SuperGLUE, and WinoGrande, as competing phrases: rows of the table of benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from roberta_plugin.extensions.pronouns.kind import SchemaExample
from roberta_plugin.extensions.pronouns.options import SIZES, WinoGrandeOptions
from roberta_plugin.extensions.pronouns.schemas import (
    add_listed_answers,
    answer_list,
    read_winogrande,
    read_wsc,
    schema_examples,
    training_rows,
)
from roberta_plugin.finetuning.benchmarks.base import Benchmark, Files, Training, all_files, find_files, read_rows
from roberta_plugin.finetuning.benchmarks.json_files import json_task, predictions, readme
from roberta_plugin.finetuning.benchmarks.tsv_files import PAIR, TsvFiles, paper_numbers, tsv_task

WNLI = TsvFiles(name="WNLI", sentences=PAIR)
_LABELS = ("2", "1")  # labels of WinoGrande: label 1 means that the first option is right


def _winogrande_files(raw: Path, options: WinoGrandeOptions) -> dict[str, list[Path]]:
    names = {
        "train": (f"train_{options.size or SIZES[-1]}.jsonl", "train.jsonl"),
        "valid": ("dev.jsonl", "val.jsonl"),
        "test": ("test.jsonl",),
    }
    return {split: [path] for split, path in find_files("WinoGrande", raw, names).items()}


def _winogrande_settings(*, max_length: int, options: WinoGrandeOptions) -> dict[str, Any]:
    size = options.size or SIZES[-1]
    return {"kind": "phrase_ranking", "labels": list(_LABELS), "max_length": max_length, "size": size}


def _with_lists(files: Files) -> list[Path]:
    """The official files, and lists of answers beside them."""
    paths = all_files(files)
    return paths + [listed for path in paths if (listed := answer_list(path)) is not None]


def _select_rows(split: str, rows: list[SchemaExample], *, are_rivals_options: bool) -> Sequence[SchemaExample]:
    """The examples of a split; in the training set, only the examples to learn from."""
    if split != "train":
        return rows
    return [SchemaExample("", schema, 1) for schema in training_rows(rows, are_rivals_options=are_rivals_options)]


def _plain(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of WinoGrande, one per row: 1 or 2."""
    return (entry["prediction"] for entry in entries)


# fairseq's examples/roberta/wsc/README.md: {1,2,3}e-5, batches of 16, 32 or 64 rows, 2,000 updates, 250 of warm-up, and
# cross-entropy over the phrases instead of the margin. Its batches count rows with label 0, which have no loss. Ours
# only have rows with label 1, 259 of 554 in the official set, so batches are half as large.
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

_ROWS = (
    tsv_task(
        WNLI,
        leaderboard="glue",
        test_rows={"test": 146},
        kind="phrase_ranking",
        examples_of=lambda split, rows: schema_examples(rows, is_training=split == "train"),
        on_hub=("nyu-mll/glue", "wnli"),
        paper=paper_numbers("accuracy", large=91.3, test=89.0),
    ),
    json_task(
        "WSC",
        leaderboard="superglue",
        test_rows={"test": 146},
        on_hub=("aps/super_glue", "wsc"),
        reader=read_wsc,
        kind="phrase_ranking",
        examples_of=partial(_select_rows, are_rivals_options=False),
        labels=("False", "True"),
        training=_WSC,
        paper=readme("valid", accuracy=91.3),
    ),
    json_task(
        "WinoGrande",
        on_hub=("allenai/winogrande", None),
        reader=read_winogrande,
        kind="phrase_ranking",
        examples_of=partial(_select_rows, are_rivals_options=True),
        rows_of=lambda path: add_listed_answers(path, read_rows(path)),
        files=_winogrande_files,
        source_files=_with_lists,
        settings=_winogrande_settings,
        labels=_LABELS,
        predictions=predictions("WinoGrande", _plain, ending="lst"),
        training=_WINOGRANDE,
        paper=readme("test", accuracy=78.1),
    ),
)
TASKS: dict[str, Benchmark] = {row.name: row for row in _ROWS}
