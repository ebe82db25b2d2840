"""A context, a question and options -> the most probable option.

In TSV, the options are the columns option1, option2 and so on.

Models of COPA, ReCoRD and CommonsenseQA take the fields of these tasks instead (`superglue/choices/rows.py`).

Example: {"context": "She opens the hood.", "question": "Then, she", "options": ["drives.", "looks at the engine."]} ->
{"answer": 1, "option": "looks at the engine.", "probabilities": [0.1, 0.9]}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count, takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.superglue.choices.rows import row_of
from roberta_plugin.finetuning.superglue.choices.tasks import TASKS
from roberta_plugin.hub import RobertaHub
from roberta_plugin.kinds.choices import NUM_SPECIALS, QUESTION_LENGTH, ChoiceLayout, one_line, question_with_option
from roberta_plugin.kinds.windows import question_length
from roberta_plugin.prediction.kinds.base import Answer, Kind, marked, text_of
from roberta_plugin.prediction.settings import PredictSettings


class Choice(NamedTuple):
    """A question."""

    context: str
    options: tuple[str, ...]
    seconds: tuple[str, ...]
    """The text after the context, for each option."""


class MultipleChoice(Kind):
    """The score of each option, by a head with one output."""

    name = "multiple_choice"
    columns = ("context", "question")

    def __init__(self, hub: RobertaHub, settings: PredictSettings) -> None:
        super().__init__(hub, settings)
        self.head = self.score_head()
        encoder, task = hub.codec.encoder, str(hub.trained_on.get("task"))
        self.task = task if task in TASKS else None
        self.num_specials = NUM_SPECIALS
        self.join: Callable[[NDArray[np.int32], NDArray[np.int32]], NDArray[np.int32]]
        if self.task is not None:
            separators = TASKS[self.task].separators
            self.num_specials = 2 + separators
            self.join = partial(encoder.join, max_length=self.max_length, separators=separators)
        else:
            known: dict[str, Any] = {
                "question_length": question_length(self.max_length, QUESTION_LENGTH)
            }  # if not known
            known |= {name: self.trained[name] for name in ("question_length", "order") if name in self.trained}
            self.join = partial(ChoiceLayout.of(self.max_length, **known).join, encoder.vocabulary)

    def read(self, record: Mapping[str, Any]) -> Choice:
        """See `Kind.read`."""
        if self.task is not None:
            row = row_of(self.task, record)
            return Choice(row.text, row.options, row.seconds)
        own = self.trained.get("text_column"), self.trained.get("text_pair_column")  # of own data
        context = text_of(record, "context", "article", "passage", *filter(None, own[:1]))
        question = record.get("question", record.get(own[1], "") if own[1] else "")
        columns = self.trained.get("choices_columns") or ["options"]
        options = record.get("options", record.get(columns[0]) if len(columns) == 1 else None)
        if options is None and len(columns) > 1 and all(name in record for name in columns):
            options = [record[name] for name in columns]
        if options is None:
            options = [record[name] for name in takewhile(record.__contains__, (f"option{i}" for i in count(1)))]
        if not isinstance(question, str):
            raise ValueError(f"the field 'question' holds {str(question)[:40]} instead of a text. Give a text.")
        if not isinstance(options, list) or len(options) < 2 or not all(isinstance(each, str) for each in options):
            raise ValueError("the field 'options' must be a list of two texts or more. Correct it.")
        seconds = tuple(question_with_option(question, option) for option in options)
        return Choice(one_line(context), tuple(options), seconds)

    def answer(self, questions: Sequence[Choice]) -> list[Answer]:
        """See `Kind.answer`; long inputs are cut as in fine-tuning."""
        encoder = self.hub.codec.encoder
        contexts = encoder.ids_of_all([each.context for each in questions])
        options = iter(encoder.ids_of_all([second for each in questions for second in each.seconds]))
        sequences, cut = [], []
        for each, context in zip(questions, contexts, strict=True):
            whole = 0
            for _ in each.options:
                ids = next(options)
                sequences.append(self.join(context, ids))
                whole += len(context) + len(ids) + self.num_specials > len(sequences[-1])
            cut.append(whole > 0)
        logits = self.hub.class_logits(sequences, self.head, max_tokens=self.settings.batch_tokens)
        answers: list[Answer] = []
        parts = logits[:, 0].double().split([len(each.options) for each in questions])
        for each, part, is_cut in zip(questions, parts, cut, strict=True):
            best = int(part.argmax())
            probabilities = [round(value, 6) for value in part.softmax(dim=0).tolist()]
            content = {"answer": best, "option": each.options[best], "probabilities": probabilities}
            answers.append(marked(content, is_cut=is_cut))
        return answers
