"""Blocks against fairseq's TokenBlockDataset, wherever that one has no fault."""

import numpy as np
import pytest
import torch
from fairseq.data import TokenBlockDataset

from roberta_plugin.data.blocks import make_blocks

BLOCK_LENGTH = 24


def make_sizes(seed):
    """Items that fit into a block; a blank line is an item of one token."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, BLOCK_LENGTH + 1, 300)
    sizes[rng.random(300) < 0.15] = 1
    return sizes.astype(np.int32)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("break_mode", ["none", "complete", "complete_doc"])  # fairseq's eos fails under numpy 2
def test_blocks_are_fairseqs(break_mode, seed):
    sizes = make_sizes(seed)
    edges = np.concatenate([[0], np.cumsum(sizes)])
    items = [np.arange(edges[i], edges[i + 1]) for i in range(len(sizes))]  # tokens that tell where they come from
    sources = [torch.from_numpy(item) for item in items]
    options = {"pad": 1, "eos": 2, "break_mode": break_mode, "document_sep_len": 1}
    theirs = TokenBlockDataset(sources, sizes, BLOCK_LENGTH, **options)
    blocks = make_blocks(sizes, block_length=BLOCK_LENGTH, break_mode=break_mode)
    starts, lengths = blocks.bounds(np.arange(len(blocks)))
    ours = [list(range(start, start + length)) for start, length in zip(starts, lengths, strict=True)]
    assert len(ours) > 100
    assert ours == [theirs[i].tolist() for i in range(len(theirs))]
