"""Multiple choice: RACE, and other sets with any number of options (`multiple_choice`), one sequence per option.

Columns: `label`, the index of the right option (-1 if it is not known), and `level`, 0 = middle and 1 = high (-1 for
sets other than RACE). Each example has a record: `id` of the passage, `question`, its index among the passage's
questions, and the texts of its `options`.

The paper's settings (Table 10): 1e-5 after a warm-up of 6 %, linear decay, 4 epochs of batches of 16. A batch of 16
questions is 64 sequences of up to 512 tokens; if they do not fit into the GPU, `roberta finetune` accumulates smaller
batches with `--set batch-size=4`.

Shapes: N examples of the split, S options of all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.benchmark import Training, as_json
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.old_benchmark import Judged, OldBenchmark
from roberta_plugin.finetuning.options import RaceOptions
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit
from roberta_plugin.finetuning.prepared_writer import SplitWriter
from roberta_plugin.finetuning.race.reader import Passage, find_splits, read_split
from roberta_plugin.kinds.choices import (
    ChoiceLayout,
    accuracies,
    answers,
    option_probabilities,
    question_with_option,
)
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.records import one_line
from roberta_plugin.progress import terminal_bar

logger = logging.getLogger(__name__)

_PASSAGES_PER_CHUNK = 256


@dataclass(frozen=True, kw_only=True)
class RaceTask(OldBenchmark):
    """RACE, or another set of multiple choice in JSON Lines."""

    training: Training = field(default_factory=lambda: Training(lrs=("1e-5",), batches=(16,), epochs=4))

    def files(self, raw: Path, options: RaceOptions) -> dict[str, list[Path]]:
        """See `OldBenchmark.files`."""
        return find_splits(self.name, raw)

    def settings(self, *, max_length: int, options: RaceOptions) -> dict[str, Any]:
        """See `OldBenchmark.settings`."""
        return asdict(ChoiceLayout.of(max_length, question_length=options.question_length, order=options.order))

    def read_split(self, split: str, paths: list[Path], options: RaceOptions) -> Iterator[Passage]:
        """See `OldBenchmark.read_split`."""
        yield from terminal_bar(read_split(self.name, split, paths), f"{self.name} {split}", unit=" passages")

    def write(
        self, split: SplitWriter, content: Iterator[Passage], encoder: Encoder, settings: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        """See `OldBenchmark.write`."""
        layout = ChoiceLayout(**settings)
        num_bare = 0
        while chunk := list(islice(content, _PASSAGES_PER_CHUNK)):
            for passage, ids, questions in _encoded(chunk, encoder):
                num_bare += not questions
                for number, (question, choices) in enumerate(zip(passage.questions, questions, strict=True)):
                    sequences = [layout.join(encoder.vocabulary, ids, choice) for choice in choices]
                    split.add(sequences, label=question.answer, level=passage.level)
                    split.record({"id": passage.id, "question": number, "options": question.options})
                    for choice in choices:
                        layout.measure(split, len(ids), len(choice))
        if not split.num_records:
            raise ValueError(f"The split {split.name} holds no question: check its files, or leave the split out.")
        if num_bare:
            logger.warning(f"{split.name}: {num_bare:,} passages have no question and were left out")
        return ()

    def judge(
        self, prepared: Prepared, part: PreparedSplit, members: Sequence[RawOutputs], options: RaceOptions
    ) -> Judged:
        """See `OldBenchmark.judge`."""
        offsets = np.asarray(part.offsets)
        probabilities = option_probabilities(members, offsets)  # (S,)
        given = answers(probabilities, offsets)  # (N,)
        lines = as_json(self._entries(part, given, probabilities))
        metrics = accuracies(given, part.columns["label"], part.columns["level"])
        return Judged(metrics, {name: lines for name in self.prediction_files(part.name)})

    def _entries(
        self, part: PreparedSplit, given: NDArray[np.int64], probabilities: NDArray[np.float64]
    ) -> Iterator[dict[str, Any]]:
        """`id`, `question`, `answer` (a letter for RACE, else an index) and `probabilities` of each example."""
        spans = pairwise(part.offsets.tolist())
        for record, answer, (start, stop) in zip(part.records(), given.tolist(), spans, strict=True):
            yield {
                "id": record["id"],
                "question": record["question"],
                "answer": chr(ord("A") + answer) if self.name == "race" else answer,
                "probabilities": [round(value, 6) for value in probabilities[start:stop].tolist()],
            }


def _encoded(
    passages: list[Passage], encoder: Encoder
) -> Iterator[tuple[Passage, NDArray[np.int32], list[list[NDArray[np.int32]]]]]:
    """Each passage, its ids, and for each of its questions the ids of question+option, one array per option."""
    texts = [one_line(passage.text) for passage in passages]
    texts += [
        question_with_option(question.text, option)
        for passage in passages
        for question in passage.questions
        for option in question.options
    ]
    ids = encoder.ids_of_all(texts)
    choices = iter(ids[len(passages) :])
    for passage, of_passage in zip(passages, ids, strict=False):
        yield passage, of_passage, [[next(choices) for _ in question.options] for question in passage.questions]


TASKS = {
    "race": RaceTask(
        name="race",
        paper={
            "test": {"RoBERTa large": {"accuracy": 83.2, "accuracy_middle": 86.5, "accuracy_high": 81.3}},  # Table 7
            "valid": {"RoBERTa base, 16 GB of text": {"accuracy": 65.6}},  # Table 2, DOC-SENTENCES
        },
    ),
    "multiple_choice": RaceTask(name="multiple_choice"),
}
