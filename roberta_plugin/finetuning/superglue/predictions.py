"""Predictions -> the files that the leaderboards of SuperGLUE and WinoGrande take.

    SuperGLUE    one JSON object per row: {"idx": 0, "label": "true"}
    MultiRC      one per paragraph: {"idx": 0, "passage": {"questions": [{"idx": 0, "answers": [...]}]}}, where an
                 answer is {"idx": 0, "label": 1}
    WinoGrande   one line per row: 1 or 2

Labels are spelt as SuperGLUE's baseline writes them (jiant, `evaluate.py`). A test set's file has the leaderboard's
name, and so have those of the diagnostic sets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.files import atomic_write

_OFFICIAL = {("SuperRTE", "test"): "RTE", ("SuperRTE", "ax_b"): "AX-b", ("SuperRTE", "ax_g"): "AX-g"}


def file_name(task: str, split: str) -> str:
    """Name of the file of predictions: the leaderboard's, such as BoolQ.jsonl for its test set, or TASK.SPLIT.jsonl."""
    ending = "lst" if task == "WinoGrande" else "jsonl"
    name = _OFFICIAL.get((task, split), task if split == "test" else f"{task}.{split}")
    return f"{name}.{ending}"


def write_predictions(path: Path, task: str, ids: Iterable[Any], labels: Sequence[Any]) -> None:
    """Write the label of each row, in the task's form."""
    with atomic_write(path, "w") as file:
        file.writelines(f"{line}\n" for line in _lines(task, ids, labels))


def _lines(task: str, ids: Iterable[Any], labels: Sequence[Any]) -> Iterator[str]:
    if task == "WinoGrande":
        yield from map(str, labels)
        return
    if task == "MultiRC":
        yield from map(json.dumps, _paragraphs(ids, labels))
        return
    for row_id, label in zip(ids, labels, strict=True):
        yield json.dumps({"idx": row_id, "label": label}, ensure_ascii=False)


def _paragraphs(ids: Iterable[Sequence[int]], labels: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Labels of the answers, by paragraph and question, in the order of the file."""
    nested: dict[int, dict[int, list[dict[str, int]]]] = {}
    for (paragraph, question, answer), label in zip(ids, labels, strict=True):
        answers = nested.setdefault(paragraph, {}).setdefault(question, [])
        answers.append({"idx": answer, "label": int(label)})
    for paragraph, questions in nested.items():
        listed = [{"idx": question, "answers": answers} for question, answers in questions.items()]
        yield {"idx": paragraph, "passage": {"questions": listed}}
