"""Spans of masked tokens: as many, and as long, as those of fairseq's MaskTokensDataset."""

from collections import Counter

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, MaskTokensDataset

from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.data.vocabulary import Row, Vocabulary

BLOCKS, LENGTH = 400, 128


def runs(masks):
    """Mean share that is masked, and how often each length of masked runs occurs in a block."""
    lengths: Counter[int] = Counter()
    for mask in masks:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
        lengths.update((edges[1::2] - edges[::2]).tolist())
    return float(np.mean(masks)), {length: count / len(masks) for length, count in lengths.items()}


@pytest.mark.parametrize(("length", "stdev"), [(1, 0.0), (3, 0.0), (10, 0.0), (5, 2.0), (1, 1.0)])
def test_spans_are_those_of_fairseq(length, stdev):
    symbols = [f"w{number}" for number in range(100)]
    dictionary = Dictionary()
    for symbol in symbols:
        dictionary.add_symbol(symbol)
    mask_id = dictionary.add_symbol("<mask>")
    blocks = np.random.default_rng(0).integers(4, 104, (BLOCKS, LENGTH))
    sources = [torch.from_numpy(block) for block in blocks]
    ids = {"pad_idx": dictionary.pad(), "mask_idx": mask_id, "return_masked_tokens": True}
    spans = {"mask_prob": 0.3, "mask_multiple_length": length, "mask_stdev": stdev}
    theirs = MaskTokensDataset(sources, dictionary, **ids, **spans)
    masks = np.stack([theirs[number].numpy() != dictionary.pad() for number in range(BLOCKS)])
    vocabulary = Vocabulary(Row(symbol, 1) for symbol in symbols)
    masker = Masker.for_vocabulary(vocabulary, MaskingRecipe(mask_prob=0.3, multiple_length=length, stdev=stdev))
    numbers = np.arange(BLOCKS)
    ours = masker.mask(blocks, seed=1, passes=np.ones_like(numbers), indices=numbers)
    (share, found), (expected_share, expected) = runs(ours.targets != masker.pad_id), runs(masks)
    assert share == pytest.approx(expected_share, abs=0.006)
    assert expected_share < 0.3 or length == 1, "no spans overlap: the test shows less than it says"
    for run in range(1, 2 * length + 2):
        assert found.get(run, 0.0) == pytest.approx(expected.get(run, 0.0), rel=0.12, abs=0.2)
    assert ours.num_predicted == (ours.labels != masker.pad_id).sum() == (ours.targets != masker.pad_id).sum()
