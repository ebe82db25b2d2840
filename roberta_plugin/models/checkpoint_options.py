"""A checkpoint of ours or of fairseq's `roberta` -> the options that build a model like it.

fairseq asks for the architecture on the command line and compares nothing with the checkpoint before torch complains
of shapes; sizes are read from the parameters here, and what they do not tell from the options kept beside them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from .checkpoint_names import POSITIONS, ROWS_BEFORE_POSITIONS, TOKENS, from_older_fairseq

_ENCODER = "encoder.sentence_encoder."
# Not told by the parameters, and what fairseq's roberta has where its checkpoint says nothing.
_KEPT = {"activation_fn": "gelu", "pooler_activation_fn": "tanh"}


def model_options(state: Mapping[str, Any]) -> dict[str, str]:
    """Options of fairseq-train, without dashes in front, for the model of a checkpoint.

    Args:
        state: what a checkpoint file holds: "model", and "cfg" or, in older ones, "args".

    Raises:
        ValueError: if it is no checkpoint of a RoBERTa.
    """
    try:
        parameters = from_older_fairseq(state["model"])
        dim = parameters[TOKENS].size(1)
        num_positions = len(parameters[POSITIONS]) - ROWS_BEFORE_POSITIONS
        ffn_dim = len(parameters[f"{_ENCODER}layers.0.fc1.weight"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"This is no checkpoint of a RoBERTa in fairseq's layout: {error} is missing.") from error
    numbers = {name.split(".")[3] for name in parameters if name.startswith(f"{_ENCODER}layers.")}
    kept = _kept_options(state)
    if "encoder_attention_heads" not in kept:
        raise ValueError("The checkpoint does not say its number of attention heads (encoder_attention_heads).")
    return {
        "arch": "fast_roberta",
        "encoder-layers": str(len(numbers)),
        "encoder-embed-dim": str(dim),
        "encoder-ffn-embed-dim": str(ffn_dim),
        "encoder-attention-heads": str(kept["encoder_attention_heads"]),
        "max-positions": str(num_positions),
        **{name.replace("_", "-"): str(kept.get(name) or default) for name, default in _KEPT.items()},
        **({"untie-weights-roberta": "true"} if kept.get("untie_weights_roberta") else {}),
    }


def num_symbols(state: Mapping[str, Any]) -> int:
    """Size of the vocabulary of a checkpoint that `model_options` takes, special symbols included."""
    return len(from_older_fairseq(state["model"])[TOKENS])


def _kept_options(state: Mapping[str, Any]) -> dict[str, Any]:
    """The model's options that were saved with it, in whichever form fairseq saved them."""
    config = state.get("cfg")
    if config is None:
        return dict(vars(state["args"])) if state.get("args") is not None else {}
    model = config["model"]
    return dict(vars(model)) if isinstance(model, argparse.Namespace) else {str(name): model[name] for name in model}
