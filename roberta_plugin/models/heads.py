"""Features -> predictions: the heads of fine-tuning, one class per kind, those of pretraining, and a vector per text.

Kinds are registered in `registry.HEADS`; `FastRobertaModel.register_head` builds a head, `forward` gives it what it
`reads`, and checkpoints call its parameters KIND_heads.NAME.* (see `checkpoints.py`).

Shapes: B blocks or texts, T positions, D model dimension, C classes; V sentences of a batch, B documents, M most
sentences of a document. In the heads of pretraining: M predicted positions in the batch, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, get_args

import torch
from torch import Tensor, nn

from roberta_plugin.models.compiling import CompilesParts
from roberta_plugin.models.config import ACTIVATIONS, FastRobertaConfig
from roberta_plugin.models.cpu import Dropout, Linear, Product, linear
from roberta_plugin.models.linear_cross_entropy import pad_vocabulary, plain, summed_cross_entropy, uses_plain_path

Pooling = Literal["mean", "first", "max"]
POOLINGS: tuple[str, ...] = get_args(Pooling)


def pool(features: Tensor, is_token: Tensor, pooling: str) -> Tensor:
    """Features (B, T, D) -> vectors (B, D): their mean or largest values over all tokens, or those of <s>.

    <s> and </s> are tokens, too; `is_token` (B, T) is False at padding.
    """
    check_pooling(pooling)
    if pooling == "first":
        return features[:, 0]
    if pooling == "max":
        return features.masked_fill(~is_token[..., None], -torch.inf).amax(dim=1)
    sums = features.masked_fill(~is_token[..., None], 0.0).sum(dim=1)
    return sums / is_token.sum(dim=1, keepdim=True)


def check_pooling(pooling: str) -> None:
    """Refuse an unknown way of pooling."""
    if pooling not in POOLINGS:
        raise ValueError(f"pooling must be {', '.join(map(repr, POOLINGS[:-1]))} or {POOLINGS[-1]!r}, got {pooling!r}.")


class Encoder(Protocol):
    """What a head needs of the encoder below it."""

    cfg: FastRobertaConfig

    def new_layer(self) -> nn.Module:
        """A layer as those of the encoder, with fresh weights."""


class Head(nn.Module):
    """A head on top of an encoder, with fresh weights."""

    kind: ClassVar[str]
    reads: ClassVar[Literal["first", "all", "sentences"]]
    """Its input: features of each <s> (B, 1, D), of all tokens (B, T, D), or of the <s> of each sentence (V, D)."""

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
    def read_sizes(parameters: Mapping[str, Tensor]) -> dict[str, int]:
        """See `Head`."""
        return {"num_classes": len(parameters["out_proj.weight"]), "inner_dim": len(parameters["dense.weight"])}

    def forward(self, features: Tensor) -> Tensor:
        """(B, T, D) -> (B, C)."""
        x = self.dropout(features[:, 0])  # (B, T, D) -> (B, D): <s>
        x = self.dropout(self.activation(self.dense(x)))
        logits: Tensor = self.out_proj(x)
        return logits


def pool_windows(features: Tensor, *, first: Tensor, pooling: str) -> Tensor:
    """Features (S, 1, D) of windows -> those of documents (B, 1, D), by "mean" or "max" (Sun et al. 2019, 5.3.1).

    Args:
        features: of the <s> of each window; those behind the last document, of padding, have no meaning.
        first: document b has the windows first[b] to first[b + 1] (B + 1,).
        pooling: "mean" or "max".
    """
    # unsafe: without a check of `first`, for which the host would have to wait
    pooled: Tensor = torch.segment_reduce(features[:, 0], pooling, offsets=first, unsafe=True)
    return pooled[:, None]


class TokenHead(Head):
    """Features -> logits of classes for each token: dropout and a linear layer (Devlin et al. 2019, section 5.3)."""

    kind = "token"
    reads = "all"

    def __init__(self, encoder: Encoder, *, num_classes: int) -> None:
        super().__init__(encoder)
        self.dropout = Dropout(encoder.cfg.pooler_dropout)
        self.out_proj = Linear(encoder.cfg.encoder_embed_dim, num_classes)

    @staticmethod
    def read_sizes(parameters: Mapping[str, Tensor]) -> dict[str, int]:
        """See `Head`."""
        return {"num_classes": len(parameters["out_proj.weight"])}

    def forward(self, features: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, C)."""
        logits: Tensor = self.out_proj(self.dropout(features))
        return logits


class SpanLogits(NamedTuple):
    """Logits of a span head."""

    start: Tensor
    """Each token as the first of the answer (B, T)."""
    end: Tensor
    """Each token as the last of the answer (B, T)."""
    answerable: Tensor
    """The text containing an answer (B,)."""


class SpanHead(Head):
    """Features -> logits of the answer's begin, end and existence (paper section 5.2)."""

    kind = "span"
    reads = "all"

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self.span = Linear(encoder.cfg.encoder_embed_dim, 2)
        self.answerable = ClassificationHead(encoder, num_classes=1)

    def forward(self, features: Tensor) -> SpanLogits:
        """(B, T, D) -> two (B, T) and one (B,)."""
        start, end = self.span(features).unbind(dim=-1)  # (B, T, 2) -> 2 x (B, T)
        return SpanLogits(start, end, self.answerable(features)[:, 0])


class SentenceHead(Head):
    """Features of each sentence's <s> -> logits of belonging to an extractive summary.

    Linear, or after a small Transformer over all sentences of a document, across windows (Liu and Lapata
    2019, section 3.2): sinusoidal positions are added, and each layer is the encoder's, with the layer norm after each
    sublayer.
    """

    kind = "sentence"
    reads = "sentences"

    def __init__(self, encoder: Encoder, *, num_layers: int) -> None:
        super().__init__(encoder)
        self.layers = nn.ModuleList([encoder.new_layer() for _ in range(num_layers)])
        self.dropout = Dropout(encoder.cfg.dropout)
        self.out_proj = Linear(encoder.cfg.encoder_embed_dim, 1)

    @staticmethod
    def read_sizes(parameters: Mapping[str, Tensor]) -> dict[str, int]:
        """See `Head`."""
        return {"num_layers": len({name.split(".")[1] for name in parameters if name.startswith("layers.")})}

    def forward(self, vectors: Tensor, sentences: Mapping[str, Any]) -> Tensor:
        """(V, D) -> (V,).

        Args:
            vectors: of all sentences of a batch.
            sentences: {"document" (V,), "place" (V,)} of each, from 0 on, "num_documents" B and "longest" M.
        """
        if len(self.layers):
            vectors = self._in_context(vectors, sentences)
        logits: Tensor = self.out_proj(vectors)[:, 0]  # (V, D) -> (V, 1) -> (V,)
        return logits

    def _in_context(self, vectors: Tensor, sentences: Mapping[str, Any]) -> Tensor:
        at = (sentences["document"], sentences["place"])
        shape = (sentences["num_documents"], sentences["longest"])
        x = vectors.new_zeros(*shape, vectors.size(1)).index_put(at, vectors)  # (V, D) -> (B, M, D)
        is_padding = None
        if shape[0] * shape[1] > len(vectors):
            is_padding = torch.ones(shape, dtype=torch.bool, device=x.device).index_put(at, at[0].new_zeros(()).bool())
        x = self.dropout(x + sinusoids(shape[1], x.size(2), device=x.device).to(x.dtype))
        for layer in self.layers:
            x = layer(x, is_padding, None)
        in_context: Tensor = x[at]  # (B, M, D) -> (V, D)
        return in_context


def sinusoids(length: int, dim: int, *, device: torch.device | None = None) -> Tensor:
    """Position embeddings (length, dim) of Vaswani et al. 2017, section 3.5: sine and cosine in turn, fp32."""
    rates = torch.exp(torch.arange(0, dim, 2, device=device) * (-math.log(10000.0) / dim))  # (ceil(dim / 2),)
    angles = torch.arange(length, device=device)[:, None] * rates  # -> (length, ceil(dim / 2))
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :dim]


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
        """What multiplies by `dense` and by the output matrix, where answers have another precision than fp32."""

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


class NextSentenceHead(nn.Module):
    """Features of <s> -> logits of "B follows A" (class 0) and "B is random" (class 1).

    BERT's pooler, a dense layer with tanh, and a linear layer (Devlin et al. 2019, section 3.1, task 2).
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense = Linear(dim, dim)
        self.out_proj = Linear(dim, 2)

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, 2)."""
        logits: Tensor = self.out_proj(torch.tanh(self.dense(features)))
        return logits
