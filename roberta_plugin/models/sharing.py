"""Layers with the same parameters (ALBERT: Lan et al. 2020, "A Lite BERT", sections 3.1 and 4.5):

    --share-layers all          all layers are one
    --share-layers groups:3     the first third of the layers is one, the second another, the last a third
    --share-parts attention     only self-attention and its norm are shared, each layer has its own feed-forward part
    --share-parts ffn           the other way round

A shared part is one module that is used in several layers. So the optimizer, the gradients of a step and a checkpoint
file hold it once, and a state dict has the names of the unrolled model: fairseq's `roberta` and Hugging Face
read it as an ordinary model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

PARTS = {
    "all": (),  # the layer itself
    "attention": ("self_attn", "self_attn_layer_norm"),
    "ffn": ("fc1", "fc2", "final_layer_norm"),
}


def num_groups(share_layers: str, num_layers: int) -> int:
    """Number of distinct layers that `num_layers` consist of.

    Example: "none" of 12 -> 12, "groups:3" -> 3, "all" -> 1.
    """
    if share_layers in ("none", "all"):
        return num_layers if share_layers == "none" else 1
    match = re.fullmatch(r"groups:([1-9]\d*)", share_layers)
    if match is None:
        raise ValueError(f"--share-layers must be none, all or groups:N, as groups:3, got {share_layers!r}.")
    number = int(match[1])
    if num_layers % number:
        raise ValueError(
            f"--share-layers groups:{number} does not divide the {num_layers} layers (--encoder-layers): give one of "
            f"{', '.join(str(n) for n in range(1, num_layers + 1) if num_layers % n == 0)} groups."
        )
    return number


def share(layers: Sequence[nn.Module], *, groups: int, parts: str) -> list[nn.Module]:
    """The layers, in which each group of consecutive ones has the parts of its first."""
    shared = list(layers)
    size = len(shared) // groups
    for number in range(len(shared)):
        first = shared[number - number % size]
        if not PARTS[parts]:
            shared[number] = first
        for name in PARTS[parts]:
            setattr(shared[number], name, getattr(first, name))
    return shared


def aliases(parameters: Iterable[tuple[str, nn.Parameter]]) -> list[list[str]]:
    """Names of the same parameter, for each that has several."""
    names: dict[int, list[str]] = {}
    for name, parameter in parameters:
        names.setdefault(id(parameter), []).append(name)
    return [several for several in names.values() if len(several) > 1]


def check_shared(model: nn.Module, state: Mapping[str, Any], *, option: str) -> None:
    """Refuse a checkpoint whose layers differ where the model shares them: one of them would be lost in silence."""
    for first, *others in aliases(model.named_parameters(remove_duplicate=False)):
        for other in others:
            if ".layers." in first and first in state and other in state and not _equal(state[first], state[other]):
                raise ValueError(
                    f"{first} and {other} of the checkpoint differ, and this model shares them ({option}): leave "
                    "--share-layers out, as in the training of the checkpoint."
                )


def joined(state: Mapping[str, Any], *, share_layers: str) -> dict[str, Any]:
    """Parameters, in which equal ones of layers in the same group are one tensor again.

    fairseq copies each entry of a state dict from the GPU, or to fp32, so that a shared layer would be written as often
    as the model uses it.
    """
    layers = {name: match for name in state if (match := re.match(r"(.*\.sentence_encoder\.layers\.)(\d+)\.", name))}
    num_layers = len({match[2] for match in layers.values()})
    size = max(1, num_layers // num_groups(share_layers, num_layers)) if num_layers else 1
    result = dict(state)
    for name, match in layers.items():
        first = int(match[2]) // size * size
        same = result[f"{match[1]}{first}.{name[match.end() :]}"]
        if _equal(same, state[name]):
            result[name] = same
    return result


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.data_ptr() == other.data_ptr() and one.shape == other.shape) or torch.equal(one, other)
