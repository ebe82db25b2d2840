"""Padding widths, and the check of ids."""

import numpy as np
import pytest

from roberta_plugin.data.batches import check_batch, fill_rows, pad_width
from roberta_plugin.data.mmap_tokens import MmapTokens, MmapTokensWriter


@pytest.mark.parametrize(("longest", "multiple", "width"), [(7, 1, 8), (7, 8, 8), (8, 8, 16), (0, 1, 1)])
def test_a_batch_is_as_wide_as_its_longest_block_and_s(longest, multiple, width):
    assert pad_width(longest, multiple=multiple) == width


def test_rows_get_their_ranges():
    batch = np.ones((3, 5), dtype=np.int64)
    tokens = np.arange(100, 120, dtype=np.uint16)
    fill_rows(batch, tokens, rows=np.array([2, 0]), starts=np.array([3, 10]), lengths=np.array([4, 2]))
    assert batch.tolist() == [[1, 110, 111, 1, 1], [1, 1, 1, 1, 1], [1, 103, 104, 105, 106]]


@pytest.mark.parametrize("bad", [50, -1])
def test_an_id_outside_the_vocabulary_is_refused(tmp_path, bad):
    with MmapTokensWriter(tmp_path / "train", np.int32) as writer:
        writer.write(np.array([5, 2, 6, bad, 2]), np.array([2, 3]))
    source = MmapTokens(tmp_path / "train")
    batch = np.array([[0, 5, 2, 1], [0, 6, bad, 2]])
    where = {"starts": np.array([0, 2]), "lengths": np.array([2, 3])}
    with pytest.raises(ValueError, match=rf"train\.bin holds the token id {bad} in item 1 "):
        check_batch(batch, vocab_size=50, source=source, **where)
    check_batch(np.abs(batch), vocab_size=51, source=source, **where)
