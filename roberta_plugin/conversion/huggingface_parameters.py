"""The parameters of a model <-> the state dict of Hugging Face's classes.

RobertaFor..., XLMRobertaFor... and CamembertFor... share their names of parameters. Ours and theirs have the same rows
of positions (two unused rows, then position 0), the same layers and heads. They differ in three things. Their
embeddings have a token type, one vector that is added to every position. Ours do not, so the vector is added to the
positions. CamemBERT numbers <s> and </s> differently from fairseq (`huggingface_tokenizers`). Tied parameters are
twice in our state dicts, and once in their files. Tensors that do not change are shared.

`families` has the differences of other classes.

Shapes: V vocabulary, P rows of positions, T token types, D model dimension.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from roberta_plugin.conversion.families import Family, layers_of
from roberta_plugin.conversion.portable import (
    MASKED_LM,
    Head,
    translate,
)
from roberta_plugin.models.head_parameters import is_of_head
from roberta_plugin.models.state_dicts import FINAL_NORM, POSITIONS, TOKENS, VERSION

# Our parameters -> theirs; {} is the number of a layer.
# fmt: off
TRUNK = {
    "encoder.sentence_encoder.embed_tokens":                    "roberta.embeddings.word_embeddings",
    "encoder.sentence_encoder.embed_positions":                 "roberta.embeddings.position_embeddings",
    "encoder.sentence_encoder.segment_embeddings":              "roberta.embeddings.segment_embeddings",
    "encoder.sentence_encoder.layernorm_embedding":             "roberta.embeddings.LayerNorm",
    "encoder.sentence_encoder.layers.{}.self_attn.q_proj":      "roberta.encoder.layer.{}.attention.self.query",
    "encoder.sentence_encoder.layers.{}.self_attn.k_proj":      "roberta.encoder.layer.{}.attention.self.key",
    "encoder.sentence_encoder.layers.{}.self_attn.v_proj":      "roberta.encoder.layer.{}.attention.self.value",
    "encoder.sentence_encoder.layers.{}.self_attn.q_norm":      "roberta.encoder.layer.{}.attention.self.query_norm",
    "encoder.sentence_encoder.layers.{}.self_attn.k_norm":      "roberta.encoder.layer.{}.attention.self.key_norm",
    "encoder.sentence_encoder.layers.{}.self_attn.out_proj":    "roberta.encoder.layer.{}.attention.output.dense",
    "encoder.sentence_encoder.layers.{}.self_attn_layer_norm":  "roberta.encoder.layer.{}.attention.output.LayerNorm",
    "encoder.sentence_encoder.layers.{}.fc1":                   "roberta.encoder.layer.{}.intermediate.dense",
    "encoder.sentence_encoder.layers.{}.fc2":                   "roberta.encoder.layer.{}.output.dense",
    "encoder.sentence_encoder.layers.{}.final_layer_norm":      "roberta.encoder.layer.{}.output.LayerNorm",
}
# The names of RobertaPreLayerNorm..., which begin with roberta_prelayernorm instead of roberta.
PRE_NORM_TRUNK = {
    **TRUNK,
    "encoder.sentence_encoder.layers.{}.self_attn_layer_norm":  "roberta.encoder.layer.{}.attention.LayerNorm",
    "encoder.sentence_encoder.layers.{}.final_layer_norm":      "roberta.encoder.layer.{}.intermediate.LayerNorm",
    "encoder.sentence_encoder.layer_norm":                      "roberta.LayerNorm",
}
# fmt: on
WORDS = "roberta.embeddings.word_embeddings.weight"
SEGMENT_ROWS = "roberta.embeddings.segment_embeddings.weight"  # only our own code has it
TOKEN_TYPES = "roberta.embeddings.token_type_embeddings.weight"
THEIR_POSITIONS = "roberta.embeddings.position_embeddings.weight"
LM_WEIGHT, LM_BIAS = "encoder.lm_head.weight", "encoder.lm_head.bias"
ORIGINAL = "huggingface"  # entry of a checkpoint: parameters that were merged on import
POOLER = "roberta.pooler.dense"
_PRE_NORM_PREFIX = "roberta_prelayernorm"
_WITHOUT_EFFECT = re.compile(r"roberta\.embeddings\.position_ids|roberta\.pooler\.dense\.(weight|bias)")


def to_hugging_face(
    state: Mapping[str, Any],
    head: Head,
    *,
    family: Family | None = None,
    is_tied: bool = True,
    order: NDArray[Any] | None = None,
) -> dict[str, Tensor]:
    """The encoder and one head of a checkpoint, by Hugging Face's names.

    Args:
        state: content of a checkpoint, with parameters by our names as "model".
        head: the head to include; others are left out.
        family: the family of the model, as `family_of` returns it.
        is_tied: True if the masked-LM head shares the embeddings; the result then has no separate matrix for it.
        order: our id of each of their ids (V,), if they differ.

    Raises:
        ValueError: for a parameter without a counterpart in Hugging Face's model.
    """
    normalizes_before = FINAL_NORM in state["model"]
    table = {**(PRE_NORM_TRUNK if normalizes_before else TRUNK), **_head_table(head)}
    result: dict[str, Tensor] = {}
    for name, value in state["model"].items():
        is_own = name.startswith(f"{head.module}.")
        if name == VERSION or ((is_of_head(name) or name.startswith("encoder.lm_head.")) and not is_own):
            continue
        reordered = value if order is None or name not in (TOKENS, LM_WEIGHT, LM_BIAS) else value[torch.tensor(order)]
        result[translate(name, table)] = reordered
    if head.kind == MASKED_LM:
        result["lm_head.bias"] = result["lm_head.decoder.bias"].clone()  # safetensors refuses shared memory
        if is_tied:
            del result["lm_head.decoder.bias"], result["lm_head.decoder.weight"]
    if family is not None:
        result = family.from_roberta(result, layers_of(state))
    else:
        result[TOKEN_TYPES] = token_types(state)
        if original := _original(state):
            result[THEIR_POSITIONS] = original["positions"]
    if head.is_encoder:  # their class without a head has no prefix
        return {name.partition(".")[2]: value for name, value in result.items()}
    if normalizes_before and family is None:
        return {re.sub(r"^roberta\.", f"{_PRE_NORM_PREFIX}.", name): value for name, value in result.items()}
    return result


def from_hugging_face(
    state: Mapping[str, Tensor], head: Head, *, order: NDArray[Any] | None = None, has_table: bool = True
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A state dict of Hugging Face -> parameters by our names, and the original ones that were merged.

    Args:
        state: parameters of their model, as from `with_base_prefix`, with or without copies of tied parameters.
        head: its head, with our name.
        order: their id of each of our ids (V,), if they differ.
        has_table: True if it has embeddings of positions.

    Raises:
        ValueError: for a parameter without a counterpart in our model, or if one is missing.
    """
    trunk = PRE_NORM_TRUNK if "roberta.LayerNorm.weight" in state else TRUNK
    back = {theirs: ours for ours, theirs in {**trunk, **_head_table(head)}.items()}
    result: dict[str, Tensor] = {}
    for name, value in state.items():
        if name in (TOKEN_TYPES, "lm_head.bias") or (_WITHOUT_EFFECT.fullmatch(name) and _module(name) not in back):
            continue
        result[translate(name, back)] = value
    if TOKENS not in result or (POSITIONS not in result and has_table):
        raise ValueError("The embeddings are missing: the state dict belongs to another kind of model.")
    if head.kind == MASKED_LM:
        result.setdefault(LM_WEIGHT, result[TOKENS])
        if "lm_head.bias" in state:
            result.setdefault(LM_BIAS, state["lm_head.bias"])
    if order is not None:
        for name in {TOKENS, LM_WEIGHT, LM_BIAS} & result.keys():
            result[name] = result[name][torch.tensor(order)]
        if head.kind == MASKED_LM and "lm_head.decoder.weight" not in state:
            result[LM_WEIGHT] = result[TOKENS]
    merged: dict[str, Tensor] = {}
    types = state.get(TOKEN_TYPES)
    if types is not None and bool(types.any()):
        merged = {"positions": result[POSITIONS], "token_types": types.clone()}
        result[POSITIONS] = _added(merged["positions"], merged["token_types"])
    result[VERSION] = torch.tensor([3.0])
    return result, merged


def with_base_prefix(
    state: Mapping[str, Tensor], family: Family | None, options: Mapping[str, Any], path: Path
) -> dict[str, Tensor]:
    """Parameters of any of their classes with the prefix `roberta.`, which a bare RobertaModel leaves out.

    Args:
        state: the parameters.
        family: the family of the model.
        options: options of `fast_roberta` for this model.
        path: the file or folder of the parameters, for messages.
    """
    for older, name in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        state = {key.replace(older, name): value for key, value in state.items()}  # files of 2019 have these names
    if family is not None:
        try:
            state = family.as_roberta(state, options)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    if any(name.startswith("embeddings.") for name in state):
        return {f"roberta.{name}": value for name, value in state.items()}
    return {re.sub(rf"^{_PRE_NORM_PREFIX}\.", "roberta.", name): value for name, value in state.items()}


def _added(positions: Tensor, token_types: Tensor) -> Tensor:
    """Rows of positions (P, D) and vectors of token types (T, D) -> sums with the first type.

    Rows 0 and 1 stay: no token uses them.

    Sums of 16-bit numbers are kept in 32 bits, as their model computes them when it is loaded in fp32.
    """
    result = positions.to(torch.promote_types(positions.dtype, torch.float32), copy=True)
    result[2:] += token_types[0].to(result.dtype)
    return result


def _original(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """The original parameters that an import merged; {} if there are none, or if they have been trained since."""
    kept: dict[str, Tensor] = state.get(ORIGINAL) or {}
    is_same = kept and torch.equal(_added(kept["positions"], kept["token_types"]), state["model"][POSITIONS])
    return kept if is_same else {}


def _head_table(head: Head) -> dict[str, str]:
    return {f"{head.module}.{ours}".removesuffix("."): theirs for ours, theirs in head.hugging_face.names.items()}


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def token_types(state: Mapping[str, Any]) -> Tensor:
    """The vectors of token types (T, D) of Hugging Face's model: a single one of zeros, unless they were imported."""
    words: Tensor = state["model"][TOKENS]
    return _original(state).get("token_types", words.new_zeros(1, words.size(1)))
