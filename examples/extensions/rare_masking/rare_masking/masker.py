"""Which tokens `--masking rare` chooses, and how many.

Shapes: B blocks, T positions, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rare_masking.options import RareMaskingOptions
from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe


class RareMasker(Masker):
    """Prefers tokens that are rare in the training text, and chooses fewer and fewer tokens."""

    def __init__(
        self, recipe: MaskingRecipe, *, counts: NDArray[np.int64], options: RareMaskingOptions, **tables: Any
    ) -> None:
        """`counts` are the frequencies in dict.txt (V,)."""
        super().__init__(recipe, counts=counts, options=options, **tables)
        self._weights = np.maximum(counts, 1.0) ** -options.rare_power

    @property
    def largest_share(self) -> float:
        """The share of the first update, if it falls."""
        return max(self.options.first_mask_prob, self.recipe.mask_prob)

    def share(self, updates: int | None) -> float:
        """The share falls linearly; validations have the last one."""
        first, last = self.options.first_mask_prob, self.recipe.mask_prob
        done = 1.0 if updates is None else min(1.0, updates / self.options.mask_prob_updates)
        return first + (last - first) * done

    def rank(self, draws: NDArray[np.uint32], tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Exponential waiting times: the n shortest are n tokens drawn one by one in proportion to their weights."""
        uniform = (draws + 0.5) * 2.0**-32
        times: NDArray[np.float64] = -np.log(uniform) / self._weights[tokens]
        return times
