"""Prediction files, and the zip that GLUE's leaderboard takes (gluebenchmark.com, "Submission").

A file is `index<TAB>prediction` with a header, one line a row of the test file, labels spelt as in the training files.
The zip holds one file for each task and test set, eleven in all; where the archive has tasks without a file, the server
refuses it.
"""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from roberta_plugin.data.atomic_files import atomic_write
from roberta_plugin.finetuning.glue.metrics import as_written
from roberta_plugin.finetuning.glue.tables import TABLES, Table

logger = logging.getLogger(__name__)

_HEADER = "index\tprediction"


def expected_files() -> dict[str, int]:
    """Names of the leaderboard's files, without .tsv, and how many predictions each must have."""
    return {
        source.submission: source.num_rows for table in TABLES.values() for source in table.sources if source.submission
    }


def file_name(table: Table, split: str) -> str:
    """Name of the file of predictions for a split: the leaderboard's, or TASK.SPLIT.tsv where it has none."""
    source = table.submission(split)
    return f"{source.submission}.tsv" if source else f"{table.name}.{split}.tsv"


def write_predictions(path: Path, table: Table, ids: Iterable[str], predictions: NDArray[Any]) -> None:
    """Write the predictions for one split: ids of labels, or numbers (`metrics.as_written`)."""
    if table.labels:
        words = [table.labels[int(prediction)] for prediction in predictions]
    else:
        words = [f"{prediction:.3f}" for prediction in as_written(predictions, table.limits)]
    with atomic_write(path, "w") as file:
        file.write(f"{_HEADER}\n")
        file.writelines(f"{row_id}\t{word}\n" for row_id, word in zip(ids, words, strict=True))


def write_submission(output: Path, folders: Sequence[Path], *, allow_incomplete: bool = False) -> list[str]:
    """Collect the files of predictions for all test sets, anywhere in `folders`, into a zip for the leaderboard.

    Returns:
        The names of the files in the zip.

    Raises:
        FileNotFoundError: if a file is missing, and `allow_incomplete` is not set.
        ValueError: if a file is no file of predictions, has another number of them than the test set has rows, which
            `allow_incomplete` permits, or is there twice.
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
            "a zip without them: run `roberta evaluate` on the test split of these tasks, or ask for an incomplete zip."
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
    if header != _HEADER:
        raise ValueError(f"{path}, line 1: {header!r} is not the header {_HEADER!r}. Write it with `roberta evaluate`.")
    expected = expected_files()[name]
    if len(lines) != expected and not allow_incomplete:
        raise ValueError(
            f"{path} has {len(lines):,} predictions, and the test set has {expected:,} rows: predict the whole "
            "official test file, or ask for an incomplete zip."
        )
    return content
