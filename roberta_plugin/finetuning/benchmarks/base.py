"""A benchmark is a row: official files -> examples of a kind, the paper's settings and numbers, prediction files.

    files         raw folder                   -> the files of each split
    settings      options                      -> settings of the prepared folder
    records       files                        -> the examples of each split, in the form of the kind
    predictions   entries about the examples   -> prediction files

The kind (`kinds`) writes the examples and scores a model's outputs. This file has the parts that all rows share: how
official files are found and read, `prepare`, `recipe` and `score`. The rows are in the modules of the families.

Shapes: N examples of a split.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.benchmarks import brought_by
from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.finetuning.kinds.answering import Official
from roberta_plugin.finetuning.kinds.base import Kind
from roberta_plugin.finetuning.kinds.outputs import Outcome, RawOutputs
from roberta_plugin.finetuning.kinds.score_names import find_score
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit, PreparedWriter, check_is_free
from roberta_plugin.json_files import json_text
from roberta_plugin.tables import Row, files_of, find_table, read_table

LABELLED = ("train", "valid")
"""Splits that every task needs, and whose labels are public."""
MOST_NAMES = 8  # RACE has a file for each passage


def describe_files(files: Sequence[Path]) -> dict[str, Any]:
    """A prepared folder's record of its source, without the folder of the files.

    It has their number and bytes, one SHA-256 over their contents, and the names of the first ones.
    """
    digest = hashlib.sha256()
    num_bytes = 0
    files = [file for path in files for file in files_of(path)]
    for path in files:
        content = path.read_bytes()
        num_bytes += len(content)
        digest.update(hashlib.sha256(content).digest())
    names = [path.name for path in files[:MOST_NAMES]]
    return {"files": len(files), "bytes": num_bytes, "sha256": digest.hexdigest(), "names": names}


def read_text(path: Path) -> str:
    """The content of a file, without the byte order mark that some editors write.

    Raises:
        ValueError: naming the file and the byte, if it is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: byte 0x{error.object[error.start]:02x} at {error.start} is not UTF-8. Save the file as UTF-8."
        ) from None


def find_files(task: str, raw: Path, files: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """The file of each split in `raw`, or in its subfolder with the name of the task.

    `files` has the possible names for each split; the first one that exists is taken.
    """
    folder = raw / task if (raw / task).is_dir() else raw
    paths = {}
    for split, names in files.items():
        path = next((folder / name for name in names if (folder / name).is_file()), None)
        if path is not None:
            paths[split] = path
        elif split in LABELLED:
            raise FileNotFoundError(
                f"{folder} has no {' or '.join(names)}: {task} needs the unchanged official files. Give the folder "
                f"that has them, or the one that has {task}/."
            )
    return paths


def named_files(raw: Path, options: Any) -> dict[str, list[Path]]:
    """The files that --train, --valid and --test name, relative to `raw` or by URL."""
    return {split: [find_table(raw, name, option=f"--{split}")] for split, name in options.files.items()}


def known_files(
    files: Mapping[str, list[Path]],
    task: str,
    raw: Path,
    *,
    wanted: str,
    remedy: str = "Name the folder that has them.",
) -> dict[str, list[Path]]:
    """The splits that have files; `wanted` says in the message which files were looked for.

    Raises:
        FileNotFoundError: if there is none.
    """
    if not any(files.values()):
        raise FileNotFoundError(f"{raw} has no data for {task}: looked for {wanted}. {remedy}")
    return {split: paths for split, paths in files.items() if paths}


def read_rows(*paths: Path) -> Iterator[Row]:
    """The rows of official files, one file after the other."""
    for path in paths:
        row = None
        for row in read_table(path):
            yield row
        if row is None:
            raise ValueError(f"{path} is empty. Fetch it again.")


MAX_LENGTH = 512  # tokens of a sequence (Table 10)
SMALLEST_LENGTH = 6  # <s> and three </s> around a token of each of two texts

# Adam's betas and epsilon and the gradient clipping are those of pretraining (Table 9): the paper gives no others.
COMMON: Mapping[str, str] = {
    "optimizer": "roberta_adamw",
    "adam-betas": "(0.9, 0.98)",
    "adam-eps": "1e-6",
    "clip-norm": "0.0",
    "lr-scheduler": "polynomial_decay",
    "dropout": "0.1",
    "attention-dropout": "0.1",
    "required-batch-size-multiple": "1",
}
Numbers = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Split -> row of the paper -> metric -> number."""


@dataclass(frozen=True, kw_only=True)
class PaperRecipe:
    """The paper's training of a task, in the form of a grid file: values are strings."""

    train: Mapping[str, Any]
    """Options of fairseq-train that all runs share, without data, model and checkpoint."""
    axes: Mapping[str, Mapping[str, Mapping[str, str]]]
    """Axes of the grid: label -> options."""
    seeds: Sequence[str]
    """The seeds; each cell has one run per seed."""
    metric: Mapping[str, Any]
    """The metric that selects the checkpoint and the cell."""
    official: str = ""
    """The metric of `Benchmark.score` that models are compared by; empty: the one in `metric`."""

    @property
    def compared_by(self) -> str:
        """The metric of `Benchmark.score` that models are compared by."""
        return self.official or str(self.metric["value"])


@dataclass(frozen=True, kw_only=True)
class Training:
    """The training of a task; the defaults are the paper's for GLUE (Table 10), which reports the median of five
    seeds."""

    lrs: tuple[str, ...] = ("1e-5", "2e-5", "3e-5")
    batches: tuple[int, ...] = (16, 32)
    """Examples of an update."""
    epochs: int = 10
    updates: int | None = None
    """Updates of a run, for any number of examples; None: computed from `epochs`."""
    warm_up: float = 0.06
    """Share of the updates with a growing learning rate."""
    weight_decay: str = "0.1"
    num_seeds: int = 5
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of fairseq-train."""

    def schedule(self, num_examples: int, batch_size: int, *, epochs: int | None = None) -> dict[str, str]:
        """The schedule in updates, as fairseq counts it; `epochs` replaces epochs or updates.

        Example:
            Training().schedule(1000, 16)  ->  batch-size 16, max-update and total-num-update 630, warmup-updates 38
        """
        num_updates = self.updates
        if epochs is not None or num_updates is None:
            num_updates = (epochs or self.epochs) * math.ceil(num_examples / batch_size)
        return {
            "batch-size": str(batch_size),
            "total-num-update": str(num_updates),
            "max-update": str(num_updates),
            "warmup-updates": str(round(self.warm_up * num_updates)),
        }


Entries = Callable[[], Iterator[Mapping[str, Any]]]
"""The kind's entry for each example of a split, in order (`Outcome.entries`)."""
Files = Mapping[str, list[Path]]
"""Split -> its official files, in the order in which they are read."""
Records = Callable[[Files, Any, Mapping[str, Any]], tuple[Mapping[str, Iterable[Any]], Mapping[str, Any]]]
"""Files, options and settings -> the examples of each split, perhaps lazily, and settings that are found in them."""


def by_split(read: Callable[[str, list[Path], Any], Iterable[Any]]) -> Records:
    """`Benchmark.records` for a function that reads one split: its name, its files and the options -> its examples."""
    return lambda files, options, _: ({split: read(split, paths, options) for split, paths in files.items()}, {})


def only_length(*, max_length: int, options: Any) -> dict[str, Any]:
    """`Benchmark.settings` of a task without options."""
    return {"max_length": max_length}


def all_files(files: Files) -> list[Path]:
    """`Benchmark.source_files`: split by split; a file of several splits once."""
    return list(dict.fromkeys(chain.from_iterable(files.values())))


def as_json(entries: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Lines of JSON Lines."""
    return (json_text(entry, ensure_ascii=False) for entry in entries)


def json_lines(split: str, entries: Entries) -> dict[str, Iterable[str]]:
    """`Benchmark.predictions`: the entries of the kind."""
    return {f"{split}.predictions.jsonl": as_json(entries())}


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A row of the table of benchmarks."""

    name: str
    """The name of the task on the command line."""
    kind: str = ""
    """A name in `kinds.KINDS`; empty: tables of your own, whose settings have the kind."""
    files: Callable[[Path, Any], dict[str, list[Path]]]
    """The folder of --raw and the options -> the official files of each split."""
    source_files: Callable[[Files], list[Path]] = all_files
    """The official files of the splits -> all official files that are read."""
    settings: Callable[..., dict[str, Any]] = only_length
    """`max_length` and `options` -> settings of the prepared folder; refuses options that do not fit `max_length`."""
    records: Records
    """The examples of the official files, in the form that `Kind.write` takes."""
    rules: Official = Official()
    """Rules for reading records with the official fields in `roberta predict`, and for scoring."""
    training: Training | Callable[[Prepared], Training] = Training()
    """The training on a prepared folder."""
    selection: str = ""
    """The metric that selects the checkpoint; empty: the one of the kind."""
    metrics: tuple[str, ...] = ()
    """The official metrics, by their names in `Kind.judged`; empty: all of the kind."""
    metrics_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Split -> its metrics, if they are not those in `metrics`."""
    official: str = ""
    """The metric that models are compared by; empty: that of `selection`."""
    same_head: str = ""
    """Another task for whose data a model of this one can be used, and the other way round."""
    starts_from: str = ""
    """Task whose fine-tuned model is the start, instead of the pretrained one."""
    paper: Numbers = field(default_factory=dict)
    """The paper's numbers."""
    on_hub: tuple[str, str | None] = ("", None)
    """Its data set on the Hugging Face hub, and the configuration there, for model cards."""
    predictions: Callable[[str, Entries], Mapping[str, Iterable[str]]] = json_lines
    """A split's name and entries -> names of prediction files, relative to the `folder` of `score`, and their lines
    without line ends."""
    leaderboard: str = ""
    """The leaderboard for its predictions (`submission.py`)."""
    test_rows: Mapping[str, int] = field(default_factory=dict)
    """Split -> rows of the official test set; the leaderboard needs a prediction for each row."""
    header: str = ""
    """The first line of its prediction files."""
    further: Callable[[Prepared, PreparedSplit, Outcome], dict[str, Any]] | None = None
    """The function for the part of `judge` that is not metrics."""

    def kind_for(self, settings: Mapping[str, Any]) -> Kind:
        """The kind of a folder prepared with these settings."""
        return kind_class(self.kind or str(settings.get("kind")))(settings, task_name=self.name, official=self.rules)

    def prepare(
        self, raw: Path, output: Path, *, tokenizer: Tokenizer, vocabulary: Vocabulary, max_length: int, options: Any
    ) -> None:
        """Write the prepared folder `output` from the official files in `raw`.

        Raises:
            FileExistsError: if `output` is not free.
            ValueError: if there is nothing to learn.
        """
        check_is_free(output)
        settings = self.settings(max_length=max_length, options=options)
        files = self.files(raw, options)
        examples, more = self.records(files, options, settings)
        settings |= more
        kind, encoder, doubtful = self.kind_for(settings), Encoder(tokenizer, vocabulary), {}
        with PreparedWriter(
            output,
            task=self.name,
            tokenizer=tokenizer,
            vocabulary=vocabulary,
            settings=settings,
            source=describe_files(self.source_files(files)),
            extensions=brought_by(self.name, settings),
        ) as writer:
            for name, of_split in examples.items():
                with writer.split(name) as split:
                    doubtful[name] = kind.write(split, of_split, encoder, max_length=max_length)
        for name, entries in doubtful.items():
            if entries:
                _write(output / f"{name}.doubtful.jsonl", as_json(entries))

    def recipe(self, prepared: Prepared, *, epochs: int | None = None, batches: Sequence[int] = ()) -> PaperRecipe:
        """The paper's settings for a prepared folder; `epochs` and `batches` replace the paper's numbers."""
        training = self.training(prepared) if callable(self.training) else self.training
        kind, num_examples = self.kind_for(prepared.settings), len(prepared.split("train"))
        selection = self.selection or kind.selection
        return PaperRecipe(
            train={
                "task": kind.task,
                "criterion": kind.task,
                **COMMON,
                "weight-decay": training.weight_decay,
                **training.options,
            },
            axes={
                "lr": {lr: {"lr": lr} for lr in training.lrs},
                "batch": {
                    str(size): training.schedule(num_examples, size, epochs=epochs)
                    for size in batches or training.batches
                },
            },
            seeds=[str(seed) for seed in range(1, training.num_seeds + 1)],
            metric={"log": "valid", "value": selection, "goal": "max", "at": "best"},
            official=self.official,
        )

    def outcome(
        self,
        prepared: Prepared,
        part: PreparedSplit,
        members: Sequence[RawOutputs],
        *,
        options: Any,
        train: PreparedSplit | None = None,
    ) -> Outcome:
        """The kind's results for the outputs of one model or of an ensemble (`Kind.outcome`)."""
        kind = self.kind_for(prepared.settings)
        kind.check_scoring(options, part)
        outcome = kind.outcome(part, members, options=options.given("score"), train=train)
        is_partial = not self.kind and kind.labels_without_examples(part)
        return outcome.without(kind.of_all_labels) if is_partial else outcome

    def score(
        self, prepared: Prepared, split: str, members: Sequence[RawOutputs], *, folder: Path | None, options: Any
    ) -> dict[str, float]:
        """The metrics, from 0 to 100 and unrounded, and the kind's thresholds and temperatures; empty for a split
        without labels. Prediction files are written into `folder`, if it is given."""
        outcome = self.outcome(prepared, prepared.split(split), members, options=options)
        return self._scores(split, outcome, folder=folder)

    def judge(
        self, prepared: Prepared, split: str, members: Sequence[RawOutputs], *, folder: Path | None, options: Any
    ) -> tuple[dict[str, float], dict[str, Any]]:
        """`score`, and details for a report, which only tables of your own have, and not for a split without labels.

        The details are JSON values. `experiments/evaluation_report.py` shows:

            num_examples
            intervals      metric -> the ends of its confidence interval
            not_measured   metrics that cannot be measured on the split
            baseline       metric -> its value for a constant answer
            classes        a row per label: label, precision, recall and f1 (None if no example has the label), support
            confusion      labels, counts
            calibration    temperature; before and after it, the result of `classification.reliability`
            hardest        the examples with the highest loss
        """
        part, train = prepared.split(split), None if self.further is None else prepared.split("train")
        outcome = self.outcome(prepared, part, members, options=options, train=train)
        details = {} if self.further is None else self.further(prepared, part, outcome)
        return self._scores(split, outcome, folder=folder), details

    def _scores(self, split: str, outcome: Outcome, *, folder: Path | None) -> dict[str, float]:
        if folder is not None:
            for name, lines in self.predictions(split, outcome.entries).items():
                _write(folder / name, lines)
        if outcome.measure is None:
            return {}
        scores = {**outcome.measure(np.ones(outcome.num_examples)), **outcome.numbers}
        if not (names := self.metrics_of.get(split, self.metrics)):
            return scores
        return {name: scores[name] for name in (find_score(each, scores) or each for each in names)}

    def prediction_files(self, split: str) -> tuple[str, ...]:
        """Names of the prediction files of a split, relative to the `folder` of `score`."""
        return tuple(self.predictions(split, lambda: iter(())))


def _write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, "w") as file:
        file.writelines(f"{line}\n" for line in lines)
