"""Which tokens are chosen, and how many."""

import numpy as np
import pytest
from rare_masking.masker import RareMasker
from rare_masking.options import RareMaskingOptions

from roberta_plugin.data.dynamic_masking import MaskingRecipe

V, PAD, MASK = 30, 1, 29
COUNTS = np.array([0, 0, 0, 0, *(10 * 2**i for i in range(25)), 0])


def masked(*, updates=None, num_blocks=2000, **options):
    special = np.isin(np.arange(V), [0, 1, 2, 3, MASK])
    masker = RareMasker(
        MaskingRecipe(),
        mask_id=MASK,
        pad_id=PAD,
        never_masked=special,
        never_drawn=special,
        counts=COUNTS,
        options=RareMaskingOptions(**options),
    )
    tokens = np.random.default_rng(0).integers(4, MASK, (num_blocks, 50))
    numbers = np.arange(len(tokens))
    return tokens, masker.mask(tokens, seed=1, passes=np.ones_like(numbers), indices=numbers, updates=updates)


@pytest.mark.parametrize(("updates", "share"), [(0, 0.3), (50, 0.225), (100, 0.15), (1000, 0.15), (None, 0.15)])
def test_the_share_falls_from_30_to_15_percent_and_validations_have_the_last(updates, share):
    tokens, batch = masked(updates=updates, mask_prob_updates=100)
    assert batch.num_predicted / tokens.size == pytest.approx(share, abs=0.003)


def test_tokens_are_chosen_in_proportion_to_a_power_of_their_counts():
    one = {"first_mask_prob": 0.02, "updates": 0}  # token of each block
    tokens, batch = masked(rare_power=0.25, num_blocks=30_000, **one)
    chosen = np.bincount(batch.labels[batch.labels != PAD], minlength=V) / np.maximum(
        np.bincount(tokens.ravel(), minlength=V), 1
    )
    ratio = chosen[4] / chosen[12]  # counts of 10 and 2560
    assert ratio == pytest.approx(256**0.25, rel=0.1)


def test_the_power_0_is_the_uniform_masking():
    _, batch = masked(rare_power=0.0)
    chosen = np.bincount(batch.labels[batch.labels != PAD], minlength=V)[4:MASK]
    assert chosen.min() / chosen.max() > 0.75
