"""Features -> predictions: the heads of fine-tuning, one class per kind, pretraining's heads, and a vector per text.

Kinds are registered in `registry.HEADS`; `FastRobertaModel.register_head` builds a head, `forward` gives it what it
`reads`, and checkpoints call its parameters KIND_heads.NAME.* (see `checkpoints.py`).

Shapes: B blocks or texts, T positions, D model dimension, C classes; V sentences of a batch, B documents, M most
sentences of a document. In the heads of pretraining: M predicted positions in the batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Protocol, get_args

import torch
from torch import Tensor, nn
from typing_extensions import override

from roberta_plugin.models.compiling import CompilesParts
from roberta_plugin.models.config import ACTIVATIONS, FastRobertaConfig
from roberta_plugin.models.cpu import Dropout, Linear, Product, linear
from roberta_plugin.models.linear_cross_entropy import pad_vocabulary, plain, summed_cross_entropy, uses_plain_path

Pooling = Literal["mean", "first", "max"]
POOLINGS: tuple[str, ...] = get_args(Pooling)


def pool(features: Tensor, is_token: Tensor, pooling: str, *, skipped: int = 0) -> Tensor:
    """Features (B, T, D) -> vectors (B, D): their mean or largest values over all tokens, or the vector of <s>.

    <s> and </s> are tokens, too; `is_token` (B, T) is False at padding. The first `skipped` positions, of a prompt, are
    left out.
    """
    check_pooling(pooling)
    if pooling == "first":
        return features[:, skipped]
    if skipped:
        features, is_token = features[:, skipped:], is_token[:, skipped:]
    if pooling == "max":
        return features.masked_fill(~is_token[..., None], -torch.inf).amax(dim=1)
    sums = features.masked_fill(~is_token[..., None], 0.0).sum(dim=1)
    return sums / is_token.sum(dim=1, keepdim=True)


def check_pooling(pooling: str) -> None:
    """Refuse an unknown way of pooling."""
    if pooling not in POOLINGS:
        raise ValueError(f"pooling must be {', '.join(map(repr, POOLINGS[:-1]))} or {POOLINGS[-1]!r}, got {pooling!r}.")


class Encoder(Protocol):
    """The interface that a head needs of the encoder below it."""

    cfg: FastRobertaConfig

    def new_layer(self) -> nn.Module:
        """A layer like the encoder's, with fresh weights."""


class Head(nn.Module):
    """A head on top of an encoder, with fresh weights."""

    kind: ClassVar[str]
    reads: ClassVar[Literal["first", "all", "places"]]
    """Its input: features of each <s> (B, 1, D), of all tokens (B, T, D), or of places that the batch names (V, D)."""

    output_ranks: ClassVar[tuple[int, ...]] = (2,)
    """Dimensions of each of its outputs, where it is exported; with one output, the last has the classes."""

    def __init__(self, encoder: Encoder, **sizes: Any) -> None:
        super().__init__()

    @staticmethod
    def read_sizes(parameters: Mapping[str, Tensor]) -> dict[str, int]:
        """The sizes that the class was built with, from its parameters by name."""
        return {}


class ClassificationHead(Head):
    """Features of the first token -> logits of the classes, with fairseq's parameter names."""

    kind = "classification"
    reads = "first"

    def __init__(self, encoder: Encoder, *, num_classes: int, inner_dim: int | None = None) -> None:
        super().__init__(encoder)
        dim = encoder.cfg.encoder_embed_dim
        self.dense = Linear(dim, inner_dim or dim)
        self.activation = ACTIVATIONS[str(encoder.cfg.pooler_activation_fn)]
        self.dropout = Dropout(encoder.cfg.pooler_dropout)
        self.out_proj = Linear(inner_dim or dim, num_classes)

    @staticmethod
    @override
    def read_sizes(parameters: Mapping[str, Tensor]) -> dict[str, int]:
        return {"num_classes": len(parameters["out_proj.weight"]), "inner_dim": len(parameters["dense.weight"])}

    def forward(self, features: Tensor) -> Tensor:
        """(B, T, D) -> (B, C)."""
        x = self.dropout(features[:, 0])  # (B, T, D) -> (B, D): <s>
        x = self.dropout(self.activation(self.dense(x)))
        logits: Tensor = self.out_proj(x)
        return logits


def pool_windows(features: Tensor, *, first: Tensor, pooling: str) -> Tensor:
    """Features (S, 1, D) of windows -> features of documents (B, 1, D), by "mean" or "max" (Sun et al. 2019, 5.3.1).

    Args:
        features: of the <s> of each window. Windows of padding, behind the last document, have no meaning.
        first: document b has the windows first[b] to first[b + 1] (B + 1,).
        pooling: "mean" or "max".
    """
    # unsafe: without a check of `first`, for which the host would have to wait
    pooled: Tensor = torch.segment_reduce(features[:, 0], pooling, offsets=first, unsafe=True)
    return pooled[:, None]


class MaskedLMHead(CompilesParts, nn.Module):
    """Features -> logits over the vocabulary, or the loss directly."""

    def __init__(
        self,
        dim: int,
        *,
        activation: Callable[[Tensor], Tensor],
        vocab_size: int,
        weight: nn.Parameter | None,
        new_norm: Callable[[int], nn.Module] = nn.LayerNorm,
        has_bias: bool = True,
        init_std: float = 0.02,
    ) -> None:
        """The output matrix is `weight` (V, D), the token embeddings, or without it a separate matrix."""
        super().__init__()
        self.dense = Linear(dim, dim, bias=has_bias)
        self.activation = activation
        self.layer_norm = new_norm(dim)
        self.weight = nn.Parameter(torch.empty(vocab_size, dim).normal_(0.0, init_std)) if weight is None else weight
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.products: tuple[Product, Product] | None = None
        """Products with `dense` and the output matrix if predictions have another precision than fp32."""

    def forward(self, features: Tensor, *, masked_tokens: Tensor | None = None) -> Tensor:
        """(B, T, D) -> logits (B, T, V), or (M, V) for the positions where `masked_tokens` (B, T) is set."""
        if masked_tokens is not None:
            features = features[masked_tokens]  # (B, T, D) -> (M, D)
        if self.products is not None:
            dense, vocabulary = self.products
            hidden = self.layer_norm(self.activation(dense(dense.read(features))).float())
            logits: Tensor = vocabulary(vocabulary.read(hidden)).float()
            return logits.view(*features.shape[:-1], len(self.bias))
        return linear(self._transform(features), self.weight, self.bias)

    def loss(self, features: Tensor, labels: Tensor, *, pad_id: int) -> Tensor:
        """Features (..., D) of the predicted positions and their `labels` (...) -> summed cross-entropy (), fp32, nats.

        Positions whose label is pad do not count.
        """
        features, labels = features.flatten(0, -2), labels.flatten()
        if features.device.type == "cpu":  # on a GPU, indexing by a mask is a device-to-host sync
            is_predicted = labels.ne(pad_id)
            features, labels = features[is_predicted], labels[is_predicted]
        if self.backend and features.is_cuda and uses_plain_path(features, len(self.bias)):
            return self.graph_of(MaskedLMHead._plain_loss, device=features.device)(self, features, labels, pad_id)
        return summed_cross_entropy(self._transform(features), self.weight, self.bias, labels, ignored=pad_id)

    def _plain_loss(self, features: Tensor, labels: Tensor, pad_id: int) -> Tensor:
        """As `summed_cross_entropy` computes it where all logits fit, without the choice, which breaks a graph."""
        return plain(self._transform(features), *pad_vocabulary(self.weight, self.bias), labels, pad_id)

    def _transform(self, features: Tensor) -> Tensor:
        transformed: Tensor = self.layer_norm(self.activation(self.dense(features)))
        return transformed


class SequenceHead(nn.Module):
    """A head for classes of whole sequences, which pretraining trains together with the masked LM.

    `forward` maps the features of <s> (B, D) to logits (B, C). Its loss is the mean cross-entropy over the sequences.
    """

    task: ClassVar[str]
    """Name of its labels in a batch, and the beginning of its figures in the log, such as TASK_loss."""
    num_classes: ClassVar[int]
    """C."""

    def __init__(self, dim: int) -> None:
        """`dim` is D, the model dimension."""
        super().__init__()
