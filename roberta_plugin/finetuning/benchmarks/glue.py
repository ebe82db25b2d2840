"""GLUE (Wang et al. 2019, arXiv 1804.07461) and XNLI: official TSV files, columns, labels, metrics, submission.

The files are not CSV: a quote is an ordinary character, only a newline ends a line, and a tab always separates columns.
Some files begin with a byte-order mark. CoLA's train and dev files have no header line, its test file has one.

Example: the line "0<TAB>No one came.<TAB>Someone came.<TAB>not_entailment" of RTE -> an `Example` with the id "0", the
texts ("No one came.", "Someone came.") and the label.

XNLI is MultiNLI in one language, with a test split for each language:

    multinli.train.en.tsv   premise  hypo  label, `contradictory` for contradiction (XNLI-MT 1.0)   train
    xnli.dev.tsv            language  gold_label  ...  sentence1  sentence2  ...  (XNLI 1.0)        valid, of --language
    xnli.test.tsv           the same                                                                test_ar ... test_zh

The checkpoint is chosen by the development set of the language that is trained on, so that the others are zero-shot
("cross-lingual transfer" of XLM-R, Conneau et al. 2020, section 5.2 and table 1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from roberta_plugin.data.white_space import strip
from roberta_plugin.finetuning.benchmarks.base import Benchmark, Entries, Numbers, all_files, by_split, find_files
from roberta_plugin.finetuning.benchmarks.pronouns import schema_examples
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds.base import Official
from roberta_plugin.finetuning.options import XNLI_LANGUAGES, XnliOptions
from roberta_plugin.tables import where, with_unique_ids

logger = logging.getLogger(__name__)

HEADER = "index\tprediction"
_FEW_BROKEN, _BROKEN_SHARE = 3, 0.01  # more broken rows than both: it is another file
_ID_COLUMNS = ("index", "id")
_BINARY, _ENTAILMENT = ("0", "1"), ("not_entailment", "entailment")
_PAIR = ("sentence1", "sentence2")


@dataclass(frozen=True, kw_only=True)
class SplitSource:
    """A split and the official file that it is made of."""

    split: str  # its name in the prepared folder: train, valid, ...
    files: tuple[str, ...]  # the first that exists is read; if a split has two sources, the first with a file counts
    header: tuple[str, ...] = ()  # names of the columns, for a file without a header line
    sentences: tuple[str, ...] = ()  # columns, if they differ from those of the task
    label: str = ""  # the same
    renamed_labels: Mapping[str, str] = field(default_factory=dict)  # as the file spells them -> as the task does
    only: Mapping[str, str] = field(default_factory=dict)  # column -> value: the file's other rows are of other splits
    submission: str = ""  # the leaderboard's name of the file of predictions, without .tsv; the labels are not public

    @property
    def is_labelled(self) -> bool:
        """Whether the labels are public."""
        return not self.submission


@dataclass(frozen=True, kw_only=True)
class GlueFiles:
    """What the official files of a task look like."""

    name: str
    """The task's."""
    folder: str = ""
    """In the official archive; empty: called like the task."""
    sentences: tuple[str, ...]
    """Columns of the one text or the two."""
    label: str = "label"
    """Column of the label."""
    labels: tuple[str, ...] = _BINARY
    """In the order of their ids, as the files spell them; empty: the label is a number."""
    limits: tuple[float, float] = (0.0, 0.0)
    """Smallest and largest number."""
    splits: tuple[SplitSource, ...] = ()
    """The splits, where they are not train.tsv, dev.tsv and test.tsv."""
    leaves_out_broken_rows: bool = False
    """The official file has broken rows."""

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
        """What a file is."""
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


def read_rows(files: GlueFiles, source: SplitSource, path: Path) -> list[Example]:
    """Read a file.

    Broken rows of QQP's train and dev files are left out, with a warning: the official files have about twenty, whose
    questions contain line ends or are empty.
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
            f"{path}: {num_broken:,} rows are broken, cut off or with an empty question, such as line {broken_line}, "
            f"and {len(rows):,} are not; the official file has about twenty broken ones. Fetch it again."
        )
    if not rows:
        only = "".join(f" with {name} {value}" for name, value in source.only.items())
        raise ValueError(f"{path} has no rows{only}: the file is empty, cut off or of other rows. Fetch it again.")
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

    def __init__(self, files: GlueFiles, source: SplitSource, path: Path, header: tuple[str, ...]) -> None:
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
        """Whether a line is of the split; a broken one is, to be told."""
        is_whole = len(values) == self.num_columns
        return not is_whole or all(values[column] == value for column, value in self.only)

    def row(self, values: list[str], *, line: int, index: int) -> Example:
        """The row of one line, the `index`-th of the file."""
        place = where(self.path, line)
        if len(values) != self.num_columns:
            raise _BrokenRowError(
                f"{place}: {len(values)} columns where there should be {self.num_columns}. Either the line is cut off, "
                "or a text holds a tab or a line end; correct or remove the line."
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


def task(
    files: GlueFiles,
    /,
    *,
    kind: str = "classification",
    read: Callable[[str, list[Path], Any], list[Example]] | None = None,
    **row: Any,
) -> Benchmark:
    """A row whose files are like those of GLUE; `read` is in place of `GlueFiles.read`, `row` are fields of the row."""

    def settings(*, max_length: int, options: Any) -> dict[str, Any]:
        recorded: dict[str, Any] = {"kind": kind, "labels": list(files.labels), "max_length": max_length}
        if kind == "regression":  # learned as 0 to 1, as fairseq's preprocess_GLUE_tasks.sh writes STS-B's scores
            recorded |= {"mean": files.limits[0], "deviation": files.limits[1] - files.limits[0]}
        return recorded

    def examples(split: str, paths: list[Path], options: Any) -> Sequence[Any]:
        rows = (read or files.read)(split, paths, options)
        logger.info(f"{files.name}, {split}: {len(rows):,} rows")
        if kind == "pair_ranking":
            return [row._replace(question=row.texts[0]) for row in rows]
        if kind != "phrase_ranking":
            return rows
        schemas = schema_examples(rows, is_training=split == "train")
        if split == "train":
            logger.info(f"{files.name}, {split}: {len(schemas):,} of {len(rows):,} rows are learned from")
        return schemas

    limits = files.limits if kind == "regression" else None
    fields: dict[str, Any] = {
        "files": files.find,
        "settings": settings,
        "records": by_split(examples),
        "rules": Official(columns=files.sentences, is_pair=len(files.sentences) == 2, limits=limits),
        "metrics": ("accuracy",),
        "predictions": files.predictions,
    }
    return Benchmark(name=files.name, kind=kind, **{**fields, **row})


def _paper(
    metric: str, *, large: float | None = None, base: float | None = None, test: float | None = None, on_test: str = ""
) -> Numbers:
    """Table 5 (large on dev, ensembles on test) and Table 8 (base on dev), which give one number per task.

    `on_test` is the metric of the test set, if it is another.
    """
    valid = {"RoBERTa large": large, "RoBERTa base": base}
    return {
        "valid": {row: {metric: number} for row, number in valid.items() if number is not None},
        "test": {} if test is None else {"RoBERTa large, test, ensemble": {on_test or metric: test}},
    }


_COLA_COLUMNS = ("source", "label", "mark", "sentence")
FILES = {
    files.name: files
    for files in (
        GlueFiles(
            name="CoLA",
            sentences=("sentence",),
            splits=(
                SplitSource(split="train", files=("train.tsv",), header=_COLA_COLUMNS),
                SplitSource(split="valid", files=("dev.tsv",), header=_COLA_COLUMNS),
                SplitSource(split="test", files=("test.tsv",), submission="CoLA"),
            ),
        ),
        GlueFiles(name="SST-2", sentences=("sentence",)),
        GlueFiles(name="MRPC", sentences=("#1 String", "#2 String"), label="Quality"),
        GlueFiles(name="STS-B", sentences=_PAIR, label="score", labels=(), limits=(0.0, 5.0)),
        GlueFiles(name="QQP", sentences=("question1", "question2"), label="is_duplicate", leaves_out_broken_rows=True),
        GlueFiles(
            name="MNLI",
            sentences=_PAIR,
            label="gold_label",
            # In the order of the heads that fairseq has released (roberta.large.mnli).
            labels=("contradiction", "neutral", "entailment"),
            splits=(
                SplitSource(split="train", files=("train.tsv",)),
                SplitSource(split="valid", files=("dev_matched.tsv",)),
                # Not valid1: fairseq-train refuses a folder with such a split unless it validates on it.
                SplitSource(split="valid_mismatched", files=("dev_mismatched.tsv",)),
                SplitSource(split="test", files=("test_matched.tsv",), submission="MNLI-m"),
                SplitSource(split="test_mismatched", files=("test_mismatched.tsv",), submission="MNLI-mm"),
                SplitSource(
                    split="ax", files=("diagnostic-full.tsv",), sentences=("Premise", "Hypothesis"), label="Label"
                ),
                SplitSource(  # the diagnostic set, as it is for the leaderboard
                    split="ax",
                    files=("diagnostic.tsv", "AX.tsv", "../diagnostic/diagnostic.tsv", "../AX/AX.tsv"),
                    submission="AX",
                ),
            ),
        ),
        GlueFiles(name="QNLI", folder="QNLI", sentences=("question", "sentence"), labels=_ENTAILMENT),
        GlueFiles(name="RTE", sentences=_PAIR, labels=_ENTAILMENT),
        GlueFiles(name="WNLI", sentences=_PAIR),
    )
}

_TWO: dict[str, Any] = {
    "metrics": ("acc_and_f1", "accuracy", "f1"),
    "selection": "acc_and_f1",
    "official": "accuracy",
}
_ROWS = (
    task(
        FILES["CoLA"],
        on_hub=("nyu-mll/glue", "cola"),
        metrics=("mcc", "accuracy"),
        selection="mcc",
        paper=_paper("mcc", large=68.0, base=63.6, test=67.8),
    ),
    task(FILES["SST-2"], on_hub=("nyu-mll/glue", "sst2"), paper=_paper("accuracy", large=96.4, base=94.8, test=96.7)),
    task(
        FILES["MRPC"],
        on_hub=("nyu-mll/glue", "mrpc"),
        **_TWO,
        paper=_paper("accuracy", large=90.9, base=90.2, test=92.3, on_test="f1"),
        starts_from="MNLI",
    ),
    task(
        FILES["STS-B"],
        on_hub=("nyu-mll/glue", "stsb"),
        kind="regression",
        metrics=("pearson_spearman", "pearson", "spearman"),
        official="pearson",
        paper=_paper("pearson", large=92.4, base=91.2, test=92.2),
        starts_from="MNLI",
    ),
    task(
        FILES["QQP"], **_TWO, on_hub=("nyu-mll/glue", "qqp"), paper=_paper("accuracy", large=92.2, base=91.9, test=90.2)
    ),
    task(
        FILES["MNLI"],
        on_hub=("nyu-mll/glue", "mnli"),
        metrics_of={"ax": ("mcc", "accuracy")},  # for three classes R_3
        paper={
            **_paper("accuracy", large=90.2, base=87.6, test=90.8),
            "valid_mismatched": _paper("accuracy", large=90.2)["valid"],  # in Table 5 alone
            "test_mismatched": _paper("accuracy", test=90.2)["test"],
        },
    ),
    task(FILES["QNLI"], on_hub=("nyu-mll/glue", "qnli"), paper=_paper("accuracy", large=94.7, base=92.8)),
    task(
        replace(FILES["QNLI"], name="QNLI-ranking"),
        kind="pair_ranking",
        on_hub=("nyu-mll/glue", "qnli"),
        paper=_paper("accuracy", test=98.9),
    ),
    task(
        FILES["RTE"],
        on_hub=("nyu-mll/glue", "rte"),
        paper=_paper("accuracy", large=86.6, base=78.7, test=88.2),
        starts_from="MNLI",
    ),
    task(
        FILES["WNLI"],
        kind="phrase_ranking",
        on_hub=("nyu-mll/glue", "wnli"),
        paper=_paper("accuracy", large=91.3, test=89.0),
    ),
)
TASKS = {row.name: row for row in _ROWS}


# XLM-R large, trained in English only, on the test sets (Conneau et al. 2020, table 1).
XLMR = dict(
    zip(
        ("en", "fr", "es", "de", "el", "bg", "ru", "tr", "ar", "vi", "th", "zh", "hi", "sw", "ur"),
        (89.1, 84.1, 85.1, 83.9, 82.9, 84.0, 81.2, 79.6, 79.8, 80.8, 78.1, 80.2, 76.9, 73.9, 73.8),
        strict=True,
    )
)
_XNLI = GlueFiles(
    name="XNLI",
    sentences=("sentence1", "sentence2"),
    label="gold_label",
    labels=("contradiction", "neutral", "entailment"),
    splits=(
        SplitSource(
            split="train",
            files=("multinli.train.en.tsv",),
            sentences=("premise", "hypo"),
            label="label",
            renamed_labels={"contradictory": "contradiction"},
        ),
        SplitSource(split="valid", files=("xnli.dev.tsv",)),
        SplitSource(split="test", files=("xnli.test.tsv",)),
    ),
)


def xnli_files(raw: Path, options: XnliOptions) -> dict[str, list[Path]]:
    """`Benchmark.files`; `raw` holds the files themselves or the folders of the two official archives."""
    training = f"multinli.train.{options.language or 'en'}.tsv"
    names = {
        "train": [f"{folder}{training}" for folder in ("", "XNLI-MT-1.0/multinli/", "multinli/")],
        "valid": ["xnli.dev.tsv", "XNLI-1.0/xnli.dev.tsv"],
        "test": ["xnli.test.tsv", "XNLI-1.0/xnli.test.tsv"],
    }
    paths = find_files("XNLI", raw, names)
    tests = {f"test_{language}": [paths["test"]] for language in XNLI_LANGUAGES} if "test" in paths else {}
    return {"train": [paths["train"]], "valid": [paths["valid"]], **tests}


def xnli_examples(split: str, paths: list[Path], options: XnliOptions) -> list[Example]:
    """The examples of a split."""
    (path,) = paths
    language = split.removeprefix("test_") if split.startswith("test_") else options.language or "en"
    (source,) = (source for source in _XNLI.sources if source.split == split.partition("_")[0])
    return read_rows(_XNLI, replace(source, only={} if split == "train" else {"language": language}), path)


_XNLI_ROW = task(
    _XNLI,
    read=xnli_examples,
    files=xnli_files,
    on_hub=("facebook/xnli", None),
    source_files=lambda files: list(dict.fromkeys(all_files(files))),  # one file has the tests of all languages
    paper={f"test_{language}": {"XLM-R large": {"accuracy": number}} for language, number in XLMR.items()},
)


def xnli_settings(*, options: XnliOptions, **more: Any) -> dict[str, Any]:
    """`Benchmark.settings`."""
    return {**_XNLI_ROW.settings(options=options, **more), "language": options.language or "en"}


TASKS["XNLI"] = replace(_XNLI_ROW, settings=xnli_settings)
