"""Attention backends for packed rows: sequences of different lengths end to end, without padding.

They need `sequences`; see `base`. `torch_flash`, which needs only torch, has its own file.

Shapes: H heads, N positions of the row, K head dimension.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor

from roberta_plugin.models.attention.base import AttentionBackend, AttentionMask


class NestedAttention(AttentionBackend):
    """torch's scaled_dot_product_attention on nested (jagged) tensors: packed rows on a CPU or a GPU.

    Sequences may be empty, but torch is given a least length of 1: with 0 it refuses all fused kernels and computes
    each sequence by itself, with three device-to-host syncs per sequence and layer. Its kernels for jagged tensors go
    by the offsets and do not use the least length.
    """

    name = "nested"
    serves_padded = False

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, dropout_prob: float) -> Tensor:
        """See `AttentionBackend`."""
        sequences = mask.sequences
        assert sequences is not None
        cu_seqlens_q, cu_seqlens_k = sequences.cu_seqlens_q.long(), sequences.cu_seqlens_k.long()
        q = nested_rows(q, cu_seqlens_q, sequences.max_seqlen_q)
        k, v = (nested_rows(x, cu_seqlens_k, sequences.max_seqlen_k) for x in (k, v))
        output = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_prob)
        return output.transpose(1, 2).values().transpose(0, 1)[None]  # (N, H, K) -> (1, H, N, K)


class VarlenAttention(AttentionBackend):
    """torch.nn.attention.varlen: packed rows on a GPU, in half precision, without dropout."""

    name = "varlen"
    serves_padded = False

    def assert_supported(self, device: torch.device, *, dropout_prob: float) -> None:
        """Needs a GPU, a torch that has it, and no attention dropout."""
        missing = []
        if device.type != "cuda":
            missing.append(f"a GPU, found device {device.type!r}")
        if not has_module("torch.nn.attention.varlen"):
            missing.append(f"torch >= 2.10, found {torch.__version__}")
        if dropout_prob > 0:
            missing.append(f"--attention-dropout 0, found {dropout_prob}")
        if missing:
            raise RuntimeError(f"attention backend 'varlen' needs {'; '.join(missing)}. Use --attention-backend auto.")

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, dropout_prob: float) -> Tensor:
        """See `AttentionBackend`."""
        from torch.nn.attention.varlen import varlen_attn

        sequences = mask.sequences
        assert sequences is not None
        output = varlen_attn(rows_of(q), rows_of(k), rows_of(v), *sequences)
        assert isinstance(output, Tensor)
        return output.transpose(0, 1)[None]  # (N, H, K) -> (1, H, N, K)


class FlashAttention(AttentionBackend):
    """flash-attn 2 for sequences of different lengths: packed rows on a GPU, in half precision, with dropout."""

    name = "flash"
    serves_padded = False

    def assert_supported(self, device: torch.device, *, dropout_prob: float) -> None:
        """Needs a GPU and the package flash-attn."""
        missing = []
        if device.type != "cuda":
            missing.append(f"a GPU, found device {device.type!r}")
        if not has_module("flash_attn"):
            missing.append("the package flash-attn >= 2.5 (pip install flash-attn)")
        if missing:
            raise RuntimeError(f"attention backend 'flash' needs {'; '.join(missing)}. Use --attention-backend auto.")

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, dropout_prob: float) -> Tensor:
        """See `AttentionBackend`."""
        from flash_attn import flash_attn_varlen_func

        sequences = mask.sequences
        assert sequences is not None
        output: Tensor = flash_attn_varlen_func(rows_of(q), rows_of(k), rows_of(v), *sequences, dropout_p=dropout_prob)
        return output.transpose(0, 1)[None]  # (N, H, K) -> (1, H, N, K)


def nested_rows(x: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> Tensor:
    """(1, H, N, K) -> a nested tensor (S, H, j, K), j the length of each sequence."""
    nested: Tensor = torch.nested.nested_tensor_from_jagged(
        rows_of(x).contiguous(), offsets=cu_seqlens, min_seqlen=1, max_seqlen=max_seqlen
    )
    return nested.transpose(1, 2)


def nested_kernel_name(q: Tensor, k: Tensor, v: Tensor, dropout_prob: float) -> str:
    """The kernel that torch chooses for these nested tensors; "unknown" if it does not say."""
    try:
        from torch.nested._internal.sdpa import _select_sdp_backend
    except ImportError:
        return "unknown"
    kind = _select_sdp_backend(q, k, v, None, dropout_prob, False, False)
    return str(kind.name).removesuffix("_ATTENTION").lower()


def rows_of(x: Tensor) -> Tensor:
    """(1, H, N, K) -> (N, H, K), the layout of kernels for packed rows."""
    return x[0].transpose(0, 1)


@cache
def has_module(name: str) -> bool:
    """Whether a module is installed, without importing it."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
