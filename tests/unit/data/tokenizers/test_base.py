import numpy as np

from roberta_plugin.data.tokenizers.base import join_ids


def test_ids_are_joined_and_lengths_kept():
    ids, lengths = join_ids([[1, 2], [], np.array([3], dtype=np.int32)])
    assert ids.tolist() == [1, 2, 3]
    assert lengths.tolist() == [2, 0, 1]
    assert (ids.dtype, lengths.dtype) == (np.int32, np.int32)


def test_no_lines():
    assert [array.tolist() for array in join_ids([])] == [[], []]
