"""Decisions of a model -> a file that people and programs read: SPLIT.predictions.jsonl, one example per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from roberta_plugin.files import atomic_write


def file_name(split: str) -> str:
    """Name of the file of a split."""
    return f"{split}.predictions.jsonl"


def write_predictions(path: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    """Write `id`, `prediction`, probabilities and, where it is known, the right `label` of each example."""
    with atomic_write(path, "w") as file:
        for entry in entries:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
