"""A text or a pair -> a number, on a scale of your own or of a task; or which pairs of a question are right (QNLI).

Column: `label`, the number as the table has it. The model learns (number - mean) / deviation, so that the scale does
not matter. In tables of your own, these are the mean and the standard deviation of the training set; in STS-B, 0 and 5.
Both are recorded as settings, and predictions are converted back to the table's scale.

Example: {"text": "A plane takes off.", "text_pair": "An air plane is taking off."} -> {"score": 4.9}

`PairRanking`: each pair of a question has a logit, and the best one wins. "None of them" takes part with the logit 0.
This fixes the level of the logits. So the sign of the logit decides about a question with a single pair: the official
files have few such questions, parts of these files have many. A new pair is predicted as a number.

QNLI was made by pairing each question of SQuAD with sentences of its paragraph: one that answers it and, in most
cases, one that does not (paper section 5.1).

Columns: `question`, the number of the question, and `answer`, 0 if the pair is right, else 1. In training, an example
is a question with all its sentences, and `answer` is the index of the right sentence, or their number if none is right.

Example: the pairs of a question have the logits 1.2 and 0.3 -> the first sentence is the answer (`decide`: [1, 0]).

Shapes: N pairs of a split.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.finetuning.examples import Example, number_of
from roberta_plugin.finetuning.kinds import metrics
from roberta_plugin.finetuning.kinds.base import SEQUENCE_CLASSIFICATION, HuggingFace, logits_of
from roberta_plugin.finetuning.kinds.outputs import (
    Decisions,
    Outcome,
    RawOutputs,
    class_probabilities,
    ids_of,
    judge_two_labels,
)
from roberta_plugin.finetuning.kinds.tables import TableKind
from roberta_plugin.finetuning.kinds.texts import TextKind
from roberta_plugin.finetuning.label_names import NO_LABEL
from roberta_plugin.finetuning.layouts.texts import Encoder, TextLayout, sentence_inputs
from roberta_plugin.finetuning.prepared import PreparedSplit, SplitWriter
from roberta_plugin.finetuning.records import number_in, number_remedy
from roberta_plugin.tables import Row, short

_NUMBERS_DIFFER = 0.01  # smallest standard deviation of outputs that differ


class Regression(TextKind, TableKind):
    """Squared error of the standardized number."""

    _has_negative = _are_unknown = False
    """True if the training table has numbers below 0; and true if each number of a table says that it is not known."""

    name = "regression"
    decides = "scores"
    learns_numbers = True
    description = "gives a number for a text or a pair of texts"
    hugging_face: ClassVar[HuggingFace | None] = HuggingFace(
        **SEQUENCE_CLASSIFICATION,
        problem_type="regression",
        arguments=', function_to_apply="none"',
        settings={"kind": "regression"},
    )

    @override
    def metrics(self) -> tuple[str, ...]:
        return ("pearson_spearman", "pearson", "spearman", "mae", "rmse")

    @override
    def constant(self, outputs: RawOutputs, train: PreparedSplit) -> RawOutputs | None:
        (logits,), (mean, deviation) = logits_of([outputs]), self.scale
        number = (np.mean(train.columns["label"]) - mean) / deviation
        return RawOutputs(logits=np.full(logits.shape, number, dtype=np.float32))

    @override
    def is_constant(self, split: PreparedSplit) -> bool:
        return len(split) > 1 and "label" in split.columns and bool(np.ptp(split.columns["label"]) == 0)

    @override
    def only_answer(self, outputs: RawOutputs, split: PreparedSplit) -> str | None:
        """Outputs are standardized: their deviation is about 1 unless the model gives the same number to all inputs."""
        (logits,) = logits_of([outputs])
        return "the same number" if len(logits) > 1 and logits.std() < _NUMBERS_DIFFER else None

    @property
    def selection(self) -> str:
        """The mean of Pearson's and Spearman's correlation."""
        return "pearson_spearman"

    @property
    def scale(self) -> tuple[float, float]:
        """Mean and deviation of the numbers: the model learns (number - mean) / deviation."""
        return self.settings.get("mean", 0.0), self.settings.get("deviation", 1.0)

    @override
    def open(self) -> None:
        super().open()
        self.check_one_output()

    @override
    def decode(self, members: Sequence[RawOutputs]) -> list[dict[str, Any]]:
        """The number, within the limits of an official task."""
        numbers = np.mean([each[:, 0] for each in logits_of(members)], axis=0)
        if self.official.limits is not None:
            numbers = numbers.clip(*self.official.limits)
        return [{"score": round(number, 6)} for number in numbers.tolist()]

    @override
    def with_numbers(self, path: Path, rows: Sequence[Row], *, is_train: bool) -> Self:
        """If no number of the training table is below 0, a test table with -1 in all rows has no labels."""
        made = copy.copy(self)
        numbers = [self._parse_number(row.values.get(self.label_column)) for row in rows]
        if is_train:
            made._has_negative = any(number < 0 for number in numbers)
        else:
            made._are_unknown = not self._has_negative and all(number == NO_LABEL for number in numbers)
        return made

    @override
    def is_marked(self, row: Row) -> bool:
        return self._are_unknown

    def _parse_number(self, value: object) -> float:
        return number_in(value, decimal=self.settings.get("decimal") or ".")

    @override
    def read_target(self, row: Row, choices: tuple[str, ...]) -> float:
        value = row.value(self.label_column, option="--label-column")
        decimal = self.settings.get("decimal") or "."
        number = self._parse_number(value)
        if math.isnan(number):
            raise ValueError(
                f"{row.where}: the column {self.label_column!r} must hold a number, found {short(value)}. Correct the "
                f"row, {number_remedy(value, decimal)}, or give another --kind."
            )
        return number

    @override
    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        """The mean and the standard deviation of the numbers."""
        numbers = np.array([example.target for example in train])
        if numbers.min() == numbers.max():
            raise ValueError(f"{table[0].path}: every row has the number {numbers[0]:g}, so there is nothing to learn.")
        with np.errstate(over="ignore", invalid="ignore"):
            mean, deviation = float(numbers.mean()), float(numbers.std())
        if not math.isfinite(deviation) or deviation < np.finfo(np.float64).tiny:
            raise ValueError(
                f"{table[0].path}: the numbers, from {numbers.min():g} to {numbers.max():g}, are too large or too "
                "small to compute with. Write them in another unit."
            )
        return {"labels": [], "mean": mean, "deviation": deviation}

    @override
    def columns(self, example: Example) -> dict[str, Any]:
        return {"label": float(example.target)}

    @override
    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        """Predict numbers on the scale of the table; in an official task within its limits and with three decimals."""
        mean, deviation = self.scale
        predictions: NDArray[np.float64] = np.mean([each[:, 0] for each in logits_of(members)], axis=0)
        predictions = predictions * deviation + mean
        if self.official.limits is not None:
            predictions = np.clip(predictions, *self.official.limits).round(3)
        answers = split.columns.get("label")

        def entries() -> Iterator[dict[str, Any]]:
            for index, id_ in enumerate(ids_of(split)):
                entry: dict[str, Any] = {"id": id_, "prediction": float(f"{predictions[index]:.6g}")}
                yield entry if answers is None else {**entry, "label": float(answers[index])}

        if answers is None:
            return Outcome(entries=entries, num_examples=len(split))
        right = np.asarray(answers, dtype=np.float64)
        return Outcome(
            entries=entries,
            num_examples=len(split),
            measure=lambda weights: metrics.measure_numbers(right, predictions, weights),
            losses=(predictions - right) ** 2,
        )


_SEED = 1  # rival sentences are drawn with it, so that the folder is reproducible


class PairRanking(Regression):
    """Cross-entropy over the pairs of a question and "none of them"."""

    name = "pair_ranking"
    learns_numbers = False
    hugging_face = None  # its head is exported as that of a regression

    @property
    @override
    def selection(self) -> str:
        return "accuracy"

    @override
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy", "macro_f1", "mcc", "f1", "acc_and_f1")

    @override
    def constant(self, outputs: RawOutputs, train: PreparedSplit) -> RawOutputs | None:
        return TextKind.constant(self, outputs, train)

    @override
    def only_answer(self, outputs: RawOutputs, split: PreparedSplit) -> None:
        """None: only differences between scores matter."""

    @override
    def write(
        self, split: SplitWriter, examples: Iterable[Example], encoder: Encoder, *, max_length: int
    ) -> Sequence[Mapping[str, Any]]:
        """Write a split. An example of the training split is a question with the sentences that compete."""
        if split.name != "train":
            return super().write(split, examples, encoder, max_length=max_length)
        groups = training_groups(list(examples), right_label=self.labels[1], seed=_SEED)
        pairs = [(group.question, sentence) for group in groups for sentence in group.sentences]
        sequences = sentence_inputs(pairs, encoder, split, TextLayout(max_length=max_length))
        for number, group in enumerate(groups):
            inputs = [ids for _ in group.sentences for ids in next(sequences)]
            split.add(inputs, answer=group.answer, question=number)
        return ()

    @override
    def columns(self, example: Example) -> dict[str, Any]:
        return {"answer": 1 - number_of(example.target, self.labels, example)}

    @override
    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        """Predict the second label for pairs that are right, and the first label for all other pairs."""
        beside_none = [np.concatenate([each, np.zeros_like(each)], axis=1) for each in logits_of(members)]
        predictions = decide(class_probabilities(beside_none)[:, 0] - 0.5, split.columns["question"])
        answers = split.columns.get("answer")
        return judge_two_labels(split, self.labels, predictions, None if answers is None else answers == 0)


def decide(logits: NDArray[np.floating], questions: NDArray[np.integer]) -> NDArray[np.int64]:
    """Logits (N,) of pairs and the numbers of their questions (N,) -> 1 if the sentence is the answer, else 0 (N,).

    The best of several sentences of a question is the answer; ties go to the first. A single sentence is the answer if
    its logit is above 0.
    """
    order = np.lexsort((-logits, questions))  # stable: question by question, the best first
    is_best = np.ones(len(order), dtype=bool)
    is_best[1:] = questions[order[1:]] != questions[order[:-1]]
    predictions = np.empty(len(order), dtype=np.int64)
    predictions[order] = is_best
    _, inverse, counts = np.unique(questions, return_inverse=True, return_counts=True)
    is_alone = counts[inverse] == 1
    predictions[is_alone] = logits[is_alone] > 0
    return predictions


@dataclass(frozen=True, slots=True)
class Group:
    """A question of the training set and the sentences that compete."""

    question: str
    sentences: tuple[str, ...]
    answer: int  # index of the right sentence; len(sentences) if none is right


def training_groups(rows: Sequence[Example], *, right_label: str, seed: int) -> list[Group]:
    """Rows of the training set -> groups, in the order in which the questions appear.

    A sentence that answers its question competes with the question's other sentences or, if there are none, with a
    sentence drawn from other questions. A pure function of rows and seed.
    """
    sentences = [row.texts[1] for row in rows]
    groups = []
    by_question: dict[str, list[int]] = {}  # indices of its rows
    for index, row in enumerate(rows):
        by_question.setdefault(row.texts[0], []).append(index)
    for number, (question, members) in enumerate(by_question.items()):
        right = [sentences[member] for member in members if rows[member].target == right_label]
        wrong = tuple(sentences[member] for member in members if rows[member].target != right_label)
        if not right:
            groups.append(Group(question, wrong, len(wrong)))
            continue
        rivals = wrong or _draw_rival(sentences, set(members), seed=(seed, number))
        groups += [Group(question, (sentence, *rivals), 0) for sentence in right]
    return groups


def _draw_rival(sentences: Sequence[str], excluded: set[int], *, seed: tuple[int, int]) -> tuple[str, ...]:
    """Draw a sentence of another question; without another question, there is none."""
    if len(excluded) == len(sentences):
        return ()
    rng = np.random.default_rng(seed)
    index = int(rng.integers(len(sentences)))
    while index in excluded:
        index = int(rng.integers(len(sentences)))
    return (sentences[index],)
