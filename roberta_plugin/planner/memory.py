"""Memory of a training on one GPU: weights, gradients, optimizer state, activations.

Letters: L layers, h model dimension, f feed-forward dimension, a heads, V vocabulary, s tokens in a block, m share of
the positions that are predicted, e bytes per number in the model's type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from roberta_plugin.planner.flops import Shape

CUDA_CONTEXT = 1.0e9  # bytes; assumed size of the driver's, cuBLAS's and NCCL's buffers
SHARE_TO_FILL = 0.9  # of a GPU's memory; the rest is for the allocator's fragmentation and the kernels' workspaces


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Types of weights and optimizer state under fairseq's --fp16, --bf16 and --memory-efficient-*."""

    is_half: bool = True
    is_memory_efficient: bool = False
    has_own_masters: bool = False  # roberta_adamw keeps fp32 weights in memory-efficient half too

    @property
    def size(self) -> int:
        """Bytes of a weight, an activation, and an all-reduced gradient."""
        return 2 if self.is_half else 4

    @property
    def state_size(self) -> int:
        """Bytes per parameter for weights, gradients and Adam's two moments.

            fp32                                        4 + 4 + 8
            half                                        2 + 2 + 8, + 4 + 4 for fp32 copies of weights and gradients
            memory-efficient half                       2 + 2 + 8
            memory-efficient half with roberta_adamw    2 + 2 + 8, + 4 for an fp32 copy of the weights

        fairseq's `FP16Optimizer.build_fp32_params` makes both copies; Rajbhandari et al. 2020 ("ZeRO", section 3.1)
        count that of the weights only.
        """
        if not self.is_half:
            return 16
        if not self.is_memory_efficient:
            return 20
        return 16 if self.has_own_masters else 12


def checkpoint_bytes(shape: Shape, precision: Precision) -> float:
    """Bytes of a checkpoint: weights and both moments in fp32; in half precision also the masters (a bound).

    Example: 16 bytes per parameter in bf16, 5.7 GB for the 355 M parameters of large.
    """
    return (16 if precision.is_half else 12) * shape.num_parameters


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one GPU."""

    states: float
    buckets: float
    activations: float

    @property
    def total(self) -> float:
        """The sum, with the CUDA context."""
        return self.states + self.buckets + self.activations + CUDA_CONTEXT


def memory_of(
    shape: Shape,
    *,
    precision: Precision,
    batch_size: int,
    is_distributed: bool,
    has_dropout: bool = True,
    has_eager_attention: bool = False,
    recompute: bool = False,
) -> Memory:
    """Peak memory, reached at the end of the forward pass; the allocator's fragmentation is not included.

    Args:
        shape: the model.
        precision: types of its weights and of the optimizer state.
        batch_size: blocks per GPU in one forward pass.
        is_distributed: whether torch's DDP keeps a second copy of the gradients in its buckets (Li et al. 2020,
            "PyTorch Distributed", section 4.2; fairseq does not set gradient_as_bucket_view).
        has_dropout: whether dropout masks are kept, one byte per element.
        has_eager_attention: whether the attention weights of all pairs of positions are kept (backend eager).
        recompute: --checkpoint-activations.
    """
    parameters = shape.num_parameters
    return Memory(
        states=precision.state_size * parameters,
        buckets=precision.size * parameters if is_distributed else 0,
        activations=batch_size
        * shape.tokens_per_sample
        * activation_bytes_per_token(
            shape,
            size=precision.size,
            has_dropout=has_dropout,
            has_eager_attention=has_eager_attention,
            recompute=recompute,
        )
        + joined_projection_bytes(shape, size=precision.size, recompute=recompute),
    )


def largest_batch(memory: Callable[[int], Memory], *, gpu_bytes: float) -> int:
    """Blocks in one forward pass that fill `SHARE_TO_FILL` of a GPU; 0 if not even one fits.

    Args:
        memory: bytes as a linear function of the number of blocks.
        gpu_bytes: the GPU's memory.

    Example: 10 GB fixed, 0.5 GB per block, a GPU of 80 GB  ->  (0.9 x 80 - 10) / 0.5 = 124 blocks.
    """
    one, two = memory(1).total, memory(2).total
    per_block = two - one
    return max(0, math.floor((SHARE_TO_FILL * gpu_bytes - (one - per_block)) / per_block))


def activation_bytes_per_token(
    shape: Shape, *, size: int, has_dropout: bool, has_eager_attention: bool, recompute: bool
) -> float:
    """Bytes kept for the backward pass per input token.

    A layer keeps e (8 h + 2 f) and two dropout masks of h: the inputs of both norms, of the joined projection, of the
    output projection and of fc1, and q, k, v (8 h); the inputs of the activation and of fc2 (2 f). With f = 4 h and
    e = 2 this is the 34 s b h of Korthikanti et al. 2022 ("Reducing Activation Recomputation in Large Transformer
    Models", section 4.1). Eager attention adds what they count as 5 a s^2 b: the attention weights in fp32 and in e,
    and a mask. Fused kernels (flash) keep one fp32 number per head instead. With recomputation a layer keeps only its
    input, and one layer at a time keeps all of the above.

    The LM head keeps four vectors per predicted position and, on the plain path, its logits in e and in fp32; the fused
    path of newer versions of torch keeps less.
    """
    h, masks = shape.dim, int(has_dropout)
    layer = size * (8 * h + 2 * shape.ffn_dim) + 2 * h * masks
    pairs = shape.num_heads * shape.tokens_per_sample
    layer += (
        pairs * (4 + (size if size != 4 or has_dropout else 0) + masks) if has_eager_attention else 4 * shape.num_heads
    )
    layers = shape.num_layers * size * h + layer if recompute else shape.num_layers * layer
    embeddings = size * h + masks * h
    head = shape.predicted_share * (4 * size * h + (size + 4) * shape.vocab_size)
    return layers + embeddings + head


def joined_projection_bytes(shape: Shape, *, size: int, recompute: bool) -> float:
    """Bytes of the joined q, k and v matrix that self_attention.py builds for one matmul: 3 h^2 numbers per layer."""
    return (1 if recompute else shape.num_layers) * 3 * shape.dim**2 * size
