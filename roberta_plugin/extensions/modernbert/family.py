"""Hugging Face's ModernBERT (Warner et al. 2024, arXiv 2412.13663): its config.json and names, as options and ours.

Its embeddings, encoder and masked-LM head have counterparts here, as switches of `fast_roberta`. Its classes with other
heads have a norm between two layers of the head, which our heads do not have.

Shapes: L layers, D model dimension.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from roberta_plugin.conversion.fields import CONFIG
from roberta_plugin.conversion.portable import translate
from roberta_plugin.foreign_fields import FLAG, Table, known, only
from roberta_plugin.models.config import SWITCHES, FastRobertaConfig
from roberta_plugin.settings import short

MODEL_TYPE, CLASS = "modernbert", "ModernBert"
_GATES = {"geglu": "gelu", "swiglu": "silu"}
_HOLDS = (
    *("no_first_attention_norm", "no_norm_bias", "no_linear_bias", "feed_forward", "position_encoding"),
    *("rotary_base", "rotary_base_local", "attention_window", "global_attention_every"),
)
LACKS: tuple[str, ...] = tuple(name for name in SWITCHES if name not in _HOLDS)
CLASSES: tuple[str, ...] = ("ForMaskedLM",)  # ends of the names of classes that have a counterpart
ACTIVATION: str = "classifier_activation"  # the field of the masked-LM head's activation
SPECIAL_IDS: Mapping[str, str] = {"cls_token_id": "<s>", "sep_token_id": "</s>"}
DROPOUTS: Mapping[str, str] = {
    "embedding_dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "mlp_dropout": "activation_dropout",
}
OF_ROBERTA: tuple[str, ...] = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "hidden_act", "type_vocab_size", "layer_norm_eps"),
    "position_embedding_type",
)
# Fields that are used, that belong to other heads, or that say how the other program computes the same.
FIELDS: Table = {
    **CONFIG,
    **known("""
        hidden_activation norm_eps local_attention layer_types rope_parameters global_attn_every_n_layers
        global_rope_theta local_rope_theta classifier_activation embedding_dropout attention_dropout mlp_dropout
        classifier_dropout pad_token_id cls_token_id position_embedding_type layer_norm_eps sparse_pred_ignore_index
        initializer_cutoff_factor deterministic_flash_attn reference_compile repad_logits_with_grad
    """),
    **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), FLAG),
    "decoder_bias": only(True, None),
    "sparse_prediction": only(False, None),
    # It would set local_attention.
    **dict.fromkeys(("rope_scaling", "head_dim", "sliding_window"), only(None)),
    "classifier_pooling": only("cls", "mean", None),  # it has no effect on the masked-LM head
}
_BIASES = ("attention_bias", "mlp_bias", "classifier_bias")
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_BASES = {_GLOBAL: 160_000.0, _LOCAL: 10_000.0}  # the defaults of config.json
_OLDER_BASES = {_GLOBAL: "global_rope_theta", _LOCAL: "local_rope_theta"}
# Its modules -> RobertaPreLayerNorm's; {} is the number of a layer. Queries, keys and values are one matrix.
# fmt: off
_NAMES = {
    "model.embeddings.tok_embeddings":  "roberta.embeddings.word_embeddings",
    "model.embeddings.norm":            "roberta.embeddings.LayerNorm",
    "model.layers.{}.attn_norm":        "roberta.encoder.layer.{}.attention.LayerNorm",
    "model.layers.{}.attn.Wqkv":        "roberta.encoder.layer.{}.attention.self.qkv",
    "model.layers.{}.attn.Wo":          "roberta.encoder.layer.{}.attention.output.dense",
    "model.layers.{}.mlp_norm":         "roberta.encoder.layer.{}.intermediate.LayerNorm",
    "model.layers.{}.mlp.Wi":           "roberta.encoder.layer.{}.intermediate.dense",
    "model.layers.{}.mlp.Wo":           "roberta.encoder.layer.{}.output.dense",
    "model.final_norm":                 "roberta.LayerNorm",
    "head.dense":                       "lm_head.dense",
    "head.norm":                        "lm_head.layer_norm",
    "decoder":                          "lm_head.decoder",
}
# fmt: on
_BACK = {theirs: ours for ours, theirs in _NAMES.items()}
# Field of config.json -> the option that says the opposite, and the modules with these biases.
_FIELDS_OF_BIASES = {
    "norm_bias": ("no_norm_bias", r"norm"),
    "attention_bias": ("no_linear_bias", r"attn\.(Wqkv|Wo)"),
    "mlp_bias": ("no_linear_bias", r"mlp\.(Wi|Wo)"),
    "classifier_bias": ("no_linear_bias", r"head\.dense"),
}
_JOINED, _PROJECTIONS = "attention.self.qkv", ("query", "key", "value")


def describes(options: Mapping[str, Any]) -> bool:
    """True if a model with these options has the layers of ModernBERT, and perhaps further parts."""
    return (
        str(options.get("position_encoding")) == "rotary"
        and str(options.get("feed_forward")) in _GATES
        and bool(options.get("encoder_normalize_before"))
        and bool(options.get("no_first_attention_norm"))
    )


def to_config(options: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    """The part of config.json that describes the layers, from `architecture` and a checkpoint's saved options."""
    window = options.get("attention_window")
    every = options.get("global_attention_every", FastRobertaConfig.global_attention_every)
    num_layers = options["encoder_layers"]
    base = options.get("rotary_base", FastRobertaConfig.rotary_base)
    bases = {_GLOBAL: base, _LOCAL: options.get("rotary_base_local", base)}
    has_bias = "no_linear_bias" not in options
    return {
        **{theirs: float(saved.get(ours) or 0.0) for theirs, ours in DROPOUTS.items()},
        **dict.fromkeys(_BIASES, has_bias),
        "hidden_activation": _GATES[options["feed_forward"]],
        "classifier_activation": options["activation_fn"],
        "decoder_bias": True,
        "norm_bias": "no_norm_bias" not in options,
        "norm_eps": options.get("layer_norm_eps", FastRobertaConfig.layer_norm_eps),
        "local_attention": window or 128,
        "layer_types": layer_types(num_layers, every if window else 1),
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": one} for kind, one in bases.items()},
        "max_position_embeddings": options["max_positions"],
    }


def layer_types(num_layers: int, every: int) -> list[str]:
    """The attention of each layer (L,): global in every `every`-th layer from the first one on, else local."""
    return [_LOCAL if number % every else _GLOBAL for number in range(num_layers)]


def from_config(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The switches and further options of `fast_roberta` that a config.json of ModernBERT describes.

    Raises:
        ValueError: naming the entry that we cannot honour.
    """
    gates = {theirs: ours for ours, theirs in _GATES.items()}
    gate = config.get("hidden_activation", "gelu")
    if gate not in gates:
        raise ValueError(f"{path}: hidden_activation must be {' or '.join(gates)}, got {gate!r}.")
    biases = {bool(config.get(name, False)) for name in _BIASES}
    if len(biases) > 1:
        raise ValueError(f"{path}: {', '.join(_BIASES)} must all be true or all be false: here they are one option.")
    epsilon = config.get("norm_eps", 1e-5)
    if not isinstance(epsilon, float) or not 0.0 < epsilon <= 1.0:
        raise ValueError(f"{path}: norm_eps must be a number above 0, at most 1, got {epsilon!r}.")
    num_layers = config["num_hidden_layers"]
    kinds = config.get("layer_types") or layer_types(num_layers, _count(config, "global_attn_every_n_layers", 3, path))
    fitting = [every for every in range(1, num_layers + 1) if layer_types(num_layers, every) == kinds]
    if not fitting:
        raise ValueError(f"{path}: layer_types must have {_GLOBAL} in the first and then each N-th layer, got {kinds}.")
    bases = _bases(config, path)
    places: dict[str, Any] = {"position_encoding": "rotary", "rotary_base": bases[_GLOBAL]}
    if fitting[0] > 1:
        window = _count(config, "local_attention", 128, path) // 2 * 2
        if not window:
            raise ValueError(
                f"{path}: local_attention must be 2 or more, half of it on either side of a position, got 1."
            )
        places |= {"attention_window": window, "global_attention_every": fitting[0], "rotary_base_local": bases[_LOCAL]}
    return {
        **{ours: float(config.get(theirs) or 0.0) for theirs, ours in DROPOUTS.items()},
        "encoder_normalize_before": True,
        "no_first_attention_norm": True,
        "no_norm_bias": not config.get("norm_bias", False),
        "no_linear_bias": biases == {False},
        "feed_forward": gates[gate],
        "layer_norm_eps": epsilon,
        "max_positions": config["max_position_embeddings"],
        **places,
    }


def _bases(config: Mapping[str, Any], path: Path) -> dict[str, float]:
    """The base of the angles of each kind of layers, in either form of the file."""
    bases = {kind: config.get(_OLDER_BASES[kind], base) for kind, base in _BASES.items()}
    for kind, entry in (config.get("rope_parameters") or {}).items():
        is_known = kind in bases and isinstance(entry, dict)
        if not is_known or entry.get("rope_type", entry.get("type", "default")) != "default":  # type: an older name
            raise ValueError(
                f"{path}: rope_parameters has {kind}: {entry!r:.80}, and only the rope_type default is read."
            )
        bases[kind] = entry.get("rope_theta", bases[kind])
    return {kind: _base(base, kind, path) for kind, base in bases.items()}


def _base(value: object, kind: str, path: Path) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1 < value <= sys.float_info.max:
        raise ValueError(f"{path}: the rope_theta of {kind} must be a number above 1, got {short(value)}.")
    return float(value)


def _count(config: Mapping[str, Any], name: str, default: int, path: Path) -> int:
    value = config.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{path}: {name} must be a whole number above 0, got {short(value)}.")
    return value


def as_roberta(state: Mapping[str, Tensor], options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Parameters by the names of RobertaPreLayerNorm; a bare ModernBertModel leaves out the prefix `model.`.

    Raises:
        ValueError: for a parameter without a counterpart.
    """
    is_bare = any(name.startswith("embeddings.tok_embeddings") for name in state)
    _check_biases(state, options)
    result: dict[str, Tensor] = {}
    for name, value in state.items():
        renamed = translate(f"model.{name}" if is_bare else name, _NAMES)
        if _JOINED in renamed:
            parts = zip(_PROJECTIONS, value.chunk(3), strict=True)
            result |= {renamed.replace("qkv", each): part for each, part in parts}
        else:
            result[renamed] = value
    return result


def _check_biases(state: Mapping[str, Tensor], options: Mapping[str, Any]) -> None:
    """Refuse weights with biases that should not be there by config.json, or without biases that should be there."""
    for field, (option, ending) in _FIELDS_OF_BIASES.items():
        says = not options.get(option)
        biases = [name for name in state if re.search(rf"{ending}\.bias$", name)]
        weights = [name for name in state if re.search(rf"{ending}\.weight$", name)]
        if weights and bool(biases) != says:
            has = f"have one, {biases[0]}" if biases else f"have none for {weights[0]}"
            raise ValueError(
                f"{field} is {str(says).lower()} in config.json, and the weights {has}: make it "
                f"{str(not says).lower()}, or copy both files again from the same place."
            )


def from_roberta(state: Mapping[str, Tensor], options: Mapping[str, Any]) -> dict[str, Tensor]:
    """The inverse of `as_roberta`, from names with the prefix `roberta.`."""
    result = {"decoder.bias": state["lm_head.bias"]} if "lm_head.bias" in state else {}
    for name, value in state.items():
        if name in ("lm_head.bias", "lm_head.decoder.bias"):
            continue
        for each in _PROJECTIONS[1:]:
            if f".attention.self.{each}." in name:
                break
        else:
            joined = name.replace(".attention.self.query.", f".{_JOINED}.")
            if joined != name:
                value = torch.cat([state[joined.replace("qkv", each)] for each in _PROJECTIONS])
            result[translate(joined, _BACK)] = value
    return result
