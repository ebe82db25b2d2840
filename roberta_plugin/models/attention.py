"""Self-attention (projections and heads), the backends that compute it, and the choice among them.

`eager` is the plain reference; every backend passes the same parity test against it. A backend that cannot run raises
an error with the reason and an alternative.

torch's scaled_dot_product_attention has four kernels on a GPU: flash, cudnn, efficient (memory-efficient, of CUTLASS)
and math. A padding mask excludes flash. cuDNN, torch's first choice on Hopper in some versions, silently rounds the
dropout probability to sixteenths: 0.1 becomes 0.125. So it is left out wherever the rounding would change the
probability.

Shapes: B blocks, T positions, Q positions that attend (all, or the predicted ones), D model dimension, H heads,
K = D / H. A packed row has B = 1 and `sequences`; a padded batch has none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from typing_extensions import override

from roberta_plugin.models import attention_kernels
from roberta_plugin.models.attention_kernels import (
    HALF,
    MAX_DIM,
    AttentionBackend,
    AttentionMask,
    MaskedAttention,
    Sequences,
    TorchFlashAttention,
    agrees_with_definition,
)
from roberta_plugin.models.attention_kernels import is_available as has_torch_flash
from roberta_plugin.models.cpu import Linear, dropout, has_onednn, rounds, serves
from roberta_plugin.models.hopper_attention import DROPOUT_LEVELS, CudnnAttention, Flash3Attention
from roberta_plugin.models.positions import Places

GPU = "cuda"
EXACT_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
KERNEL_NAMES = {
    SDPBackend.MATH: "math",
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}


class SdpaAttention(MaskedAttention):
    """torch's scaled_dot_product_attention: flash or memory-efficient kernels where they exist.

    For packed rows it builds a mask of all pairs of positions: correct, but slow and large.
    """

    name = "sdpa"

    @override
    def attend_where(self, allowed: Tensor | None, q: Tensor, k: Tensor, v: Tensor, dropout_prob: float) -> Tensor:
        with exact_dropout(q.device, dropout_prob):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=dropout_prob)


def exact_dropout(device: torch.device, dropout_prob: float) -> AbstractContextManager[None]:
    """While entered, sdpa uses only kernels that apply this dropout probability exactly."""
    if device.type != GPU or (dropout_prob * DROPOUT_LEVELS).is_integer():
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


class EagerAttention(MaskedAttention):
    """Every step written out; the softmax in fp32 at least."""

    name = "eager"

    @override
    def attend_where(self, allowed: Tensor | None, q: Tensor, k: Tensor, v: Tensor, dropout_prob: float) -> Tensor:
        logits = (q * q.size(-1) ** -0.5) @ k.transpose(-2, -1)  # -> (B, H, Q, T)
        if allowed is not None:
            # Not minus infinity, which would make a row with only padding NaN
            logits = logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)
        weights = F.softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32)).to(v.dtype)
        return dropout(weights, dropout_prob) @ v  # -> (B, H, Q, K)


class OneDnnAttention(AttentionBackend):
    """Head by head through oneDNN, in fp32 on a CPU: the fastest there with dropout, and where products are in bf16."""

    name = "onednn"

    def assert_supported(self, device: torch.device, *, dropout_prob: float) -> None:
        """Needs a CPU and a torch with oneDNN."""
        if device.type != "cpu" or not has_onednn():
            raise RuntimeError(
                "attention backend 'onednn' needs a CPU and a torch built with oneDNN (mkldnn); found device "
                f"{device.type!r}, oneDNN {'available' if has_onednn() else 'missing'}. Use --attention-backend sdpa."
            )

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, dropout_prob: float) -> Tensor:
        """Other types than fp32 are computed by `eager`, except bf16 where products are made in bf16."""
        is_rounded = rounds() and q.dtype == torch.bfloat16 and bool(q.numel())
        attend = attention_kernels.attend if serves(q, k, v) or is_rounded else BACKENDS["eager"].attend
        return attend(q, k, v, mask, dropout_prob)


_ALL: tuple[AttentionBackend, ...] = (
    EagerAttention(),
    SdpaAttention(),
    OneDnnAttention(),
    TorchFlashAttention(),
    CudnnAttention(),
    Flash3Attention(),
)
BACKENDS = {backend.name: backend for backend in _ALL}
BACKEND_NAMES = tuple(BACKENDS)
FEW_THREADS = 8
SHORT = 160  # positions: below this, eager and sdpa were faster on 2 cores, with 8,192 positions per batch
SHORT_IN_BF16 = 320  # in bf16, with 2,048 positions per batch


def choose_backend(
    name: str,
    *,
    device: torch.device,
    dtype: torch.dtype,
    dropout_prob: float,
    max_seqlen: int,
    is_packed: bool = False,
    head_dim: int = 64,
) -> AttentionBackend:
    """The backend called `name`; for `auto`, the fastest one that is exact.

    On a CPU: padded batches in fp32 without dropout go to `sdpa`, which is slow in bf16. All others go to `onednn` for
    few threads and sequences that are not short (those make its matmuls, of one head each, too small), and else to
    `eager`, since torch's own kernel has no dropout on a CPU. On a GPU: `sdpa` for padded batches. Packed rows in half
    precision go to torch's own flash kernel, where the GPU has it and heads have at most MAX_DIM dimensions, and else
    to `sdpa`, whose mask of all pairs makes long rows slow.

    Raises:
        RuntimeError: if the backend cannot run here.
    """
    if name == "auto":
        options = {"dropout_prob": dropout_prob, "max_seqlen": max_seqlen, "is_packed": is_packed, "head_dim": head_dim}
        name = _fastest(device, dtype=dtype, **options)  # type: ignore[arg-type]
    if name not in BACKENDS:
        raise ValueError(f"--attention-backend must be auto or one of {', '.join(BACKENDS)}, got {name!r}.")
    backend = BACKENDS[name]
    if not is_packed and not backend.serves_padded:
        fitting = [b.name for b in _ALL if b.serves_padded]
        raise ValueError(
            f"--attention-backend {name} does not serve padded batches: use auto or one of {', '.join(fitting)}."
        )
    backend.assert_supported(device, dropout_prob=dropout_prob)
    return backend


def check_options(name: str, *, dropout_prob: float, has_windows: bool) -> None:
    """Refuse a dropout or local windows that the backend called `name` does not support; `auto` accepts all."""
    if name in BACKENDS:
        BACKENDS[name].check_options(dropout_prob=dropout_prob, has_windows=has_windows)


def named_backend(cfg: Any) -> AttentionBackend:
    """The backend that a model's options name; for `auto`, one that serves all."""
    return BACKENDS.get(str(cfg.attention_backend), BACKENDS["eager"])


def check_agreement(backend: AttentionBackend, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse a kernel that does not compute attention here: a small row, with its gradients.

    Raises:
        RuntimeError: with the remedy.
    """
    backend.assert_supported(device, dropout_prob=0.0)
    if not agrees_with_definition(backend, device, dtype):
        raise RuntimeError(
            f"--attention-backend {backend.name} computes wrong numbers on this GPU with torch {torch.__version__}: "
            "use --attention-backend auto."
        )


def _fastest(
    device: torch.device, *, dtype: torch.dtype, dropout_prob: float, max_seqlen: int, is_packed: bool, head_dim: int
) -> str:
    if device.type == "cpu":
        return _fastest_on_cpu(dtype, dropout_prob=dropout_prob, max_seqlen=max_seqlen, is_packed=is_packed)
    # The flash kernel reads packed rows without a mask, but only in half precision and with small heads.
    has_kernel = is_packed and dtype in HALF and head_dim <= MAX_DIM and has_torch_flash(device)
    return "torch_flash" if has_kernel else "sdpa"


def _fastest_on_cpu(dtype: torch.dtype, *, dropout_prob: float, max_seqlen: int, is_packed: bool) -> str:
    is_bf16 = dtype == torch.bfloat16
    # torch's own kernel on a CPU is the fastest one, but draws no dropout and is slow in bf16.
    if dropout_prob == 0 and not is_packed and not is_bf16:
        return "sdpa"
    # oneDNN is faster for long sequences on few threads; in bf16 only if it makes its products in bf16.
    is_long = is_packed or max_seqlen >= (SHORT_IN_BF16 if is_bf16 else SHORT)
    by_head = has_onednn() and is_long and torch.get_num_threads() <= FEW_THREADS
    return "onednn" if by_head and (rounds() or not is_bf16) else "eager"


def chosen_kernel(
    backend: AttentionBackend,
    *,
    device: torch.device,
    dtype: torch.dtype,
    num_heads: int,
    head_dim: int,
    length: int,
    dropout_prob: float,
    has_padding: bool,
) -> str:
    """The kernel that computes such batches in training: `backend` itself, or the one that torch chooses for it.

    Example: on an H200 with dropout 0.1, `sdpa` is "efficient" with padding, since a mask excludes flash, and "flash"
    without.
    """
    if backend.name != "sdpa":
        return backend.name
    q = torch.empty(1, num_heads, length, head_dim, device=device, dtype=dtype, requires_grad=True)
    allowed = torch.ones(1, 1, 1, length, dtype=torch.bool, device=device) if has_padding else None
    return kernel_name(q, q, q, allowed, dropout_prob)


def describe_choice(
    name: str,
    *,
    device: torch.device,
    dtype: torch.dtype,
    dropout_prob: float,
    max_seqlen: int,
    is_packed: bool,
    num_heads: int,
    head_dim: int,
) -> str:
    """The choice of `choose_backend` for such batches, and its kernels, for the log."""
    if rounds() and device.type == "cpu" and dtype == torch.float32:
        dtype = torch.bfloat16  # between products
    options = {"device": device, "dtype": dtype, "dropout_prob": dropout_prob, "head_dim": head_dim}
    backend = choose_backend(name, max_seqlen=max_seqlen, is_packed=is_packed, **options)  # type: ignore[arg-type]
    options |= {"num_heads": num_heads, "length": max_seqlen}
    kernels = [chosen_kernel(backend, has_padding=padded, **options) for padded in (True, False)]  # type: ignore[arg-type]
    return (
        f"attention backend: {backend.name} (--attention-backend {name}) for "
        f"{'packed rows' if is_packed else 'padded batches'} on {device.type} in "
        f"{str(dtype).removeprefix('torch.')}, dropout {dropout_prob}; kernel: {kernels[0]}"
        + (f", without padding {kernels[1]}" if kernels[0] != kernels[1] else "")
    )


class SelfAttention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017, section 3.2.2), with fairseq's parameter names.

    With `new_norm`, which makes a norm of K dimensions, the queries and keys of each head are normalized before they
    meet (Henry et al. 2020, arXiv 2010.04245; Dehghani et al. 2023, arXiv 2302.05442, section 2): a norm's learned
    scale (K,) is shared by all heads of the layer.
    """

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        dropout_prob: float,
        backend: str = "auto",
        has_bias: bool = True,
        new_norm: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout_prob = dropout_prob
        self.backend = backend
        self.k_proj = Linear(dim, dim, bias=has_bias, keeps_bf16=True)
        self.v_proj = Linear(dim, dim, bias=has_bias, keeps_bf16=True)
        self.q_proj = Linear(dim, dim, bias=has_bias, keeps_bf16=True)
        self.out_proj = Linear(dim, dim, bias=has_bias)
        self.q_norm = None if new_norm is None else new_norm(dim // num_heads)
        self.k_norm = None if new_norm is None else new_norm(dim // num_heads)
        self.joins_projections = True

    def join(self) -> None:
        """Lay the projections' parameters side by side in memory, so that answers need no copies of them."""
        projections = (self.q_proj, self.k_proj, self.v_proj)
        for name in ("weight", "bias"):
            parts = [part for projection in projections if (part := getattr(projection, name)) is not None]
            if not parts:
                continue
            for part, place in zip(parts, torch.cat([part.data for part in parts]).split(len(parts[0])), strict=True):
                part.data = place

    def make_plain(self) -> None:
        """Use the steps that every runtime has, for export: in a graph, joining the matrices would be a step of it."""
        self.backend, self.joins_projections = "eager", False

    def backend_for(self, q: Tensor, k: Tensor, reach: int | None) -> str:
        """Name of the backend for these inputs; see `choose_backend`.

        A backend that a training has named for its GPU is not used for predictions, which may run on any machine.
        """
        is_for_training = self.backend in BACKENDS and not BACKENDS[self.backend].serves_padded
        return "auto" if is_for_training and not self.training else self.backend

    def forward(
        self,
        x: Tensor,
        *,
        is_padding: Tensor | None = None,
        sequences: Sequences | None = None,
        queries: Tensor | None = None,
        places: Places | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D), or (B, Q, D) where `queries` (B, Q, D) attend to `x` instead of x itself.

        Positions where `is_padding` (B, T) is set get no attention; with `sequences`, a position attends only to its
        own sequence. `places` have the rotations and the window.
        """
        if queries is None:
            q, k, v = self._project(x, self.q_proj, self.k_proj, self.v_proj)
        else:
            (q,) = self._project(queries, self.q_proj)
            k, v = self._project(x, self.k_proj, self.v_proj)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = normalized(q, self.q_norm), normalized(k, self.k_norm)
        places = Places() if places is None else places
        q, k = places.rotated(q, k)
        dropout_prob = self.dropout_prob if self.training else 0.0
        attend = choose_backend(
            self.backend_for(q, k, places.reach),
            device=q.device,
            dtype=q.dtype,
            dropout_prob=dropout_prob,
            max_seqlen=k.size(2) if sequences is None else sequences.max_seqlen_k,
            is_packed=sequences is not None,
            head_dim=q.size(-1),
        )
        attended = attend(
            q,
            k,
            v,
            dropout_prob=dropout_prob,
            is_padding=is_padding,
            sequences=sequences,
            reach=places.reach,
            places=places.of_queries,
        )
        output: Tensor = self.out_proj(attended.transpose(1, 2).flatten(2))  # (B, H, Q, K) -> (B, Q, D)
        return output

    def _project(self, x: Tensor, *projections: Linear) -> tuple[Tensor, ...]:
        """(B, T, D) -> one (B, H, T, K) per projection: separate matrices on disk, one matmul at run time."""
        if not self.joins_projections or any(projection.adapter is not None for projection in projections):
            apart = (projection(x).unflatten(-1, (self.num_heads, -1)) for projection in projections)
            return tuple(part.transpose(1, 2) for part in apart)
        weight = side_by_side([projection.weight for projection in projections])  # (nD, D)
        biases: list[Tensor] = [projection.bias for projection in projections if projection.bias is not None]
        bias = side_by_side(biases) if biases else None
        joined = projections[0].product(x, weight, bias)  # (B, T, D) -> (B, T, nD)
        heads = joined.unflatten(-1, (len(projections), self.num_heads, -1))  # -> (B, T, n, H, K)
        # Unbound before the axes are swapped: the backward pass then joins the gradients without another copy.
        return tuple(part.transpose(1, 2) for part in heads.unbind(2))  # -> n x (B, H, T, K)


def normalized(heads: Tensor, norm: nn.Module) -> Tensor:
    """Queries or keys (B, H, T, K), normalized in the type of the norm's parameters, in their own type again.

    The result lies in memory as (B, T, H, K), so that what attends to it lies as the next product reads it.
    """
    result: Tensor = norm(heads.transpose(1, 2).to(next(norm.parameters()).dtype))
    return result.to(heads.dtype).transpose(1, 2)


def side_by_side(parts: list[Tensor]) -> Tensor:
    """The rows of several tensors as one: without a copy if they lie so in memory, and nobody asks for derivatives."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():  # a graph cannot look at memory
        return torch.cat(parts)
    first, end = parts[0], parts[0].storage_offset()
    for part in parts:
        is_next = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not (is_next and part.storage_offset() == end and part.is_contiguous()):
            return torch.cat(parts)
        end += part.numel()
    return first.as_strided((sum(map(len, parts)), *first.shape[1:]), first.stride())
