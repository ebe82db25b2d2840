"""Prediction files -> the zip that GLUE's leaderboard takes (gluebenchmark.com, "Submission").

A file is `index<TAB>prediction` with a header, one line for each row of the test file, with labels spelt as in the
training files. The zip holds one file for each task and test set, eleven in all. The server refuses a zip in which one
is missing.
"""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.glue.predictions import HEADER
from roberta_plugin.finetuning.glue.tasks import TASKS

logger = logging.getLogger(__name__)


def expected_files() -> dict[str, int]:
    """Names of the leaderboard's files, without .tsv, and how many predictions each must have."""
    return {
        source.submission: source.num_rows
        for glue_task in TASKS.values()
        for source in glue_task.sources
        if source.submission
    }


def write_submission(output: Path, folders: Sequence[Path], *, allow_incomplete: bool = False) -> list[str]:
    """Collect the files of predictions for all test sets, anywhere in `folders`, into a zip for the leaderboard.

    Returns:
        The names of the files in the zip.

    Raises:
        FileNotFoundError: if a file is missing, and `allow_incomplete` is not set.
        ValueError: if a file is not a file of predictions, exists twice, or does not have one prediction for each row
            of the test set; `allow_incomplete` permits the last.
    """
    files: dict[str, Path] = {}
    missing: list[str] = []
    for name in expected_files():
        paths = sorted({path for folder in folders for path in folder.rglob(f"{name}.tsv")})
        if len(paths) > 1:
            raise ValueError(
                f"{paths[0]} and {paths[1]} are both predictions for {name}: name folders that hold one of them only."
            )
        if paths:
            files[name] = paths[0]
        else:
            missing.append(f"{name}.tsv")
    if missing and (not allow_incomplete or not files):
        raise FileNotFoundError(
            f"Predictions are missing in {', '.join(map(str, folders))}: {', '.join(missing)}. The leaderboard refuses "
            "a zip without them: run `roberta evaluate` on the test split of these tasks, or write an incomplete zip "
            "with --allow-incomplete."
        )
    contents = {name: _checked(path, name, allow_incomplete=allow_incomplete) for name, path in files.items()}
    _write_zip(output, contents)
    if missing:
        logger.warning(f"{output} is incomplete, without {', '.join(missing)}: the leaderboard will refuse it")
    return [f"{name}.tsv" for name in contents]


def _write_zip(output: Path, contents: Mapping[str, bytes]) -> None:
    """Write the files with one date, so that the same predictions make the same zip."""
    with atomic_write(output) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.tsv"), content, zipfile.ZIP_DEFLATED)


def _checked(path: Path, name: str, *, allow_incomplete: bool) -> bytes:
    """The content of a file of predictions."""
    content = path.read_bytes()
    header, *lines = content.decode("utf-8").splitlines() or [""]
    if header != HEADER:
        raise ValueError(f"{path}, line 1: {header!r} is not the header {HEADER!r}. Write it with `roberta evaluate`.")
    expected = expected_files()[name]
    if len(lines) != expected and not allow_incomplete:
        raise ValueError(
            f"{path} has {len(lines):,} predictions, and the test set has {expected:,} rows: predict the whole "
            "official test file, or write an incomplete zip with --allow-incomplete."
        )
    return content
