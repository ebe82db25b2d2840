"""The Transformer encoder: embeddings, a stack of layers with norms after or before each sublayer, and BERT's weights.

Attribute names are fairseq's, so that state dicts agree.

Shapes: B blocks (1 in a packed row), S sequences of a packed row, T positions, Q positions whose features are
wanted, D model dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from roberta_plugin.models.attention.base import Sequences
from roberta_plugin.models.attention.self_attention import SelfAttention
from roberta_plugin.models.compiling import report_eager
from roberta_plugin.models.cpu.dropout import Dropout
from roberta_plugin.models.cpu.linear import Linear

STANDARD_DEVIATION = 0.02  # BERT (Devlin et al. 2019), initializer_range of the released configurations


def initialize(module: nn.Module, *, std: float = STANDARD_DEVIATION) -> None:
    """Draw the weights of one module, for `model.apply`: N(0, std) for matrices, 0 for biases and for padding."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=std)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=std)
        if module.padding_idx is not None:
            nn.init.zeros_(module.weight[module.padding_idx])


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


class Layer(nn.Module):
    """Self-attention and feed-forward, each followed by dropout, the residual and a layer norm.

    With `normalize_before`, the layer norm is that of the sublayer's input, and the residual stays as it is.
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
        layer_norm_eps: float,
        normalize_before: bool = False,
    ) -> None:
        super().__init__()
        self.normalize_before = normalize_before
        self.self_attn = SelfAttention(
            dim, num_heads=num_heads, dropout_prob=attention_dropout_prob, backend=attention_backend
        )
        self.self_attn_layer_norm = nn.LayerNorm(dim, eps=layer_norm_eps)
        self.fc1 = Linear(dim, ffn_dim, keeps_bf16=True)
        self.fc2 = Linear(ffn_dim, dim)
        self.final_layer_norm = nn.LayerNorm(dim, eps=layer_norm_eps)
        self.activation = activation
        self.dropout = Dropout(dropout_prob)
        self.activation_dropout = Dropout(activation_dropout_prob)

    def forward(
        self, x: Tensor, is_padding: Tensor | None, sequences: Sequences | None, queries: Tensor | None = None
    ) -> Tensor:
        """(B, T, D) -> (B, T, D), or (B, Q, D) for the positions in `queries` (B, Q, D) only."""
        if self._compiled_call_impl is not None and not torch.compiler.is_compiling():
            report_eager()
        residual = x if queries is None else queries
        if self.normalize_before:
            x = self.self_attn_layer_norm(x)
            queries = None if queries is None else self.self_attn_layer_norm(queries)
        x = residual + self.dropout(self.self_attn(x, is_padding=is_padding, sequences=sequences, queries=queries))
        if self.normalize_before:
            return x + self.dropout(self._feed_forward(self.final_layer_norm(x)))  # type: ignore[no-any-return]
        x = self.self_attn_layer_norm(x)
        x = self.final_layer_norm(x + self.dropout(self._feed_forward(x)))
        return x

    def _feed_forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.fc2(self.activation_dropout(self.activation(self.fc1(x))))
        return result


class SentenceEncoder(nn.Module):
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
        layer_norm_eps: float,
        checkpoint_activations: bool = False,
        num_segments: int = 0,
        layerdrop_prob: float = 0.0,
        normalizes_embeddings: bool = True,
        normalizes_features: bool = False,
    ) -> None:
        """With `normalizes_features`, a last layer norm follows the layers, as those that normalize before need it."""
        super().__init__()
        self.pad_id = pad_id
        self.checkpoint_activations, self.layerdrop_prob = checkpoint_activations, layerdrop_prob
        self.embed_tokens = nn.Embedding(vocab_size, dim, padding_idx=pad_id)
        self.embed_positions = LearnedPositions(max_positions, dim, pad_id=pad_id)
        # As in BERT; the name is that of fairseq's first encoder.
        self.segment_embeddings = nn.Embedding(num_segments, dim) if num_segments else None
        self.layernorm_embedding = nn.LayerNorm(dim, eps=layer_norm_eps) if normalizes_embeddings else None
        self.dropout = Dropout(dropout_prob)
        self.layers = nn.ModuleList(layers)
        self.layer_norm = nn.LayerNorm(dim, eps=layer_norm_eps) if normalizes_features else None
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
            segments: segment of each token (B, T), for a model with segment embeddings; None: all of segment 0.
        """
        is_padding, sequences, positions = None, None, None
        if packing is not None:
            positions = packing["positions"]
            sequences = Sequences.of_row(packing)
        elif has_padding is not False:
            is_padding = tokens.eq(self.pad_id)
            is_padding = is_padding if has_padding or is_padding.any() else None
        embedded_positions = self.embed_positions(tokens, is_padding=is_padding, positions=positions)
        x = self.embed_tokens(tokens) + embedded_positions  # (B, T) -> (B, T, D)
        if self.segment_embeddings is not None:
            x = x + (self.segment_embeddings.weight[0] if segments is None else self.segment_embeddings(segments))
        x = self.dropout(x if self.layernorm_embedding is None else self.layernorm_embedding(x))
        if is_padding is not None:
            x = x.masked_fill(is_padding[..., None], 0.0)
        hidden, layers = [x], self._kept_layers()
        for layer in layers if predicted is None else layers[:-1]:
            x = self._run(layer, x, is_padding, sequences)
            if keep_hidden:
                hidden.append(x)
        if predicted is not None:
            wanted = predicted["positions"]
            queries = x.gather(1, wanted[..., None].expand(-1, -1, x.size(-1)))  # (B, T, D) -> (B, Q, D)
            sequences = None if sequences is None else sequences.for_predicted(predicted)
            x = self._run(layers[-1], x, is_padding, sequences, queries) if layers else queries
        x = x if self.layer_norm is None else self.layer_norm(x)
        return x, hidden if keep_hidden else []

    @torch.no_grad()
    def silence_sublayers(self) -> None:
        """Set the last matrix of every sublayer to 0, so that at first each layer adds nothing.

        As in "Fixup Initialization" (Zhang et al. 2019, arXiv 1901.09321), first rule.
        """
        for layer in self.layers:
            assert isinstance(layer, Layer)
            for last in (layer.self_attn.out_proj, layer.fc2):
                last.weight.zero_()

    def _kept_layers(self) -> list[nn.Module]:
        """All layers; in training those that LayerDrop keeps, with fairseq's order of random numbers."""
        if not (self.training and self.layerdrop_prob):
            return list(self.layers)
        drawn = torch.empty(len(self.layers)).uniform_()
        return [layer for layer, number in zip(self.layers, drawn, strict=True) if number > self.layerdrop_prob]

    def _run(self, layer: nn.Module, *inputs: Tensor | Sequences | None) -> Tensor:
        if self.checkpoint_activations and self.training:
            return checkpoint(layer, *inputs, use_reentrant=False)  # type: ignore[no-any-return]
        output: Tensor = layer(*inputs)
        return output
