"""Arrays of pairs: `<s> A </s></s> B </s>`, segments, and refusals of lines that are not sentences."""

import numpy as np
import pytest

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
