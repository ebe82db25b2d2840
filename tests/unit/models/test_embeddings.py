"""Positions are counted as fairseq counts them."""

import torch
from fairseq.utils import make_positions

from roberta_plugin.models.embeddings import LearnedPositions


def test_positions_are_fairseqs_with_padding_on_either_side_and_without():
    positions = LearnedPositions(10, 4, pad_id=1)
    assert positions.weight.shape == (12, 4)
    tokens = torch.tensor([[0, 5, 6, 2], [0, 2, 1, 1], [1, 0, 5, 2]])
    expected = positions.weight[make_positions(tokens, 1)]
    assert torch.equal(positions(tokens, is_padding=tokens.eq(1)), expected)
    told = torch.tensor([[0, 1, 2, 3], [0, 1, -1, -1], [-1, 0, 1, 2]])
    assert torch.equal(positions(tokens, positions=told), expected)
    assert torch.equal(positions(tokens[:1]).expand(1, -1, -1), expected[:1])
