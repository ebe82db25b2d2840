"""The Transformer encoder: embeddings, a stack of layers with norms after or before each sublayer, and BERT's weights.

Attribute names are fairseq's, so that state dicts agree.

Layers with the same parameters (ALBERT: Lan et al. 2020, "A Lite BERT", sections 3.1 and 4.5):

    --share-layers all          all layers are one
    --share-layers groups:3     the first third of the layers is one, the second another, the last a third
    --share-parts attention     only self-attention and its norm are shared, each layer has its own feed-forward part
    --share-parts ffn           the other way round

A shared part is one module that stands in several layers. So the optimizer, the gradients of a step and a checkpoint
file hold it once, and the names in a state dict are those of the unrolled model: fairseq's `roberta` and Hugging Face
read it as an ordinary model.

Initial heads that attend to the neighboring tokens (`--init-attention neighbors`): a model with learned positions
begins without knowing which positions are neighbors, and a small one needs most of its first million tokens to find
out. Here the position embeddings begin as sinusoids, and each head of the first layers begins as a rotation of them, so
that it attends to one offset: -1, 1, -2, 2 and so on. The idea of structure in the initial weights is that of Trockman
and Kolter 2023 ("Mimetic initialization of self-attention layers", arXiv 2305.09828), the rotation that of Vaswani et
al. 2017, section 3.5. All weights are trained as usual. The second layer begins like the first, but sees the positions
as clearly only where the first adds nothing at first (`--zero-init-residual`). The sharpness is that of normed inputs:
in the first layer, of a norm after the embeddings or before the sublayer. With frequencies w, position t is
(cos wt, sin wt) for each w. A query rotated by w*offset and an unrotated key have the product sum over w of
cos(w (t + offset - s)), which is greatest where s = t + offset.

Shapes: B blocks (1 in a packed row), S sequences of a packed row, T positions, Q positions whose features are wanted,
D model dimension; P position embeddings, H heads of K dimensions, F = K / 2 frequencies of a head.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from roberta_plugin.models.positions import LEARNED, Places, PositionScheme

NORMS = ("layer", "rms")
EOS_ID = 2  # of </s>, in every vocabulary of fairseq
GATES: dict[str, Callable[[Tensor], Tensor]] = {"geglu": F.gelu, "swiglu": F.silu}
PARTS = {
    "all": (),  # the layer itself
    "attention": ("self_attn", "self_attn_layer_norm"),
    "ffn": ("fc1", "fc2", "final_layer_norm"),
}


def num_groups(share_layers: str, num_layers: int) -> int:
    """Number of distinct layers that `num_layers` consist of.

    Example: "none" of 12 -> 12, "groups:3" -> 3, "all" -> 1.
    """
    if share_layers in ("none", "all"):
        return num_layers if share_layers == "none" else 1
    match = re.fullmatch(r"groups:([1-9]\d*)", share_layers)
    if match is None:
        raise ValueError(f"--share-layers must be none, all or groups:N, as groups:3, got {share_layers!r}.")
    number = int(match[1])
    if num_layers % number:
        raise ValueError(
            f"--share-layers groups:{number} does not divide the {num_layers} layers (--encoder-layers): give one of "
            f"{', '.join(str(n) for n in range(1, num_layers + 1) if num_layers % n == 0)} groups."
        )
    return number


def share(layers: Sequence[nn.Module], *, groups: int, parts: str) -> list[nn.Module]:
    """The layers, in which each group of consecutive ones has the parts of its first."""
    shared = list(layers)
    size = len(shared) // groups
    for number in range(len(shared)):
        first = shared[number - number % size]
        if not PARTS[parts]:
            shared[number] = first
        for name in PARTS[parts]:
            setattr(shared[number], name, getattr(first, name))
    return shared


def aliases(parameters: Iterable[tuple[str, nn.Parameter]]) -> list[list[str]]:
    """Names of the same parameter, for each that has several."""
    names: dict[int, list[str]] = {}
    for name, parameter in parameters:
        names.setdefault(id(parameter), []).append(name)
    return [several for several in names.values() if len(several) > 1]


def check_shared(model: nn.Module, state: Mapping[str, Any], *, option: str) -> None:
    """Refuse a checkpoint whose layers differ where the model shares them: one of them would be lost in silence."""
    for first, *others in aliases(model.named_parameters(remove_duplicate=False)):
        for other in others:
            if ".layers." in first and first in state and other in state and not _equal(state[first], state[other]):
                raise ValueError(
                    f"{first} and {other} of the checkpoint differ, and this model shares them ({option}): leave "
                    "--share-layers out, as in the training of the checkpoint."
                )


def joined(state: Mapping[str, Any], *, share_layers: str) -> dict[str, Any]:
    """Parameters, in which equal ones of layers in the same group are one tensor again.

    fairseq copies each entry of a state dict from the GPU, or to fp32, so that a shared layer would be written as often
    as it stands in the model.
    """
    layers = {name: match for name in state if (match := re.match(r"(.*\.sentence_encoder\.layers\.)(\d+)\.", name))}
    num_layers = len({match[2] for match in layers.values()})
    size = max(1, num_layers // num_groups(share_layers, num_layers)) if num_layers else 1
    result = dict(state)
    for name, match in layers.items():
        first = int(match[2]) // size * size
        same = result[f"{match[1]}{first}.{name[match.end() :]}"]
        if _equal(same, state[name]):
            result[name] = same
    return result


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.data_ptr() == other.data_ptr() and one.shape == other.shape) or torch.equal(one, other)


NUM_LAYERS = 2  # that begin like this; the others begin with random heads
PEAK_SCORE = 12.0  # of the token at the offset; those elsewhere are at most about half of it
LOWEST, HIGHEST = 0.05, 3.0  # frequencies in radians per position; near pi, those of neighbors differ most
GOLDEN_RATIO = (1 + 5**0.5) / 2


@torch.no_grad()
def attend_to_neighbors(encoder: SentenceEncoder, *, std: float) -> None:
    """Set the position embeddings, of standard deviation `std`, and the queries and keys of the first layers."""
    assert encoder.embed_positions is not None  # as `config` has checked
    table, first = encoder.embed_positions.weight, encoder.embed_positions.pad_id + 1
    layers = list(encoder.layers)[:NUM_LAYERS]
    assert isinstance(layers[0], Layer)
    num_heads, dim = layers[0].self_attn.num_heads, table.size(1)
    frequencies = spread_frequencies(num_heads, dim // num_heads // 2)
    positions = sinusoids(len(table) - first, frequencies.flatten())
    table[first:, : positions.size(1)] = math.sqrt(2) * std * positions.to(table)
    queries, keys = neighbor_projections(frequencies, dim=dim)
    for layer in layers:
        assert isinstance(layer, Layer)
        attn = layer.self_attn
        for projection, matrix, norm in ((attn.q_proj, queries, attn.q_norm), (attn.k_proj, keys, attn.k_norm)):
            projection.weight.normal_(std=STANDARD_DEVIATION).add_(matrix.to(projection.weight))
            if norm is not None:  # it keeps the size that queries and keys have where the input has a variance of 1
                size = projection.weight.square().sum(dim=1).mean().sqrt()
                norm.get_parameter("weight").fill_(size)


def spread_frequencies(num_heads: int, number: int) -> Tensor:
    """Frequencies (H, F) in radians per position: in each head one at some place of each of F equal parts of the range.

    Equal distances would have a period, after which a head would see another neighbor. The places are the fractional
    parts of multiples of the golden ratio by square numbers.
    """
    parts = torch.arange(number, dtype=torch.float64)
    heads = torch.arange(num_heads, dtype=torch.float64)[:, None] / num_heads
    places = (parts + ((parts**2 + 1) * GOLDEN_RATIO + heads) % 1.0) / max(number, 1)  # (F,), (H, 1) -> (H, F)
    return LOWEST + (HIGHEST - LOWEST) * places


def sinusoids(number: int, frequencies: Tensor) -> Tensor:
    """Position embeddings (P, 2 F) of frequencies (F,): the cosine and the sine of each, side by side."""
    angles = torch.arange(number, dtype=torch.float64)[:, None] * frequencies  # (P, F)
    return torch.stack((angles.cos(), angles.sin()), dim=2).flatten(1)  # (P, F) -> (P, F, 2) -> (P, 2 F)


def neighbor_projections(frequencies: Tensor, *, dim: int) -> tuple[Tensor, Tensor]:
    """Queries' and keys' matrices (D, D) for frequencies (H, F): head h attends to the offset `offset_of_head(h)`.

    In an input that a layer norm has scaled to a variance of 1, half of it from the positions, each pair of cosine and
    sine has length 1. The score at the offset, a sum of F ones over sqrt(K), becomes `PEAK_SCORE` by the scale of the
    matrices.
    """
    num_heads, number = frequencies.shape
    head_dim = dim // num_heads
    scale = math.sqrt(PEAK_SCORE * math.sqrt(head_dim) / max(number, 1))
    queries, keys = torch.zeros(2, dim, dim, dtype=torch.float64)
    for head in range(num_heads):
        for pair in range(number):
            row, column = head * head_dim + 2 * pair, 2 * (head * number + pair)
            angle = frequencies[head, pair] * offset_of_head(head)
            cosine, sine = angle.cos(), angle.sin()
            queries[row : row + 2, column : column + 2] = torch.tensor([[cosine, -sine], [sine, cosine]])
            keys[row : row + 2, column : column + 2] = torch.eye(2)
    return scale * queries, scale * keys


def offset_of_head(head: int) -> int:
    """-1, 1, -2, 2, ... for heads 0, 1, 2, 3, ..."""
    distance = head // 2 + 1
    return -distance if head % 2 == 0 else distance


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


def segments_of_pairs(tokens: Tensor, positions: Tensor | None = None) -> Tensor:
    """Segments (B, T) of ids (B, T): 1 for the second text of `<s> a </s></s> b </s>`, from its </s> on, else 0.

    So are the pairs of `data/pairs.py`. In a block of lines, where a blank line ends a document, what follows the first
    document is of segment 1, as in the half of those pairs whose second text is from elsewhere. `positions` (B, T), 0
    for the first token of a sequence, are those of a packed row.
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

    With `normalize_before`, the norm is that of the sublayer's input, and the residual stays as it is. Without
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
        result: Tensor = self.fc2(self.activation_dropout(self.activation(self.fc1(x))))
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
        # As in BERT; the name is that of fairseq's first encoder.
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
