"""Make a checkpoint fit the model that loads it.

The encoder must fit. Heads need not: fine-tuning starts from a model with other heads, or none. And one of the two may
lack the parts for pairs of texts: segments and next-sentence prediction. A model without segment embeddings is one
whose tokens are all of segment 0. So that row is added to the positions when it takes over a checkpoint with them: the
same input gives the same features.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from torch import Tensor, nn

from roberta_plugin.models.checkpoints.names import ALL_HEADS, POSITIONS, ROWS_BEFORE_POSITIONS, TOKENS
from roberta_plugin.models.heads import HEADS

logger = logging.getLogger(__name__)

SEGMENTS = "encoder.sentence_encoder.segment_embeddings.weight"
NEXT_SENTENCE = "encoder.next_sentence_head."


class HasHeads(Protocol):
    """A model with heads by name."""

    heads: nn.ModuleDict
    cfg: Any

    def register_head(self, name: str, kind: str, **sizes: int) -> None:
        """Add a head with fresh weights."""

    def state_dict(self) -> dict[str, Tensor]:  # type: ignore[empty-body]
        """All parameters by the names of files."""


def check_sizes(model: HasHeads, state: dict[str, Any]) -> None:
    """Refuse a checkpoint of another vocabulary or another number of positions, which torch would report as shapes."""
    own = model.state_dict()
    if TOKENS in state and len(state[TOKENS]) != len(own[TOKENS]):
        raise ValueError(
            f"The checkpoint has a vocabulary of {len(state[TOKENS]):,} symbols, and the data one of "
            f"{len(own[TOKENS]):,}: make the data with the tokenizer and the dict.txt of that model."
        )
    if POSITIONS in state and len(state[POSITIONS]) != len(own[POSITIONS]):
        theirs, ours = (len(some[POSITIONS]) - ROWS_BEFORE_POSITIONS for some in (state, own))
        raise ValueError(
            f"The checkpoint has {theirs} positions, and this model {ours}: give --max-positions {theirs}."
        )


def reconcile_pairs(model: HasHeads, state: dict[str, Any]) -> None:
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


def reconcile_heads(model: HasHeads, state: dict[str, Any]) -> None:
    """Load the heads of the checkpoint that fit the model, drop the others, and keep the model's own for the rest."""
    if model.cfg.load_checkpoint_heads:
        _register_heads(model, state)
    own = {name: value for name, value in model.state_dict().items() if name.startswith(ALL_HEADS)}
    for head in sorted({".".join(name.split(".")[:2]) for name in state if name.startswith(ALL_HEADS)}):
        theirs, ours = (
            {name: value.shape for name, value in some.items() if name.startswith(f"{head}.")} for some in (state, own)
        )
        if theirs != ours:
            logger.warning(f"{head} of the checkpoint does not fit this model and is left out")
            for name in theirs:
                del state[name]
    for name, value in own.items():
        state.setdefault(name, value)


def _register_heads(model: HasHeads, state: dict[str, Any]) -> None:
    for kind, head_class in HEADS.items():
        for name in sorted({key.split(".")[1] for key in state if key.startswith(f"{kind}_heads.")}):
            if name not in model.heads:
                prefix = f"{kind}_heads.{name}."
                parameters = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
                model.register_head(name, kind, **head_class.sizes_of(parameters))
