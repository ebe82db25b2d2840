"""COPA, ReCoRD and CommonsenseQA in one table: files, layouts, and grids with their sources.

Each example has one sequence per option. Columns as `race/tasks.py` has them: `label`, -1 if it is not known, and
`level`, always -1. Each example has a record of its `id`, `options`, and all `right` answers of ReCoRD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.benchmark import Training, as_json
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.old_benchmark import Judged, OldBenchmark
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit
from roberta_plugin.finetuning.prepared_writer import SplitWriter
from roberta_plugin.finetuning.raw_files import LABELLED, find_files, read_rows
from roberta_plugin.finetuning.superglue.choices.rows import (
    ChoiceExample,
    commonsense_qa_record,
    copa_record,
    read_commonsense_qa,
    read_copa,
    read_record,
    record_record,
)
from roberta_plugin.finetuning.superglue.tasks import FILES, readme
from roberta_plugin.kinds.base import Official
from roberta_plugin.kinds.choices import NO_LEVEL, Choices, answers, option_probabilities
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.span_metrics import score
from roberta_plugin.progress import terminal_bar
from roberta_plugin.tables import Row, with_unique_ids

_AT_ONCE = 500  # examples in one call of the tokenizer


class Reader(Protocol):
    """What makes examples of a row."""

    def __call__(self, row: Row, *, is_training: bool, labelled: bool) -> Iterator[ChoiceExample]:
        """The examples of a row, one or more."""


@dataclass(frozen=True, kw_only=True)
class ChoiceTask(OldBenchmark):
    """One task. The checkpoint is chosen by accuracy; for ReCoRD that of the first right answer of each query."""

    reader: Reader
    example_of: Callable[[Mapping[str, Any]], ChoiceExample]
    """The example of a record, for predictions."""
    names: Mapping[str, Sequence[str]] = field(default_factory=lambda: FILES)
    """Split -> names of its official file; the first that exists is read."""
    separators: int = 2
    """</s> between the text and the option."""

    def files(self, raw: Path, options: Any) -> dict[str, list[Path]]:
        """See `OldBenchmark.files`; `raw` is the folder of the task's files, or the one that holds it."""
        return {split: [path] for split, path in find_files(self.name, raw, self.names).items()}

    def settings(self, *, max_length: int, options: Any) -> dict[str, Any]:
        """See `OldBenchmark.settings`."""
        return {"max_length": max_length}

    def read_split(self, split: str, paths: list[Path], options: Any) -> Iterator[ChoiceExample]:
        """See `OldBenchmark.read_split`."""
        (path,) = paths
        return self.examples(split, path)

    def examples(self, split: str, path: Path) -> Iterator[ChoiceExample]:
        """The examples of a file; labels of a test set are not read.

        Raises:
            ValueError: naming the file, the line and what is wrong with it; or if there is none.
        """
        how = {"is_training": split == "train", "labelled": split in LABELLED}
        made = ((row.where, example) for row in read_rows(path) for example in self.reader(row, **how))
        example = None
        for example in terminal_bar(
            with_unique_ids(made, id_of=lambda each: each.id), f"{self.name} {split}", unit=" rows"
        ):
            yield example
        if example is None:
            raise ValueError(f"{path}: no row has wrong options beside a right one, so there is nothing to learn.")

    def write(
        self, split: SplitWriter, content: Iterator[ChoiceExample], encoder: Encoder, settings: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        """See `OldBenchmark.write`."""
        for example, inputs in self.inputs_of(content, encoder, split, max_length=settings["max_length"]):
            split.add(inputs, label=example.label, level=NO_LEVEL)
            split.record({"id": example.id, "options": example.options, "right": example.right})
        return ()

    def inputs_of(
        self, examples: Iterator[ChoiceExample], encoder: Encoder, split: SplitWriter, *, max_length: int
    ) -> Iterator[tuple[ChoiceExample, list[NDArray[np.int32]]]]:
        """Each example with the model's input (T,) of each option; the split counts which are cut to `max_length`."""
        while part := list(islice(examples, _AT_ONCE)):
            texts = encoder.ids_of_all([example.text for example in part])
            seconds = iter(encoder.ids_of_all([second for example in part for second in example.seconds]))
            for example, text in zip(part, texts, strict=True):
                inputs = []
                for _ in example.seconds:
                    second = next(seconds)
                    num_tokens = len(text) + len(second) + 2 + self.separators
                    split.measure("texts with an option", num_tokens, limit=max_length)
                    inputs.append(encoder.join(text, second, max_length=max_length, separators=self.separators))
                yield example, inputs

    def judge(self, prepared: Prepared, part: PreparedSplit, members: Sequence[RawOutputs], options: Any) -> Judged:
        """See `OldBenchmark.judge`."""
        offsets = np.asarray(part.offsets)
        given = answers(option_probabilities(members, offsets), offsets)
        files = {name: self._lines(part, given.tolist()) for name in self.prediction_files(part.name)}
        labels = np.asarray(part.columns["label"])
        if (labels < 0).any():
            return Judged({}, files)
        if self.official != "f1":
            return Judged({"accuracy": 100 * float(np.mean(given == labels))}, files)
        return Judged(_scores_of_texts(part, given.tolist()), files)

    @property
    def rules(self) -> Official:
        """See `OldBenchmark.rules`."""

        def choices(record: Mapping[str, Any]) -> Choices:
            example = self.example_of(record)
            return Choices(context=example.text, options=example.options, seconds=example.seconds)

        return Official(choices=choices, separators=self.separators)

    def prediction_files(self, split: str) -> tuple[str, ...]:
        """See `OldBenchmark.prediction_files`: TASK.jsonl for the test set, TASK.SPLIT.jsonl for others."""
        return (f"{self.name}.jsonl" if split == "test" else f"{self.name}.{split}.jsonl",)

    def _lines(self, part: PreparedSplit, given: Sequence[int]) -> Iterator[str]:
        """The option that is chosen in each row, as the leaderboards take it.

        COPA            {"idx": 0, "label": 1}
        ReCoRD          {"idx": 0, "label": "Rome"}
        CommonsenseQA   {"id": "1afa02df", "answerKey": "A"}, the names of its data
        """
        for record, answer in zip(part.records(), given, strict=True):
            if self.name == "CommonsenseQA":
                content = {"id": record["id"], "answerKey": chr(ord("A") + answer)}
            else:
                content = {"idx": record["id"], "label": record["options"][answer] if self.official == "f1" else answer}
            yield from as_json([content])


def _scores_of_texts(part: PreparedSplit, given: Sequence[int]) -> dict[str, float]:
    """`f1` and `exact_match` (0 to 100) of ReCoRD: each answer against the right one that fits best.

    Its official script compares normalized texts as SQuAD 1.1 does.
    """
    pairs = zip(part.records(), given, strict=True)
    found = [score("squad1", record["options"][answer], record["right"]) for record, answer in pairs]
    return {
        "f1": 100 * (sum(each.f1 for each in found) / len(found)),
        "exact_match": 100 * (sum(each.exact for each in found) / len(found)),
    }


# fairseq's examples/roberta/commonsense_qa/README.md: {1,2,3}e-5, batches of 8 or 16, 3,000 updates, 150 of warm-up.
_COMMONSENSE_QA = Training(batches=(8, 16), updates=3000, warm_up=150 / 3000)
# The paper's for RACE (Table 10), whose passages are as long.
_RECORD = Training(lrs=("1e-5",), batches=(16,), epochs=4)

TASKS: dict[str, ChoiceTask] = {
    task.name: task
    for task in (
        ChoiceTask(name="COPA", reader=read_copa, example_of=copa_record, paper=readme("valid", accuracy=94.0)),
        ChoiceTask(name="ReCoRD", reader=read_record, example_of=record_record, official="f1", training=_RECORD),
        ChoiceTask(
            name="CommonsenseQA",
            reader=read_commonsense_qa,
            example_of=commonsense_qa_record,
            names={
                "train": ("train_rand_split.jsonl", "train.jsonl"),
                "valid": ("dev_rand_split.jsonl", "valid.jsonl"),
                "test": ("test_rand_split_no_answers.jsonl", "test.jsonl"),
            },
            separators=1,
            training=_COMMONSENSE_QA,
            paper={**readme("valid", accuracy=78.5), **readme("test", accuracy=72.1)},
        ),
    )
}
