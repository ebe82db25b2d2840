"""Converts between models with and without the parts for pairs of texts: segments and next-sentence prediction.

A model without segment embeddings is one whose tokens are all of segment 0. So that row is added to the positions when
it takes over a checkpoint with them: the same input gives the same features.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from torch import Tensor

from roberta_plugin.models.checkpoints.names import POSITIONS, ROWS_BEFORE_POSITIONS

logger = logging.getLogger(__name__)

SEGMENTS = "encoder.sentence_encoder.segment_embeddings.weight"
NEXT_SENTENCE = "encoder.next_sentence_head."


class HasState(Protocol):
    """A model."""

    def state_dict(self) -> dict[str, Tensor]:  # type: ignore[empty-body]
        """All parameters by name."""


def reconcile_pairs(model: HasState, state: dict[str, Any]) -> None:
    """Make the checkpoint `state` fit a model with or without segment embeddings and next-sentence prediction.

    Changes `state` in place, and logs the parts that are left out or begin with fresh weights.
    """
    own = model.state_dict()
    if SEGMENTS in state and SEGMENTS not in own:
        positions = state[POSITIONS].clone()
        positions[ROWS_BEFORE_POSITIONS:] += state.pop(SEGMENTS)[0].to(positions.dtype)
        state[POSITIONS] = positions
        logger.info(
            "the checkpoint has segment embeddings and this model has none: that of the first segment is added to the "
            "positions, that of the second is left out"
        )
    elif SEGMENTS in own and SEGMENTS not in state:
        state[SEGMENTS] = own[SEGMENTS] * 0.0
        logger.info("the checkpoint has no segment embeddings: those of this model begin at zero")
    theirs, ours = ([name for name in some if name.startswith(NEXT_SENTENCE)] for some in (state, own))
    if theirs and not ours:
        for name in theirs:
            del state[name]
        logger.info("the checkpoint's head of next-sentence prediction is left out: this model has none")
    elif ours and not theirs:
        state.update({name: own[name] for name in ours})
        logger.info("the checkpoint has no head of next-sentence prediction: that of this model begins untrained")
