"""torch's scaled_dot_product_attention: limits and reports its choice of kernel.

On a GPU torch has four: flash, cudnn, efficient (memory-efficient, of CUTLASS) and math. A padding mask excludes flash.
cuDNN, torch's first choice on Hopper in some versions, rounds the dropout probability to sixteenths without a word: 0.1
becomes 0.125. So it is left out wherever the rounding would change the probability.

Shapes: B blocks, H heads, T positions, Q positions that attend, K head dimension.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from roberta_plugin.models.attention.base import AttentionBackend, AttentionMask

GPU = "cuda"
CUDNN_DROPOUT_LEVELS = 16
EXACT_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
KERNEL_NAMES = {
    SDPBackend.MATH: "math",
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}


class SdpaAttention(AttentionBackend):
    """torch's scaled_dot_product_attention: flash or memory-efficient kernels where they exist.

    For packed rows it builds a mask of all pairs of positions: correct, but slow and large.
    """

    name = "sdpa"

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, dropout_prob: float) -> Tensor:
        """See `AttentionBackend`."""
        allowed = mask.allowed(q, k)
        with exact_dropout(q.device, dropout_prob):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=dropout_prob)


def exact_dropout(device: torch.device, dropout_prob: float) -> AbstractContextManager[None]:
    """While entered, sdpa uses only kernels that apply this dropout probability exactly."""
    if device.type != GPU or (dropout_prob * CUDNN_DROPOUT_LEVELS).is_integer():
        return nullcontext()
    context: AbstractContextManager[None] = sdpa_kernel(EXACT_KERNELS)
    return context


def kernel_name(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, dropout_prob: float) -> str:
    """The kernel that sdpa chooses for these inputs, by torch's own choice; "unknown" if torch does not say."""
    choose = getattr(torch, "_fused_sdp_choice", None)
    if choose is None:
        return "unknown"
    with exact_dropout(q.device, dropout_prob):
        chosen = choose(q, k, v, allowed, dropout_prob, False)
    return next((name for kind, name in KERNEL_NAMES.items() if int(kind.value) == chosen), "unknown")
