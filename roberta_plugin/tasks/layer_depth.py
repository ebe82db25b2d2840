"""The layer of each parameter, stored on it for --layer-lr-decay of `optim/adamw.py`.

An optimizer receives parameters without names. `optim_overrides` is one of the two attributes that fairseq copies from
a parameter to its fp32 master copy (--bf16, or --fp16 with --fp16-no-flatten-grads).
"""

from __future__ import annotations

import re

from torch import nn

_LAYER = re.compile(r"encoder\.sentence_encoder\.layers\.(\d+)\.")
_ENCODER = "encoder.sentence_encoder."


def set_layer_depths(model: nn.Module) -> None:
    """Store on each parameter of a RoBERTa, ours or fairseq's, the number of layers above it.

    Example: with 12 layers, heads have 0, the top layer 1, the first layer 12 and embeddings 13.
    """
    numbers = {name: int(found[1]) for name, _ in model.named_parameters() if (found := _LAYER.match(name))}
    num_layers = max(numbers.values(), default=-1) + 1
    for name, parameter in model.named_parameters():
        in_embeddings = name.startswith(_ENCODER) and name not in numbers
        above = num_layers + 1 if in_embeddings else num_layers - numbers[name] if name in numbers else 0
        parameter.optim_overrides = {"layers_above": above}  # type: ignore[attr-defined]
