"""Memory of a training on one GPU: weights, gradients, optimizer state, activations.

Letters: L layers, h model dimension, f feed-forward dimension, a heads, V vocabulary, s tokens in a block, m share of
the positions that are predicted, e bytes per number in the model's type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from roberta_plugin.planner.flops import Shape
from roberta_plugin.planner.inputs import Precision, Training

CUDA_CONTEXT = 1.0e9  # bytes; assumed size of the driver's, cuBLAS's and NCCL's buffers
SHARE_TO_FILL = 0.9  # of a GPU's memory; the rest is for the allocator's fragmentation and the kernels' workspaces


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


def memory_of(training: Training, *, batch_size: int, num_gpus: int) -> Memory:
    """Peak memory, reached at the end of the forward pass; the allocator's fragmentation is not included.

    On several GPUs torch's DDP keeps a second copy of the gradients in its buckets (Li et al. 2020, "PyTorch
    Distributed", section 4.2; fairseq does not set gradient_as_bucket_view).
    """
    shape, precision = training.shape, training.precision
    num_tokens = batch_size * shape.tokens_per_sample
    return Memory(
        states=precision.state_size * shape.num_parameters,
        buckets=precision.size * shape.num_parameters if num_gpus > 1 else 0,
        activations=num_tokens * activation_bytes_per_token(training) + joined_projection_bytes(training),
    )


def largest_batch(training: Training, *, num_gpus: int, gpu_bytes: float) -> int:
    """Blocks in one forward pass that fill `SHARE_TO_FILL` of a GPU of `gpu_bytes`; 0 if not even one fits.

    Example: 10 GB fixed, 0.5 GB per block, a GPU of 80 GB  ->  (0.9 x 80 - 10) / 0.5 = 124 blocks.
    """
    one, two = (memory_of(training, batch_size=size, num_gpus=num_gpus).total for size in (1, 2))
    per_block = two - one
    return max(0, math.floor((SHARE_TO_FILL * gpu_bytes - (one - per_block)) / per_block))


def activation_bytes_per_token(training: Training) -> float:
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
    shape, size, masks = training.shape, training.precision.size, int(training.has_dropout)
    h = shape.dim
    layer = size * (8 * h + 2 * shape.ffn_dim) + 2 * h * masks
    if training.has_eager_attention:
        layer += shape.num_heads * shape.tokens_per_sample * (4 + (size if size != 4 or masks else 0) + masks)
    else:
        layer += 4 * shape.num_heads
    layers = shape.num_layers * size * h + layer if training.recompute else shape.num_layers * layer
    embeddings = size * h + masks * h
    head = shape.predicted_share * (4 * size * h + (size + 4) * shape.vocab_size)
    return layers + embeddings + head


def joined_projection_bytes(training: Training) -> float:
    """Bytes of the joined q, k and v matrix that self_attention.py builds for one matmul: 3 h^2 numbers per layer."""
    num_layers = 1 if training.recompute else training.shape.num_layers
    return num_layers * 3 * training.shape.dim**2 * training.precision.size
