"""Names in files: of parameters, in fairseq's `roberta` of any year, and of saved options in its two formats.

Our names of parameters are those of fairseq's `roberta`. A head NAME of a kind is `heads.NAME` in our model, and
KIND_heads.NAME in its state dict, so that fairseq's `roberta` finds its classification heads and a file says the kind
of each head.

Functions take and return state dicts; tensors are shared, not copied.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

VERSION = "encoder.sentence_encoder.version"
TOKENS = "encoder.sentence_encoder.embed_tokens.weight"
POSITIONS = "encoder.sentence_encoder.embed_positions.weight"
EMBEDDING_NORM = "encoder.sentence_encoder.layernorm_embedding.weight"
FINAL_NORM = "encoder.sentence_encoder.layer_norm.weight"  # of encoders that normalize before their sublayers
CLASSIFICATION, SPAN, TOKEN, SENTENCE = "classification_heads.", "span_heads.", "token_heads.", "sentence_heads."
ALL_HEADS = (CLASSIFICATION, SPAN, TOKEN, SENTENCE)
ROWS_BEFORE_POSITIONS = 2  # of POSITIONS, in fairseq's layout

# Released in 2019 -> now, in this order, as regular expressions.
OLDER_FAIRSEQ = (
    (r"^decoder\.", "encoder."),
    (r"\.emb_layer_norm\.", ".layernorm_embedding."),
    (r"\.layer_norms\.0\.", ".self_attn_layer_norm."),
    (r"\.layer_norms\.1\.", ".final_layer_norm."),
)


def from_older_fairseq(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Any layout that fairseq's `roberta` has had, its released models included -> ours."""
    renamed: dict[str, Tensor] = {}
    for old, value in state.items():
        name = old
        for pattern, replacement in OLDER_FAIRSEQ:
            name = re.sub(pattern, replacement, name)
        match = re.fullmatch(r"(.*\.self_attn\.)in_proj_(weight|bias)", name)
        if match:  # query, key and value in one
            for letter, part in zip("qkv", value.chunk(3), strict=True):
                renamed[f"{match[1]}{letter}_proj.{match[2]}"] = part
        else:
            renamed[name] = value
    renamed.setdefault(VERSION, torch.tensor([3.0]))
    return renamed


def name_heads_as_in_files(model: Any, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
    """Rename the parameters of a model's heads to those of files, in place: torch's hook after `state_dict`.

    Example: heads.mnli.dense.weight -> classification_heads.mnli.dense.weight
    """
    for name, kind in model.head_kinds.items():
        _rename(state, f"{prefix}heads.{name}.", f"{prefix}{kind}_heads.{name}.")


def name_heads_as_in_model(model: Any, state: dict[str, Any], prefix: str, *_others: Any) -> None:
    """Rename them back, in place: torch's hook before `load_state_dict`."""
    for name, kind in model.head_kinds.items():
        _rename(state, f"{prefix}{kind}_heads.{name}.", f"{prefix}heads.{name}.")


def _rename(state: dict[str, Any], old: str, new: str) -> None:
    for name in [name for name in state if name.startswith(old)]:
        state[new + name.removeprefix(old)] = state.pop(name)


def sizes_of(state: Mapping[str, Tensor]) -> dict[str, int]:
    """Options of the model that its parameters determine, in any layout. A dimension may be missing.

    Example: roberta.base -> {"encoder_layers": 12, "encoder_embed_dim": 768, "encoder_ffn_embed_dim": 3072}
    """
    numbers = {match[1] for name in state if (match := re.search(r"\.sentence_encoder\.layers\.(\d+)\.", name))}
    sizes = {"encoder_layers": len(numbers)}
    ends = {"embed_tokens.weight": ("encoder_embed_dim", 1), "layers.0.fc1.weight": ("encoder_ffn_embed_dim", 0)}
    for name, value in state.items():
        for end, (option, axis) in ends.items():
            if name.endswith(f".sentence_encoder.{end}") and value.dim() == 2:
                sizes[option] = value.size(axis)
    return sizes


def positions_of(state: Mapping[str, Tensor]) -> Tensor:
    """The embeddings of positions, in any layout that fairseq's `roberta` has had."""
    found = next((value for name, value in state.items() if name.endswith("embed_positions.weight")), None)
    if found is None:
        raise ValueError("There are no position embeddings: this is not a checkpoint of a RoBERTa.")
    return found


def saved_options(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Saved options of the task and of the model, from either of fairseq's formats.

    `_name` is the name of the task or of the model. The values come unchecked from the file: check them before use.
    """
    args = state.get("args")
    if args is not None:  # until 2020; fairseq also reads these first
        options = _as_dict(args)
        return {**options, "_name": options.get("task")}, {**options, "_name": options.get("arch")}
    config = _as_dict(state.get("cfg"))
    return _as_dict(config.get("task")), _as_dict(config.get("model"))


def _as_dict(options: Any) -> dict[str, Any]:
    if isinstance(options, argparse.Namespace):
        return dict(vars(options))
    return {str(name): options[name] for name in options} if isinstance(options, Mapping) else {}
