"""Compare a checkpoint's heads and sizes with those of the model that loads it.

The encoder must fit. Heads need not: fine-tuning starts from a model with other heads, or none.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from torch import Tensor, nn

from roberta_plugin.models.checkpoints.names import POSITIONS, ROWS_BEFORE_POSITIONS, TOKENS

logger = logging.getLogger(__name__)

CLASSIFICATION, SPAN, TOKEN, SENTENCE = "classification_heads.", "span_heads.", "token_heads.", "sentence_heads."
ALL_HEADS = (CLASSIFICATION, SPAN, TOKEN, SENTENCE)


class HasHeads(Protocol):
    """A model with heads by name."""

    classification_heads: nn.ModuleDict
    span_heads: nn.ModuleDict
    token_heads: nn.ModuleDict
    sentence_heads: nn.ModuleDict
    cfg: Any

    def register_classification_head(self, name: str, num_classes: int | None, inner_dim: int | None) -> None:
        """Add a head with fresh weights."""

    def register_span_head(self, name: str) -> None:
        """Add a head that finds spans, with fresh weights."""

    def register_token_head(self, name: str, num_classes: int) -> None:
        """Add a head with classes for each token, with fresh weights."""

    def register_sentence_head(self, name: str, *, num_layers: int) -> None:
        """Add a head that scores sentences, with fresh weights."""

    def state_dict(self) -> dict[str, Tensor]:  # type: ignore[empty-body]
        """All parameters by name."""


def reconcile_heads(model: HasHeads, state: dict[str, Any]) -> None:
    """Load the heads of the checkpoint that fit the model, drop the others, and keep the model's own for the rest."""
    if model.cfg.load_checkpoint_heads:
        _register_heads(model, state)
    own = {name: value for name, value in model.state_dict().items() if name.startswith(ALL_HEADS)}
    for head in sorted({".".join(name.split(".")[:2]) for name in state if name.startswith(ALL_HEADS)}):
        names = [name for name in state if name.startswith(f"{head}.")]
        if any(name not in own or own[name].shape != state[name].shape for name in names):
            logger.warning(f"{head} of the checkpoint does not fit this model and is left out")
            for name in names:
                del state[name]
    for name, value in own.items():
        state.setdefault(name, value)


def _register_heads(model: HasHeads, state: dict[str, Any]) -> None:
    for name in sorted({key.split(".")[1] for key in state if key.startswith(CLASSIFICATION)}):
        if name not in model.classification_heads:
            num_classes = state[f"{CLASSIFICATION}{name}.out_proj.weight"].size(0)
            model.register_classification_head(name, num_classes, state[f"{CLASSIFICATION}{name}.dense.weight"].size(0))
    for name in sorted({key.split(".")[1] for key in state if key.startswith(SPAN)}):
        if name not in model.span_heads:
            model.register_span_head(name)
    for name in sorted({key.split(".")[1] for key in state if key.startswith(TOKEN)}):
        if name not in model.token_heads:
            model.register_token_head(name, len(state[f"{TOKEN}{name}.out_proj.weight"]))
    for name in sorted({key.split(".")[1] for key in state if key.startswith(SENTENCE)}):
        if name not in model.sentence_heads:
            layers = {key.split(".")[3] for key in state if key.startswith(f"{SENTENCE}{name}.layers.")}
            model.register_sentence_head(name, num_layers=len(layers))


def check_sizes(model: HasHeads, state: dict[str, Any]) -> None:
    """Refuse a checkpoint of another vocabulary or another number of positions, which torch would report as shapes.

    Raises:
        ValueError: naming both numbers and what to do.
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
