"""Sizes of a model -> number of parameters, and training FLOPs per token.

Letters: L layers, h model dimension, f feed-forward dimension, V vocabulary, s tokens in a block, m share of positions
that are predicted; only these reach the LM head.
"""

from __future__ import annotations

from dataclasses import dataclass

from roberta_plugin.models.flops import training_flops

PAPER_VOCABULARY = (
    50_265  # the released roberta.base and roberta.large: 50,260 symbols, and <s> <pad> </s> <unk> <mask>
)
_BLOCKS = 10_000  # enough for a whole number of predicted positions
_POSITION_OFFSET = 2  # fairseq's positions begin after <pad>, whose id is 1


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of the model and its input; the defaults are RoBERTa base at full length."""

    num_layers: int = 12
    dim: int = 768
    ffn_dim: int = 3072
    num_heads: int = 12
    vocab_size: int = PAPER_VOCABULARY
    max_positions: int = 512
    tokens_per_sample: int = 512
    predicted_share: float = 0.15
    predicts_next_sentence: bool = False
    num_segments: int = 0
    num_attentions: int | None = None  # distinct ones; None: one a layer
    num_ffns: int | None = None
    num_outer_norms: int = 1  # after the embeddings, and after the last layer of one that normalizes before

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters; shared layers and the LM head's matrix, which is that of the
        embeddings, count once."""
        h, f = self.dim, self.ffn_dim
        norm = 2 * h
        positions = self.max_positions + _POSITION_OFFSET
        embeddings = (self.vocab_size + positions + self.num_segments) * h + self.num_outer_norms * norm
        attentions = (self.num_attentions or self.num_layers) * (4 * (h * h + h) + norm)
        ffns = (self.num_ffns or self.num_layers) * ((h * f + f) + (f * h + h) + norm)
        head = h * h + h + norm + self.vocab_size
        next_sentence = h * h + h + 2 * h + 2 if self.predicts_next_sentence else 0
        return embeddings + attentions + ffns + head + next_sentence


def flops_per_token(shape: Shape) -> float:
    """FLOPs of a training step (forward and backward) per token of a full block, by `models/flops.py`:

        6 L (4 h^2 + 2 h f)  +  12 L h s  +  6 m (h^2 + h V)

    and with next-sentence prediction 6 (h^2 + 2 h) / s more. This follows Narayanan et al. 2021 ("Efficient Large-Scale
    Language Model Training on GPU Clusters", section 5.1), except that there every position reaches the LM head and
    activations are recomputed. Embeddings, norms, softmax, dropout and the optimizer cost a few FLOPs per element and
    are not counted.
    """
    tokens = _BLOCKS * shape.tokens_per_sample
    flops = training_flops(
        num_layers=shape.num_layers,
        dim=shape.dim,
        ffn_dim=shape.ffn_dim,
        vocab_size=shape.vocab_size,
        num_tokens=tokens,
        num_pairs=tokens * shape.tokens_per_sample,
        num_predicted=round(shape.predicted_share * tokens),
        num_next_sentences=_BLOCKS if shape.predicts_next_sentence else 0,
    )
    return flops / tokens
