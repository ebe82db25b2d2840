"""Hugging Face's ESM (Rives et al. 2021; ESM-2: Lin et al. 2023): which of our models it is, config.json and names.

Made for proteins, it comes from fairseq's RoBERTa: norms before the sublayers, rotary positions, plain feed-forward
layers with gelu, and RoBERTa's heads. Without `token_dropout`, masks are tokens like others, as in RoBERTa. All its
classes have a head for contacts in proteins besides: zeros in our exports, left out on import.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from roberta_plugin.conversion.fields import CONFIG, rotary_base
from roberta_plugin.conversion.portable import MASKED_LM
from roberta_plugin.foreign_fields import USED, Table, only, without_effect
from roberta_plugin.models.config import SWITCHES, FastRobertaConfig

MODEL_TYPE, CLASS = "esm", "Esm"
LACKS: tuple[str, ...] = tuple(name for name in SWITCHES if name not in ("position_encoding", "rotary_base"))
HEADS: tuple[str, ...] = (MASKED_LM, "classification", "multi_label", "regression", "tagging")
ACTIVATION: str | None = None
DROPOUTS: Mapping[str, str] = {}
OF_ROBERTA: tuple[str, ...] = ("hidden_act", "type_vocab_size")
SPECIAL_IDS: Mapping[str, str] = {"mask_token_id": "<mask>"}
HAS_POOLER = True
FIELDS: Table = {
    **CONFIG,
    **dict.fromkeys(("position_embedding_type", "rope_theta"), USED),
    "emb_layer_norm_before": only(True, False, None),
    **dict.fromkeys(("token_dropout", "is_folding_model"), only(False, None)),
    **dict.fromkeys(("head_dim", "rope_parameters", "rope_scaling"), only(None)),
    **dict.fromkeys(("esmfold_config", "vocab_list"), without_effect("only of a folding model")),
    **dict.fromkeys(("pad_token_id", "mask_token_id"), without_effect("the tokenizer's files say it")),
    **dict.fromkeys(("hidden_act", "type_vocab_size"), without_effect("ESM does not read it")),
}
_CONTACTS = "esm.contact_head.regression"
_FREQUENCIES = "rotary_embeddings.inv_freq"
_WITHOUT_EFFECT = re.compile(r"esm\.(contact_head\..*|embeddings\.position_ids)")
# Begins of names -> RobertaPreLayerNorm's; {} is the number of a layer. The first that fits counts.
_NAMES = {
    "esm.embeddings.layer_norm.": "roberta.embeddings.LayerNorm.",
    "esm.encoder.layer.{}.LayerNorm.": "roberta.encoder.layer.{}.intermediate.LayerNorm.",
    "esm.encoder.emb_layer_norm_after.": "roberta.LayerNorm.",
    "esm.": "roberta.",
}
_BACK = {theirs: ours for ours, theirs in _NAMES.items()}


def describes(options: Mapping[str, Any]) -> bool:
    """Whether a model of these options has the layers of ESM, and perhaps more than them."""
    return str(options.get("position_encoding")) == "rotary" and bool(options.get("encoder_normalize_before"))


def to_config(options: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    """The part of config.json that describes the layers."""
    return {
        "position_embedding_type": "rotary",
        "rope_theta": options.get("rotary_base", FastRobertaConfig.rotary_base),
        "emb_layer_norm_before": "no_layernorm_embedding" not in options,
        "token_dropout": False,
        "is_folding_model": False,
    }


def from_config(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The options of `fast_roberta` that a config.json of ESM describes.

    Raises:
        ValueError: naming the entry that we cannot honour.
    """
    positions = config.get("position_embedding_type", "absolute")
    if positions != "rotary":
        raise ValueError(
            f"{path}: position_embedding_type is {positions!r}, and of ESM only 'rotary' is read here. Use it with "
            "transformers, or start from another."
        )
    return {
        "encoder_normalize_before": True,
        "no_layernorm_embedding": not config.get("emb_layer_norm_before"),
        "position_encoding": "rotary",
        "rotary_base": rotary_base(config.get("rope_theta", 1e4), "rope_theta", path),
    }


def as_roberta(state: Mapping[str, Tensor], options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Parameters by the names of RobertaPreLayerNorm; a bare EsmModel leaves out the prefix `esm.`.

    Raises:
        ValueError: if its frequencies are not those of its config.json, or of another number of dimensions.
    """
    is_bare = any(name.startswith("embeddings.") for name in state)
    expected, result = _frequencies(options), {}
    for name, value in state.items():
        full_name = f"esm.{name}" if is_bare else name
        if full_name.endswith(_FREQUENCIES):
            if value.shape != expected.shape:
                raise ValueError(
                    f"num_attention_heads is {options['encoder_attention_heads']}, and by {_FREQUENCIES} heads have "
                    f"{2 * value.numel()} dimensions: copy both files again."
                )
            if not torch.allclose(value.float(), expected, rtol=2e-3, atol=1e-7):
                raise ValueError(
                    f"{name} has other frequencies than rope_theta ({options['rotary_base']:g}) gives, and these are "
                    "what transformers reads: set rope_theta to the base that they were made with."
                )
        elif not _WITHOUT_EFFECT.fullmatch(full_name):
            result[_renamed(full_name, _NAMES)] = value
    return result


def from_roberta(state: Mapping[str, Tensor], options: Mapping[str, Any]) -> dict[str, Tensor]:
    """The other way round, from names with the prefix `roberta.`."""
    result = {_renamed(name, _BACK): value for name, value in state.items() if name != "lm_head.decoder.bias"}
    words = result["esm.embeddings.word_embeddings.weight"]
    num_inputs = options["encoder_layers"] * options["encoder_attention_heads"]
    contacts = {f"{_CONTACTS}.weight": words.new_zeros(1, num_inputs), f"{_CONTACTS}.bias": words.new_zeros(1)}
    return {**result, **contacts, f"esm.{_FREQUENCIES}": _frequencies(options)}


def _frequencies(options: Mapping[str, Any]) -> Tensor:
    """The angles from a position to the next (F,), of half a head's dimensions, in fp32 as transformers computes it."""
    dim = options["encoder_embed_dim"] // options["encoder_attention_heads"]
    base = options.get("rotary_base", FastRobertaConfig.rotary_base)
    exponents: Tensor = torch.arange(0, dim, 2, dtype=torch.float) / dim
    return torch.reciprocal(torch.pow(base, exponents))


def _renamed(name: str, table: Mapping[str, str]) -> str:
    for begin, other in table.items():
        if match := re.match(re.escape(begin).replace(r"\{\}", r"(\d+)"), name):
            return other.format(*match.groups()) + name[match.end() :]
    return name
