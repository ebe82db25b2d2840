"""Raw outputs of a model for a split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class RawOutputs(NamedTuple):
    """Outputs of one model for all sequences of a split, in the order of the split.

    Shapes: S sequences of the split, C classes, T_s tokens of sequence s.
    """

    logits: NDArray[np.float32] | None = None
    """Of a classification head (S, C); a regression's numbers (S, 1)."""
    start_logits: Sequence[NDArray[np.float32]] | None = None
    """That the answer starts at a token: (T_s,) for each sequence."""
    end_logits: Sequence[NDArray[np.float32]] | None = None
    """That it ends there: (T_s,) for each sequence."""
    answerable_logits: NDArray[np.float32] | None = None
    """That the sequence holds the answer (S,)."""
    token_logits: Sequence[NDArray[np.float32]] | None = None
    """Of a token head: (T_s, C) for each sequence."""
    sentence_logits: NDArray[np.float32] | None = None
    """That a sentence belongs to the summary: all sentences of all documents, in order."""
