"""A question and a context of any length -> a span of the context, and the probability that it holds no answer.

The context is cut into overlapping windows as in fine-tuning (`kinds/windows.py`), and the spans of all
windows compete (`finetuning/squad/predictions.py`). No answer is given above a probability of none of --null-threshold,
or of the threshold of the development set if the model is the output folder of `roberta finetune`, or of 0.5.

Example: {"question": "Who?", "context": "It was Ann."} -> {"answer": "Ann", "probability": 0.9, "start": 7, "end": 10,
"no_answer_probability": 0.1, "candidates": [{"text": "Ann", "probability": 0.9, "start": 7, "end": 10}, ...]}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers.offsets import LocatedTokens
from roberta_plugin.hub import RobertaHub
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.passages import LINE_ENDS
from roberta_plugin.kinds.questions import Decoded, Questions, decode
from roberta_plugin.kinds.windows import (
    BEFORE_PASSAGE,
    NUM_SPECIALS,
    QUESTION_LENGTH,
    WindowLayout,
    cut,
    is_blank,
    question_length,
)
from roberta_plugin.prediction.kinds.base import Answer, Kind, chosen_head, text_of
from roberta_plugin.prediction.settings import PredictSettings

_COLUMNS = ("question", "passage", "passage_token", "passage_length", "best_start", "best_stop")


class Question(NamedTuple):
    """A question and the text that is searched."""

    text: str
    context: str


class QuestionsInMemory(Questions):
    """Questions of records instead of a prepared split, each with a passage of its own."""

    def __init__(self, contexts: Sequence[str], located: Sequence[LocatedTokens]) -> None:
        self.ids = [str(number) for number in range(len(contexts))]
        self._passages = list(contexts)
        self._passage_of = list(range(len(contexts)))
        blank = [is_blank(text, tokens) for text, tokens in zip(contexts, located, strict=True)]
        facts: dict[str, Any] = {  # stored in files by a split
            "columns": {name: [] for name in _COLUMNS},
            "_is_blank": np.concatenate([np.empty(0, np.bool_), *blank]),
            "_char_starts": np.concatenate([np.empty(0, np.int32), *(tokens.starts for tokens in located)]),
            "_char_ends": np.concatenate([np.empty(0, np.int32), *(tokens.ends for tokens in located)]),
            "_first_token": np.cumsum([0, *(len(tokens.ids) for tokens in located)]).tolist(),
            "windows_of": [],
        }
        self.__dict__.update(facts)

    def add_windows(self, windows: Sequence[Mapping[str, int]]) -> None:
        """Append the windows of the next question, each with `_COLUMNS` but "question"."""
        number, first = len(self.windows_of), len(self.columns["question"])
        for window in windows:
            for name in _COLUMNS:
                self.columns[name].append(window.get(name, number))
        self.windows_of.append(np.arange(first, first + len(windows)))


class QuestionAnswering(Kind):
    """A span head over windows of the context."""

    name = "question_answering"
    columns = ("context", "question")
    threshold = "null_threshold"

    def __init__(self, hub: RobertaHub, settings: PredictSettings) -> None:
        super().__init__(hub, settings)
        self.head = chosen_head(hub.heads_of("span"), settings.head, kind=self.name)
        known: dict[str, Any] = {
            "question_length": question_length(self.max_length, QUESTION_LENGTH)
        }  # if it is not known
        known |= {name: self.trained[name] for name in ("question_length", "doc_stride") if name in self.trained}
        self.layout = WindowLayout.of(self.max_length, **known)
        self.limit = self.chosen_threshold()
        self.may_be_unanswerable = hub.trained_on.get("task") != "squad1"

    def read(self, record: Mapping[str, Any]) -> Question:
        """See `Kind.read`."""
        own = (self.trained.get("text_pair_column"), self.trained.get("text_column"))  # of own data
        names = [
            (usual, *((given,) if given else ())) for usual, given in zip(("question", "context"), own, strict=True)
        ]
        return Question(text_of(record, *names[0]), text_of(record, *names[1]))

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """See `Kind.answer`; a question that is too long is cut as in fine-tuning."""
        answers: list[Answer | None] = [None] * len(questions)
        places, located = [], []
        for place, each in enumerate(questions):
            try:
                tokens = self.hub.tokenizer.locate(each.context.translate(LINE_ENDS))
                if not len(tokens.ids):
                    raise ValueError("it has no tokens. Give another text.")
            except ValueError as error:
                answers[place] = ValueError(f"the field 'context': {error}")
                continue
            places.append(place)
            located.append(tokens)
        asked = [questions[place] for place in places]
        found = self._decode(asked, located) if asked else []
        for place, decoded in zip(places, found, strict=True):
            answers[place] = self._entry(decoded)
        return [each for each in answers if each is not None]

    def _decode(self, asked: Sequence[Question], located: Sequence[LocatedTokens]) -> list[Decoded]:
        memory = QuestionsInMemory([each.context for each in asked], located)
        ids = self.hub.codec.encoder.ids_of_all([each.text.translate(LINE_ENDS).strip() for each in asked])
        sequences: list[NDArray[np.int32]] = []
        for question_ids, tokens in zip(ids, located, strict=True):
            memory.add_windows(self._windows(question_ids[: self.layout.question_length], tokens, sequences))
        outputs = self.hub.span_outputs(sequences, self.head, max_tokens=self.settings.batch_tokens)
        raw = RawOutputs(
            start_logits=[each.start.numpy() for each in outputs],
            end_logits=[each.end.numpy() for each in outputs],
            answerable_logits=np.array([float(each.answerable) for each in outputs], dtype=np.float32),
        )
        return decode(memory, [raw], n_best=self.settings.top_k)

    def _windows(
        self, question: NDArray[np.int32], tokens: LocatedTokens, sequences: list[NDArray[np.int32]]
    ) -> list[dict[str, int]]:
        """Append the model's input of each window of a context to `sequences`; return the windows' columns."""
        encoder = self.hub.codec.encoder
        passage = encoder.to_model_id[tokens.ids]
        position = len(question) + BEFORE_PASSAGE
        columns = []
        room = self.layout.max_length - NUM_SPECIALS - len(question)
        for window in cut(len(passage), room=room, stride=self.layout.doc_stride):
            part = passage[window.start : window.start + window.length]
            sequences.append(encoder.join(question, part, max_length=self.layout.max_length))
            shift = position - window.start
            columns.append(
                {
                    "passage": position,
                    "passage_token": window.start,
                    "passage_length": window.length,
                    "best_start": window.best_start + shift,
                    "best_stop": window.best_stop + shift,
                }
            )
        return columns

    def _entry(self, decoded: Decoded) -> dict[str, Any]:
        candidates = [
            {"text": text, "probability": round(math.exp(value), 6), "start": start, "end": stop}
            for text, value, start, stop in decoded.candidates
        ]
        entry: dict[str, Any] = {"answer": "", "probability": 0.0}
        if candidates:
            best = candidates[0]
            entry = {"answer": best["text"], **{name: best[name] for name in ("probability", "start", "end")}}
        if self.may_be_unanswerable:
            null = decoded.null_probability
            if null > self.limit:
                entry = {"answer": "", "probability": round(null, 6)}
            entry["no_answer_probability"] = round(null, 6)
        return {**entry, "candidates": candidates}
