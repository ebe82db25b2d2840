"""Models that no class of transformers computes: exported with their code, which `trust_remote_code=True` runs there.

The code is `modeling_roberta_plugin`, copied beside config.json. It has the options of `fast_roberta` by their own
names, and parameters with the names of RobertaPreLayerNorm or, with norms after the sublayers, of RoBERTa. Here, a
folder is only read by these names: no code in the folder runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from roberta_plugin.conversion.fields import CONFIG
from roberta_plugin.foreign_fields import USED, Table, noted
from roberta_plugin.models.checkpoints import checked
from roberta_plugin.models.config import SWITCHES, FastRobertaConfig, check_config

CODE = Path(__file__).with_name("modeling_roberta_plugin.py")
MODEL_TYPE, CLASS = "roberta_plugin", "RobertaPlugin"
_DECLARED = re.findall(r"^    (\w+): ", CODE.read_text(encoding="utf-8"), flags=re.MULTILINE)
"""Names with a type in the code's classes: the options of its configuration are among them."""
_OPTIONS = (
    *("encoder_normalize_before", "no_layernorm_embedding", "pooler_activation_fn"),
    *(name for name in SWITCHES if name in _DECLARED),
)
LACKS: tuple[str, ...] = tuple(name for name in SWITCHES if name not in _OPTIONS)
ACTIVATION: str = "hidden_act"
DROPOUTS: Mapping[str, str] = {"activation_dropout": "activation_dropout"}
OF_ROBERTA: tuple[str, ...] = ("position_embedding_type", "type_vocab_size")
SPECIAL_IDS: Mapping[str, str] = {}
_HEADS = ("MaskedLM", "SequenceClassification", "TokenClassification", "MultipleChoice", "QuestionAnswering")
CLASSES: tuple[str, ...] = tuple(f"For{head}" for head in _HEADS)  # ends of their names
_AUTO_CLASSES = {"AutoConfig": "Config", "AutoModel": "Model", **{f"AutoModel{name}": name for name in CLASSES}}
_AUTO_MAP = {auto: f"{CODE.stem}.{CLASS}{name}" for auto, name in _AUTO_CLASSES.items()}
FIELDS: Table = {
    **CONFIG,
    **dict.fromkeys((*_OPTIONS, *DROPOUTS, "num_segments"), USED),
    "auto_map": noted("code of other authors is not run", None, {}, _AUTO_MAP),
}


def describes(options: Mapping[str, Any]) -> bool:
    """True: the code computes all models."""
    return True


def to_config(options: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    """The part of config.json that describes the layers, and names the classes of the code."""
    return {
        **{name: options.get(name, getattr(FastRobertaConfig, name)) for name in _OPTIONS},
        "num_segments": options.get("num_segments", 0),
        **{theirs: float(saved.get(ours) or 0.0) for theirs, ours in DROPOUTS.items()},
        "auto_map": _AUTO_MAP,
    }


def from_config(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The options of `fast_roberta` that a config.json has.

    Raises:
        ValueError: naming an option that does not describe a model.
    """
    options: dict[str, Any] = {
        name: checked(path, name, config[name]) for name in _OPTIONS if config.get(name) is not None
    }
    sizes: dict[str, Any] = {
        "encoder_embed_dim": config["hidden_size"],
        "encoder_attention_heads": config["num_attention_heads"],
    }
    try:
        check_config(FastRobertaConfig(**options, **sizes))
    except ValueError as error:
        raise ValueError(f"{path} does not describe a model. {error}") from error
    return {**options, **{ours: float(config.get(theirs) or 0.0) for theirs, ours in DROPOUTS.items()}}


def as_roberta(state: Mapping[str, Tensor], options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Parameters by the names of RobertaPreLayerNorm or RoBERTa: they are unchanged."""
    return dict(state)


def from_roberta(state: Mapping[str, Tensor], options: Mapping[str, Any]) -> dict[str, Tensor]:
    """The inverse of `as_roberta`. The bias of the vocabulary has only one name."""
    renamed = {"lm_head.bias": "lm_head.decoder.bias"}
    return {renamed.get(name, name): value for name, value in state.items()}
