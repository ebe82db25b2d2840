"""The parameters of fine-tuned heads in checkpoints, which are called KIND_heads.NAME.*."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any, Protocol

from torch import Tensor, nn

from roberta_plugin.registry import HEADS

logger = logging.getLogger(__name__)

CLASSIFICATION = "classification_heads."
_HEAD = re.compile(r"[a-z0-9_]+_heads\.")


class HasHeads(Protocol):
    """A model with heads by name."""

    heads: nn.ModuleDict
    cfg: Any
    encoder: Any
    takes_segments: bool

    def register_head(self, name: str, kind: str, **sizes: int) -> None:
        """Add a head with fresh weights."""

    def state_dict(self) -> dict[str, Tensor]:  # type: ignore[empty-body]
        """All parameters by the names of files."""


def is_of_head(name: str) -> bool:
    """True for the parameters of fine-tuned heads, which are called KIND_heads.NAME.*, of registered kinds or not."""
    return _HEAD.match(name) is not None


def head_prefixes(parameters: Iterable[str]) -> list[str]:
    """The prefixes KIND_heads. of the fine-tuned heads among some parameters."""
    return sorted({match[0] for name in parameters if (match := _HEAD.match(name))})


def reconcile_heads(model: HasHeads, state: dict[str, Any]) -> None:
    """Load the heads of the checkpoint that fit the model, drop the others, and keep the model's own for the rest."""
    if model.cfg.load_checkpoint_heads:
        _register_heads(model, state)
    heads = {name: value for name, value in model.state_dict().items() if is_of_head(name)}
    for head in sorted({".".join(name.split(".")[:2]) for name in state if is_of_head(name)}):
        theirs, ours = (
            {name: value.shape for name, value in each.items() if name.startswith(f"{head}.")}
            for each in (state, heads)
        )
        if theirs != ours:
            logger.warning(f"{head} of the checkpoint does not fit this model and is left out")
            for name in theirs:
                del state[name]
    for name, value in heads.items():
        state.setdefault(name, value)


def _register_heads(model: HasHeads, state: dict[str, Any]) -> None:
    for prefix_of_kind in head_prefixes(state):
        kind = prefix_of_kind.removesuffix("_heads.")
        head_class = HEADS.load(kind, "head")
        for name in sorted({key.split(".")[1] for key in state if key.startswith(f"{kind}_heads.")}):
            if name not in model.heads:
                prefix = f"{kind}_heads.{name}."
                parameters = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
                model.register_head(name, kind, **head_class.read_sizes(parameters))
