"""Light fine-tuning: frozen layers, and low-rank adapters (LoRA; Hu et al. 2021, arXiv 2106.09685).

A frozen layer keeps its weights, and needs neither their gradients nor optimizer state. If all layers below are frozen
too, the backward pass ends above it.

An adapter adds scale * B (A x) to what a linear layer computes, W x + b. W and b are frozen; A is random and B zero, so
a training starts from the pretrained model. `scale` is alpha / R. In files an adapter's parameters are beside the
layer's: `q_proj.adapter.lora_A`, `.lora_B` and `.scale`. A model without adapters, for prediction and export, adds them
to W when it reads them (`merge`), so that no other code has to know them.

Shapes: K inputs and N outputs of the linear layer, R rank.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from roberta_plugin.models.cpu import Linear, linear

logger = logging.getLogger(__name__)

TARGETS = ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2")
_ENCODER = "encoder.sentence_encoder."
_FINAL_NORM = "encoder.sentence_encoder.layer_norm."  # of encoders that normalize before their sublayers
_LAYER = re.compile(r"encoder\.sentence_encoder\.layers\.(\d+)\.")
_ADAPTER = ".adapter."
_PARTS = ("lora_A", "lora_B", "scale")


class LowRank(nn.Module):
    """The adapter of a linear layer: (..., K) -> (..., N)."""

    scale: Tensor

    def __init__(self, adapted: nn.Linear, *, rank: int, alpha: float) -> None:
        super().__init__()
        self.lora_A = nn.Parameter(adapted.weight.new_empty(rank, adapted.in_features))
        self.lora_B = nn.Parameter(adapted.weight.new_zeros(adapted.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))  # as the authors' code and peft
        self.register_buffer("scale", torch.tensor(alpha / rank))

    def forward(self, x: Tensor) -> Tensor:
        """scale * B (A x)."""
        return linear(linear(x, self.lora_A) * self.scale, self.lora_B)


def freeze_layers(model: nn.Module, num_layers: int) -> None:
    """Freeze the embeddings and the first layers of a RoBERTa, ours or fairseq's.

    Raises:
        ValueError: if it has fewer layers, or a frozen one shares weights with one that is not.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    layers = {name: number for name in parameters if (number := _layer_of(name)) is not None}
    check_layers(num_layers, total=1 + max(layers.values()))
    for name, number in layers.items():
        if number < num_layers:
            parameters[name].requires_grad_(False)
    for name, number in layers.items():
        if number >= num_layers and not parameters[name].requires_grad:
            raise ValueError(
                f"--freeze-layers {num_layers}: layer {number} shares weights with a frozen one "
                "(--share-layers). Leave --freeze-layers out."
            )


def check_layers(num_frozen: int, *, total: int, rank: int = 0) -> None:
    """Refuse to freeze more layers than the encoder has, or all of them under adapters."""
    if num_frozen > total:
        raise ValueError(f"--freeze-layers {num_frozen}: the model has {total} layers.")
    if rank and num_frozen == total:
        raise ValueError(
            f"--freeze-layers {num_frozen} leaves no layer for the adapters of --lora-rank {rank}: the model has "
            f"{total}. Give one of the two."
        )


def add_adapters(model: Any, *, rank: int, alpha: float, targets: Sequence[str], first_layer: int = 0) -> None:
    """Freeze the encoder, and add adapters to the linear layers `targets` of each layer from `first_layer` on.

    Heads are trained as without adapters.
    """
    for name, parameter in model.named_parameters():
        if name.startswith(_ENCODER):
            parameter.requires_grad_(False)
    for layer in model.encoder.sentence_encoder.layers[first_layer:]:
        for name, module in layer.named_modules():
            is_target = isinstance(module, Linear) and name.rpartition(".")[2] in targets
            if is_target and module.adapter is None:  # a shared layer has one for all
                module.adapter = LowRank(module, rank=rank, alpha=alpha)


def reconcile_adapters(model: nn.Module, state: dict[str, Any]) -> None:
    """Make the checkpoint `state` fit a model with other adapters, or none, in place: it keeps what the model computes.

    Adapters that match the model's are loaded into them. Others are added to the weights, and the model's own start
    anew.
    """
    ours, theirs = _adapters_of(model.state_dict()), _adapters_of(state)
    if ours.keys() == theirs.keys() and all(_is_alike(value, theirs[name]) for name, value in ours.items()):
        return
    if merge(state):
        logger.info("the adapters of the checkpoint are added to its weights")
    state.update(ours)


def merge(state: dict[str, Any]) -> dict[str, Tensor]:
    """Add the adapters of a state dict to its weights, in place; return the adapters' entries.

    Raises:
        ValueError: if a part of one is missing, or it fits no layer.
    """
    taken = _adapters_of(state)
    for name in taken:
        del state[name]
    for name in sorted({name.partition(_ADAPTER)[0] for name in taken}):
        try:
            a, b, scale = (taken[f"{name}{_ADAPTER}{part}"].double() for part in _PARTS)
            weight, change = state[f"{name}.weight"], scale * (b @ a)
            if weight.shape != change.shape:
                raise RuntimeError(f"{tuple(change.shape)} beside {tuple(weight.shape)}")
        except (KeyError, RuntimeError) as error:
            raise ValueError(f"The adapter of {name} is not complete, or not of this model ({error}).") from error
        state[f"{name}.weight"] = (weight.double() + change).to(weight.dtype)
    return taken


def _adapters_of(state: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: value for name, value in state.items() if _ADAPTER in name}


def _is_alike(ours: Tensor, theirs: Tensor) -> bool:
    """True if an entry of the same name is of the same shape, and a scale also the same number."""
    if ours.shape != theirs.shape:
        return False
    return ours.dim() > 0 or math.isclose(float(ours), float(theirs), rel_tol=1e-2)


def _layer_of(name: str) -> int | None:
    """The number of the encoder's layer that a parameter belongs to; -1 for embeddings, None for what is above."""
    if match := _LAYER.match(name):
        return int(match[1])
    return -1 if name.startswith(_ENCODER) and not name.startswith(_FINAL_NORM) else None
