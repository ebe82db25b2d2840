"""The Transformer encoder: embeddings, a stack of layers with norms after or before each sublayer.

Attribute names are fairseq's, so that state dicts agree.

Shapes: B blocks (1 in a packed row), S sequences of a packed row, T positions, Q positions whose features are wanted,
D model dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from roberta_plugin.models.attention import SelfAttention
from roberta_plugin.models.attention_kernels import Sequences
from roberta_plugin.models.compiling import CompilesParts, report_eager
from roberta_plugin.models.cpu import Dropout, Linear
from roberta_plugin.models.gelu import activated
from roberta_plugin.models.positions import LEARNED, Places, PositionScheme

NORMS = ("layer", "rms")
EOS_ID = 2  # of </s>, in every vocabulary of fairseq
GATES: dict[str, Callable[[Tensor], Tensor]] = {"geglu": F.gelu, "swiglu": F.silu}


class LearnedPositions(nn.Embedding):
    """Position embeddings numbered as in fairseq: the first token has row pad_id + 1, padding has row pad_id."""

    def __init__(self, max_positions: int, dim: int, *, pad_id: int) -> None:
        super().__init__(max_positions + pad_id + 1, dim, padding_idx=pad_id)
        self.pad_id = pad_id

    def forward(self, tokens: Tensor, *, is_padding: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """Ids (B, T) -> (B, T, D); or (T, D), shared by all blocks, if nothing is padding.

        `positions` (B, T), 0 for the first token of a sequence, give the position of each token; without them, tokens
        are counted.

        Example: with pad_id 1, the ids [0, 8, 9, 1] get the rows [2, 3, 4, 1].
        """
        first = self.pad_id + 1
        if positions is not None:
            return F.embedding(positions + first, self.weight, self.padding_idx)
        if is_padding is None:
            return self.weight[first : first + tokens.size(1)]
        is_token = (~is_padding).long()
        rows = torch.cumsum(is_token, dim=1) * is_token + self.pad_id
        return F.embedding(rows, self.weight, self.padding_idx)


def segments_of_pairs(tokens: Tensor, positions: Tensor | None = None) -> Tensor:
    """Segments (B, T) of ids (B, T): 1 for the second text of `<s> a </s></s> b </s>`, from its </s> on, else 0.

    So are the pairs of `data/pairs.py`. In a block of lines, where a blank line ends a document, what follows the first
    document is of segment 1, as in the half of those pairs whose second text is from elsewhere. `positions` (B, T), 0
    for the first token of a sequence, belong to a packed row.
    """
    is_end = tokens.eq(EOS_ID)
    pairs = F.pad((is_end[:, 1:] & is_end[:, :-1]).cumsum(1), (1, 0))  # (B, T), so far in the row
    if positions is not None:
        pairs = pairs - pairs.gather(1, torch.arange(tokens.size(1), device=tokens.device) - positions)
    return pairs.clamp(max=1)


def new_norm(dim: int, *, kind: str, eps: float, has_bias: bool) -> nn.Module:
    """A layer norm, or the RMS norm (Zhang and Sennrich 2019, arXiv 1910.07467), which has no mean and no bias."""
    return nn.RMSNorm(dim, eps=eps) if kind == "rms" else nn.LayerNorm(dim, eps=eps, bias=has_bias)


def num_ffn_matrices(feed_forward: str) -> int:
    """Matrices of model dimension x inner dimension: 2, or 3 with a gate."""
    return 3 if feed_forward in GATES else 2


def gated(x: Tensor, *, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """activation(a) * b of the halves a and b of x: (..., 2 F) -> (..., F) (Shazeer 2020, arXiv 2002.05202)."""
    inner, gate = x.chunk(2, dim=-1)
    return activation(inner) * gate


class Layer(nn.Module):
    """Self-attention and feed-forward, each followed by dropout, the residual and a norm.

    With `normalize_before`, the sublayer's input is normalized, and the residual stays as it is. Without
    `has_attention_norm`, attention takes its input as it is: for the first layer, after a norm of the embeddings.
    """

    def __init__(
        self,
        dim: int,
        *,
        ffn_dim: int,
        num_heads: int,
        activation: Callable[[Tensor], Tensor],
        dropout_prob: float,
        attention_dropout_prob: float,
        activation_dropout_prob: float,
        attention_backend: str,
        new_norm: Callable[..., nn.Module],
        normalize_before: bool = False,
        has_attention_norm: bool = True,
        feed_forward: str = "plain",
        has_bias: bool = True,
        qk_norm: bool = False,
    ) -> None:
        super().__init__()
        self.normalize_before = normalize_before
        self.self_attn = SelfAttention(
            dim,
            num_heads=num_heads,
            dropout_prob=attention_dropout_prob,
            backend=attention_backend,
            has_bias=has_bias,
            new_norm=partial(new_norm, has_bias=False) if qk_norm else None,
        )
        self.self_attn_layer_norm = new_norm(dim) if has_attention_norm else nn.Identity()
        self.fc1 = Linear(dim, (num_ffn_matrices(feed_forward) - 1) * ffn_dim, bias=has_bias, keeps_bf16=True)
        self.fc2 = Linear(ffn_dim, dim, bias=has_bias)
        self.final_layer_norm = new_norm(dim)
        self.activation = partial(gated, activation=GATES[feed_forward]) if feed_forward in GATES else activation
        self.dropout = Dropout(dropout_prob)
        self.activation_dropout = Dropout(activation_dropout_prob)

    def forward(
        self,
        x: Tensor,
        is_padding: Tensor | None,
        sequences: Sequences | None,
        queries: Tensor | None = None,
        places: Places | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D), or (B, Q, D) for the positions in `queries` (B, Q, D) only."""
        if self._compiled_call_impl is not None and not torch.compiler.is_compiling():
            report_eager()
        residual = x if queries is None else queries
        if self.normalize_before:
            x = self.self_attn_layer_norm(x)
            queries = None if queries is None else self.self_attn_layer_norm(queries)
        inputs = {"is_padding": is_padding, "sequences": sequences, "queries": queries, "places": places}
        x = residual + self.dropout(self.self_attn(x, **inputs))
        if self.normalize_before:
            return x + self.dropout(self._feed_forward(self.final_layer_norm(x)))  # type: ignore[no-any-return]
        x = self.self_attn_layer_norm(x)
        x = self.final_layer_norm(x + self.dropout(self._feed_forward(x)))
        return x

    def _feed_forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.fc2(self.activation_dropout(activated(self.fc1, x, self.activation)))
        return result


class SentenceEncoder(CompilesParts, nn.Module):
    """Ids -> features."""

    version: Tensor

    def __init__(
        self,
        vocab_size: int,
        *,
        dim: int,
        pad_id: int,
        max_positions: int,
        layers: Sequence[nn.Module],
        dropout_prob: float,
        new_norm: Callable[[int], nn.Module],
        checkpoint_activations: bool = False,
        num_segments: int = 0,
        layerdrop_prob: float = 0.0,
        normalizes_embeddings: bool = True,
        normalizes_features: bool = False,
        positions: PositionScheme = LEARNED,
    ) -> None:
        """With `normalizes_features`, a last norm follows the layers, as those that normalize before need it."""
        super().__init__()
        self.pad_id = pad_id
        self.checkpoint_activations, self.layerdrop_prob = checkpoint_activations, layerdrop_prob
        self.embed_tokens = nn.Embedding(vocab_size, dim, padding_idx=pad_id)
        self.positions = positions
        self.embed_positions = None if positions.is_rotary else LearnedPositions(max_positions, dim, pad_id=pad_id)
        # As in BERT; the name is from fairseq's first encoder.
        self.segment_embeddings = nn.Embedding(num_segments, dim) if num_segments else None
        self.layernorm_embedding = new_norm(dim) if normalizes_embeddings else None
        self.dropout = Dropout(dropout_prob)
        self.layers = nn.ModuleList(layers)
        self.layer_norm = new_norm(dim) if normalizes_features else None
        self.register_buffer("version", torch.tensor([3.0]))  # fairseq's encoder expects it in the state dict

    def forward(
        self,
        tokens: Tensor,
        *,
        has_padding: bool | None = None,
        keep_hidden: bool = False,
        packing: Mapping[str, Any] | None = None,
        predicted: Mapping[str, Any] | None = None,
        segments: Tensor | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Ids (B, T) -> features (B, T, D), and with `keep_hidden` the embeddings and each layer's output.

        Args:
            tokens: ids, padded.
            has_padding: whether any of them is <pad>; None looks at the tokens, which costs a device-to-host sync.
            keep_hidden: whether to return the embeddings and the output of every layer too.
            packing: {"positions" (1, T), "cu_seqlens" (S + 1,), "max_seqlen"}: the row holds S sequences end to end,
                and attention stays within each.
            predicted: {"positions" (B, Q)} and, in a packed row, {"cu_seqlens" (S + 1,), "max_seqlen"}: return the
                features (B, Q, D) of these positions only; the last layer computes no others.
            segments: segment of each token (B, T), for a model with segment embeddings; None: as `segments_of_pairs`.
        """
        is_padding, sequences, positions = None, None, None
        if packing is not None:
            positions = packing["positions"]
            sequences = Sequences.for_row(packing)
        elif has_padding is not False:
            is_padding = tokens.eq(self.pad_id)
            is_padding = is_padding if has_padding or is_padding.any() else None
        if self.segment_embeddings is not None and segments is None:
            segments = segments_of_pairs(tokens, positions)
        embed = self.graph_of(SentenceEncoder._embed, device=tokens.device)
        x = embed(self, tokens, is_padding, positions, segments)
        hidden, layers = [x], self._kept_layers()
        places = self.positions.places(x, packing)
        for number, layer in layers if predicted is None else layers[:-1]:
            x = self._run(layer, x, is_padding, sequences, None, places[self.positions.is_local(number)])
            if keep_hidden:
                hidden.append(x)
        if predicted is not None:
            wanted = predicted["positions"]
            queries = x.gather(1, wanted[..., None].expand(-1, -1, x.size(-1)))  # (B, T, D) -> (B, Q, D)
            sequences = None if sequences is None else sequences.for_predicted(predicted)
            places = self.positions.places(x, packing, predicted)
            for number, layer in layers[-1:]:
                queries = self._run(layer, x, is_padding, sequences, queries, places[self.positions.is_local(number)])
            x = queries
        x = x if self.layer_norm is None else self.layer_norm(x)
        return x, hidden if keep_hidden else []

    def _embed(
        self, tokens: Tensor, is_padding: Tensor | None, positions: Tensor | None, segments: Tensor | None
    ) -> Tensor:
        """Ids (B, T) -> (B, T, D), 0 where there is padding."""
        x: Tensor = self.embed_tokens(tokens)
        if self.embed_positions is not None:
            x = x + self.embed_positions(tokens, is_padding=is_padding, positions=positions)
        if self.segment_embeddings is not None:
            x = x + self.segment_embeddings(segments)
        x = self.dropout(x if self.layernorm_embedding is None else self.layernorm_embedding(x))
        return x if is_padding is None else x.masked_fill(is_padding[..., None], 0.0)

    @torch.no_grad()
    def silence_sublayers(self) -> None:
        """Set the last matrix of every sublayer to 0, so that at first each layer adds nothing.

        As in "Fixup Initialization" (Zhang et al. 2019, arXiv 1901.09321), first rule.
        """
        for layer in self.layers:
            assert isinstance(layer, Layer)
            for last in (layer.self_attn.out_proj, layer.fc2):
                last.weight.zero_()

    def _kept_layers(self) -> list[tuple[int, nn.Module]]:
        """All layers by number; in training those that LayerDrop keeps, with fairseq's order of random numbers."""
        layers = list(enumerate(self.layers))
        if not (self.training and self.layerdrop_prob):
            return layers
        drawn = torch.empty(len(self.layers)).uniform_()
        return [layer for layer, chance in zip(layers, drawn, strict=True) if chance > self.layerdrop_prob]

    def _run(self, layer: nn.Module, *inputs: Tensor | Sequences | Places | None) -> Tensor:
        if self.checkpoint_activations and self.training:
            return checkpoint(layer, *inputs, use_reentrant=False)  # type: ignore[no-any-return]
        output: Tensor = layer(*inputs)
        return output
