"""A trained model for answers alone in fp32, bf16 or int8: which of them a machine has, and the change of a model.

    fp32   as it was trained
    bf16   on a CPU: products of the layers and of the vocabulary by `cpu.py`, attention in bf16; embeddings,
           residuals, norms and the heads of fine-tuning in fp32. On a GPU: the whole model
    int8   on a CPU, the same with int8 products; embeddings, residuals, GELU and norms in fp32, attention in bf16

A model is changed once and keeps no other copy of its layers' weights. It then has no derivatives and no dropout.

Shapes: B sequences, T positions, Q positions that attend, D model dimension, H heads, K = D / H.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import torch
from torch import Tensor, nn

from roberta_plugin.machine import Precision, processor_words
from roberta_plugin.models.attention import BACKENDS
from roberta_plugin.models.attention_kernels import MOST_WEIGHTS, Sequences
from roberta_plugin.models.cpu import Bf16Product, Int8Product, MakeProduct, Product, has_fast_bf16, has_onednn, joined
from roberta_plugin.models.encoder import Layer
from roberta_plugin.models.positions import Places

BF16_FLAGS = ("avx512_bf16", "amx_bf16")
INT8_FLAGS = ("avx512_vnni", "avx_vnni", "amx_int8")
_PRODUCTS: dict[str, MakeProduct] = {"bf16": Bf16Product, "int8": Int8Product}


def available(device: torch.device) -> tuple[str, ...]:
    """The precisions that are faster than fp32 there, and fp32."""
    if device.type != "cpu":
        return "fp32", "bf16"
    return "fp32", *(("bf16",) if has_fast_bf16() else ()), *(("int8",) if has_int8() else ())


def has_int8() -> bool:
    """Whether torch has the kernels, and the processor sums products of int8 in 32 bits; in 16 they would saturate."""
    has_kernels = has_onednn() and hasattr(torch.ops.onednn, "qlinear_pointwise")
    return has_kernels and bool(processor_words("flags") & set(INT8_FLAGS))


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse a precision that is unknown, or that the device lacks.

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
        why = f"needs a processor with {' or '.join(needed)}, and this one has none of them"
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
    is_ours = encoder is not None and all(isinstance(layer, Layer) for layer in layers)
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
    made: dict[int, LowPrecisionLayer] = {}  # layers may be shared
    for number, layer in enumerate(layers):
        if id(layer) not in made:
            made[id(layer)] = LowPrecisionLayer(layer, make)
        encoder.layers[number] = made[id(layer)]
    head.products = (joined(make, head.dense), make(head.weight, head.bias))


class LowPrecisionLayer(nn.Module):
    """An `encoder.Layer` for answers, whose four products are in another precision."""

    def __init__(self, layer: Layer, make: MakeProduct) -> None:
        """Take the weights and the norms of a layer in fp32."""
        super().__init__()
        own, self.make = layer.self_attn, make
        self.num_heads, self.activation, self.normalize_before = own.num_heads, layer.activation, layer.normalize_before
        self.is_gelu = layer.activation is nn.functional.gelu
        self.q: Product = joined(make, own.q_proj)
        self.kv: Product = joined(make, own.k_proj, own.v_proj)
        self.out: Product = joined(make, own.out_proj)
        self.fc1: Product = joined(make, layer.fc1)
        self.fc2: Product = joined(make, layer.fc2)
        self.self_attn_layer_norm, self.final_layer_norm = layer.self_attn_layer_norm, layer.final_layer_norm

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """What `.to`, `.half` and the like call: the products cannot follow to another type or device.

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

    def forward(
        self,
        x: Tensor,
        is_padding: Tensor | None,
        sequences: Sequences | None,
        queries: Tensor | None = None,
        places: Places | None = None,
    ) -> Tensor:
        """See `Layer.forward`."""
        residual = x if queries is None else queries
        if self.normalize_before:
            x = self.self_attn_layer_norm(x)
            queries = None if queries is None else self.self_attn_layer_norm(queries)
        layout = {"is_padding": is_padding, "sequences": sequences}
        x = residual + self._attend(x, x if queries is None else queries, places or Places(), **layout)
        if self.normalize_before:
            return x + self._feed_forward(self.final_layer_norm(x))
        x = self.self_attn_layer_norm(x)
        x = self.final_layer_norm(x + self._feed_forward(x))
        return x

    def _attend(self, x: Tensor, queries: Tensor, places: Places, **layout: Any) -> Tensor:
        """`queries` (B, Q, D) attend to x (B, T, D) -> (B, Q, D)."""
        read = self.make.read
        of_x = read(x)
        q = self.q(of_x if queries is x else read(queries)).bfloat16().view(*queries.shape[:2], self.num_heads, -1)
        kv = self.kv(of_x).bfloat16().view(*x.shape[:2], 2, self.num_heads, -1)
        k, v = kv.permute(2, 0, 3, 1, 4)  # (B, T, 2, H, K) -> 2 x (B, H, T, K)
        q, k = places.rotated(q.transpose(1, 2), k)
        attended = attend(q, k, v, **layout, reach=places.reach, places=places.of_queries)
        result: Tensor = self.out(read(attended.transpose(1, 2).flatten(2), is_free=True))  # (B, H, Q, K) -> (B * Q, D)
        return result.view_as(queries)

    def _feed_forward(self, x: Tensor) -> Tensor:
        read = self.make.read
        inner = self.fc1(read(x), is_gelu=self.is_gelu)
        inner = inner if self.is_gelu else self.activation(inner)
        result: Tensor = self.fc2(read(inner, is_free=True))
        return result.view_as(x)


def attend(q: Tensor, k: Tensor, v: Tensor, **mask: Any) -> Tensor:
    """Attention of q (B, H, Q, K), k and v (B, H, T, K) in bf16 -> (B, H, Q, K); `mask` as for `AttentionBackend`."""
    num_weights = q.size(0) * q.size(1) * q.size(2) * k.size(2)
    backend = "eager" if mask.get("reach") is not None or num_weights <= MOST_WEIGHTS else "sdpa"  # slower, and small
    return BACKENDS[backend](q, k, v, dropout_prob=0.0, **mask)
