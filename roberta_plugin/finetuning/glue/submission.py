"""Prediction files -> the zip that GLUE's leaderboard takes (gluebenchmark.com, "Submission").

A file is `index<TAB>prediction` with a header, one line for each row of the test file, with labels spelt as in the
training files. There is one file for each task and test set, eleven in all.
"""

from __future__ import annotations

from pathlib import Path

from roberta_plugin.finetuning.glue.tasks import HEADER, TASKS
from roberta_plugin.finetuning.submission import Leaderboard


def _count(path: Path) -> int:
    header, *lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    if header != HEADER:
        raise ValueError(f"{path}, line 1: {header!r} is not the header {HEADER!r}. Write it with `roberta evaluate`.")
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=2):
        where, columns = f"{path}, line {number}", line.split("\t")
        if len(columns) != 2 or not all(column.strip() for column in columns):
            raise ValueError(f"{where}: {line[:80]!r} is not an index and a prediction. Predict the set again.")
        if columns[0] in seen:
            raise ValueError(
                f"{where}: the index {columns[0]} occurs in line {seen[columns[0]]} already. Predict the set again."
            )
        seen[columns[0]] = number
    return len(lines)


LEADERBOARD = Leaderboard(
    files={
        f"{source.submission}.tsv": source.num_rows
        for glue_task in TASKS.values()
        for source in glue_task.sources
        if source.submission
    },
    count=_count,
)
