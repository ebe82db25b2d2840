"""Prediction files -> the zip of a leaderboard: gluebenchmark.com ("Submission") or super.gluebenchmark.com (FAQ).

The zip has one file for each task and diagnostic set: eleven for GLUE, ten for SuperGLUE. The server refuses a zip if
one is missing. SuperGLUE's two diagnostic sets are predicted by the model of RTE.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roberta_plugin.files import atomic_write, files_below
from roberta_plugin.registry import BENCHMARKS


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """The format of a leaderboard's submissions."""

    files: Mapping[str, int]
    """Name of each file -> the number of its predictions, one per line."""
    header: str = ""
    """The first line of each file."""


def find_leaderboard(name: str) -> Leaderboard:
    """The format of a leaderboard, from all registered tasks that have it (`Benchmark.leaderboard`)."""
    families = [family for family, entry in BENCHMARKS.items() if name in entry.leaderboards]
    rows = [row for family in families for row in BENCHMARKS.load(family, "rows").values() if row.leaderboard == name]
    files = {row.prediction_files(split)[0]: number for row in rows for split, number in row.test_rows.items()}
    return Leaderboard(files=files, header=rows[0].header)


def write_submission(leaderboard: Leaderboard, output: Path, folders: Sequence[Path]) -> list[str]:
    """Collect the files of predictions for all test sets, anywhere in `folders`, into a zip for a leaderboard.

    Returns the names of the files in the zip.

    Raises:
        FileNotFoundError: if a folder does not exist, or a file is missing.
        ValueError: if a file exists twice, or does not have one prediction for each row of the test set.
    """
    if output.is_dir():
        raise ValueError(f"{output} is a folder: give the path of the zip file to write.")
    found = {name: files_below(folders, name) for name in leaderboard.files}
    if missing := [name for name, paths in found.items() if not paths]:
        raise FileNotFoundError(
            f"Predictions are missing in {', '.join(map(str, folders))}: {', '.join(missing)}. The leaderboard refuses "
            "a zip without them: run `roberta evaluate` on the test split of these tasks."
        )
    for name, paths in found.items():
        if len(paths) > 1:
            raise ValueError(
                f"{paths[0]} and {paths[1]} are both predictions for {Path(name).stem}: name folders with only one of "
                "them."
            )
        _check(paths[0], leaderboard.header, leaderboard.files[name])
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(output) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (path,) in found.items():  # with one date, so that the same predictions make the same zip
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return list(found)


def _check(path: Path, header: str, expected: int) -> None:
    """Refuse a file without the header, or with another number of predictions than the test set has rows."""
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    if header and lines[:1] != [header]:
        raise ValueError(f"{path}, line 1: the header {header!r} is missing. Write the file with `roberta evaluate`.")
    number = len(lines) - bool(header) if lines != [""] else 0
    if number != expected:
        raise ValueError(
            f"{path} has {number:,} predictions, but the test set has {expected:,} rows: predict the whole official "
            "test file."
        )
