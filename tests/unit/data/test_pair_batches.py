"""Arrays of pairs: `<s> A </s></s> B </s>`, segments, and refusals of lines that are not sentences."""

import numpy as np
import pytest

from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.data.mmap_tokens import MmapTokens, MmapTokensWriter
from roberta_plugin.data.pair_batches import empty_batch, fill_pairs
from roberta_plugin.data.pairs import Pairs


def write(prefix, *lines):
    with MmapTokensWriter(prefix, np.uint16) as writer:
        for line in lines:
            writer.write(np.array(line), np.array([len(line)]))
    return MmapTokens(prefix)


def pair(*, starts, spans, contents, fronts=(0, 0), lengths=None, follows=True):
    columns = [np.array(value)[:, None] for value in (starts, spans, contents, fronts, lengths or contents)]
    return Pairs(*columns, np.array([follows]))


def fill(tokens, pairs, *, rows=(0,), num_pairs=1, width=9):
    batch = empty_batch(num_pairs, width=width, bos_id=0, pad_id=1)
    fill_pairs(batch, tokens, pairs, rows=np.array(rows), eos_id=2, vocab_size=30)
    return batch


def test_a_pair_has_its_separators_and_segments(tmp_path):
    tokens = write(tmp_path / "train", [11, 12, 2], [13, 2], [2], [14, 2])
    batch = fill(tokens, pair(starts=(0, 6), spans=(5, 2), contents=(3, 1), fronts=(0, 0), lengths=(2, 1)))
    assert batch.tokens.tolist() == [[0, 11, 12, 2, 2, 14, 2, 1, 1]]
    assert batch.segments.tolist() == [[0, 0, 0, 0, 1, 1, 1, 0, 0]]
    assert batch.lengths.tolist() == [7] and batch.follows.tolist() == [True]
    batch = fill(
        tokens,
        pair(starts=(0, 6), spans=(5, 2), contents=(3, 1), fronts=(1, 0), lengths=(2, 1)),
        rows=(1,),
        num_pairs=2,
    )
    assert batch.tokens[1].tolist() == [0, 12, 13, 2, 2, 14, 2, 1, 1]
    assert batch.tokens[0].tolist() == [0] + [1] * 8


def test_an_id_outside_the_vocabulary_is_refused_with_its_line(tmp_path):
    tokens = write(tmp_path / "train", [11, 12, 2], [13, 31, 2])
    with pytest.raises(ValueError, match=r"token id 31 in item 1 \(line 2"):
        fill(tokens, pair(starts=(0, 3), spans=(3, 3), contents=(2, 2)))


def test_a_line_with_another_end_of_sentence_is_refused(tmp_path):
    tokens = write(tmp_path / "train", [11, 12, 2], [13, 2, 14, 2])
    with pytest.raises(ValueError, match=r"item 1 \(line 2 of the text\).*holds 2 of them"):
        fill(tokens, pair(starts=(0, 3), spans=(3, 4), contents=(2, 3)))


def test_whole_words_end_with_their_sentence(tmp_path):
    """The first word of a line has no space before it, so its token alone does not say that a word begins."""
    tokens = write(tmp_path / "train", [11, 12, 13, 2], [14, 15, 2], [16, 2])
    batch = empty_batch(1, width=11, bos_id=0, pad_id=1)._replace(begins=np.zeros((1, 11), dtype=np.bool_))
    pairs = pair(starts=(0, 7), spans=(7, 2), contents=(5, 1), fronts=(1, 0), lengths=(4, 1))
    fill_pairs(batch, tokens, pairs, rows=np.array([0]), eos_id=2, vocab_size=30)
    assert batch.tokens.tolist() == [[0, 12, 13, 14, 15, 2, 2, 16, 2, 1, 1]]
    assert batch.begins[0].nonzero()[0].tolist() == [3, 7]

    special, starts = np.isin(np.arange(30), [0, 1, 2, 29]), np.isin(np.arange(30), [15])  # 15 has a space before it
    masker = Masker(
        MaskingRecipe(mask_prob=0.5, whole_words=True),
        mask_id=29,
        pad_id=1,
        never_masked=special,
        never_drawn=special,
        word_starts=starts,
    )
    words = ({1, 2}, {3}, {4}, {7})
    seen = set()
    for number in range(200):
        chosen = masker.mask(
            batch.tokens, seed=1, passes=np.array([number]), indices=np.array([0]), begins=batch.begins
        ).targets[0]
        found = set((chosen != 1).nonzero()[0].tolist())
        assert all(word <= found or not word & found for word in words)
        seen.add(tuple(word <= found for word in words))
    assert {(True, False, True, False), (False, True, False, True), (True, True, False, False)} <= seen
