"""Prediction files -> the zip that a leaderboard takes; GLUE's and SuperGLUE's are in `glue` and `superglue`.

The zip holds one file for each task and diagnostic set. The server refuses a zip in which one is missing.
"""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roberta_plugin.files import atomic_write, files_below

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """What a leaderboard expects."""

    files: Mapping[str, int]
    """Names of the files, and how many predictions each must have."""
    count: Callable[[Path], int]
    """The number of predictions in a file; a ValueError names the line that is none."""


def write_submission(
    leaderboard: Leaderboard, output: Path, folders: Sequence[Path], *, allow_incomplete: bool = False
) -> list[str]:
    """Collect the files of predictions for all test sets, anywhere in `folders`, into a zip for a leaderboard.

    Returns:
        The names of the files in the zip.

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
        found, expected = leaderboard.count(path), leaderboard.files[name]
        if found == expected:
            continue
        fault = f"{path} has {found:,} predictions, and the test set has {expected:,} rows"
        if not allow_incomplete:
            raise ValueError(
                f"{fault}: predict the whole official test file, or write an incomplete zip with --allow-incomplete."
            )
        faults.append(fault)
    output.parent.mkdir(parents=True, exist_ok=True)
    _write_zip(output, files)
    if faults:
        logger.warning(f"{output} is incomplete, the leaderboard will refuse it: {'; '.join(faults)}")
    return list(files)


def _write_zip(output: Path, files: Mapping[str, Path]) -> None:
    """Write the files with one date, so that the same predictions make the same zip."""
    with atomic_write(output) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in files.items():
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
