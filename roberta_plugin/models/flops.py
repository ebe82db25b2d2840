"""FLOPs of a training step: for the figures in the training log.

Letters: L layers, h model dimension, f feed-forward dimension, V vocabulary.
"""

from __future__ import annotations


def training_flops(
    *,
    num_layers: int,
    dim: int,
    ffn_dim: int,
    vocab_size: int,
    num_tokens: int,
    num_pairs: int,
    num_predicted: int,
    num_next_sentences: int = 0,
) -> float:
    """FLOPs of forward and backward, counting a multiply-add as two.

        6 L (4 h^2 + 2 h f) tokens  +  12 L h pairs  +  6 (h^2 + h V) predicted  +  6 (h^2 + 2 h) next sentences

    6 FLOPs per weight and token (Kaplan et al. 2020, section 2.1), the two matmuls of attention for each pair of
    positions that attend to each other, the LM head for each predicted position, and the head of next-sentence
    prediction for each pair of texts. Padding and recomputation do not count. The last layer counts in full, as is
    usual for MFU.

    Args:
        num_layers: L.
        dim: h.
        ffn_dim: f.
        vocab_size: V.
        num_tokens: tokens, pads not counted.
        num_pairs: the sum of the squared lengths of the sequences.
        num_predicted: predicted positions.
        num_next_sentences: pairs of texts whose <s> predicts whether the second follows the first; 0 without that head.
    """
    layers = 6.0 * num_layers * (4 * dim * dim + 2 * dim * ffn_dim) * num_tokens
    attention = 12.0 * num_layers * dim * num_pairs
    heads = 6.0 * (dim * dim + dim * vocab_size) * num_predicted + 6.0 * (dim * dim + 2 * dim) * num_next_sentences
    return layers + attention + heads


def executed_flops(
    *,
    num_layers: int,
    dim: int,
    ffn_dim: int,
    vocab_size: int,
    num_tokens: int,
    num_pairs: int,
    num_predicted: int,
    num_next_sentences: int = 0,
    recomputes: bool = False,
) -> float:
    """FLOPs that our model executes for a step, 3 to 6 % less.

        6 (L - 1) (4 h^2 + 2 h f) tokens  +  12 (L - 1) h pairs  +  6 (h^2 + h V) predicted
        +  6 (2 h^2 tokens  +  (2 h^2 + 2 h f) predicted)  +  12 h pairs predicted / tokens
        +  6 (h^2 + 2 h) next sentences

    The last layer makes keys and values of all tokens, and the rest for the predicted positions only, to which
    each <s> with next-sentence prediction belongs in the second line. With
    activations recomputed, layers cost a third more. Padding is left out, as above.
    """
    sizes = {"dim": dim, "ffn_dim": ffn_dim, "vocab_size": vocab_size}
    counts = {"num_tokens": num_tokens, "num_pairs": num_pairs, "num_predicted": 0}
    num_last = num_predicted + num_next_sentences  # positions that leave the last layer
    layers = training_flops(num_layers=num_layers - 1, **sizes, **counts)
    layers += 6.0 * (2 * dim * dim * num_tokens + (2 * dim * dim + 2 * dim * ffn_dim) * num_last)
    layers += 12.0 * dim * num_pairs * num_last / max(num_tokens, 1)
    counts = {"num_tokens": 0, "num_pairs": 0, "num_predicted": num_predicted}
    heads = training_flops(num_layers=0, **sizes, **counts, num_next_sentences=num_next_sentences)
    return layers * (4 / 3 if recomputes else 1) + heads
