"""Models that another program computes, as exported graphs, with the calls that `RobertaHub` makes.

Shapes: B sequences, T positions, V vocabulary, D model dimension, M' positions of a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.models.heads import Pooling


class GraphModel(nn.Module):
    """A model that only has the outputs of its own head, and no features.

    `forward` is called as in `FastRobertaModel`. `head_kinds` and `heads` are as in our own models.
    """

    what: ClassVar[str]
    """Words for it in messages, such as "an ONNX model"."""
    dim: int
    """The model dimension D."""

    def max_positions(self) -> int:
        """The most tokens in a sequence."""
        raise NotImplementedError

    def position_logits(self, tokens: Tensor, positions: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        """Scores of the vocabulary at some positions of each row, as `running.position_logits`: parts (M', V)."""
        raise NotImplementedError

    def pooled(self, tokens: Tensor, pooling: Pooling, *, has_padding: bool) -> Tensor:
        """Ids (B, T), padded -> vectors (B, D), as the graph pools them."""
        raise NotImplementedError


class OpenedGraph(NamedTuple):
    """The parts of a folder with a graph that the hub needs."""

    model: GraphModel
    tokenizer: Tokenizer
    vocabulary: Vocabulary
    trained_on: dict[str, Any]
