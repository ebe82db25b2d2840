"""Small tables of every kind, with a signal that a tiny model learns in seconds: the words good and bad."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.tiny_tagging import sentence

FILLERS = ("a", "we", "is", "so", "to", "on", "it", "of")


def rows_of(kind: str, number: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Rows with different texts; the columns are those that are read by default, and `pair` for two texts."""
    rng = np.random.default_rng(seed)
    rows: dict[str, dict[str, Any]] = {}
    for row in _ROWS[kind](rng):
        rows.setdefault(str(next(iter(row.values()))), row)
        if len(rows) == number:
            return list(rows.values())
    raise AssertionError("endless")


def write_csv(path: Path, rows: list[dict[str, Any]], **form: Any) -> Path:
    """The rows as CSV."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), **form)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_json_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows as JSON Lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def _text(rng: np.random.Generator, *words: str) -> str:
    return "so " + " ".join(rng.permutation([*rng.choice(FILLERS, rng.integers(3, 9)), *words]))


def _classification(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    while True:
        label = ("pos", "neg", "none")[int(rng.choice(3, p=(0.45, 0.35, 0.2)))]
        words = {"pos": ["good"], "neg": ["bad"], "none": []}[label]
        yield {"text": _text(rng, *words * 3), "label": label}


def _multi_label(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    while True:
        chosen = (["good"], ["bad"], ["bad", "good"], [])[int(rng.choice(4, p=(0.45, 0.4, 0.05, 0.1)))]
        yield {"text": _text(rng, *chosen * 3), "label": ",".join(chosen)}


def _regression(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    while True:
        good = int(rng.integers(6))
        yield {"text": _text(rng, *["good"] * good, *["bad"] * (5 - good)), "label": 1000.0 + 200.0 * good}


def _pair(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    while True:
        word, label = (("good", "yes"), ("bad", "no"))[int(rng.integers(2))]
        yield {"text": _text(rng), "pair": _text(rng, *[word] * 3), "label": label}


def _multiple_choice(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    while True:
        options = [_text(rng, "bad") for _ in range(int(rng.integers(2, 5)))]
        label = int(rng.integers(len(options)))
        options[label] = _text(rng, "good")
        yield {"text": _text(rng), "options": options, "label": label}


def _question_answering(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    while True:
        answer = ("good", "bad", "")[int(rng.choice(3, p=(0.4, 0.4, 0.2)))]
        yield {"context": _text(rng, *filter(None, [answer])), "question": "is it ?", "answer": answer}


def _tagging(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    while True:
        words, tags = sentence(rng, is_easy=True)
        yield {"tokens": words, "tags": tags}


def _embedding(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """A text of few different bytes, and the same bytes in another order."""
    while True:
        words = [str(word) for word in rng.choice(list("cdfhjklmnpqrvxyz"), 3, replace=False)] * 3
        yield {"text": _text(rng, *words), "pair": _text(rng, *words)}


_ROWS = {
    "classification": _classification,
    "multi-label": _multi_label,
    "regression": _regression,
    "pair": _pair,
    "multiple-choice": _multiple_choice,
    "question-answering": _question_answering,
    "tagging": _tagging,
    "embedding": _embedding,
}


def read_own_rows(tmp_path, rows, **options):
    """The training examples and settings of JSON Lines as a table of your own."""
    from roberta_plugin.extensions.own_tables.benchmark import records, settings
    from roberta_plugin.finetuning.options import CustomOptions

    path = write_json_lines(tmp_path / "t.jsonl", rows)
    chosen = CustomOptions(train="t.jsonl", valid="t.jsonl", **options)
    recorded = settings(max_length=64, options=chosen)
    splits, found = records({"train": [path], "valid": [path]}, chosen, recorded)
    return splits["train"], found
