"""What a training holds in the memory of one GPU: weights, gradients, the optimizer's state, activations.

Letters: L layers, h model dimension, f feed-forward dimension, a heads, V vocabulary, s tokens in a block, m share of
the positions that are predicted, e bytes of a number in the type that the model computes in.
"""

from __future__ import annotations

from dataclasses import dataclass

from roberta_plugin.cluster.flops import Shape

CUDA_CONTEXT = 1.0e9  # bytes; an assumption: the driver, cuBLAS' and NCCL's buffers take about this much


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Numbers of the model and of the optimizer, as fairseq's --fp16, --bf16 and --memory-efficient-* have them."""

    is_half: bool = True
    is_memory_efficient: bool = False
    has_own_masters: bool = False  # roberta_adamw keeps fp32 weights in memory-efficient half too

    @property
    def size(self) -> int:
        """Bytes of a weight, of an activation and of a gradient that is all-reduced."""
        return 2 if self.is_half else 4

    @property
    def state_size(self) -> int:
        """Bytes a parameter of weights, gradients and Adam's two moments.

        fp32: 4 + 4 + 8. Half: 2 + 2, an fp32 copy of the weights and one of the gradients (fairseq's
        `FP16Optimizer.build_fp32_params` makes both, where Rajbhandari et al. 2020, "ZeRO", section 3.1, count the
        first only), 8 for the moments. Memory-efficient half: neither copy; with roberta_adamw the copy of the weights.
        """
        if not self.is_half:
            return 16
        if not self.is_memory_efficient:
            return 20
        return 16 if self.has_own_masters else 12


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one GPU."""

    states: float
    buckets: float
    activations: float

    @property
    def total(self) -> float:
        """All of it, with the CUDA context."""
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
    """The peak, which comes at the end of the forward pass; what the allocator loses to fragments comes on top.

    Args:
        shape: the model.
        precision: its numbers.
        batch_size: blocks that a GPU computes at a time.
        is_distributed: torch's DDP then keeps a second copy of the gradients in its buckets (Li et al. 2020, "PyTorch
            Distributed", section 4.2; fairseq leaves gradient_as_bucket_view off).
        has_dropout: masks of a byte an element are kept.
        has_eager_attention: the weights of all pairs of positions are kept (backend eager).
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


def activation_bytes_per_token(
    shape: Shape, *, size: int, has_dropout: bool, has_eager_attention: bool, recompute: bool
) -> float:
    """Bytes kept for the backward pass, for each token of the input.

    A layer keeps e (8 h + 2 f) and two masks of h: the inputs of both norms, of the joined projection, of the output
    projection and of fc1, and q, k, v (8 h); the inputs of the activation and of fc2 (2 f). With f = 4 h and e = 2
    these are the 34 s b h of Korthikanti et al. 2022 ("Reducing Activation Recomputation in Large Transformer Models",
    section 4.1), and without recomputation of the weights of attention their 5 a s^2 b come on top; eager attention
    here keeps them in fp32, in e, and a mask. Kernels that do not (flash) keep an fp32 number a head. With
    recomputation a layer keeps its input, and one layer at a time all of the above.

    The LM head keeps four vectors a predicted position and, on the plain path, its scores in e and in fp32; the fused
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
    """The matrices of q, k and v, which `models/attention.py` joins for one product: kept by each layer, 3 h^2."""
    return (1 if recompute else shape.num_layers) * 3 * shape.dim**2 * size
