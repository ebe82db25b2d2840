"""A context, a question and options -> the most probable option.

In TSV, the options are the columns option1, option2 and so on.

Example: {"context": "She opens the hood.", "question": "Then, she", "options": ["drives.", "looks at the engine."]} ->
{"answer": 1, "option": "looks at the engine.", "probabilities": [0.1, 0.9]}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import Any, NamedTuple

from roberta_plugin.finetuning.options import RaceOptions
from roberta_plugin.finetuning.race.inputs import QUESTION_LENGTH, ChoiceLayout, one_line, question_with_option
from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction.kinds.base import Answer, Kind, marked, text_of
from roberta_plugin.prediction.settings import PredictSettings


class Choice(NamedTuple):
    """A question."""

    context: str
    question: str
    options: tuple[str, ...]


class MultipleChoice(Kind):
    """The score of each option, by a head with one output."""

    name = "multiple_choice"

    def __init__(self, hub: RobertaHub, settings: PredictSettings) -> None:
        super().__init__(hub, settings)
        self.head = self.score_head()
        known: dict[str, Any] = {"question_length": min(QUESTION_LENGTH, self.max_length // 3)}  # if it is not known
        known |= {name: self.trained[name] for name in ("question_length", "order") if name in self.trained}
        self.layout = ChoiceLayout.of(self.max_length, RaceOptions(**known))

    def read(self, record: Mapping[str, Any]) -> Choice:
        """See `Kind.read`."""
        context = text_of(record, "context", "article", "passage")
        question = record.get("question", "")
        options = record.get("options")
        if options is None:
            options = [record[name] for name in takewhile(record.__contains__, (f"option{i}" for i in count(1)))]
        if not isinstance(question, str):
            raise ValueError(f"the field 'question' holds {str(question)[:40]} instead of a text. Give a text.")
        if not isinstance(options, list) or len(options) < 2 or not all(isinstance(each, str) for each in options):
            raise ValueError("the field 'options' must be a list of two texts or more. Correct it.")
        return Choice(context, question, tuple(options))

    def answer(self, questions: Sequence[Choice]) -> list[Answer]:
        """See `Kind.answer`; what is too long is cut as in fine-tuning."""
        encoder = self.hub.codec.encoder
        contexts = encoder.ids_of_all([one_line(each.context) for each in questions])
        options = iter(
            encoder.ids_of_all(
                [question_with_option(each.question, option) for each in questions for option in each.options]
            )
        )
        sequences, cut = [], []
        for each, context in zip(questions, contexts, strict=True):
            whole = 0
            for _ in each.options:
                ids = next(options)
                sequences.append(self.layout.join(encoder.vocabulary, context, ids))
                whole += len(context) + len(ids) + 4 > len(sequences[-1])
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
