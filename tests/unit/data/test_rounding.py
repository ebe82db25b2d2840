import numpy as np
import pytest

from roberta_plugin.data.rounding import ceil_div, round_up


@pytest.mark.parametrize(("number", "quotient", "rounded"), [(0, 0, 0), (1, 1, 4), (4, 1, 4), (5, 2, 8), (9, 3, 12)])
def test_both_round_up_numbers_and_arrays(number, quotient, rounded):
    assert ceil_div(number, 4) == quotient
    assert round_up(number, 4) == rounded
    assert round_up(np.array([number], dtype=np.int32), 4).tolist() == [rounded]
