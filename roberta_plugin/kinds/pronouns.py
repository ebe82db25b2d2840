"""Pronoun resolution: each candidate replaces the pronoun, and the masked-LM head scores the result.

As fairseq's examples/roberta/wsc: the score of a phrase is the mean log-probability of its tokens, all masked at once.
Candidates are the text's noun phrases (`finetuning/glue/noun_phrases.py`, where fairseq asks spaCy).

Shapes: T tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.kinds.noun_phrases import noun_phrases, rivals_of
from roberta_plugin.kinds.phrases import Schema, SchemaInputs, schema_inputs

_FORM = "Mark the pronoun with [ ], and a phrase to ask about with _ _, as in: The _trophy_ did not fit, [it] was big."


@dataclass(frozen=True, kw_only=True)
class PronounQuestion:
    """A sentence with a marked pronoun."""

    before: str
    """The text before the pronoun."""
    after: str
    """The text after it."""
    query: str | None
    """The phrase in question, if there is one."""
    candidates: tuple[str, ...]
    """Phrases that the pronoun may stand for, without the query."""

    @property
    def phrases(self) -> tuple[str, ...]:
        """The query, if there is one, and then the candidates."""
        return self.candidates if self.query is None else (self.query, *self.candidates)


def read_question(sentence: str, candidates: Sequence[str] | None = None) -> PronounQuestion:
    """Find the marks of a sentence, and the phrases that compete.

    Example: "The _trophy_ would not fit in the brown suitcase because [it] was too big." -> query "trophy", candidates
    "the brown suitcase" and "suitcase", before "The trophy would not fit in the brown suitcase because ".

    Raises:
        ValueError: if the marks are not those of `_FORM`, or there is no phrase to choose.
    """
    if sentence.count("[") != 1 or sentence.count("]") != 1 or sentence.index("[") > sentence.index("]"):
        raise ValueError(f"There must be one pronoun in brackets, got {sentence!r}. {_FORM}")
    if sentence.count("_") not in (0, 2):
        raise ValueError(f"There must be no phrase between underscores, or one, got {sentence!r}. {_FORM}")
    query = sentence.split("_")[1].strip() if "_" in sentence else None
    before, rest = sentence.replace("_", "").split("[")
    pronoun, after = rest.split("]")
    if query == "" or not pronoun.strip() or (query is not None and ("[" in query or "]" in query)):
        raise ValueError(f"The marks of {sentence!r} hold no phrase. {_FORM}")
    found = noun_phrases(before + pronoun + after) if candidates is None else candidates
    question = PronounQuestion(before=before, after=after, query=query, candidates=tuple(rivals_of(query, found)))
    if not question.phrases:
        raise ValueError(f"{sentence!r} has no noun phrase that the pronoun could stand for. Give candidates.")
    return question


def question_inputs(question: PronounQuestion, encoder: Encoder, *, max_length: int) -> SchemaInputs:
    """One sequence (T,) for each phrase of the question, which stand where the pronoun stood."""
    first, *others = question.phrases
    schema = Schema(before=question.before, after=question.after, phrase=first, rivals=tuple(others))
    return schema_inputs(schema, encoder, max_length=max_length)


def masked_positions(inputs: SchemaInputs) -> list[range]:
    """Positions of the phrase in each sequence."""
    return [range(inputs.before, len(sequence) - inputs.after) for sequence in inputs.sequences]


def answer(question: PronounQuestion, scores: NDArray[np.float64]) -> bool | str:
    """Scores of the phrases -> whether the query is the best, or else which candidate is."""
    if question.query is not None:
        return bool((scores[0] >= scores[1:]).all())
    return question.candidates[int(scores.argmax())]
