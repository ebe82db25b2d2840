"""How the attention product is computed: interchangeable backends behind one signature.

`eager` is the plain reference; all others pass its parity test. A backend that cannot run says why and what to use.

Shapes: B blocks, H heads, T positions, K head dimension.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from .dropout import dropout


class AttentionBackend(Protocol):
    """softmax(q k^T / sqrt(K)) v, with dropout of the attention weights."""

    name: str

    def assert_supported(self, device: torch.device) -> None:
        """Raise a RuntimeError that says what is missing if this backend cannot run on `device`."""
        ...

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, is_padding: Tensor | None, dropout_prob: float) -> Tensor:
        """(B, H, T, K) each -> (B, H, T, K); positions where `is_padding` (B, T) is set are not attended to."""
        ...


class EagerAttention:
    """Every step written out; the softmax in fp32."""

    name = "eager"

    def assert_supported(self, device: torch.device) -> None:
        """Runs everywhere."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, is_padding: Tensor | None, dropout_prob: float) -> Tensor:
        """See `AttentionBackend`."""
        scores = (q * q.size(-1) ** -0.5) @ k.transpose(-2, -1)  # -> (B, H, T, T)
        if is_padding is not None:
            scores = scores.masked_fill(is_padding[:, None, None, :], float("-inf"))
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(v.dtype)
        return dropout(weights, dropout_prob) @ v  # -> (B, H, T, K)


class SdpaAttention:
    """torch's scaled_dot_product_attention: flash or memory-efficient kernels where they exist."""

    name = "sdpa"

    def assert_supported(self, device: torch.device) -> None:
        """Runs everywhere."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, is_padding: Tensor | None, dropout_prob: float) -> Tensor:
        """See `AttentionBackend`."""
        may_attend = None if is_padding is None else ~is_padding[:, None, None, :]  # (B, 1, 1, T)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=may_attend, dropout_p=dropout_prob)


BACKENDS: dict[str, AttentionBackend] = {backend.name: backend for backend in (EagerAttention(), SdpaAttention())}
BACKEND_NAMES = tuple(BACKENDS)


def choose_backend(name: str, *, device: torch.device, dropout_prob: float) -> AttentionBackend:
    """The backend called `name`, or for `auto` the fastest one that is faithful.

    torch's CPU kernel has no dropout and falls back to a slow path with it, which eager with our dropout beats.

    Raises:
        ValueError: for an unknown name.
        RuntimeError: if the backend cannot run here.
    """
    if name == "auto":
        name = "eager" if device.type == "cpu" and dropout_prob > 0 else "sdpa"
    if name not in BACKENDS:
        raise ValueError(f"--attention-backend must be auto or one of {', '.join(BACKENDS)}, got {name!r}.")
    backend = BACKENDS[name]
    backend.assert_supported(device)
    return backend
