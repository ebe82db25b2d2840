"""fp32 master weights of a model in half precision, in a checkpoint and back (Micikevicius et al. 2018, section 3.1).

The weights that the model computes with are the masters rounded. A training that resumes from the rounded ones goes
another way: so the masters are part of the optimizer's state, as a list of tensors under `KEY`.
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
    """Put the masters of an optimizer's state into `masters`, if they belong to the weights that have been loaded.

    Args:
        state: what a checkpoint holds of the optimizer.
        masters: where they go, shaped as when they were saved.
        halves: each weight of the model with its master, or its part of it, which gets the weight's value where the
            state has no masters or those of other weights.
    """
    pairs = list(halves)
    saved: list[Tensor] | None = state.get(KEY)
    if saved is None:
        problem = "The checkpoint has no fp32 master weights (it was saved without, or in another precision)"
    elif [tensor.shape for tensor in saved] != [tensor.shape for tensor in masters]:
        problem = "The checkpoint's fp32 master weights are of other shapes than the model's"
    else:
        for master, tensor in zip(masters, saved, strict=True):
            master.copy_(tensor)
        if all(_rounds_to(master, half) for half, master in pairs):
            for half, master in pairs:
                half.copy_(master)  # changes nothing, unless the training goes on in the other half precision
            return
        problem = "The checkpoint's fp32 master weights are not those of its model, which has been changed since"
    for half, master in pairs:
        master.copy_(half)
    logger.warning(f"{problem}: they begin anew, at the weights that the model computes with.")


def _rounds_to(master: Tensor, half: Tensor) -> bool:
    """Whether `half` can be `master` rounded: bf16 keeps 8 bits, fp16 fewer than its 11 only below 6e-5."""
    return torch.isclose(half.float(), master, rtol=2**-7, atol=1e-7, equal_nan=True).all().item() is True
