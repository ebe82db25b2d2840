"""Answers of token heads, as methods of `RobertaHub`.

Shapes: T tokens of a sequence, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from torch import Tensor

from roberta_plugin.hub import running
from roberta_plugin.hub.running import Batch

if TYPE_CHECKING:
    from roberta_plugin.hub.interface import RobertaHub


def predict(
    hub: RobertaHub, head: str, tokens: Any, *, return_logits: bool, max_length: int | None, max_tokens: int | None
) -> Tensor | list[Tensor]:
    """Run `RobertaHub.predict` with a token head."""
    hub.check_no_length(max_length)
    if isinstance(tokens, Tensor):
        output: Tensor = hub.outputs_of_ids(tokens, head)
        return output if return_logits else output.float().log_softmax(dim=-1)
    rows = token_logits(hub, hub.sequences(tokens), head, max_tokens=max_tokens)
    return rows if return_logits else [row.log_softmax(dim=-1) for row in rows]


def token_logits(
    hub: RobertaHub, sequences: Sequence[NDArray[Any]], head: str, *, max_tokens: int | None = None
) -> list[Tensor]:
    """A token head's logits (T, C) for each sequence (T,), in fp32 on the CPU."""

    def run(batch: Batch) -> list[Tensor]:
        logits = running.head_outputs(hub.model, batch, head).float().cpu()
        return [row[:length] for row, length in zip(logits, batch.lengths, strict=True)]

    return [each.clone() for each in hub.run(sequences, run, max_tokens=max_tokens)]
