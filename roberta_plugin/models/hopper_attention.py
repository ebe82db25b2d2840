"""Attention of packed rows by the kernels that NVIDIA's Hopper GPUs have beside FlashAttention-2: about twice as fast.

    cudnn    cuDNN's, which torch contains; dropout in sixteenths only: 0, 0.0625, 0.125, ...
    flash3   FlashAttention-3 (Shah et al. 2024), from its own package flash_attn_interface, without dropout

They are chosen by name only, because we have not run them on a GPU yet. A training begins by comparing their outputs
and gradients with the definition, and is refused if they differ. torch has no description of these kernels that
torch.compile could use, so compiled layers end and begin at them.

Shapes: N positions of a row, H heads, K head dimension.
"""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from roberta_plugin.models.attention_kernels import (
    HALF,
    AttentionBackend,
    AttentionMask,
    Sequences,
    as_rows,
    capability,
)

HOPPER = (9, 0)
DROPOUT_LEVELS = 16  # of cuDNN


class PackedKernel(AttentionBackend):
    """A kernel for sequences of different lengths, in half precision."""

    serves_padded = False
    max_dim: int
    """The largest head dimension."""

    def assert_supported(self, device: torch.device, *, dropout_prob: float) -> None:
        """Needs a Hopper GPU, or a newer one, and the package or version that has the kernel."""
        missing = f"a GPU, found device {device.type!r}" if device.type != "cuda" else self.missing()
        if not missing and capability(device) < HOPPER:
            found = ".".join(map(str, capability(device)))
            missing = f"a GPU of compute capability 9.0 (H100) or more, found {found}"
        if missing:
            raise RuntimeError(f"attention backend {self.name!r} needs {missing}. Use --attention-backend auto.")
        try:
            self.check_options(dropout_prob=dropout_prob)
        except ValueError as error:
            raise RuntimeError(str(error)) from None

    @override
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, dropout_prob: float) -> Tensor:
        dim, sequences = q.size(-1), mask.sequences
        assert sequences is not None
        if q.dtype not in HALF or dim > self.max_dim or dim % 8:
            raise RuntimeError(
                f"attention backend {self.name!r} computes in bf16 or fp16, for heads of at most {self.max_dim} "
                f"dimensions and a multiple of 8; found {str(q.dtype).removeprefix('torch.')} and {dim}. Use "
                "--attention-backend auto."
            )
        if mask.reach is not None:
            self.check_options(dropout_prob=dropout_prob, has_windows=True)
        rows = [as_rows(x).contiguous() for x in (q, k, v)]  # which these kernels count on
        output = self._run(*rows, sequences=sequences, dropout_prob=dropout_prob)
        return _EvenGradient.apply(output).transpose(0, 1)[None]  # type: ignore[no-any-return, no-untyped-call]

    def _run(self, q: Tensor, k: Tensor, v: Tensor, *, sequences: Sequences, dropout_prob: float) -> Tensor:
        return self.run(q, k, v, sequences=sequences, dropout_prob=dropout_prob)

    @classmethod
    def keep_out_of_graphs(cls) -> None:
        """Let torch.compile end graphs at these kernels. (As a decorator, it would import the compiler.)"""
        if not hasattr(cls._run, "_torchdynamo_disable"):
            cls._run = torch.compiler.disable(cls._run)  # type: ignore[method-assign]

    @abstractmethod
    def missing(self) -> str:
        """The package or version that is missing on this machine; "" if none is."""

    @abstractmethod
    def run(self, q: Tensor, k: Tensor, v: Tensor, *, sequences: Sequences, dropout_prob: float) -> Tensor:
        """q, k and v (N, H, K), contiguous -> (N, H, K)."""


class CudnnAttention(PackedKernel):
    """cuDNN's attention of sequences of different lengths, by the operator behind torch's nested tensors."""

    name = "cudnn"
    max_dim = 128

    @override
    def check_options(self, *, dropout_prob: float, has_windows: bool = False) -> None:
        if not (dropout_prob * DROPOUT_LEVELS).is_integer():
            near = round(dropout_prob * DROPOUT_LEVELS) / DROPOUT_LEVELS
            raise ValueError(
                f"--attention-backend cudnn takes --attention-dropout in sixteenths, and {dropout_prob:g} is not a "
                f"multiple: give {near:g}, or --attention-backend auto."
            )
        _refuse_windows(self.name, has_windows)

    @override
    def missing(self) -> str:
        if hasattr(torch.ops.aten, "_cudnn_attention_forward") and torch.backends.cudnn.is_available():
            return ""
        return f"a torch with cuDNN's attention, found {torch.__version__}"

    @override
    def run(self, q: Tensor, k: Tensor, v: Tensor, *, sequences: Sequences, dropout_prob: float) -> Tensor:
        output: Tensor = torch.ops.aten._cudnn_attention_forward(
            *(q, k, v),
            None,  # attn_bias
            *sequences,
            True,  # compute_log_sumexp
            dropout_prob,
            False,  # is_causal
            False,  # return_debug_mask
            scale=q.size(-1) ** -0.5,
        )[0]
        return output


class Flash3Attention(PackedKernel):
    """FlashAttention-3, where its package is installed."""

    name = "flash3"
    max_dim = 256
    package = "flash_attn_interface"

    @override
    def check_options(self, *, dropout_prob: float, has_windows: bool = False) -> None:
        if dropout_prob:
            raise ValueError(
                f"--attention-backend flash3 has no dropout, and --attention-dropout is {dropout_prob:g}: give 0, or "
                "--attention-backend auto."
            )
        _refuse_windows(self.name, has_windows)

    @override
    def missing(self) -> str:
        return "" if importlib.util.find_spec(self.package) else "the package flash_attn_interface (FlashAttention-3)"

    @override
    def run(self, q: Tensor, k: Tensor, v: Tensor, *, sequences: Sequences, dropout_prob: float) -> Tensor:
        kernels: Any = importlib.import_module(self.package)
        found = kernels.flash_attn_varlen_func(
            *(q, k, v),
            cu_seqlens_q=sequences.cu_seqlens_q,
            cu_seqlens_k=sequences.cu_seqlens_k,
            max_seqlen_q=sequences.max_seqlen_q,
            max_seqlen_k=sequences.max_seqlen_k,
            softmax_scale=q.size(-1) ** -0.5,
            causal=False,
        )
        output: Tensor = found[0] if isinstance(found, tuple) else found  # some versions also return sums of exponents
        return output


def _refuse_windows(name: str, has_windows: bool) -> None:
    if has_windows:
        raise ValueError(
            f"--attention-backend {name} has no local windows: leave --attention-window out, or give "
            "--attention-backend auto."
        )


class _EvenGradient(torch.autograd.Function):
    """The same numbers, with a gradient that lies in memory as the kernel counts on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].contiguous()
