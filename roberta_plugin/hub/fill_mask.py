"""What `RobertaHub.fill_mask` answers."""

from __future__ import annotations

from typing import NamedTuple

MASK = "<mask>"


class Filling(NamedTuple):
    """One answer of `fill_mask`: the text with the mask filled, the answer's probability, and the answer itself."""

    text: str
    probability: float
    token: str
