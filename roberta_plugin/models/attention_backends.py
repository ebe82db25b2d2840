"""How the attention product is computed: interchangeable backends behind one signature.

`eager` is the plain reference; all others pass its parity test. A backend that cannot run says why and what to use.

Shapes: B blocks, H heads, T positions, Q positions that attend (all, or the predicted ones), K head
dimension.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from . import cpu_attention
from .cpu_products import has_onednn, serves
from .dropout import dropout


class AttentionBackend(Protocol):
    """softmax(q k^T / sqrt(K)) v, with dropout of the attention weights."""

    name: str

    def assert_supported(self, device: torch.device) -> None:
        """Raise a RuntimeError that says what is missing if this backend cannot run on `device`."""
        ...

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, is_padding: Tensor | None, dropout_prob: float) -> Tensor:
        """q (B, H, Q, K), k and v (B, H, T, K) -> (B, H, Q, K).

        Positions where `is_padding` (B, T) is set are not attended to.
        """
        ...


class EagerAttention:
    """Every step written out; the softmax in fp32."""

    name = "eager"

    def assert_supported(self, device: torch.device) -> None:
        """Runs everywhere."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, is_padding: Tensor | None, dropout_prob: float) -> Tensor:
        """See `AttentionBackend`."""
        scores = (q * q.size(-1) ** -0.5) @ k.transpose(-2, -1)  # -> (B, H, Q, T)
        if is_padding is not None:
            scores = scores.masked_fill(is_padding[:, None, None, :], float("-inf"))
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(v.dtype)
        return dropout(weights, dropout_prob) @ v  # -> (B, H, Q, K)


class SdpaAttention:
    """torch's scaled_dot_product_attention: flash or memory-efficient kernels where they exist."""

    name = "sdpa"

    def assert_supported(self, device: torch.device) -> None:
        """Runs everywhere."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, is_padding: Tensor | None, dropout_prob: float) -> Tensor:
        """See `AttentionBackend`."""
        may_attend = None if is_padding is None else ~is_padding[:, None, None, :]  # (B, 1, 1, T)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=may_attend, dropout_p=dropout_prob)


class OneDnnAttention:
    """Head by head through oneDNN, in fp32 on a CPU: the fastest there, with dropout and without."""

    name = "onednn"

    def assert_supported(self, device: torch.device) -> None:
        """Needs a CPU and a torch with oneDNN."""
        if device.type != "cpu" or not has_onednn():
            raise RuntimeError(
                "attention backend 'onednn' needs a CPU and a torch built with oneDNN (mkldnn); found device "
                f"{device.type!r}, oneDNN {'available' if has_onednn() else 'missing'}. Use --attention-backend sdpa."
            )

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, is_padding: Tensor | None, dropout_prob: float) -> Tensor:
        """See `AttentionBackend`; other types than fp32 take the plain way."""
        if not serves(q, k, v):
            return BACKENDS["eager"](q, k, v, is_padding=is_padding, dropout_prob=dropout_prob)
        return cpu_attention.attend(q, k, v, is_padding=is_padding, dropout_prob=dropout_prob)


BACKENDS: dict[str, AttentionBackend] = {
    backend.name: backend for backend in (EagerAttention(), SdpaAttention(), OneDnnAttention())
}
BACKEND_NAMES = tuple(BACKENDS)
FEW_THREADS = 8


def choose_backend(name: str, *, device: torch.device, dropout_prob: float) -> AttentionBackend:
    """The backend called `name`, or for `auto` the fastest one that is faithful.

    On a CPU with few cores that is `onednn`. With more, its products of one head are too small to share, and eager
    serves where there is dropout, which torch's own kernel there does not have.

    Raises:
        ValueError: for an unknown name.
        RuntimeError: if the backend cannot run here.
    """
    if name == "auto":
        name = "sdpa"
        if device.type == "cpu" and has_onednn() and torch.get_num_threads() <= FEW_THREADS:
            name = "onednn"
        elif device.type == "cpu" and dropout_prob > 0:
            name = "eager"
    if name not in BACKENDS:
        raise ValueError(f"--attention-backend must be auto or one of {', '.join(BACKENDS)}, got {name!r}.")
    backend = BACKENDS[name]
    backend.assert_supported(device)
    return backend
