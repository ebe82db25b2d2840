"""`RobertaHub.disambiguate_pronoun`, as in fairseq's hub interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from roberta_plugin.extensions.pronouns import kind as phrase_ranking
from roberta_plugin.hub.texts import texts_in

if TYPE_CHECKING:
    from roberta_plugin.hub.interface import RobertaHub


def disambiguate_pronoun(hub: RobertaHub, sentence: str, candidates: Sequence[str] | None = None) -> bool | str:
    """Resolve a pronoun: True if it means the marked phrase or, without one, the phrase that it means.

    "The _trophy_ would not fit in the brown suitcase because [it] was too big." asks about a phrase, and the answer
    is True or False. Without underscores, the answer is the most probable candidate.

    Args:
        sentence: a sentence with the pronoun in brackets.
        candidates: phrases to compare; None: the noun phrases of the sentence.

    Raises:
        ValueError: if the marks are wrong, or there is nothing to choose.
    """
    (sentence,) = texts_in([sentence], most=1)
    candidates = None if candidates is None else texts_in(candidates, most=1, what="candidate")
    question = phrase_ranking.read_question(sentence, candidates)
    inputs = phrase_ranking.schema_inputs(question, hub.codec.encoder, max_length=hub.max_positions)
    scores = hub.score_spans(inputs.sequences, phrase_ranking.masked_positions(inputs))
    return phrase_ranking.answer(question, np.array(scores))
