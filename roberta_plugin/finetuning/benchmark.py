"""A benchmark: official files, reader, kind of task, metrics, the paper's settings and prediction files, in one row.

    files      raw folder                      -> the files of each split
    settings   options                         -> what the prepared folder records of them
    read       files                           -> the content of each split
    write      the content of a split          -> its examples, in the prepared folder
    judge      raw outputs for a split         -> metrics, and prediction files

What all rows share stands here: `prepare`, `recipe` and `score`. The rows are in the modules `tasks` of the folders.

Shapes: N examples of a split.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.benchmarks import kind_of
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit
from roberta_plugin.finetuning.prepared_writer import PreparedWriter, SplitWriter, check_is_free
from roberta_plugin.finetuning.raw_files import describe
from roberta_plugin.json_files import json_text
from roberta_plugin.kinds.base import Official
from roberta_plugin.kinds.outputs import RawOutputs

logger = logging.getLogger(__name__)

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
    """How the paper trains a task, in the form of a grid file: values are strings."""

    train: Mapping[str, Any]
    """Options of fairseq-train that all runs share, without data, model and checkpoint."""
    axes: Mapping[str, Any]
    """Axes of the grid."""
    seeds: Sequence[str]
    """One run of each cell per seed."""
    metric: Mapping[str, str]
    """The metric that selects the checkpoint and the cell, as the log names it."""
    official: str = ""
    """The metric of `Benchmark.score` that models are compared by; empty: that of `metric`."""
    starts_from: str = ""
    """The task whose fine-tuned model the paper starts from; empty: the pretrained model."""

    @property
    def compared_by(self) -> str:
        """The metric of `Benchmark.score` that models are compared by; the log says tuned_f1 for f1 at a threshold."""
        return self.official or self.metric["value"].removeprefix("tuned_")


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a task is trained; the defaults are the paper's for GLUE (Table 10), the median of five seeds."""

    lrs: tuple[str, ...] = ("1e-5", "2e-5", "3e-5")
    batches: tuple[int, ...] = (16, 32)
    """Examples of an update."""
    epochs: int = 10
    updates: int | None = None
    """Updates of a run, whatever the number of examples; None: `epochs` counts."""
    warm_up: float = 0.06
    """Share of the updates."""
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


class Judged(NamedTuple):
    """What raw outputs for a split come to."""

    metrics: Mapping[str, float]
    """From 0 to 100, unrounded; empty for a split without labels."""
    files: Mapping[str, Iterable[str]]
    """Name of a prediction file -> its lines, without their ends."""


@dataclass(frozen=True, kw_only=True)
class Benchmark(ABC):
    """A row of the table of benchmarks."""

    name: str
    """What the command line calls the task."""
    training: Training = field(default_factory=Training)
    selection: str = "accuracy"
    """The metric that selects the checkpoint, as named in the log."""
    official: str = ""
    """The metric that models are compared by; empty: that of `selection`."""
    starts_from: str = ""
    """Task whose fine-tuned model is the start, instead of the pretrained one."""
    paper: Numbers = field(default_factory=dict)
    """The paper's numbers."""

    @abstractmethod
    def files(self, raw: Path, options: Any) -> dict[str, list[Path]]:
        """The official files of each split, in the order in which they are read."""

    def source_files(self, files: Mapping[str, list[Path]]) -> list[Path]:
        """All official files that are read where these are the splits', split by split."""
        return [path for paths in files.values() for path in paths]

    @abstractmethod
    def settings(self, *, max_length: int, options: Any) -> dict[str, Any]:
        """The settings that a folder prepared with these options records; refuses options without room for them."""

    def read(
        self, files: Mapping[str, list[Path]], options: Any, settings: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The content of each split; and settings that are found in the files."""
        return {split: self.read_split(split, paths, options) for split, paths in files.items()}, {}

    def read_split(self, split: str, paths: list[Path], options: Any) -> Any:
        """The content of a split, which may be read when it is iterated."""
        raise NotImplementedError(f"{self.name} reads all splits at once")

    @abstractmethod
    def write(
        self, split: SplitWriter, content: Any, encoder: Encoder, settings: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        """Write the examples of a split.

        Returns:
            What is doubtful in it; listed in SPLIT.doubtful.jsonl.

        Raises:
            ValueError: as `read`; or if there is nothing to learn.
        """

    def prepare(
        self,
        raw: Path,
        output: Path,
        *,
        tokenizer: Tokenizer,
        vocabulary: Vocabulary,
        max_length: int,
        options: Any,
    ) -> None:
        """Write the prepared folder `output` from the official files in `raw`.

        Raises:
            FileExistsError: if `output` is not free.
        """
        check_is_free(output)
        settings = self.settings(max_length=max_length, options=options)
        files = self.files(raw, options)
        contents, found = self.read(files, options, settings)
        settings |= found
        encoder = Encoder(tokenizer, vocabulary)
        doubtful = {}
        with PreparedWriter(
            output,
            task=self.name,
            tokenizer=tokenizer,
            vocabulary=vocabulary,
            settings=settings,
            source=describe(self.source_files(files)),
        ) as writer:
            for name, content in contents.items():
                with writer.split(name) as split:
                    doubtful[name] = self.write(split, content, encoder, settings)
        for name, entries in doubtful.items():
            if entries:
                _write(output / f"{name}.doubtful.jsonl", as_json(entries))

    def recipe(self, prepared: Prepared, *, epochs: int | None = None, batches: Sequence[int] = ()) -> PaperRecipe:
        """The paper's settings for a prepared folder; `epochs` and `batches` replace the paper's numbers."""
        training, num_examples = self.training_of(prepared), len(prepared.split("train"))
        name = kind_of(prepared).task
        sizes = batches or training.batches
        return PaperRecipe(
            train={
                "task": name,
                "criterion": name,
                **COMMON,
                "weight-decay": training.weight_decay,
                **training.options,
            },
            axes={
                "lr": list(training.lrs),
                "batch": {str(size): training.schedule(num_examples, size, epochs=epochs) for size in sizes},
            },
            seeds=[str(seed) for seed in range(1, training.num_seeds + 1)],
            metric={"log": "valid", "value": self.selection_of(prepared), "goal": "max", "at": "best"},
            official=self.official,
            starts_from=self.starts_from,
        )

    def training_of(self, prepared: Prepared) -> Training:
        """How a prepared folder is trained on."""
        return self.training

    def selection_of(self, prepared: Prepared) -> str:
        """The metric of the log that selects the checkpoint."""
        return self.selection

    @abstractmethod
    def judge(self, prepared: Prepared, part: PreparedSplit, members: Sequence[RawOutputs], options: Any) -> Judged:
        """Metrics and prediction files of one model or of an ensemble, whose members' probabilities are averaged."""

    def score(
        self, prepared: Prepared, split: str, members: Sequence[RawOutputs], *, folder: Path | None, options: Any
    ) -> dict[str, float]:
        """The metrics of `judge`; its prediction files are written into `folder`, if there is one."""
        judged = self.judge(prepared, prepared.split(split), members, options)
        for name, lines in judged.files.items() if folder is not None else ():
            assert folder is not None
            _write(folder / name, lines)
        return dict(judged.metrics)

    def official_records(self) -> Official:
        """How `roberta predict` reads records with the official fields."""
        return Official()

    def details(self, prepared: Prepared, split: str, members: Sequence[RawOutputs], *, options: Any) -> dict[str, Any]:
        """What a report shows in addition to the metrics; empty but for tables of your own.

        Returns:
            JSON values, of which `experiments/evaluation_report.py` shows: `num_examples`; `intervals`, metric -> the
            ends of its confidence interval; `not_measured`, metrics that the split cannot tell; `baseline`, metric ->
            what a constant answer gets; `classes`, a row per label with `label`, `precision`, `recall` and `f1`, which
            are None if no example has the label, and `support`; `confusion`, `labels` and `counts`; `calibration`,
            the `temperature` and, `before` and `after` it, what `kinds/calibration.reliability` finds; `hardest`, the
            examples with the highest loss. Empty for a split without labels.
        """
        return {}

    def check_scoring(self, prepared: Prepared, options: Any) -> None:
        """Refuse options of the scoring that do not fit the data; called before anything is trained."""
        return None

    def prediction_files(self, split: str) -> Sequence[str]:
        """Names of the prediction files of a split, relative to the `folder` of `score`."""
        return (f"{split}.predictions.jsonl",)


def as_json(entries: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Lines of JSON Lines."""
    return (json_text(entry, ensure_ascii=False) for entry in entries)


def _write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, "w") as file:
        file.writelines(f"{line}\n" for line in lines)
