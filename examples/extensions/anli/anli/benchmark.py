"""ANLI 1.0: R1 to R3, each with train.jsonl, dev.jsonl and test.jsonl -> one training set, splits of each round.

    train                     all rounds, one after the other
    valid                     the development sets of all rounds, which select the checkpoint
    valid_r1 ... valid_r3     the development set of a round
    test_r1 ... test_r3       the test set of a round; its labels are public

A line: {"uid": "0fd0abfb...", "context": "...", "hypothesis": "...", "label": "c", "reason": "...", ...}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roberta_plugin.finetuning.benchmarks.base import Benchmark, by_split, find_files, read_rows
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds.base import Official

TEXTS = ("context", "hypothesis")
LABELS = ("contradiction", "neutral", "entailment")  # in the order of MNLI's head
LETTERS = ("c", "n", "e")
ROUNDS = (1, 2, 3)
FILES = {"train": "train.jsonl", "valid": "dev.jsonl", "test": "test.jsonl"}
# RoBERTa large, learned from SNLI, MNLI and FEVER too: README of github.com/facebookresearch/anli.
OFFICIAL = {1: 72.4, 2: 49.8, 3: 44.4}


def find(raw: Path, options: Any) -> dict[str, list[Path]]:
    """`Benchmark.files`; `raw` is anli_v1.0 or the folder that has it."""
    splits: dict[str, list[Path]] = {"train": [], "valid": []}
    for number in ROUNDS:
        names = {split: [f"{folder}R{number}/{name}" for folder in ("", "anli_v1.0/")] for split, name in FILES.items()}
        for split, path in find_files("ANLI", raw, names).items():
            if split != "test":
                splits[split].append(path)
            if split != "train":
                splits[f"{split}_r{number}"] = [path]
    return splits


def settings(*, max_length: int, options: Any) -> dict[str, Any]:
    """`Benchmark.settings`."""
    return {"kind": "classification", "labels": list(LABELS), "max_length": max_length}


def read(split: str, paths: list[Path], options: Any) -> Iterator[Example]:
    """The examples of a split; a test set may be without labels."""
    for row in read_rows(*paths):
        is_labelled = not split.startswith("test") or "label" in row.values
        label = LABELS[row.label("label", LETTERS)] if is_labelled else None
        yield Example(row.path, row.line, row.text("uid"), tuple(row.text(name) for name in TEXTS), label)


TASKS = {
    "ANLI": Benchmark(
        name="ANLI",
        kind="classification",
        files=find,
        settings=settings,
        records=by_split(read),
        rules=Official(columns=TEXTS, is_pair=True),
        metrics=("accuracy",),
        same_head="MNLI",  # models of MNLI can be evaluated on ANLI
        paper={f"test_r{number}": {"RoBERTa large": {"accuracy": value}} for number, value in OFFICIAL.items()},
        on_hub=("facebook/anli", None),
    )
}
