"""fairseq's JSON log: lines -> records, and the loss curves of a run that may have been resumed; the end of any log.

A line ends in `| train_inner | {"num_updates": "40", "loss": "9.1", ...}`: the record during an epoch
("train_inner"), at its end ("train"), or on a split that fairseq validates on ("valid", "valid@books", by its name).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_BYTES_OF_A_LINE = 2000  # more than a line of the log has
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w+(?:Error|Exception|Exit|Interrupt)\b(?:: .*)?$")
_RECORD = re.compile(r"\| ([\w@.-]+) \| (\{.*\})\s*$")


class Record(NamedTuple):
    """One line of the log: its kind, and its numbers by name."""

    kind: str
    values: dict[str, float]


class Curve(NamedTuple):
    """Values against updates."""

    updates: list[int]
    values: list[float]


def parse_line(line: str) -> Record | None:
    """The record in a line of the log; None for other lines, and for one that was cut off by a kill."""
    match = _RECORD.search(line)
    if match is None:
        return None
    try:
        fields = json.loads(match.group(2))
    except json.JSONDecodeError:
        return None
    prefix = f"{match.group(1)}_"  # fairseq writes train_loss, valid_loss, but plain loss in train_inner
    return Record(match.group(1), {name.removeprefix(prefix): _number(text) for name, text in fields.items()})


def _number(text: str | float) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        return math.nan


def show_on(bar: Any, record: Record) -> None:
    """Advance the bar to the record's update and show the latest loss, speed and validation accuracy beside it."""
    shown = dict(getattr(bar, "shown", {}))
    if record.kind in ("train", "train_inner") and "loss" in record.values:
        shown["loss"] = f"{record.values['loss']:.2f}"
    if record.kind == "valid" and "accuracy" in record.values:
        shown["valid accuracy"] = f"{record.values['accuracy']:.1f} %"
    if record.kind == "train_inner":
        shown["tokens/s"] = f"{record.values.get('wps', 0):,.0f}"
    order = [name for name in ("loss", "valid accuracy", "tokens/s") if name in shown]  # a narrow terminal cuts the end
    bar.shown = shown = {name: shown[name] for name in order}
    if not bar.n:  # the updates before a resumed run's checkpoint must not count in its speed
        bar.initial = bar.n = bar.last_print_n = int(record.values["num_updates"])
    bar.set_postfix(shown, refresh=False)
    bar.update(int(record.values["num_updates"]) - bar.n)


def curves(records: Iterable[Record]) -> dict[tuple[str, str], Curve]:
    """The curves of all values by kind of record and value, in the order of the updates.

    A resumed run repeats the updates after its checkpoint: the last record of each counts.
    """
    points: dict[tuple[str, str], dict[int, float]] = {}
    for kind, values in records:
        for name in values if "num_updates" in values else ():
            points.setdefault((kind, name), {})[int(values["num_updates"])] = values[name]
    return {key: Curve(sorted(values), [values[update] for update in sorted(values)]) for key, values in points.items()}


def curve(lines: Iterable[str], *, kind: str, value: str) -> Curve:
    """The curve of `value` in the records of one kind; empty if there are none."""
    return curves(filter(None, map(parse_line, lines))).get((kind, value), Curve([], []))


def median_speed(lines: Iterable[str]) -> int:
    """Tokens a second in training, validations left out: the median over the log's records; 0 without a record."""
    speeds = sorted(curve(lines, kind="train_inner", value="wps").values)
    return round(speeds[len(speeds) // 2]) if speeds else 0


def lines_of(path: Path, *, start: int = 0, most: int | None = None) -> list[str]:
    """The lines of a text file from byte `start` on, at most the last `most` bytes; empty if the file is missing."""
    if not path.is_file():
        return []
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(start, size - (size if most is None else most)))
        return file.read().decode(errors="replace").splitlines()


def last_lines(path: Path, number: int) -> list[str]:
    """The last lines of a text file, which may be large or missing."""
    return lines_of(path, most=number * _BYTES_OF_A_LINE)[-number:]


def last_exception(lines: Sequence[str]) -> str:
    """The message of the last exception in a log, as in `ValueError: ...`, on one line; empty if there is none."""
    for number in range(len(lines) - 1, -1, -1):
        if _EXCEPTION.match(lines[number]):
            more = [line.strip() for line in lines[number + 1 : number + 4] if line.strip()]
            return " ".join([lines[number], *more])
    return ""
