"""Classes for each token, with the answers of `RobertaHub.predict` by them, and a score for each of some places.

Shapes: B texts, T positions, D model dimension, C classes; V places of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from typing_extensions import override

from roberta_plugin.hub import running
from roberta_plugin.models.cpu import Linear
from roberta_plugin.models.heads import Encoder, Head


class MadeTokenHead(Head):
    """Features (B, T, D) -> logits (B, T, C)."""

    kind = "made_token"
    reads = "all"
    output_ranks = (3,)

    def __init__(self, encoder: Encoder, *, num_classes: int, num_layers: int = 0) -> None:
        super().__init__(encoder)
        self.layers = nn.ModuleList(
            Linear(encoder.cfg.encoder_embed_dim, encoder.cfg.encoder_embed_dim) for _ in range(num_layers)
        )
        self.out_proj = Linear(encoder.cfg.encoder_embed_dim, num_classes)

    @staticmethod
    @override
    def read_sizes(parameters: Mapping[str, Tensor]) -> dict[str, int]:
        return {"num_classes": len(parameters["out_proj.weight"]), "num_layers": _count_layers(parameters)}

    def forward(self, features: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, C)."""
        for layer in self.layers:
            features = layer(features)
        logits: Tensor = self.out_proj(features)
        return logits


class MadePlaceHead(Head):
    """Features of places (V, D) -> scores (V,), by layers like the encoder's."""

    kind = "made_place"
    reads = "places"
    output_ranks = (1,)

    def __init__(self, encoder: Encoder, *, num_layers: int) -> None:
        super().__init__(encoder)
        self.layers = nn.ModuleList(encoder.new_layer() for _ in range(num_layers))
        self.out_proj = Linear(encoder.cfg.encoder_embed_dim, 1)

    @staticmethod
    @override
    def read_sizes(parameters: Mapping[str, Tensor]) -> dict[str, int]:
        return {"num_layers": _count_layers(parameters)}

    def forward(self, features: Tensor) -> Tensor:
        """(V, D) -> (V,)."""
        scores: Tensor = self.out_proj(features)[:, 0]
        return scores


def _count_layers(parameters: Mapping[str, Tensor]) -> int:
    return len({name.split(".")[1] for name in parameters if name.startswith("layers.")})


def predict(
    hub: Any, head: str, tokens: Any, *, return_logits: bool, max_length: int | None, max_tokens: int | None
) -> Any:
    """The answers of `RobertaHub.predict` by this head."""
    hub.check_no_length(max_length)
    if isinstance(tokens, Tensor):
        logits = hub.outputs_of_ids(tokens, head)
        return logits if return_logits else logits.float().log_softmax(dim=-1)

    def run(batch: running.Batch) -> list[Tensor]:
        rows = running.head_outputs(hub.model, batch, head).float().cpu()
        return [row[:length] for row, length in zip(rows, batch.lengths, strict=True)]

    rows = [each.clone() for each in hub.run(hub.sequences(tokens), run, max_tokens=max_tokens)]
    return rows if return_logits else [row.log_softmax(dim=-1) for row in rows]
