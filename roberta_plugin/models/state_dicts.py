"""The parameters of a checkpoint: names of any year -> ours, sizes, and what of them fits a model.

Parameters have the names of fairseq's `roberta`, in files of any year. A head NAME of a kind is `heads.NAME` in our
model, and KIND_heads.NAME in its state dict, so that fairseq's `roberta` finds its classification heads and a file says
the kind of each head. Functions take and return state dicts; tensors are shared, not copied.

The encoder must fit the model that loads it. Heads need not: fine-tuning starts from a model with other heads, or none.
The parts for pairs of texts, segments and next-sentence prediction, may also be missing in one of them. Fine-tuning and
the hub keep segments; pretraining without pairs may have none. In a model without segment embeddings, all tokens have
segment 0. When such a model loads a checkpoint with segments, the row of segment 0 is added to the embeddings of
positions, or to the tokens' if there are none: a single text has the same features as before.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from roberta_plugin.models.head_parameters import HasHeads

logger = logging.getLogger(__name__)

VERSION = "encoder.sentence_encoder.version"
TOKENS = "encoder.sentence_encoder.embed_tokens.weight"
POSITIONS = "encoder.sentence_encoder.embed_positions.weight"
EMBEDDING_NORM = "encoder.sentence_encoder.layernorm_embedding.weight"
FINAL_NORM = "encoder.sentence_encoder.layer_norm.weight"  # of encoders that normalize before their sublayers
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
    """Rename the parameters of a model's heads to their names in files, in place: torch's hook after `state_dict`.

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


def read_sizes(state: Mapping[str, Tensor]) -> dict[str, int]:
    """Options of the model that its parameters determine, in any layout. A dimension may be missing.

    Example: roberta.base -> {"encoder_layers": 12, "encoder_embed_dim": 768, "encoder_ffn_embed_dim": 3072}
    """
    numbers = {match[1] for name in state if (match := re.search(r"\.sentence_encoder\.layers\.(\d+)\.", name))}
    sizes = {"encoder_layers": len(numbers)}
    ends = {"embed_tokens.weight": ("encoder_embed_dim", 1), "layers.0.fc2.weight": ("encoder_ffn_embed_dim", 1)}
    for name, value in state.items():
        for end, (option, axis) in ends.items():
            if name.endswith(f".sentence_encoder.{end}") and value.dim() == 2:
                sizes[option] = value.size(axis)
    return sizes


def norms_of(state: Mapping[str, Any]) -> dict[str, bool]:
    """The options of an encoder's places of norms, in any layout: the parameters say them, and saved options may not.

    Empty if there are no layers.
    """
    if not read_sizes(state)["encoder_layers"]:
        return {}
    ends = (".layernorm_embedding.weight", ".emb_layer_norm.weight")
    return {
        "encoder_normalize_before": any(name.endswith("sentence_encoder.layer_norm.weight") for name in state),
        "no_layernorm_embedding": not any(name.endswith(ends) for name in state),
    }


def positions_of(state: Mapping[str, Tensor]) -> Tensor:
    """The embeddings of positions, in any layout that fairseq's `roberta` has had."""
    table = next((value for name, value in state.items() if name.endswith("embed_positions.weight")), None)
    if table is None:
        raise ValueError("There are no position embeddings: this is not a checkpoint of a RoBERTa.")
    return table


SEGMENTS = "encoder.sentence_encoder.segment_embeddings.weight"
LM_MATRIX = "encoder.lm_head.weight"
_SEQUENCE_HEAD = re.compile(r"encoder\.(?!lm_head\.)([a-z0-9_]+_head)\.")


def check_sizes(model: HasHeads, state: dict[str, Any]) -> None:
    """Refuse a checkpoint of another vocabulary or another number of positions, which torch would report as shapes."""
    model_state = model.state_dict()
    if TOKENS in state and len(state[TOKENS]) != len(model_state[TOKENS]):
        raise ValueError(
            f"The checkpoint has a vocabulary of {len(state[TOKENS]):,} symbols, and the data one of "
            f"{len(model_state[TOKENS]):,}: make the data with the tokenizer and the dict.txt of that model."
        )
    if TOKENS in state and (POSITIONS in state) != (POSITIONS in model_state):
        kinds = ("learned", "rotary") if POSITIONS in state else ("rotary", "learned")
        raise ValueError(
            f"The checkpoint has {kinds[0]} positions, and this model {kinds[1]} ones: give --position-encoding "
            f"{kinds[0]}."
        )
    if POSITIONS in state and len(state[POSITIONS]) != len(model_state[POSITIONS]):
        theirs, ours = (len(each[POSITIONS]) - ROWS_BEFORE_POSITIONS for each in (state, model_state))
        raise ValueError(
            f"The checkpoint has {theirs} positions, and this model {ours}: give --max-positions {theirs}."
        )


def sequence_head_of(name: str) -> str:
    """The head for sequences, trained beside the masked LM, to which a parameter belongs; empty for other parameters.

    Example: "encoder.order_head.dense.weight"  ->  "order_head"
    """
    match = _SEQUENCE_HEAD.match(name)
    return match[1] if match else ""


def reconcile_sequence_heads(model: HasHeads, state: dict[str, Any]) -> None:
    """Leave out heads for sequences that only the checkpoint has, and begin heads anew that only the model has."""
    model_state = model.state_dict()
    theirs, ours = ({head for name in each if (head := sequence_head_of(name))} for each in (state, model_state))
    for name in [name for name in state if sequence_head_of(name) in theirs - ours]:
        del state[name]
    state.update({name: value for name, value in model_state.items() if sequence_head_of(name) in ours - theirs})
    for head in sorted(theirs - ours):
        logger.info(f"the checkpoint's {head} is left out: this model has none")
    for head in sorted(ours - theirs):
        logger.info(f"the checkpoint has no {head}: this model's begins untrained")


def reconcile_segments(model: HasHeads, state: dict[str, Any]) -> None:
    """Make the checkpoint `state` fit a model with or without segment embeddings.

    Changes `state` in place, and logs the parts that are left out or begin with fresh weights. A model that takes
    segments gets the checkpoint's.
    """
    encoder = model.encoder.sentence_encoder
    if SEGMENTS in state and model.takes_segments and encoder.segment_embeddings is None:
        segments = nn.Embedding(len(state[SEGMENTS]), model.cfg.encoder_embed_dim)
        encoder.segment_embeddings = segments.to(model.encoder.lm_head.bias)  # its device and type
    model_state = model.state_dict()
    if SEGMENTS in state and SEGMENTS not in model_state:
        logger.info(
            "the checkpoint has segment embeddings and this model has none: "
            + merge_segments(state, is_tied=not model.cfg.untie_weights_roberta)
        )
    elif SEGMENTS in model_state and SEGMENTS not in state:
        state[SEGMENTS] = model_state[SEGMENTS] * 0.0
        logger.info("the checkpoint has no segment embeddings: this model's begin at zero")


def merge_segments(state: dict[str, Any], *, is_tied: bool) -> str:
    """Turn a state dict, in place, into one of a model without segments: all tokens are of the first. Return how."""
    first, name = state.pop(SEGMENTS)[0], POSITIONS if POSITIONS in state else TOKENS
    changed = state[name].clone()
    # Added to all rows of the LM head's matrix, it changes all logits alike, and so no probability
    changed[ROWS_BEFORE_POSITIONS if name == POSITIONS else 0 :] += first.to(changed.dtype)
    if LM_MATRIX in state and name == TOKENS and is_tied:
        state[LM_MATRIX] = changed
    state[name] = changed
    where = "positions" if name == POSITIONS else "tokens"
    return f"the first segment's is added to the {where}, the second's is left out"
