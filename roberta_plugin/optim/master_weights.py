"""Save and restore the fp32 master weights of a model in half precision (Micikevicius et al. 2018, section 3.1).

The model computes with rounded masters. A training resumed from the rounded weights would diverge from the original, so
the optimizer's state holds the masters, as a list of tensors under `KEY`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

KEY = "fp32_params"
HALF = (torch.float16, torch.bfloat16)


@torch.no_grad()
def restore(state: dict[str, Any], masters: Sequence[Tensor], *, halves: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Copy the saved masters into `masters`, if the loaded weights are these masters rounded.

    Otherwise warn, and copy the loaded weights into the masters.

    Args:
        state: the optimizer's state in a checkpoint.
        masters: the tensors to fill, shaped as when they were saved.
        halves: pairs of a weight of the model and its master, or its part of a flattened master.
    """
    pairs = list(halves)
    saved: list[Tensor] | None = state.get(KEY)
    if saved is None:
        problem = "The checkpoint has no fp32 master weights (it was saved without them, or in another precision)"
    elif [tensor.shape for tensor in saved] != [tensor.shape for tensor in masters]:
        problem = "The checkpoint's fp32 master weights have other shapes than the model's"
    else:
        for master, tensor in zip(masters, saved, strict=True):
            master.copy_(tensor)
        if all(_rounds_to(master, half) for half, master in pairs):
            for half, master in pairs:
                half.copy_(master)  # changes nothing, unless the run resumes in the other half precision
            return
        problem = "The checkpoint's fp32 master weights do not match its model weights, which were changed afterwards"
    for half, master in pairs:
        master.copy_(half)
    logger.warning(f"{problem}: they start from the model's weights.")


def _rounds_to(master: Tensor, half: Tensor) -> bool:
    """True if `half` can be `master` rounded: bf16 keeps 8 bits; fp16 keeps 11, and fewer only below 6e-5."""
    return torch.isclose(half.float(), master, rtol=2**-7, atol=1e-7, equal_nan=True).all().item() is True
