"""A trained model for answers alone, in fp32, bf16 or int8: which of them a machine supports, and the conversion.

    fp32   as it was trained
    bf16   on a CPU: products of the layers and of the vocabulary by `cpu.py`, attention in bf16; embeddings,
           residuals, norms and the heads of fine-tuning in fp32. On a GPU: the whole model
    int8   on a CPU, the same with int8 products; embeddings, residuals, GELU and norms in fp32, attention in bf16

A model is converted once, in place: it then has no derivatives and no dropout.

Shapes: B sequences, T positions, D model dimension, H heads, K = D / H.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, get_args

import torch
from torch import Tensor, nn

from roberta_plugin.machine import Precision, processor_words
from roberta_plugin.models.attention import SelfAttention
from roberta_plugin.models.attention_kernels import MOST_WEIGHTS
from roberta_plugin.models.cpu import (
    Bf16Product,
    Int8Product,
    Linear,
    MakeProduct,
    Product,
    has_fast_bf16,
    has_onednn,
    joined,
)
from roberta_plugin.models.encoder import Layer

BF16_FLAGS = ("avx512_bf16", "amx_bf16")
INT8_FLAGS = ("avx512_vnni", "avx_vnni", "amx_int8")
_PRODUCTS: dict[str, MakeProduct] = {"bf16": Bf16Product, "int8": Int8Product}


def available(device: torch.device) -> tuple[str, ...]:
    """The precisions that are faster than fp32 there, and fp32."""
    if device.type != "cpu":
        return "fp32", "bf16"
    return "fp32", *(("bf16",) if has_fast_bf16() else ()), *(("int8",) if has_int8() else ())


def has_int8() -> bool:
    """True if torch has the kernels, and the processor sums products of int8 in 32 bits; in 16 they would saturate."""
    has_kernels = has_onednn() and hasattr(torch.ops.onednn, "qlinear_pointwise")
    return has_kernels and bool(processor_words("flags") & set(INT8_FLAGS)) and _sums_in_32_bits()


@cache
def _sums_in_32_bits() -> bool:
    """True if a product of the largest numbers is right: with ONEDNN_MAX_CPU_ISA, oneDNN may leave instructions out."""
    ones = torch.ones(32, 64)
    return bool(torch.allclose(Int8Product(ones, None)(Int8Product.read(ones)), torch.tensor(64.0)))


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse a precision that is unknown, or that the device does not support.

    Raises:
        ValueError: saying what is missing, and which precisions there are.
    """
    if precision not in get_args(Precision):
        raise ValueError(f"--precision must be one of {', '.join(get_args(Precision))}, got {precision!r}.")
    there = available(device)
    if precision in there:
        return
    if device.type != "cpu":
        why = f"is for CPUs, and the device is {device.type}"
    elif not has_onednn():
        why = f"needs a torch with oneDNN (mkldnn), and torch {torch.__version__} has none"
    else:
        needed = BF16_FLAGS if precision == "bf16" else INT8_FLAGS
        why = (
            f"needs a processor with {' or '.join(needed)}, and this one does not have them, or ONEDNN_MAX_CPU_ISA "
            "keeps oneDNN from using them"
        )
    raise ValueError(f"--precision {precision} {why}: give {there[-1]}.")


def set_precision(model: Any, precision: str, device: torch.device) -> None:
    """Change a model, which is on the device already, in place.

    With "fp32", only the place of its parameters changes.

    Raises:
        ValueError: as `check_precision`, or if it is not a model of ours, or was changed before.
    """
    check_precision(precision, device)
    encoder: Any = getattr(getattr(model, "encoder", None), "sentence_encoder", None)
    layers = list(getattr(encoder, "layers", ()))
    is_ours = encoder is not None and all(type(layer) is Layer for layer in layers)
    if precision == "fp32":
        for layer in layers if is_ours else ():
            layer.self_attn.join()
        return
    if not is_ours:
        raise ValueError(
            f"--precision {precision} is for models of this plugin in fp32, and this is another "
            f"({type(model).__name__}), or one that was changed before: give fp32, or import it by `roberta import`."
        )
    model.requires_grad_(False).eval()
    if device.type != "cpu":
        model.to(torch.bfloat16)
        return
    make, head = _PRODUCTS[precision], model.encoder.lm_head
    converted: dict[int, LowPrecisionLayer] = {}  # layers may be shared
    for number, layer in enumerate(layers):
        if id(layer) not in converted:
            converted[id(layer)] = LowPrecisionLayer(layer, make)
        encoder.layers[number] = converted[id(layer)]
    head.products = (joined(make, head.dense), make(head.weight, head.bias))


class LowPrecisionLayer(Layer):
    """A layer for answers, whose products are in another precision."""

    def __init__(self, layer: Layer, make: MakeProduct) -> None:
        """Take the weights of a layer in fp32, and all else as it is."""
        keep_all_but_products(self, layer)
        self.dropout = self.activation_dropout = nn.Identity()  # type: ignore[assignment]
        self.make, self.is_gelu = make, layer.activation is nn.functional.gelu
        self.self_attn = LowPrecisionAttention(layer.self_attn, make)
        self.inner: Product = joined(make, layer.fc1)
        self.outer: Product = joined(make, layer.fc2)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Called by `.to`, `.half` and the like. The products cannot follow to another type or device.

        Raises:
            ValueError: saying what to do instead.
        """
        changed = fn(torch.empty(0))
        if changed.dtype != torch.float32 or changed.device.type != "cpu":
            raise ValueError(
                "A model in a lower precision stays on the CPU as it is: open it again with the precision and the "
                "device that you want."
            )
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def _feed_forward(self, x: Tensor) -> Tensor:
        read = self.make.read
        inner = self.inner(read(x), is_gelu=self.is_gelu)
        inner = inner if self.is_gelu else self.activation(inner)
        result: Tensor = self.outer(read(inner, is_free=True))
        return result.view_as(x)


class LowPrecisionAttention(SelfAttention):
    """The self-attention of such a layer: in bf16, between such products."""

    q_proj: Any
    k_proj: Any
    v_proj: Any
    out_proj: Any

    def __init__(self, attention: SelfAttention, make: MakeProduct) -> None:
        keep_all_but_products(self, attention)
        self.make = make
        self.q_proj = joined(make, attention.q_proj)
        self.k_proj, self.v_proj = joined(make, attention.k_proj, attention.v_proj), None  # one product for both
        out: Product = joined(make, attention.out_proj)
        self.out_proj = lambda attended: out(make.read(attended, is_free=True)).view(*attended.shape[:2], -1)

    def backend_for(self, q: Tensor, k: Tensor, reach: int | None) -> str:
        """Eager attention, but for very long sequences: sdpa is slower, and small."""
        num_weights = q.size(0) * q.size(1) * q.size(2) * k.size(2)
        return "eager" if reach is not None or num_weights <= MOST_WEIGHTS else "sdpa"

    def _project(self, x: Tensor, *products: Product) -> tuple[Tensor, ...]:
        """(B, T, D) -> one (B, H, T, K) in bf16 for each projection."""
        rows, heads = self.make.read(x), (self.num_heads, x.size(-1) // self.num_heads)
        projections: list[Tensor] = []
        for product in filter(None, products):
            parts = product(rows).bfloat16().view(*x.shape[:2], -1, *heads)  # (B, T, 1 or 2, H, K)
            projections += [part.transpose(1, 2) for part in parts.unbind(2)]
        return tuple(projections)


def keep_all_but_products(module: nn.Module, original: nn.Module) -> None:
    """Give a module all of another but its linear layers, so that options of the model need no mention here."""
    vars(module).update(vars(original))
    module._modules = {name: part for name, part in original._modules.items() if not isinstance(part, Linear)}
