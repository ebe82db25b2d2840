"""Answers of span heads, as methods of `RobertaHub`.

Shapes: T tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from torch import Tensor

from roberta_plugin.extensions.spans.head import SpanLogits
from roberta_plugin.hub import running
from roberta_plugin.hub.running import Batch

if TYPE_CHECKING:
    from roberta_plugin.hub.interface import RobertaHub


def predict(
    hub: RobertaHub, head: str, tokens: Any, *, return_logits: bool, max_length: int | None, max_tokens: int | None
) -> SpanLogits | list[SpanLogits]:
    """Run `RobertaHub.predict` with a span head."""
    hub.check_no_length(max_length)
    if isinstance(tokens, Tensor):
        return SpanLogits(*hub.outputs_of_ids(tokens, head))
    return span_outputs(hub, hub.sequences(tokens), head, max_tokens=max_tokens)


def span_outputs(
    hub: RobertaHub, sequences: Sequence[NDArray[Any]], head: str, *, max_tokens: int | None = None
) -> list[SpanLogits]:
    """A span head's logits for each sequence (T,), in fp32: two (T,) and one ()."""

    def run(batch: Batch) -> list[SpanLogits]:
        start, end, answerable = (part.float().cpu() for part in running.head_outputs(hub.model, batch, head))
        return [
            SpanLogits(start[row, :length], end[row, :length], answerable[row])
            for row, length in enumerate(batch.lengths)
        ]

    return [SpanLogits(*(part.clone() for part in each)) for each in hub.run(sequences, run, max_tokens=max_tokens)]
