"""Parameters: ours <-> Hugging Face's RobertaFor..., XLMRobertaFor... and CamembertFor..., which share their names.

Functions take and return state dicts; tensors are shared where nothing in them changes.

Ours and theirs have the same rows of positions (two unused ones, then position 0), the same layers and heads. They
differ in three things. Their embeddings have a token type, one vector that is added to every position; ours have not,
so it is added to the positions. CamemBERT numbers <s> and </s> otherwise than fairseq (`huggingface_tokenizers`). Tied
parameters are in our state dicts twice, in their files once.

Shapes: V vocabulary, P rows of positions, D model dimension.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from roberta_plugin.conversion.heads import FORMATS, MASKED_LM, Head, HeadFormat
from roberta_plugin.models.checkpoints.names import ALL_HEADS, POSITIONS, TOKENS, VERSION

# Ours -> theirs; {} is the number of a layer.
# fmt: off
TRUNK = {
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
}
# fmt: on
WORDS = "roberta.embeddings.word_embeddings.weight"
TOKEN_TYPES = "roberta.embeddings.token_type_embeddings.weight"
THEIR_POSITIONS = "roberta.embeddings.position_embeddings.weight"
LM_WEIGHT, LM_BIAS = "encoder.lm_head.weight", "encoder.lm_head.bias"
ORIGINAL = "huggingface"  # entry of a checkpoint: parameters that were merged on import
_WITHOUT_EFFECT = re.compile(r"roberta\.embeddings\.position_ids|roberta\.pooler\.dense\.(weight|bias)")


def to_hugging_face(
    state: Mapping[str, Any], head: Head, *, is_tied: bool = True, order: NDArray[Any] | None = None
) -> dict[str, Tensor]:
    """The encoder and one head of a checkpoint, by Hugging Face's names.

    Args:
        state: content of a checkpoint, with parameters by our names as "model".
        head: the head to take along; others stay behind.
        is_tied: whether the masked-LM head shares the embeddings; the result then has no separate matrix for it.
        order: our id of each of their ids (V,), where they differ.

    Raises:
        ValueError: for a parameter without a counterpart in Hugging Face's model.
    """
    table = {**TRUNK, **_head_table(FORMATS[head.kind], head)}
    others = (*ALL_HEADS, "encoder.lm_head.")
    result: dict[str, Tensor] = {}
    for name, value in state["model"].items():
        is_own = name.startswith(f"{head.module}.")
        if name == VERSION or (name.startswith(others) and not is_own):
            continue
        reordered = value if order is None or name not in (TOKENS, LM_WEIGHT, LM_BIAS) else value[torch.tensor(order)]
        result[_translate(name, table)] = reordered
    if head.kind == MASKED_LM:
        result["lm_head.bias"] = result["lm_head.decoder.bias"].clone()  # safetensors refuses shared memory
        if is_tied:
            del result["lm_head.decoder.bias"], result["lm_head.decoder.weight"]
    words = result[WORDS]
    result[TOKEN_TYPES] = words.new_zeros(1, words.size(1))
    original = state.get(ORIGINAL)
    if original and torch.equal(_added(original["positions"], original["token_types"]), state["model"][POSITIONS]):
        result[THEIR_POSITIONS], result[TOKEN_TYPES] = original["positions"], original["token_types"]
    return result


def from_hugging_face(
    state: Mapping[str, Tensor], head: Head, *, order: NDArray[Any] | None = None
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A state dict of Hugging Face -> parameters by our names, and those that were merged, as they were.

    Args:
        state: parameters of their model, with or without copies of tied ones.
        head: the head that it has, by the name that it gets.
        order: their id of each of our ids (V,), where they differ.

    Raises:
        ValueError: for a parameter without a counterpart in our model, or if one is missing.
    """
    back = {theirs: ours for ours, theirs in {**TRUNK, **_head_table(FORMATS[head.kind], head)}.items()}
    result: dict[str, Tensor] = {}
    for name, value in with_base_prefix(state).items():
        if name in (TOKEN_TYPES, "lm_head.bias") or (_WITHOUT_EFFECT.fullmatch(name) and _module(name) not in back):
            continue
        result[_translate(name, back)] = value
    if TOKENS not in result or POSITIONS not in result:
        raise ValueError("The embeddings are missing: the state dict is of another kind of model.")
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
    types = with_base_prefix(state).get(TOKEN_TYPES)
    if types is not None and bool(types[0].any()):
        merged = {"positions": result[POSITIONS], "token_types": types[:1].clone()}
        result[POSITIONS] = _added(merged["positions"], merged["token_types"])
    result[VERSION] = torch.tensor([3.0])
    return result, merged


def with_base_prefix(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters of any of their classes with the prefix `roberta.`, which a bare RobertaModel leaves out."""
    if not any(name.startswith("embeddings.") for name in state):
        return dict(state)
    return {f"roberta.{name}": value for name, value in state.items()}


def _added(positions: Tensor, token_types: Tensor) -> Tensor:
    """Rows of positions (P, D) and the vector of the token type (1, D) -> their sums; rows 0 and 1 serve no token.

    Sums of 16-bit numbers are kept in 32 bits, as their model computes them when it is loaded in fp32.
    """
    result = positions.to(torch.promote_types(positions.dtype, torch.float32), copy=True)
    result[2:] += token_types[0].to(result.dtype)
    return result


def _head_table(format_: HeadFormat, head: Head) -> dict[str, str]:
    return {f"{head.module}.{ours}".removesuffix("."): theirs for ours, theirs in format_.names.items()}


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _translate(name: str, table: Mapping[str, str]) -> str:
    module, _, leaf = name.rpartition(".")
    key = module
    number = re.search(r"\.layers?\.(\d+)\.", module)
    if number:
        key = module[: number.start(1)] + "{}" + module[number.end(1) :]
    if key not in table:
        raise ValueError(f"The parameter {name} has no counterpart: the state dict is of another kind of model.")
    return f"{table[key].format(number[1] if number else '')}.{leaf}"
