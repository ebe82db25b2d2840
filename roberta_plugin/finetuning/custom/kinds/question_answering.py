"""A text and a question -> the part of the text that answers it, or no answer.

Inputs, files, head, loss and metrics are those of SQuAD 2.0 (`finetuning/squad`): an example is a window of the text.
The label column holds the answer, a list of answers, nothing if there is none, or {"text": [...], "answer_start":
[...]}; without `answer_start`, the first occurrence counts.

Shapes: Q questions of a split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from roberta_plugin.finetuning.custom.kinds.base import CustomKind, Outcome, rounded
from roberta_plugin.finetuning.custom.options import CustomOptions
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.finetuning.prepared_writer import SplitWriter
from roberta_plugin.kinds.examples import Example, is_missing
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.passages import NO_PLACE, SplitMaker, SquadAnswer, SquadFile, SquadQuestion, locate
from roberta_plugin.kinds.questions import Questions, decode
from roberta_plugin.kinds.span_metrics import best_threshold, score
from roberta_plugin.kinds.windows import DOC_STRIDE, QUESTION_LENGTH, WindowLayout, question_length
from roberta_plugin.tables import Row, check_list, check_text

_RULES = "squad2"  # whose definitions of the metrics


class QuestionAnswering(CustomKind):
    """The losses of SQuAD 2.0: of the span, and of whether there is one."""

    name = "question_answering"

    @classmethod
    def settings_of(cls, options: CustomOptions, *, max_length: int) -> dict[str, Any]:
        """See `CustomKind.settings_of`: the layout of the windows, and other columns than `text` and `label`."""
        sizes = {
            "question_length": question_length(max_length, QUESTION_LENGTH),
            "doc_stride": min(DOC_STRIDE, max(1, max_length // 4)),
        }
        return {
            **asdict(WindowLayout.of(max_length, **sizes)),
            "text_column": options.text_column or "context",
            "text_pair_column": options.text_pair_column or "question",
            "label_column": list(options.label_column or ("answer",)),
        }

    @property
    def selection(self) -> str:
        """F1 at the best threshold."""
        return "tuned_f1"

    def is_labelled(self, row: Row) -> bool:
        """See `CustomKind.is_labelled`; an empty field says that there is no answer."""
        return self.label_column in row.values

    def split_key(self, example: Example) -> Sequence[str]:
        """See `CustomKind.split_key`: the text, about which there may be several questions."""
        return example.texts[:1]

    def read(self, row: Row, *, is_labelled: bool) -> Example:
        """See `CustomKind.read`; the text keeps its white space, in which `answer_start` counts."""
        question = row.text(self.settings["text_pair_column"], option="--text-pair-column").strip()
        texts = (self._context(row), question)
        target = self.read_target(row, ()) if is_labelled else None
        return Example(path=row.path, line=row.line, id=self._id(row), texts=texts, target=target)

    def _context(self, row: Row) -> str:
        column = self.settings["text_column"]
        return check_text(row.value(column, option="--text-column"), f"the column {column!r}", row.where)

    def read_target(self, row: Row, choices: tuple[str, ...]) -> tuple[SquadAnswer, ...]:
        """See `CustomKind.read_target`: the right answers and their first characters."""
        value, context = row.value(self.label_column, option="--label-column"), self._context(row)
        name = f"the column {self.label_column!r}"
        if is_missing(value):
            return ()
        if isinstance(value, dict):
            texts = check_list(value.get("text"), f"{name}, text", row.where)
            starts = check_list(value.get("answer_start"), f"{name}, answer_start", row.where)
        else:
            texts = value if isinstance(value, list) else [value]
            starts = [0] * len(texts)
        if len(starts) != len(texts) or not all(type(start) is int for start in starts):
            raise ValueError(f"{row.where}: {name} must have one whole number in answer_start for each text.")
        answers = []
        for text, start in zip(texts, starts, strict=True):
            answer = check_text(text, name, row.where).strip()
            place = start if start >= 0 and context.startswith(answer, start) else locate(context, answer, start)
            answers.append(SquadAnswer(answer, place))
        if answers and all(answer.start == NO_PLACE for answer in answers):
            raise ValueError(
                f"{row.where}: the text does not contain the answer {answers[0].text[:60]!r}. Correct one of them, or "
                "leave the answer empty if there is none."
            )
        return tuple(answers)

    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        """See `CustomKind.discover`: there are no labels."""
        if not any(example.target for example in train):
            raise ValueError(f"{table[0].path}: no row has an answer, so there is nothing to learn.")
        return {"labels": []}

    def columns(self, example: Example) -> dict[str, Any]:
        """See `CustomKind.columns`: those of each window are written by `write`."""
        return {}

    def write(self, split: SplitWriter, examples: Sequence[Example], encoder: Encoder, *, max_length: int) -> None:
        """See `CustomKind.write`: the files of SQuAD (`squad/prepare.py`)."""
        passages: dict[str, int] = {}
        content = SquadFile(examples[0].path)
        for example in examples:
            context, question = example.texts
            number = passages.setdefault(context, len(passages))
            content.questions.append(SquadQuestion(example.id, question, number, example.target))
        content.passages = list(passages)
        sizes = {name: self.settings[name] for name in ("question_length", "doc_stride")}
        layout = WindowLayout(max_length=max_length, **sizes)
        SplitMaker(split, content, encoder, layout, is_train=split.name == "train").run(split.name)

    def outcome(
        self,
        split: PreparedSplit,
        members: Sequence[RawOutputs],
        *,
        train: PreparedSplit,
        threshold: float | None = None,
    ) -> Outcome:
        """See `CustomKind.outcome`: the best span, or no answer if its probability is above the threshold.

        Raises:
            ValueError: if no threshold is given, and the split has no right answers to find it by.
        """
        questions = Questions(split, _RULES)
        decoded = decode(questions, members, n_best=1)
        best = [found.candidates[0].text if found.candidates else "" for found in decoded]
        null = [found.null_probability for found in decoded]
        right = [answers or [] for answers in questions.answers]
        if threshold is None:
            if not questions.is_labelled:
                raise ValueError(
                    f"The split {split.name} has no answers to find the threshold by: give --threshold, that of the "
                    "development set."
                )
            of_f1 = [score(_RULES, text, answers).f1 for text, answers in zip(best, right, strict=True)]
            given = {"has_answer": [bool(answers) for answers in right], "is_given": [bool(text) for text in best]}
            threshold = best_threshold(of_f1, null=null, **given)[1]
        limit = threshold
        predictions = ["" if value > limit else text for text, value in zip(best, null, strict=True)]

        def entries() -> Iterator[dict[str, Any]]:
            for id_, text, value, answers in zip(questions.ids, predictions, null, questions.answers, strict=True):
                entry: dict[str, Any] = {"id": id_, "prediction": text, "no_answer_probability": rounded(value)}
                yield entry if answers is None else {**entry, "label": answers}

        if not questions.is_labelled:
            return Outcome(entries=entries, num_examples=len(questions), threshold=threshold)
        scores = np.array([score(_RULES, text, answers) for text, answers in zip(predictions, right, strict=True)])
        unanswered = np.array([score(_RULES, "", answers) for answers in right])  # (Q, 2)
        return Outcome(
            entries=entries,
            num_examples=len(questions),
            measure=lambda weights: _means(scores, weights),
            baseline=_means(unanswered, np.ones(len(questions))),
            threshold=threshold,
        )


def _means(scores: Any, weights: Any) -> dict[str, float]:
    """Exact match and F1 in percent, of scores (Q, 2) and weights (Q,)."""
    exact, f1 = (100 * weights @ scores / weights.sum()).tolist()
    return {"exact": exact, "f1": f1}
