"""FOLDER/{train,valid,test}.jsonl -> examples.

A line: {"id": "7", "text": "good", "text_pair": "bad", "label": "yes"}; the second text is optional.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from roberta_plugin.finetuning.benchmarks.base import Benchmark, by_split, find_files, only_length, read_rows
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds.answering import Official
from roberta_plugin.finetuning.options import TaskOptions, option

LABELS = ("no", "yes")
FILES = {split: [f"{split}.jsonl"] for split in ("train", "valid", "test")}


@dataclass(frozen=True, kw_only=True)
class MadeOptions(TaskOptions):
    """Options of the tasks `made` and `made-too`."""

    made_length: int | None = option("most tokens of the first text", default_text=20, smallest=1)
    made_order: Literal["first", "last"] | None = option("which text comes first", default_text="first")
    made_limit: float | None = option("a limit of the scoring", stage="score", smallest=0)
    made_draws: int | None = option("draws of the scoring", stage="score", smallest=1)
    made_ties: bool = option("how ties count", default=False, stage="score", tasks=("made-too",))


def find(raw: Path, options: Any) -> dict[str, list[Path]]:
    """`Benchmark.files`."""
    return {split: [path] for split, path in find_files("made", raw, FILES).items()}


def settings(*, max_length: int, options: Any) -> dict[str, Any]:
    """`Benchmark.settings`."""
    made = {"made_length": options.made_length or 20, "made_order": options.made_order or "first"}
    if made["made_length"] >= max_length:
        raise ValueError(f"--max-length {max_length} leaves no token for the second text: give more.")
    return {"max_length": max_length, "labels": list(LABELS), **made}


def plain_settings(*, max_length: int, options: Any) -> dict[str, Any]:
    """`Benchmark.settings` of the task without options."""
    return {**only_length(max_length=max_length, options=options), "labels": list(LABELS)}


def read(split: str, paths: list[Path], options: Any) -> Iterator[Example]:
    """The examples of a split; a test set may be without labels."""
    for row in read_rows(*paths):
        texts = tuple(row.text(name) for name in ("text", "text_pair") if name in row.values)
        label = LABELS[row.label("label", LABELS)] if split != "test" or "label" in row.values else None
        yield Example(row.path, row.line, row.text("id"), texts, label)


_MADE = Benchmark(
    name="made",
    kind="made",
    files=find,
    settings=settings,
    records=by_split(read),
    rules=Official(columns=("sentence", "sentence_pair")),
    metrics=("accuracy",),
    starts_from="made-too",
    paper={
        "test": {"RoBERTa large": {"accuracy": 83.2}},
        "valid": {"RoBERTa base, 16 GB of text": {"accuracy": 65.6}},
    },
)
_TOO = replace(
    _MADE,
    name="made-too",
    same_head="made",
    starts_from="",
    rules=Official(columns=("sentence", "sentence_pair"), is_pair=True),
    paper={"valid_other": {"RoBERTa large": {"accuracy": 90.2}}},
)
TASKS = {"made": _MADE, "made-too": _TOO}
_PLAIN = replace(_MADE, name="made-plain", same_head="", starts_from="", settings=plain_settings, paper={}, metrics=())
PLAIN = {"made-plain": _PLAIN, "made-other": replace(_PLAIN, name="made-other", kind="made_other")}
