"""Padding widths, the check of ids, and packed rows that hold the same as the padded batch."""

import numpy as np
import pytest

from roberta_plugin.data.batches import PREDICTED_MULTIPLE, SEQUENCES_MULTIPLE, fill_rows, pack, pad_width
from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.data.mmap_tokens import MmapTokens, MmapTokensWriter, check_ranges


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
        check_ranges(batch, vocab_size=50, source=source, **where)
    check_ranges(np.abs(batch), vocab_size=51, source=source, **where)


V, PAD, MASK = 60, 1, 59
SPECIAL = np.isin(np.arange(V), [0, 1, 2, 3, MASK])


def make_masked(lengths, seed=0):
    tokens = np.random.default_rng(seed).integers(4, MASK, (len(lengths), max(lengths)))
    tokens[:, 0] = 0
    for row, length in enumerate(lengths):
        tokens[row, length:] = PAD
    masker = Masker(MaskingRecipe(), mask_id=MASK, pad_id=PAD, never_masked=SPECIAL, never_drawn=SPECIAL)
    count = len(lengths)
    return masker.mask(tokens, seed=1, passes=np.ones(count, dtype=np.int64), indices=np.arange(count))


@pytest.mark.parametrize("multiple", [1, 64, 256])
@pytest.mark.parametrize("lengths", [(30, 7, 1, 19, 30), (64,), (32, 32), (2, 1, 1)], ids=str)
def test_every_block_is_there_in_its_place(lengths, multiple):
    masked = make_masked(lengths)
    row = pack(masked, np.array(lengths), pad_id=PAD, multiple=multiple, max_seqlen=64)
    assert row.tokens.shape == row.targets.shape == row.positions.shape
    assert row.tokens.shape[1] % multiple == 0
    assert row.tokens.shape[1] - sum(lengths) < multiple
    for block, length in enumerate(lengths):
        start, stop = row.cu_seqlens[block : block + 2]
        assert stop - start == length
        assert row.tokens[0, start:stop].tolist() == masked.tokens[block, :length].tolist()
        assert row.targets[0, start:stop].tolist() == masked.targets[block, :length].tolist()
        assert row.positions[0, start:stop].tolist() == list(range(length))
    assert np.diff(row.cu_seqlens).min() >= 0 and np.diff(row.cu_seqlens).max() <= 64, (
        "a sequence is longer than it may be"
    )
    assert row.cu_seqlens[-1] == row.tokens.shape[1]
    assert (row.tokens[0, sum(lengths) :] == PAD).all()
    assert (row.targets[0, sum(lengths) :] == PAD).all()


@pytest.mark.parametrize("multiple", [1, 64])
def test_what_is_predicted_belongs_to_its_block(multiple):
    lengths = (30, 7, 1, 19, 30)
    masked = make_masked(lengths)
    row = pack(masked, np.array(lengths), pad_id=PAD, multiple=multiple, max_seqlen=64)
    is_meant = row.labels[0] != PAD
    assert is_meant.sum() == masked.num_predicted > 5
    assert row.predicted[0, is_meant].tolist() == np.flatnonzero(row.targets[0] != PAD).tolist()
    assert row.labels[0, is_meant].tolist() == row.targets[0, row.predicted[0, is_meant]].tolist()
    assert len(row.cu_seqlens_q) == len(row.cu_seqlens)
    for block in range(len(lengths)):
        mine = slice(*row.cu_seqlens_q[block : block + 2])
        inside = row.predicted[0, mine][row.labels[0, mine] != PAD]
        assert ((inside >= row.cu_seqlens[block]) & (inside < row.cu_seqlens[block + 1])).all()
    assert row.cu_seqlens_q[len(lengths)] == row.predicted.shape[1], "the room left belongs to the last block"


def test_sizes_are_rounded_up_where_shapes_are_to_stay():
    shapes = set()
    for seed in range(20):
        lengths = np.random.default_rng(seed).integers(5, 60, 20)
        row = pack(make_masked(lengths, seed), lengths, pad_id=PAD, multiple=2048, max_seqlen=512)
        shapes.add((row.tokens.shape, row.cu_seqlens.shape, row.predicted.shape))
    assert shapes == {((1, 2048), (SEQUENCES_MULTIPLE + 1,), (1, PREDICTED_MULTIPLE))}
