"""Products with trained weights in bf16 or int8, by the kernels of oneDNN that torch contains; without derivatives.

Weights are rounded and laid out for the kernels once. bf16 rounds the inputs, too. int8 has a scale for each row of the
weights, and one for each row of the input, which is found at each call (dynamic quantization): so an answer does not
depend on the other sequences of its batch. Sums are exact, in int32.

Shapes: M rows, K inputs, N outputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from roberta_plugin.models.cpu.linear import Linear

LEVELS = 127  # of int8, on either side of 0
TINY = 1e-12  # keeps a row of zeros from a scale of 0


class Bf16Product:
    """x W^T + bias of inputs in any type -> bf16; sums in fp32."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """Take `weight` (N, K) and `bias` (N,) in fp32."""
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().bfloat16(), None)
        self.bias = bias.detach().bfloat16()

    def __call__(self, x: Tensor, *, is_gelu: bool = False) -> Tensor:
        """(M, K) -> (M, N), or GELU of that."""
        then, form = ("gelu", "none") if is_gelu else ("none", "")
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x.bfloat16(), self.weight, self.bias, then, [], form)
        return result


class Int8Product:
    """x W^T + bias of inputs in any type -> fp32; both factors in int8."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """Take `weight` (N, K) and `bias` (N,) in fp32."""
        weight = weight.detach()
        self.scales = weight.abs().amax(dim=1).clamp_(min=TINY) / LEVELS  # (N,)
        rounded = (weight / self.scales[:, None]).round_().to(torch.int8)
        self.weight = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.zeros = torch.zeros(len(weight), dtype=torch.int32)
        self.bias = bias.detach().float().clone()

    def __call__(self, x: Tensor, *, is_gelu: bool = False) -> Tensor:
        """(M, K) -> (M, N), or GELU of that."""
        most = torch.maximum(x.amax(dim=1, keepdim=True), x.amin(dim=1, keepdim=True).neg_())  # (M, 1); faster than abs
        scales = most.float().clamp_(min=TINY) / LEVELS
        rounded = (x * scales.reciprocal()).round_().to(torch.int8)
        # The kernels take unsigned inputs: flipping the highest bit adds 128, the zero point.
        unsigned = rounded.view(torch.uint8).bitwise_xor_(128)
        sums = torch.ops.onednn.qlinear_pointwise(
            unsigned, 1.0, 128, self.weight, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        result = torch.addcmul(self.bias, sums, scales)
        return F.gelu(result) if is_gelu else result


Product = Bf16Product | Int8Product
MakeProduct = Callable[[Tensor, Tensor], Product]


def joined(make: MakeProduct, *layers: Linear) -> Product:
    """One product for layers that read the same inputs; their outputs stand side by side."""
    return make(torch.cat([layer.weight for layer in layers]), torch.cat([layer.bias for layer in layers]))


def applied(product: Product, x: Tensor, *, is_gelu: bool = False) -> Tensor:
    """A product for inputs of any number of axes: (..., K) -> (..., N)."""
    return product(x.flatten(0, -2), is_gelu=is_gelu).view(*x.shape[:-1], -1)
