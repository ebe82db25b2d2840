"""Products with trained weights in bf16 or int8, by the kernels of oneDNN that torch contains; without derivatives.

Weights are rounded and laid out for the kernels once. bf16 rounds the inputs, too. int8 has a scale for each row of the
weights, and one for each row of the input, which is found at each call (dynamic quantization): so an answer does not
depend on the other sequences of its batch. Sums are exact, in int32.

Shapes: M rows, K inputs, N outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roberta_plugin.models.cpu.linear import Linear

LEVELS = 127  # of int8, on either side of 0
TINY = 1e-12  # keeps a row of zeros from a scale of 0


class Bf16Product:
    """x W^T + bias -> bf16; sums in fp32."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """Take `weight` (N, K) and `bias` (N,) in fp32."""
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().bfloat16(), None)
        self.bias = bias.detach().bfloat16()

    @staticmethod
    def read(x: Tensor, *, is_free: bool = False) -> Tensor:
        """Inputs (..., K) of any type as a product takes them (M, K); if they are free, they may be overwritten."""
        return x.flatten(0, -2).bfloat16()

    def __call__(self, x: Tensor, *, is_gelu: bool = False) -> Tensor:
        """Result of `read` (M, K) -> (M, N), or GELU of that."""
        then, form = ("gelu", "none") if is_gelu else ("none", "")
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, then, [], form)
        return result


class Int8Product:
    """x W^T + bias -> fp32; both factors in int8."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """Take `weight` (N, K) and `bias` (N,) in fp32."""
        weight = weight.detach()
        self.scales = weight.abs().amax(dim=1).clamp_(min=TINY) / LEVELS  # (N,)
        rounded = (weight / self.scales[:, None]).round_().to(torch.int8)
        self.weight = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.zeros = torch.zeros(len(weight), dtype=torch.int32)
        self.bias = bias.detach().float().clone()

    @staticmethod
    def read(x: Tensor, *, is_free: bool = False) -> tuple[Tensor, Tensor]:
        """Inputs (..., K) of any type as a product takes them: rounded (M, K), and the scale of each row (M, 1)."""
        x = x.flatten(0, -2)
        most = torch.maximum(x.amax(dim=1, keepdim=True), x.amin(dim=1, keepdim=True).neg_())  # faster than abs
        scales = most.float().clamp_(min=TINY).div_(LEVELS)
        factors = scales.reciprocal()
        rounded = (x.mul_(factors) if is_free else x * factors).round_().to(torch.int8)
        # The kernels take unsigned inputs: flipping the highest bit adds 128, the zero point.
        return rounded.view(torch.uint8).bitwise_xor_(128), scales

    def __call__(self, x: tuple[Tensor, Tensor], *, is_gelu: bool = False) -> Tensor:
        """Result of `read` (M, K) -> (M, N), or GELU of that."""
        rounded, scales = x
        result: Tensor = torch.ops.onednn.qlinear_pointwise(
            rounded, 1.0, 128, self.weight, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        result.mul_(scales).add_(self.bias)
        return torch.ops.aten.gelu_(result) if is_gelu else result


Product = Any
"""A `Bf16Product` or `Int8Product`."""
MakeProduct = type[Bf16Product] | type[Int8Product]


def joined(make: MakeProduct, *layers: Linear) -> Product:
    """One product for layers that read the same inputs; their outputs stand side by side."""
    return make(torch.cat([layer.weight for layer in layers]), torch.cat([layer.bias for layer in layers]))
