"""Prediction files -> the zip that SuperGLUE's leaderboard takes (super.gluebenchmark.com, FAQ).

A file is JSON Lines, named by its task: eight tasks, and the two diagnostic sets, which the model of
RTE predicts. MultiRC's has a line for each paragraph, ReCoRD's for each query, the others for each row.
"""

from __future__ import annotations

from pathlib import Path

from roberta_plugin.finetuning.raw_files import read_rows
from roberta_plugin.finetuning.submission import Leaderboard
from roberta_plugin.finetuning.superglue.choices.tasks import TASKS as CHOICES
from roberta_plugin.finetuning.superglue.tasks import TASKS

_TASKS = {**TASKS, **CHOICES}
_ROWS = {  # of the official test sets, by task and split
    **{(task, "test"): rows for task, rows in {"BoolQ": 3245, "CB": 250, "COPA": 500, "MultiRC": 166}.items()},
    **{(task, "test"): rows for task, rows in {"ReCoRD": 10000, "SuperRTE": 3000, "WiC": 1400, "WSC": 146}.items()},
    ("SuperRTE", "ax_b"): 1104,
    ("SuperRTE", "ax_g"): 356,
}


def _count(path: Path) -> int:
    seen: dict[int, str] = {}
    for row in read_rows(path):
        number = row.number("idx")
        if number in seen:
            raise ValueError(f"{row.where}: the idx {number} occurs in {seen[number]} already. Predict the set again.")
        seen[number] = row.where
        row.value("passage" if path.stem == "MultiRC" else "label")
    return len(seen)


LEADERBOARD = Leaderboard(
    files={_TASKS[task].prediction_files(split)[0]: rows for (task, split), rows in _ROWS.items()}, count=_count
)
