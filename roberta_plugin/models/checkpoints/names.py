"""Names of parameters: ours (which are those of fairseq's `roberta`) <-> older fairseq <-> Hugging Face.

Functions take and return state dicts; tensors are shared, not copied.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

VERSION = "encoder.sentence_encoder.version"
TOKENS = "encoder.sentence_encoder.embed_tokens.weight"
POSITIONS = "encoder.sentence_encoder.embed_positions.weight"
ROWS_BEFORE_POSITIONS = 2  # of POSITIONS, in fairseq's layout

# Released in 2019 -> now, in this order, as regular expressions.
OLDER_FAIRSEQ = (
    (r"^decoder\.", "encoder."),
    (r"\.emb_layer_norm\.", ".layernorm_embedding."),
    (r"\.layer_norms\.0\.", ".self_attn_layer_norm."),
    (r"\.layer_norms\.1\.", ".final_layer_norm."),
)

# Ours -> Hugging Face's RobertaForMaskedLM; {} is the number of a layer.
# fmt: off
HUGGING_FACE = {
    "encoder.sentence_encoder.embed_tokens":                    "roberta.embeddings.word_embeddings",
    "encoder.sentence_encoder.embed_positions":                 "roberta.embeddings.position_embeddings",
    "encoder.sentence_encoder.layernorm_embedding":             "roberta.embeddings.LayerNorm",
    "encoder.sentence_encoder.layers.{}.self_attn.q_proj":      "roberta.encoder.layer.{}.attention.self.query",
    "encoder.sentence_encoder.layers.{}.self_attn.k_proj":      "roberta.encoder.layer.{}.attention.self.key",
    "encoder.sentence_encoder.layers.{}.self_attn.v_proj":      "roberta.encoder.layer.{}.attention.self.value",
    "encoder.sentence_encoder.layers.{}.self_attn.out_proj":    "roberta.encoder.layer.{}.attention.output.dense",
    "encoder.sentence_encoder.layers.{}.self_attn_layer_norm":  "roberta.encoder.layer.{}.attention.output.LayerNorm",
    "encoder.sentence_encoder.layers.{}.fc1":                   "roberta.encoder.layer.{}.intermediate.dense",
    "encoder.sentence_encoder.layers.{}.fc2":                   "roberta.encoder.layer.{}.output.dense",
    "encoder.sentence_encoder.layers.{}.final_layer_norm":      "roberta.encoder.layer.{}.output.LayerNorm",
    "encoder.lm_head.dense":                                    "lm_head.dense",
    "encoder.lm_head.layer_norm":                               "lm_head.layer_norm",
    "encoder.lm_head":                                          "lm_head.decoder",
}
# fmt: on
TOKEN_TYPES = "roberta.embeddings.token_type_embeddings.weight"


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


def positions_of(state: Mapping[str, Tensor]) -> Tensor:
    """The embeddings of positions, in any layout that fairseq's `roberta` has had.

    Raises:
        ValueError: if there are none.
    """
    found = next((value for name, value in state.items() if name.endswith("embed_positions.weight")), None)
    if found is None:
        raise ValueError("There are no position embeddings: this is not a checkpoint of a RoBERTa.")
    return found


def to_hugging_face(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Ours -> RobertaForMaskedLM; classification heads stay behind.

    Raises:
        ValueError: for a parameter without a counterpart in Hugging Face's model.
    """
    renamed: dict[str, Tensor] = {}
    for name, value in state.items():
        if name == VERSION or name.startswith("classification_heads."):
            continue
        renamed[_translate(name, HUGGING_FACE)] = value
    renamed["lm_head.bias"] = renamed["lm_head.decoder.bias"]
    embeddings = renamed["roberta.embeddings.word_embeddings.weight"]
    renamed[TOKEN_TYPES] = embeddings.new_zeros(1, embeddings.size(1))
    return renamed


def from_hugging_face(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """RobertaForMaskedLM -> ours; the one token type is added to all positions, which is what it does.

    Raises:
        ValueError: for a parameter without a counterpart in our model.
    """
    back = {theirs: ours for ours, theirs in HUGGING_FACE.items()}
    ignored = {TOKEN_TYPES, "lm_head.bias", "roberta.embeddings.position_ids"}
    renamed = {_translate(name, back): value for name, value in state.items() if name not in ignored}
    embeddings = renamed[TOKENS]
    renamed.setdefault("encoder.lm_head.weight", embeddings)
    renamed.setdefault("encoder.lm_head.bias", state["lm_head.bias"])
    if TOKEN_TYPES in state:
        positions = renamed[POSITIONS].clone()
        positions[2:] += state[TOKEN_TYPES][0]  # rows 0 and 1 serve no token
        renamed[POSITIONS] = positions
    renamed[VERSION] = torch.tensor([3.0])
    return renamed


def _translate(name: str, table: Mapping[str, str]) -> str:
    module, _, leaf = name.rpartition(".")
    number = re.search(r"\.(\d+)\.", module)
    key = module.replace(f".{number[1]}.", ".{}.", 1) if number else module
    if key not in table:
        raise ValueError(f"The parameter {name} has no counterpart: the state dict is of another kind of model.")
    return f"{table[key].format(number[1] if number else '')}.{leaf}"
