"""Packed rows through the flash-attention kernel that torch itself contains: lengths, dropout and derivatives.

`F.scaled_dot_product_attention` reaches this kernel for padded batches without a mask only, and
`torch.nn.attention.varlen` has no dropout. The operator below both of them, `aten::_flash_attention_forward`, takes the
bounds of sequences and a dropout probability, and torch has its derivative. No other package is needed.

Shapes: H heads, N positions of the row, K head dimension.
"""

from __future__ import annotations

import logging
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from roberta_plugin.models.attention.base import AttentionBackend, AttentionMask, Sequences

logger = logging.getLogger(__name__)

HALF = (torch.float16, torch.bfloat16)
DIM_MULTIPLE, MAX_DIM = 8, 256  # the kernel takes no other head dimensions


class TorchFlashAttention(AttentionBackend):
    """torch's own FlashAttention-2 (Dao 2023) for sequences of different lengths, in half precision, with dropout."""

    name = "torch_flash"
    serves_padded = False

    def assert_supported(self, device: torch.device, *, dropout_prob: float) -> None:
        """Needs a GPU of compute capability 8.0 or more and a torch that was built with the kernel."""
        missing = []
        if device.type != "cuda":
            missing.append(f"a GPU, found device {device.type!r}")
        elif not has_kernel():
            missing.append(f"a torch with flash attention, found {torch.__version__}")
        elif capability(device) < (8, 0):
            found = ".".join(map(str, capability(device)))
            missing.append(f"a GPU of compute capability 8.0 (A100) or more, found {found}")
        if missing:
            raise RuntimeError(
                f"attention backend 'torch_flash' needs {'; '.join(missing)}. Use --attention-backend auto."
            )

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, dropout_prob: float) -> Tensor:
        """See `AttentionBackend`.

        Raises:
            RuntimeError: for fp32 and for heads of more than MAX_DIM dimensions, which the kernel does not have.
        """
        if q.dtype not in HALF:
            raise RuntimeError(
                f"attention backend 'torch_flash' needs --bf16, --fp16 or --amp, found {q.dtype}. Use "
                "--attention-backend auto."
            )
        sequences = mask.sequences
        assert sequences is not None
        dim = q.size(-1)
        if dim > MAX_DIM:
            raise RuntimeError(
                f"attention backend 'torch_flash' has heads of at most {MAX_DIM} dimensions, found {dim}: raise "
                "--encoder-attention-heads, or use --attention-backend auto."
            )
        rows = [F.pad(rows_of(x), (0, -dim % DIM_MULTIPLE)) if dim % DIM_MULTIPLE else rows_of(x) for x in (q, k, v)]
        output: Tensor = torch.ops.aten._flash_attention_forward(
            *rows,
            sequences.cu_seqlens_q,
            sequences.cu_seqlens_k,
            sequences.max_seqlen_q,
            sequences.max_seqlen_k,
            dropout_prob,
            False,  # is_causal
            False,  # return_debug_mask
            scale=dim**-0.5,
        )[0]
        return output[..., :dim].transpose(0, 1)[None]  # (N, H, K) -> (1, H, N, K)


def rows_of(x: Tensor) -> Tensor:
    """(1, H, N, K) -> (N, H, K), the kernel's layout."""
    return x[0].transpose(0, 1)


def is_available(device: torch.device) -> bool:
    """Whether `torch_flash` can run on the device."""
    return device.type == "cuda" and has_kernel() and capability(device) >= (8, 0)


@cache
def is_exact(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether it computes correctly there: a small row, with its gradients, in fp32 and by the kernel.

    For automatic choices: a new build of torch or a new device must not be trusted blindly.
    Takes milliseconds, and one device-to-host sync.
    """
    if not is_available(device) or dtype not in HALF:
        return False
    try:
        return agrees_with_definition(TorchFlashAttention(), device, dtype)
    except (RuntimeError, TypeError) as error:  # no kernel for this device, or other arguments
        logger.warning(f"torch's flash attention does not run here, batches are padded: {error}")
        return False


def agrees_with_definition(backend: AttentionBackend, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether outputs and gradients of a backend lie within the rounding of `dtype` of those of softmax in fp32."""
    lengths, heads, dim = (70, 1, 0, 57), 2, 64
    total = sum(lengths)
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(4, 1, heads, total, dim, generator=generator).to(device, dtype)
    bounds = torch.tensor([0, *lengths], device=device).cumsum(0).int()
    sequences = Sequences(bounds, bounds, max(lengths), max(lengths))
    results = []
    for kind in (torch.float32, dtype):
        q, k, v = inputs = [x.to(kind).detach().requires_grad_() for x in numbers[:3]]
        if kind == dtype:
            output = backend(q, k, v, dropout_prob=0.0, sequences=sequences)
        else:
            allowed = sequences.is_same_sequence(total, total)
            logits = (q * dim**-0.5 @ k.transpose(-2, -1)).masked_fill(~allowed, float("-inf"))
            output = torch.softmax(logits, dim=-1) @ v
        gradients = torch.autograd.grad(output, inputs, numbers[3].to(kind))
        results.append([x.float() for x in (output, *gradients)])
    # of flash attention in bf16: 0.5 % of the largest number; a wrong argument: more than 50 %
    return all(
        bool((found - expected).abs().amax() <= 0.03 * expected.abs().amax())
        for expected, found in zip(*results, strict=True)
    )


def has_kernel() -> bool:
    """Whether torch has the operator, and was built with the kernel."""
    return hasattr(torch.ops.aten, "_flash_attention_forward") and torch.backends.cuda.is_flash_attention_available()


def capability(device: torch.device) -> tuple[int, int]:
    """The compute capability of a GPU, such as (9, 0) for Hopper.

    torch keeps it; a cache of ours would be a warning of torch.compile in every log.
    """
    return torch.cuda.get_device_capability(device)
