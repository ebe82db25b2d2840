"""BERT's initial weights; only this file draws them."""

from __future__ import annotations

from torch import nn

STANDARD_DEVIATION = 0.02  # BERT (Devlin et al. 2019), initializer_range of the released configurations


def initialize(module: nn.Module) -> None:
    """Draw the weights of one module, for `model.apply`: N(0, 0.02) for matrices, 0 for biases and for padding."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=STANDARD_DEVIATION)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=STANDARD_DEVIATION)
        if module.padding_idx is not None:
            nn.init.zeros_(module.weight[module.padding_idx])
