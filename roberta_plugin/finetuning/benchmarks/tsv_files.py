"""Tasks whose official files are TSV: columns, labels, splits, and the prediction files of their leaderboard.

The files are not CSV: a quote is an ordinary character, only a newline ends a line, and a tab always separates columns.
Some files begin with a byte-order mark, and some have no header line.

Example: the line "0<TAB>No one came.<TAB>Someone came.<TAB>not_entailment" of RTE -> an `Example` with the id "0", the
texts ("No one came.", "Someone came.") and the label.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from roberta_plugin.data.white_space import strip
from roberta_plugin.finetuning.benchmarks.base import Benchmark, Entries, Numbers, by_split, find_files
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds.answering import Official
from roberta_plugin.tables import where, with_unique_ids

logger = logging.getLogger(__name__)

HEADER = "index\tprediction"
_FEW_BROKEN, _BROKEN_SHARE = 3, 0.01  # with more broken rows than both, it is another file
_ID_COLUMNS = ("index", "id")
BINARY, ENTAILMENT = ("0", "1"), ("not_entailment", "entailment")
PAIR = ("sentence1", "sentence2")


@dataclass(frozen=True, kw_only=True)
class SplitSource:
    """A split and its official file."""

    split: str  # its name in the prepared folder: train, valid, ...
    files: tuple[str, ...]  # the first that exists is read; if a split has two sources, the first with a file counts
    header: tuple[str, ...] = ()  # names of the columns, for a file without a header line
    sentences: tuple[str, ...] = ()  # columns of the texts, if they differ from those of the task
    label: str = ""  # column of the label, if it differs from that of the task
    renamed_labels: Mapping[str, str] = field(default_factory=dict)  # spelling in the file -> spelling of the task
    only: Mapping[str, str] = field(default_factory=dict)  # column -> value of this split's rows in a shared file
    submission: str = ""  # if the labels are not public: the leaderboard's name of the predictions, without .tsv

    @property
    def is_labelled(self) -> bool:
        """True if the labels are public."""
        return not self.submission


@dataclass(frozen=True, kw_only=True)
class TsvFiles:
    """The layout of the official files of a task."""

    name: str
    """Name of the task."""
    folder: str = ""
    """Name of the folder in the official archive; empty: the name of the task."""
    sentences: tuple[str, ...]
    """The column of the text, or the columns of the two texts."""
    label: str = "label"
    """Column of the label."""
    labels: tuple[str, ...] = BINARY
    """The labels in the order of their ids, as the files spell them; empty: the label is a number."""
    limits: tuple[float, float] = (0.0, 0.0)
    """Smallest and largest number."""
    splits: tuple[SplitSource, ...] = ()
    """The splits, if they are not train.tsv, dev.tsv and test.tsv."""
    leaves_out_broken_rows: bool = False
    """True if the official file has broken rows."""

    @property
    def sources(self) -> tuple[SplitSource, ...]:
        """The splits and their files."""
        return self.splits or (
            SplitSource(split="train", files=("train.tsv",)),
            SplitSource(split="valid", files=("dev.tsv",)),
            SplitSource(split="test", files=("test.tsv",), submission=self.folder or self.name),
        )

    def find(self, raw: Path, options: Any) -> dict[str, list[Path]]:
        """`Benchmark.files`; `raw` is the folder of the task's files, or the one that holds it."""
        names: dict[str, list[str]] = {}
        for source in self.sources:
            names.setdefault(source.split, []).extend(source.files)
        return {split: [path] for split, path in find_files(self.folder or self.name, raw, names).items()}

    def source(self, split: str, path: Path) -> SplitSource:
        """The source with this split and file."""
        of_split = (source for source in self.sources if source.split == split)
        return next(source for source in of_split if path.name in {Path(file).name for file in source.files})

    def read(self, split: str, paths: list[Path], options: Any) -> list[Example]:
        """The examples of a split."""
        (path,) = paths
        return read_rows(self, self.source(split, path), path)

    def predictions(self, split: str, entries: Entries) -> dict[str, Iterable[str]]:
        """`Benchmark.predictions`: the leaderboard's name, or TASK.SPLIT.tsv where it has none."""
        names = (source.submission for source in self.sources if source.split == split and source.submission)
        name = next(names, f"{self.name}.{split}")
        form = "{}" if self.labels else "{:.3f}"
        rows = (f"{entry['id']}\t{form.format(entry['prediction'])}" for entry in entries())
        return {f"{name}.tsv": chain([HEADER], rows)}


class _BrokenRowError(ValueError):
    """A row that cannot be used in a file that is otherwise valid."""


def read_rows(files: TsvFiles, source: SplitSource, path: Path) -> list[Example]:
    """Read a file.

    Broken rows of QQP's train and dev files are left out, with a warning: the official files have about twenty rows
    whose questions contain line ends or are empty.
    """
    lines = list(_lines_of(path))
    header = source.header or tuple(lines[0][1].split("\t") if lines else ())
    columns = _Columns(files, source, path, header)
    rows: list[Example] = []
    num_broken = broken_line = 0
    for number, line in lines[0 if source.header else 1 :]:
        try:
            values = line.split("\t")
            if not columns.is_wanted(values):
                continue
            row = columns.row(values, line=number, index=len(rows))
        except _BrokenRowError:
            if not (files.leaves_out_broken_rows and source.is_labelled):
                raise
            num_broken, broken_line = num_broken + 1, number
            continue
        rows.append(row)
    if num_broken > max(_FEW_BROKEN, _BROKEN_SHARE * len(rows)):
        raise ValueError(
            f"{path}: {num_broken:,} rows are broken (cut off, or with an empty question), such as line {broken_line}, "
            f"and {len(rows):,} are not. The official file has about twenty broken rows. Fetch it again."
        )
    if not rows:
        only = "".join(f" with {name} {value}" for name, value in source.only.items())
        raise ValueError(f"{path} has no rows{only}: the file is empty, cut off or another one. Fetch it again.")
    if num_broken:
        logger.warning(f"{path}: {num_broken} broken rows are left out, {len(rows):,} rows are kept")
    return list(with_unique_ids(((row.where, row) for row in rows), id_of=lambda row: row.id))


def _lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line; blank lines at the end of the file do not count."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes().count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: the bytes are not UTF-8. Save the file as UTF-8.") from error
    lines = text.rstrip("\r\n").split("\n") if text.strip() else []
    for number, content in enumerate(lines, start=1):
        yield number, content.removesuffix("\r")


class _Columns:
    """The indices of a file's columns, and how to read a row."""

    def __init__(self, files: TsvFiles, source: SplitSource, path: Path, header: tuple[str, ...]) -> None:
        self.files, self.source, self.path, self.num_columns = files, source, path, len(header)
        label = (source.label or files.label,) if source.is_labelled else ()
        sentences = source.sentences or files.sentences
        missing = [name for name in (*sentences, *label, *source.only) if name not in header]
        if missing:
            raise ValueError(
                f"{path}, line 1: there is no column {', '.join(map(repr, missing))}; found "
                f"{', '.join(map(repr, header)) or 'nothing'}. {files.name} needs the official file "
                "with its header."
            )
        self.sentences = [header.index(name) for name in sentences]
        self.label = header.index(label[0]) if label else None
        self.only = [(header.index(name), value) for name, value in source.only.items()]
        self.id = next((header.index(name) for name in _ID_COLUMNS if name in header), None)

    def is_wanted(self, values: list[str]) -> bool:
        """True for lines of this split, and for broken lines, so that they are reported."""
        is_whole = len(values) == self.num_columns
        return not is_whole or all(values[column] == value for column, value in self.only)

    def row(self, values: list[str], *, line: int, index: int) -> Example:
        """The row of one line, the `index`-th of the file."""
        place = where(self.path, line)
        if len(values) != self.num_columns:
            raise _BrokenRowError(
                f"{place}: {len(values)} columns instead of {self.num_columns}. Either the line is cut off, or a text "
                "contains a tab or a line end; correct or remove the line."
            )
        sentences = tuple(strip(values[column]) for column in self.sentences)
        if not all(sentences) and not (self.files.leaves_out_broken_rows and not self.source.is_labelled):
            raise _BrokenRowError(f"{place}: a sentence is empty. Correct or remove the line.")
        row_id = str(index) if self.id is None else values[self.id]
        label = None if self.label is None else self._label(values[self.label].strip(), place)
        return Example(self.path, line, row_id, sentences, label)

    def _label(self, text: str, place: str) -> str | float:
        text = self.source.renamed_labels.get(text, text)
        if self.files.labels:
            if text in self.files.labels:
                return text
            raise ValueError(
                f"{place}: the label {text!r} is none of {', '.join(self.files.labels)}, the labels of "
                f"{self.files.name}. Correct or remove the line."
            )
        low, high = self.files.limits
        try:
            if low <= float(text) <= high:
                return float(text)
        except ValueError:
            pass
        raise ValueError(
            f"{place}: the {self.files.label} {text!r} is not a number from {low:g} to {high:g}. "
            "Correct or remove the line."
        )


def tsv_task(
    files: TsvFiles,
    /,
    *,
    kind: str,
    read: Callable[[str, list[Path], Any], list[Example]] | None = None,
    examples_of: Callable[[str, list[Example]], Sequence[Any]] | None = None,
    **row: Any,
) -> Benchmark:
    """A row of the table of benchmarks.

    Args:
        files: the official files of the task.
        kind: the kind of the task.
        read: replaces `TsvFiles.read`.
        examples_of: a split's name and rows -> the examples of the kind; None: the rows.
        row: further fields.
    """
    limits = None if files.labels else files.limits

    def settings(*, max_length: int, options: Any) -> dict[str, Any]:
        recorded: dict[str, Any] = {"kind": kind, "labels": list(files.labels), "max_length": max_length}
        if limits is not None:  # learned as 0 to 1, as fairseq's preprocess_GLUE_tasks.sh writes STS-B's scores
            recorded |= {"mean": limits[0], "deviation": limits[1] - limits[0]}
        return recorded

    def examples(split: str, paths: list[Path], options: Any) -> Sequence[Any]:
        rows = (read or files.read)(split, paths, options)
        logger.info(f"{files.name}, {split}: {len(rows):,} rows")
        made = rows if examples_of is None else examples_of(split, rows)
        if split == "train" and len(made) != len(rows):
            logger.info(f"{files.name}, {split}: {len(made):,} of {len(rows):,} rows are learned from")
        return made

    fields: dict[str, Any] = {
        "files": files.find,
        "settings": settings,
        "records": by_split(examples),
        "rules": Official(columns=files.sentences, is_pair=len(files.sentences) == 2, limits=limits),
        "metrics": ("accuracy",),
        "predictions": files.predictions,
        "header": HEADER,
    }
    return Benchmark(name=files.name, kind=kind, **{**fields, **row})


def paper_numbers(
    metric: str, *, large: float | None = None, base: float | None = None, test: float | None = None, on_test: str = ""
) -> Numbers:
    """The numbers of Table 5 (large on dev, ensembles on test) and Table 8 (base on dev), one per task.

    `on_test` is the metric of the test set, if it is not `metric`.
    """
    valid = {"RoBERTa large": large, "RoBERTa base": base}
    return {
        "valid": {row: {metric: number} for row, number in valid.items() if number is not None},
        "test": {} if test is None else {"RoBERTa large, test, ensemble": {on_test or metric: test}},
    }
