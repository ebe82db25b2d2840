"""A checkpoint of ours or of fairseq's `roberta` -> the options that build the same model.

fairseq takes the architecture from the command line and does not compare it with the checkpoint until torch refuses the
shapes. Here sizes come from the parameters; the number of heads and the activations come from the saved options.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from roberta_plugin.models.checkpoints.names import POSITIONS, ROWS_BEFORE_POSITIONS, TOKENS, from_older_fairseq
from roberta_plugin.models.cpu.activations import ACTIVATIONS

_ENCODER = "encoder.sentence_encoder."
# Options that the parameters do not determine, with the defaults of fairseq's roberta.
_KEPT = {"activation_fn": "gelu", "pooler_activation_fn": "tanh"}


def model_options(state: Mapping[str, Any]) -> dict[str, str]:
    """Options of fairseq-train, without leading dashes, for the model of a checkpoint.

    Example: {"arch": "fast_roberta", "encoder-layers": "12", "encoder-embed-dim": "768", ...}

    Args:
        state: content of a checkpoint file: "model", and "cfg" or, in older files, "args".

    Raises:
        ValueError: if it is not a checkpoint of a RoBERTa.
    """
    try:
        parameters = from_older_fairseq(state["model"])
        dim = parameters[TOKENS].size(1)
        num_positions = len(parameters[POSITIONS]) - ROWS_BEFORE_POSITIONS
        ffn_dim = len(parameters[f"{_ENCODER}layers.0.fc1.weight"])
    except KeyError as error:
        raise ValueError(f"This is not a checkpoint of a RoBERTa in fairseq's layout: {error} is missing.") from error
    except (TypeError, AttributeError, IndexError, RuntimeError, ValueError) as error:  # parameters of odd shapes
        raise ValueError(f"This is not a checkpoint of a RoBERTa in fairseq's layout: {error}.") from error
    numbers = {name.split(".")[3] for name in parameters if name.startswith(f"{_ENCODER}layers.")}
    _, kept = saved_options(state)
    if "encoder_attention_heads" not in kept:
        raise ValueError("The checkpoint lacks its number of attention heads (encoder_attention_heads).")
    num_heads = kept["encoder_attention_heads"]
    if not isinstance(num_heads, int) or num_heads < 1:
        raise ValueError(f"encoder_attention_heads of the checkpoint must be a whole number, got {num_heads!r}.")
    activations = {name: kept.get(name) or default for name, default in _KEPT.items()}
    for name, value in activations.items():
        if value not in ACTIVATIONS:
            raise ValueError(f"{name} of the checkpoint must be one of {', '.join(ACTIVATIONS)}, got {value!r}.")
    eps = kept.get("layer_norm_eps", 1e-5)
    if not isinstance(eps, float) or not 0.0 < eps <= 1.0:
        raise ValueError(f"layer_norm_eps of the checkpoint must be a number above 0, at most 1, got {eps!r}.")
    return {
        "arch": "fast_roberta",
        "encoder-layers": str(len(numbers)),
        "encoder-embed-dim": str(dim),
        "encoder-ffn-embed-dim": str(ffn_dim),
        "encoder-attention-heads": str(num_heads),
        "max-positions": str(num_positions),
        **{name.replace("_", "-"): value for name, value in activations.items()},
        **({} if eps == 1e-5 else {"layer-norm-eps": str(eps)}),
        **({"untie-weights-roberta": "true"} if kept.get("untie_weights_roberta") else {}),
    }


def num_symbols(state: Mapping[str, Any]) -> int:
    """Vocabulary size of such a checkpoint, special symbols included."""
    return len(from_older_fairseq(state["model"])[TOKENS])


def saved_options(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Saved options of the task and of the model, from either of fairseq's formats.

    `_name` is the name of the task or of the model. The values come unchecked from the file: check them before use.
    """
    args = state.get("args")
    if args is not None:  # until 2020; fairseq also reads these first
        options = _as_dict(args)
        return {**options, "_name": options.get("task")}, {**options, "_name": options.get("arch")}
    config = state.get("cfg") or {}
    return _as_dict(config.get("task")), _as_dict(config.get("model"))


def _as_dict(options: Any) -> dict[str, Any]:
    if isinstance(options, argparse.Namespace):
        return dict(vars(options))
    return {str(name): options[name] for name in options} if isinstance(options, Mapping) else {}
