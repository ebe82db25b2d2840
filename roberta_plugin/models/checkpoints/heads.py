"""Compare a checkpoint's heads and sizes with those of the model that loads it.

The encoder must fit. Heads need not: fine-tuning starts from a model with other heads, or none.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from torch import Tensor, nn

from roberta_plugin.models.checkpoints.names import ALL_HEADS, POSITIONS, ROWS_BEFORE_POSITIONS, TOKENS
from roberta_plugin.models.heads import HEADS

logger = logging.getLogger(__name__)


class HasHeads(Protocol):
    """A model with heads by name."""

    heads: nn.ModuleDict
    cfg: Any

    def register_head(self, name: str, kind: str, **sizes: int) -> None:
        """Add a head with fresh weights."""

    def state_dict(self) -> dict[str, Tensor]:  # type: ignore[empty-body]
        """All parameters by the names of files."""


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


def check_sizes(model: HasHeads, state: dict[str, Any]) -> None:
    """Refuse a checkpoint of another vocabulary or another number of positions, which torch would report as shapes.

    Raises:
        ValueError: naming both numbers and the remedy.
    """
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
