"""Prediction files -> the zip of a leaderboard: gluebenchmark.com ("Submission") or super.gluebenchmark.com (FAQ).

The zip holds one file for each task and diagnostic set: eleven of GLUE, ten of SuperGLUE. The server refuses a zip in
which one is missing. The model of RTE predicts SuperGLUE's two diagnostic sets.
"""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from roberta_plugin.files import atomic_write, files_below
from roberta_plugin.finetuning.benchmarks.base import read_rows
from roberta_plugin.finetuning.benchmarks.glue import HEADER
from roberta_plugin.finetuning.benchmarks.glue import TASKS as GLUE_TASKS
from roberta_plugin.finetuning.benchmarks.superglue import TASKS as CHOICES
from roberta_plugin.finetuning.benchmarks.superglue import TASKS as SUPERGLUE_TASKS
from roberta_plugin.tables import with_unique_ids

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """What a leaderboard expects."""

    files: Mapping[str, int]
    """Names of the files, and how many predictions each must have."""
    count: Callable[[Path], int]
    """The number of predictions in a file; a ValueError names the line that is none."""


def _count_glue(path: Path) -> int:
    """Lines of `index<TAB>prediction` under a header; labels are spelt as in the training files."""
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


def _count_superglue(path: Path) -> int:
    """JSON Lines: one for each paragraph of MultiRC, for each query of ReCoRD, else for each row."""
    answer = "passage" if path.stem == "MultiRC" else "label"
    rows = ((row.where, (row.number("idx"), row.value(answer))) for row in read_rows(path))
    return sum(1 for _ in with_unique_ids(rows, id_of=itemgetter(0), remedy="predict the set again"))


def _files(tasks: Mapping[str, Any], rows: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """The names of the files, from the rows of the official test sets by split and task."""
    return {
        tasks[task].prediction_files(split)[0]: number
        for split, of_tasks in rows.items()
        for task, number in of_tasks.items()
    }


GLUE = Leaderboard(
    files=_files(
        GLUE_TASKS,
        {
            "test": {
                **{"CoLA": 1063, "SST-2": 1821, "MRPC": 1725, "STS-B": 1379, "QQP": 390965, "MNLI": 9796},
                **{"QNLI": 5463, "RTE": 3000, "WNLI": 146},
            },
            "test_mismatched": {"MNLI": 9847},
            "ax": {"MNLI": 1104},
        },
    ),
    count=_count_glue,
)
SUPERGLUE = Leaderboard(
    files=_files(
        {**SUPERGLUE_TASKS, **CHOICES},
        {
            "test": {
                **{"BoolQ": 3245, "CB": 250, "COPA": 500, "MultiRC": 166},
                **{"ReCoRD": 10000, "SuperRTE": 3000, "WiC": 1400, "WSC": 146},
            },
            "ax_b": {"SuperRTE": 1104},
            "ax_g": {"SuperRTE": 356},
        },
    ),
    count=_count_superglue,
)
LEADERBOARDS = {"glue": GLUE, "superglue": SUPERGLUE}


def write_submission(
    leaderboard: Leaderboard, output: Path, folders: Sequence[Path], *, allow_incomplete: bool = False
) -> list[str]:
    """Collect the files of predictions for all test sets, anywhere in `folders`, into a zip for a leaderboard.

    Returns the names of the files in the zip.

    Raises:
        FileNotFoundError: if a folder does not exist, or a file is missing and `allow_incomplete` is not set.
        ValueError: if a file is not a file of predictions, exists twice, or does not have one prediction for each row
            of the test set; `allow_incomplete` permits the last.
    """
    if output.is_dir():
        raise ValueError(f"{output} is a folder: give the path of the zip file to write.")
    files: dict[str, Path] = {}
    missing: list[str] = []
    for name in leaderboard.files:
        paths = files_below(folders, name)
        if len(paths) > 1:
            raise ValueError(
                f"{paths[0]} and {paths[1]} are both predictions for {Path(name).stem}: name folders that hold one of "
                "them only."
            )
        if paths:
            files[name] = paths[0]
        else:
            missing.append(name)
    if missing and (not allow_incomplete or not files):
        raise FileNotFoundError(
            f"Predictions are missing in {', '.join(map(str, folders))}: {', '.join(missing)}. The leaderboard refuses "
            "a zip without them: run `roberta evaluate` on the test split of these tasks, or write an incomplete zip "
            "with --allow-incomplete."
        )
    faults = [f"{name} is missing" for name in missing]
    for name, path in files.items():
        number, expected = leaderboard.count(path), leaderboard.files[name]
        if number == expected:
            continue
        fault = f"{path} has {number:,} predictions, and the test set has {expected:,} rows"
        if not allow_incomplete:
            raise ValueError(
                f"{fault}: predict the whole official test file, or write an incomplete zip with --allow-incomplete."
            )
        faults.append(fault)
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(output) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in files.items():  # with one date, so that the same predictions make the same zip
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    if faults:
        logger.warning(f"{output} is incomplete, the leaderboard will refuse it: {'; '.join(faults)}")
    return list(files)
