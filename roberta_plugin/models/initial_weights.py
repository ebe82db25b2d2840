"""Initial weights: BERT's, and heads that attend to the neighboring tokens (`--init-attention neighbors`).

A model with learned positions begins without knowing which positions are neighbors, and a small one needs most of its
first million tokens to find out. Here the position embeddings begin as sinusoids, and each head of the first layers
begins as a rotation of them, so that it attends to one offset: -1, 1, -2, 2 and so on. The idea of structure in the
initial weights is from Trockman and Kolter 2023 ("Mimetic initialization of self-attention layers", arXiv 2305.09828),
the rotation from Vaswani et al. 2017, section 3.5. All weights are trained as usual. The second layer begins like the
first, but sees the positions as clearly only where the first adds nothing at first (`--zero-init-residual`). The
sharpness holds for normed inputs: in the first layer, of a norm after the embeddings or before the sublayer. With
frequencies w, position t is (cos wt, sin wt) for each w. A query rotated by w*offset and an unrotated key have the
product sum over w of cos(w (t + offset - s)), which is greatest where s = t + offset.

Shapes: D model dimension; P position embeddings, H heads of K dimensions, F = K / 2 frequencies of a head.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from roberta_plugin.models.encoder import Layer, SentenceEncoder

NUM_LAYERS = 2  # that begin like this; the others begin with random heads
PEAK_SCORE = 12.0  # of the token at the offset; those elsewhere are at most about half of it
LOWEST, HIGHEST = 0.05, 3.0  # frequencies in radians per position; near pi, neighbors differ most
GOLDEN_RATIO = (1 + 5**0.5) / 2
STANDARD_DEVIATION = 0.02  # BERT (Devlin et al. 2019), initializer_range of the released configurations


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
