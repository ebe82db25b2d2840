"""Initial weights that predict a token from its neighbors as often as the training text has them side by side.

`--init-attention counts`: a small masked LM spends most of a short training on what a table of counts says in a second.
Here it begins with that table, as far as its width holds it, and all weights are trained as usual. For tokens v and w
with v `d` places before w, counted c_d(v, w) times, p(w) the share of w, C(v) the count of v and a pseudo-count a,

    R_d(v, w) = max(0, log((c_d(v, w) + a p(w)) / ((C(v) + a) p(w))))  where c_d(v, w) > 0, else 0

is the positive pointwise mutual information (Levy and Goldberg 2014, "Neural word embedding as implicit matrix
factorization"). The logits of w between v and u would be log p(w) + R_1(v, w) + R_1(w, u), as in
`data/neighbor_baseline.py`.

    embeddings   E = F^-1 U sqrt(S), with U S V^T the largest singular values of [F R_d F, F R_d^T F], side by side for
                 all distances d, those of 2 halved; F = diag(count^0.3), for frequent tokens matter more
    cores        M_d = E^+ R_d E^+T in the same weights, so that R_d is about E M_d E^T
    heads        a head that attends to the token `d` places before has the largest singular values of M_d, as its part
                 of the value and of the output projection; one that attends to a token after, those of M_d^T
    LM head      its dense layer begins as a multiple of the identity, with biases that keep GELU where it is nearly
                 linear, and its norm takes them away; the biases of the vocabulary begin as log p(w)

Where positions are learned, they are sinusoids in the first 2 F dimensions, and tokens have the other ones; where
they are rotary, the biases of queries and keys make each head attend to its offset: b_q = the rotation of b_k by it.

Shapes: V symbols, D model dimension, N dimensions of tokens, H heads of K dimensions, F frequencies (K / 2, at most
D / 4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import svds
from torch import nn

from roberta_plugin.models.attention import SelfAttention
from roberta_plugin.models.encoder import Layer, SentenceEncoder
from roberta_plugin.models.initial_weights import (
    NUM_LAYERS,
    PEAK_SCORE,
    STANDARD_DEVIATION,
    sinusoids,
    spread_frequencies,
)

PSEUDO_COUNT = 5.0
EXPONENT = 0.3  # of the counts that weigh rows and columns
WEIGHTS = {1: 1.0, 2: 0.5}  # of the distances
POSITION_SHARE = 0.5  # root mean square of position embeddings to that of token embeddings
OUTPUT_SIZE = 2.0  # root mean square of what attention adds, beside an input of 1
DENSE_SCALE, DENSE_BIAS = 0.5, 2.0
ROTARY_PEAK, ROTARY_PAIRS, ROTARY_BIAS = 24.0, 5, 3.0  # the score at the offset, the fastest pairs, biases with qk-norm


def distance_of_head(head: int, num_heads: int) -> int:
    """Half of the heads attend to the tokens next to theirs, the others to the ones behind: -1, 1, -1, 1, -2, 2."""
    distance = 1 if head // 2 < math.ceil(num_heads / 4) else 2
    return -distance if head % 2 == 0 else distance


def distances(num_heads: int) -> list[int]:
    """The distances at which pairs of tokens must be counted."""
    return sorted({1, *(abs(distance_of_head(head, num_heads)) for head in range(num_heads))})


def num_frequencies(dim: int, num_heads: int) -> int:
    """F: of the sinusoids that are learned positions."""
    return min(dim // num_heads, dim // 2) // 2


@dataclass(frozen=True)
class Factors:
    """The counts of pairs as embeddings and cores."""

    embeddings: NDArray[np.float64]
    """(V, N), of size 1 / sqrt(D) in most rows; 0 for symbols that do not occur."""
    cores: Mapping[int, NDArray[np.float64]]
    """By distance (N, N)."""
    shares: NDArray[np.float64]
    """p (V,)."""


@torch.no_grad()
def begin_with_counts(model: nn.Module, pairs: Mapping[int, Any]) -> None:
    """Set the embeddings, the first layer and the LM head of a model with new weights.

    Args:
        model: a `FastRobertaModel`.
        pairs: by each of `distances`, how often the second symbol is that many places behind the first (V, V), sparse.

    Raises:
        ValueError: if the text is empty, or one token again and again.
    """
    parts: Any = model.encoder
    encoder: SentenceEncoder = parts.sentence_encoder
    layers = [layer for layer in list(encoder.layers)[:NUM_LAYERS] if isinstance(layer, Layer)]
    attn = layers[0].self_attn
    dim, num_heads = encoder.embed_tokens.weight.size(1), attn.num_heads
    waves = num_frequencies(dim, num_heads)
    first = 0 if encoder.embed_positions is None else 2 * waves  # dimension of tokens
    factors = factorize(pairs, size=dim - first, std=1 / math.sqrt(dim))
    token_size, position_size = _set_embeddings(encoder, factors, first=first, std=1 / math.sqrt(dim))
    positions = encoder.positions
    for number, layer in enumerate(layers):
        base = positions.base_local if positions.is_local(number) else positions.base
        if base is not None:
            _attend_by_biases(layer.self_attn, base)
        else:
            share = position_size / (token_size + position_size)
            _attend_by_positions(layer.self_attn, dim=dim, number=waves, share=share)
    spread = math.sqrt((token_size + position_size) / dim)  # what the norm of the embeddings divides by
    _set_values(attn, factors, first=first, spread=spread)
    _set_lm_head(parts.lm_head, encoder, factors)


def factorize(pairs: Mapping[int, Any], *, size: int, std: float) -> Factors:
    """The factors of the counts by distance, in `size` dimensions."""
    counts = np.asarray(pairs[1].sum(axis=0), dtype=np.float64).ravel()
    if not counts.any():
        raise ValueError("The training text has no tokens to count for --init-attention counts.")
    shares = counts / counts.sum()
    if np.count_nonzero(counts) == 1:
        raise ValueError(
            "The training text is one token again and again, whose neighbors say nothing: give --init-attention random."
        )
    weights = sparse.diags((counts + 1) ** EXPONENT)
    weighted = {distance: weights @ information(count, shares) @ weights for distance, count in pairs.items()}
    sides = [WEIGHTS[distance] * side for distance, matrix in weighted.items() for side in (matrix, matrix.T)]
    start = np.ones(len(counts), dtype=np.float32)  # a random one would make trainings differ
    found = min(size, len(counts) - 1)
    vectors, values, _ = svds(sparse.hstack(sides).tocsr().astype(np.float32), k=found, v0=start)
    directions, roots = np.zeros((len(counts), size)), np.ones(size)
    directions[:, :found], roots[:found] = vectors, np.sqrt(np.maximum(values, values.max() * 1e-6))
    # Turned at random, so that all dimensions are alike.
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(size, size)))[0]
    embeddings = (directions / ((counts + 1) ** EXPONENT)[:, None] * roots) @ turn
    embeddings[counts == 0] = 0
    scale = math.sqrt(size) * std / np.median(np.linalg.norm(embeddings[counts > 0], axis=1))
    cores = {
        distance: turn.T @ ((directions.T @ (matrix @ directions)) / np.outer(roots, roots)) @ turn / scale**2
        for distance, matrix in weighted.items()
    }
    return Factors(embeddings * scale, cores, shares)


def information(pairs: Any, shares: NDArray[np.float64]) -> Any:
    """R of counted pairs (V, V), sparse."""
    totals = np.asarray(pairs.sum(axis=1)).ravel()
    pairs = pairs.tocoo()
    expected = shares[pairs.col]
    ratio = (pairs.data + PSEUDO_COUNT * expected) / ((totals[pairs.row] + PSEUDO_COUNT) * np.maximum(expected, 1e-12))
    return sparse.csr_matrix((np.maximum(np.log(ratio), 0), (pairs.row, pairs.col)), shape=pairs.shape)


def _set_embeddings(encoder: SentenceEncoder, factors: Factors, *, first: int, std: float) -> tuple[float, float]:
    """Returns the mean squared length of token embeddings, as often as they occur, and of position embeddings."""
    table = encoder.embed_tokens.weight
    occurs = torch.from_numpy(factors.shares > 0)
    table[occurs, first:] = torch.from_numpy(factors.embeddings).to(table)[occurs]
    table[occurs, :first] = 0
    token_size = float((factors.embeddings**2).sum(axis=1) @ factors.shares)
    if encoder.embed_positions is None:
        return token_size, 0.0
    positions, begin = encoder.embed_positions.weight, encoder.embed_positions.pad_id + 1
    waves = sinusoids(len(positions) - begin, spread_frequencies(1, first // 2).flatten())
    positions[begin:] = 0
    size = POSITION_SHARE * std * math.sqrt(positions.size(1) / first)
    positions[begin:, :first] = math.sqrt(2) * size * waves.to(positions)
    return token_size, size**2 * first


def _attend_by_positions(attn: SelfAttention, *, dim: int, number: int, share: float) -> None:
    """Queries that turn the sinusoids of positions by the head's offset, and keys that do not.

    Positions of `number` frequencies have `share` of the input's variance, so the sine and cosine of a frequency have
    the length `length`.
    """
    head_dim = dim // attn.num_heads
    frequencies = spread_frequencies(1, number)[0].tolist()
    length = math.sqrt(share * dim / number)
    scale = math.sqrt(PEAK_SCORE * math.sqrt(head_dim) / number) / length
    queries, keys = torch.zeros(2, dim, dim, dtype=torch.float64)
    for head in range(attn.num_heads):
        for pair, frequency in enumerate(frequencies):
            angle = frequency * distance_of_head(head, attn.num_heads)
            at, column = head * head_dim + 2 * pair, 2 * pair
            turned = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
            queries[at : at + 2, column : column + 2] = torch.tensor(turned, dtype=torch.float64)
            keys[at : at + 2, column : column + 2] = torch.eye(2, dtype=torch.float64)
    for projection, matrix, norm in ((attn.q_proj, queries, attn.q_norm), (attn.k_proj, keys, attn.k_norm)):
        projection.weight.normal_(std=STANDARD_DEVIATION).add_((scale * matrix).to(projection.weight))
        if norm is not None:  # it keeps the size that queries and keys have without it
            norm.get_parameter("weight").fill_(math.sqrt(PEAK_SCORE / math.sqrt(head_dim)))


def _attend_by_biases(attn: SelfAttention, base: float) -> None:
    """With rotary positions t and s, the product of two biases depends on s - t alone: its peak is at the offset.

    Few pairs are nearly as high at distances of dozens of tokens, where all of them have come round. Their signs
    alternate, so that the biases of small heads keep their size in layer norms of queries and keys.
    """
    dim = attn.q_proj.weight.size(1)
    head_dim = dim // attn.num_heads
    half = head_dim // 2
    number = min(ROTARY_PAIRS, half)
    without_norm = math.sqrt(ROTARY_PEAK * math.sqrt(head_dim) / number)
    queries, keys = torch.zeros(2, attn.num_heads, head_dim, dtype=torch.float64)
    for head in range(attn.num_heads):
        for pair in range(number):
            angle = base ** (-pair / half) * distance_of_head(head, attn.num_heads)
            turned = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
            keys[head, pair] = sign = (-1) ** pair
            queries[head, [pair, pair + half]] = sign * turned
    for projection, bias, norm in ((attn.q_proj, queries, attn.q_norm), (attn.k_proj, keys, attn.k_norm)):
        size = without_norm if norm is None else ROTARY_BIAS
        projection.bias.copy_((size * bias).flatten().to(projection.bias))
        projection.weight.normal_(std=STANDARD_DEVIATION)
        if norm is not None:
            norm.get_parameter("weight").fill_(math.sqrt(ROTARY_PEAK / math.sqrt(head_dim)))


def _set_values(attn: SelfAttention, factors: Factors, *, first: int, spread: float) -> None:
    """Values that read what a neighbor's embedding says, and outputs that say it in embeddings."""
    dim = attn.v_proj.weight.size(1)
    head_dim = dim // attn.num_heads
    values, outputs = torch.zeros(2, dim, dim, dtype=torch.float64)
    taken: dict[int, int] = {}  # offset -> singular values that earlier heads have
    for head in range(attn.num_heads):
        offset = distance_of_head(head, attn.num_heads)
        core = factors.cores[abs(offset)]
        left, sizes, right = np.linalg.svd(core if offset < 0 else core.T)
        begin = taken.get(offset, 0)
        part = slice(begin, begin + head_dim)
        taken[offset] = begin + head_dim
        roots = np.sqrt(sizes[part])
        rows = slice(head * head_dim, head * head_dim + len(roots))
        values[rows, first:] = torch.from_numpy((left[:, part] * roots).T)
        outputs[first:, rows] = WEIGHTS[abs(offset)] * torch.from_numpy(right[part].T * roots)
    # Neighbors as they occur, to measure how much attention adds.
    drawn = np.random.default_rng(0).choice(len(factors.shares), 2000, p=factors.shares)
    inputs = torch.from_numpy(factors.embeddings[drawn]) / spread
    added = math.sqrt(2) * float((inputs @ values[:, first:].T @ outputs.T).square().mean().sqrt())
    scale = math.sqrt(OUTPUT_SIZE / added)
    attn.v_proj.weight.copy_((scale * values).to(attn.v_proj.weight))
    attn.out_proj.weight.copy_((scale * outputs).to(attn.out_proj.weight))


def _set_lm_head(head: Any, encoder: SentenceEncoder, factors: Factors) -> None:
    if head.weight is not encoder.embed_tokens.weight:
        head.weight.copy_(encoder.embed_tokens.weight)
    head.dense.weight.copy_(DENSE_SCALE * torch.eye(head.dense.weight.size(0)))
    if head.dense.bias is not None and isinstance(head.layer_norm, nn.LayerNorm):  # RMS norms do not take it away
        head.dense.bias.fill_(DENSE_BIAS)
    least = factors.shares[factors.shares > 0].min() / 10  # of symbols that do not occur
    logs = torch.from_numpy(np.log(np.maximum(factors.shares, least)))
    head.bias.copy_((logs - logs.mean()).to(head.bias))
