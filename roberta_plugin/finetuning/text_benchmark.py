"""Benchmarks of texts and pairs, as GLUE's and SuperGLUE's: what their rows share.

Columns of the prepared folder by kind, in splits whose labels are known unless said otherwise:

    classification     label: id of the right label
    regression         label: the number
    pair_ranking       answer: which of the example's sentences is right, or their number if none is
    phrase_ranking     label: 1 if the first sequence has the right phrase, else 0;
                       before, after: tokens in front of the phrase and behind it, in all sequences of the example
                       (also without labels)

Where examples belong together, as the pairs of a question, those of a group have the same number `question`, also
without labels. An example has one sequence, with two exceptions: in the training split of pair_ranking it is a question
with several sentences, and in phrase_ranking the example's phrase comes first and its rivals follow. Each row of the
file is one example, in order, with a record of its id, except in the training splits of these two kinds.

Shapes: N examples of a split.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.old_benchmark import Judged, OldBenchmark
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit
from roberta_plugin.finetuning.prepared_writer import SplitWriter
from roberta_plugin.finetuning.text_examples import SchemaExample, TextExample, training_groups
from roberta_plugin.kinds import kind_class, metrics
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.phrases import Schema, schema_inputs
from roberta_plugin.kinds.texts import TextLayout, sentence_inputs
from roberta_plugin.progress import terminal_bar

logger = logging.getLogger(__name__)

Kind = Literal["classification", "regression", "pair_ranking", "phrase_ranking"]
_SEED = 1  # for drawing rival sentences, so that the folder is reproducible


@dataclass(frozen=True, kw_only=True)
class TextBenchmark(OldBenchmark):
    """A task of texts or pairs, or of phrases in a text."""

    kind: Kind = "classification"
    """What a model predicts: one of several labels; a number; a logit for each pair, where the best pair of a question
    is the right one; a score for each phrase that could replace a pronoun."""
    folder: str = ""
    """In the official archive; empty: called like the task."""
    labels: tuple[str, ...] = ()
    """In the order of their ids, as the files spell them; empty: the label is a number."""
    limits: tuple[float, float] = (0.0, 0.0)
    """Smallest and largest number."""
    metrics: tuple[str, ...] = ("accuracy",)
    """The official ones."""

    def settings(self, *, max_length: int, options: Any) -> dict[str, Any]:
        """See `OldBenchmark.settings`."""
        found: dict[str, Any] = {"kind": self.kind, "labels": list(self.labels), "max_length": max_length}
        if self.kind == "regression":  # learned as 0 to 1, as fairseq's preprocess_GLUE_tasks.sh writes STS-B's scores
            found |= {"mean": self.limits[0], "deviation": self.limits[1] - self.limits[0]}
        return found

    def schema_of(self, example: Any) -> Schema | None:
        """The text of an example with competing phrases; None if its pronoun is not found."""
        return example.schema if isinstance(example, SchemaExample) else None

    def learned(self, examples: Sequence[Any]) -> list[Schema]:
        """The schemas of a training split to learn from."""
        raise NotImplementedError(f"{self.name} has no phrases")

    def write(
        self, split: SplitWriter, content: Sequence[Any], encoder: Encoder, settings: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        """See `OldBenchmark.write`."""
        writing = _Writing(split, encoder, settings["max_length"])
        is_training = split.name == "train"
        logger.info(f"{self.name}, {split.name}: {len(content):,} rows")
        if is_training and self.kind == "pair_ranking":
            writing.groups(content)
            return ()
        if is_training and self.kind == "phrase_ranking":
            learned = self.learned(content)
            if not learned:
                raise ValueError(f"{self.name}: no row of the training file has a right phrase with rivals.")
            for schema in learned:
                writing.schema(schema, label=1)
            logger.info(f"{self.name}, {split.name}: {len(learned):,} of {len(content):,} rows are learned from")
            return ()
        if self.kind == "phrase_ranking":
            self._write_phrases(writing, content)
        else:
            writing.texts(content, competes=self.kind == "pair_ranking")
        for example in content:
            split.record({"id": example.id})
        return ()

    def _write_phrases(self, writing: _Writing, examples: Sequence[Any]) -> None:
        """One sequence per phrase; an example whose pronoun is not found has one sequence with an empty phrase."""
        num_unaligned = 0
        for example in terminal_bar(examples, "noun phrases", unit="row"):
            schema = self.schema_of(example)
            label = {} if example.label is None else {"label": example.label}
            if schema is not None:
                writing.schema(schema, **label)
            else:
                num_unaligned += 1
                writing.bare(example.texts[0], **label)
        if num_unaligned:
            logger.warning(
                f"{self.name}: in {num_unaligned} of {len(examples)} rows no pronoun was found; their answer will be 0"
            )

    def judge(self, prepared: Prepared, part: PreparedSplit, members: Sequence[RawOutputs], options: Any) -> Judged:
        """See `OldBenchmark.judge`; the diagnostic set also has `mcc`, which for three classes is GLUE's R_3."""
        predictions = kind_class(self.kind)(prepared.settings).decide(members, part)
        if self.kind == "regression":
            predictions = metrics.as_written(predictions, self.limits)
        ids = (record["id"] for record in part.records())
        words = (self.labels[int(each)] if self.labels else f"{each:.3f}" for each in predictions)
        (name,) = self.prediction_files(part.name)
        names = ("mcc", *self.metrics) if part.name == "ax" else self.metrics
        found = _scores(names, part, predictions, num_classes=len(self.labels))
        return Judged({name: 100 * value for name, value in found.items()}, {name: self.lines(ids, words)})

    @abstractmethod
    def lines(self, ids: Iterable[Any], answers: Iterable[str]) -> Iterator[str]:
        """The lines of the prediction file, from the ids of the rows and their labels or numbers."""


def _scores(
    names: Sequence[str], part: PreparedSplit, predictions: NDArray[Any], *, num_classes: int
) -> dict[str, float]:
    """Metrics by name, from predictions (N,), 0 to 1; empty for a split without labels."""
    answers = np.asarray(part.columns["answer"] == 0) if "answer" in part.columns else part.columns.get("label")
    if answers is None:
        return {}
    if not num_classes:
        return {name: metrics.OF_PREDICTIONS[name](predictions, answers) for name in names}
    counts = metrics.confusion(answers, predictions, num_classes=num_classes)
    of_questions = {"exact_match": lambda: exact_match(np.asarray(answers), predictions, part.columns["question"])}
    return {name: of_questions[name]() if name in of_questions else OF_COUNTS[name](counts) for name in names}


def macro_f1(counts: NDArray[Any]) -> float:
    """Mean of the F1 of each class, from counts (C, C): the second metric of CB.

    A class that neither occurs nor is predicted has the F1 0, as in SuperGLUE's baseline.
    """
    return float(np.mean(metrics.class_f1s(counts)))


def exact_match(answers: NDArray[Any], predictions: NDArray[Any], questions: NDArray[Any]) -> float:
    """Share of the questions all of whose answers are judged rightly, from labels (N,): the EM of MultiRC.

    Example: answers [1, 0, 1], predictions [1, 0, 0], questions [0, 0, 1] -> 0.5.
    """
    _, of_row = np.unique(questions, return_inverse=True)
    wrong = np.bincount(of_row, weights=answers != predictions)
    return float(np.mean(wrong == 0))


OF_COUNTS = {**metrics.OF_COUNTS, "macro_f1": macro_f1, "f1a": metrics.f1}  # F1a: the F1 of label 1 over all answers


class _Writing:
    """Writes the examples of a split."""

    def __init__(self, split: SplitWriter, encoder: Encoder, max_length: int) -> None:
        self.split, self.encoder, self.max_length = split, encoder, max_length

    def _sequences(self, texts: Sequence[tuple[str, ...]]) -> Iterator[NDArray[np.int32]]:
        layout = TextLayout(max_length=self.max_length)
        return (ids for (ids,) in sentence_inputs(texts, self.encoder, self.split, layout))

    def texts(self, examples: Sequence[TextExample], *, competes: bool) -> None:
        """One sequence per example; `competes`: the label says whether it is the right one of its group."""
        numbers: dict[Hashable, int] = {}
        for example, sequence in zip(examples, self._sequences([each.texts for each in examples]), strict=True):
            columns: dict[str, float] = {}
            if example.label is not None:
                columns = {"answer": 1 - int(example.label)} if competes else {"label": example.label}
            if example.group is not None:
                columns["question"] = numbers.setdefault(example.group, len(numbers))
            self.split.add([sequence], **columns)

    def groups(self, examples: Sequence[TextExample]) -> None:
        """One example per question, one sequence per sentence."""
        groups = training_groups(examples, seed=_SEED)
        sequences = self._sequences([(group.question, sentence) for group in groups for sentence in group.sentences])
        for number, group in enumerate(groups):
            self.split.add([next(sequences) for _ in group.sentences], answer=group.answer, question=number)

    def schema(self, schema: Schema, **columns: float) -> None:
        """One sequence for each phrase."""
        inputs = schema_inputs(schema, self.encoder, max_length=self.max_length)
        self.split.measure("texts", inputs.num_tokens, limit=self.max_length)
        self.split.add(inputs.sequences, before=inputs.before, after=inputs.after, **columns)

    def bare(self, text: str, **columns: float) -> None:
        """A text with an empty phrase at its end."""
        (ids,) = self._sequences([(text,)])
        self.split.add([ids], before=len(ids), after=0, **columns)
