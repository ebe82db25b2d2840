"""Benchmarks that read, write and judge by themselves, and are not yet rows of a kind (`benchmark.Benchmark`).

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
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.benchmark import COMMON, Numbers, PaperRecipe, Training, as_json
from roberta_plugin.finetuning.benchmarks import kind_of_task
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit
from roberta_plugin.finetuning.prepared_writer import PreparedWriter, SplitWriter, check_is_free
from roberta_plugin.finetuning.raw_files import describe
from roberta_plugin.kinds import kind_class
from roberta_plugin.kinds.base import Kind, Official
from roberta_plugin.kinds.outputs import RawOutputs

logger = logging.getLogger(__name__)


class Judged(NamedTuple):
    """What raw outputs for a split come to."""

    metrics: Mapping[str, float]
    """From 0 to 100, unrounded; empty for a split without labels."""
    files: Mapping[str, Iterable[str]]
    """Name of a prediction file -> its lines, without their ends."""


@dataclass(frozen=True, kw_only=True)
class OldBenchmark(ABC):
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
        name = self.kind_for(prepared.settings).task
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

    @property
    def rules(self) -> Official:
        """How `roberta predict` reads records with the official fields."""
        return Official()

    def kind_for(self, settings: Mapping[str, Any]) -> Kind:
        """The kind of a folder prepared with these settings."""
        name = kind_of_task(self.name) or settings.get("kind")
        return kind_class(str(name))(settings, task_name=self.name, official=self.rules)

    def details(self, *_: Any, **__: Any) -> dict[str, Any]:
        """What a report shows in addition to the metrics."""
        return {}

    def check_scoring(self, prepared: Prepared, options: Any) -> None:
        """Refuse options of the scoring that do not fit the data; called before anything is trained."""
        return None

    def prediction_files(self, split: str) -> Sequence[str]:
        """Names of the prediction files of a split, relative to the `folder` of `score`."""
        return (f"{split}.predictions.jsonl",)


def _write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, "w") as file:
        file.writelines(f"{line}\n" for line in lines)
