"""Settings of the paper's Table 10 that all benchmarks share."""

from __future__ import annotations

import math
from collections.abc import Mapping

WARM_UP = 0.06  # share of the updates
MAX_LENGTH = 512  # tokens of a sequence
SMALLEST_LENGTH = 6  # <s> and three </s> around a token of each of two texts

# Adam's betas and epsilon and the gradient clipping are those of pretraining (Table 9): the paper gives no others.
COMMON: Mapping[str, str] = {
    "optimizer": "roberta_adamw",
    "adam-betas": "(0.9, 0.98)",
    "adam-eps": "1e-6",
    "clip-norm": "0.0",
    "lr-scheduler": "polynomial_decay",
    "dropout": "0.1",
    "attention-dropout": "0.1",
    "required-batch-size-multiple": "1",
}


def schedule(num_examples: int, *, batch_size: int, epochs: int) -> dict[str, str]:
    """The schedule in updates, as fairseq counts it, from epochs, as the paper counts them.

    Example:
        schedule(1000, batch_size=16, epochs=10)  ->  batch-size 16, max-update and total-num-update 630, warmup 38
    """
    num_updates = epochs * math.ceil(num_examples / batch_size)
    return {
        "batch-size": str(batch_size),
        "total-num-update": str(num_updates),
        "max-update": str(num_updates),
        "warmup-updates": str(round(WARM_UP * num_updates)),
    }
