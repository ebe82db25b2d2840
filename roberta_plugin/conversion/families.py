"""Models of Hugging Face that have counterparts here and not the layers of its RoBERTa, a module each.

Another one is a module with the names of `Family`, and a place in `FAMILIES`. The rest of the conversion knows
RobertaPreLayerNorm's names, so theirs are changed into those, and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from roberta_plugin.conversion import esm, modernbert
from roberta_plugin.conversion.fields import CONFIG
from roberta_plugin.foreign_fields import Table
from roberta_plugin.models.config import check_has_no_switch


class Family(Protocol):
    """What a module says of its models; `options` are those of `fast_roberta`, as of `architecture`."""

    MODEL_TYPE: str
    CLASS: str
    """Begin of the names of its classes."""
    NAME: str
    """For messages."""
    LACKS: tuple[str, ...]
    """Switches of ours that it has not."""
    HEADS: tuple[str, ...]
    """Kinds of heads that both have."""
    WHY_HEADS: str
    """Why it has no others, for messages."""
    ACTIVATION: str | None
    """The field of config.json for `--activation-fn`; None: it has gelu."""
    DROPOUTS: Mapping[str, str]
    """Its own fields of config.json for dropout -> ours."""
    OF_ROBERTA: tuple[str, ...]
    """Fields of RoBERTa's config.json that it has not."""
    SPECIAL_IDS: Mapping[str, str]
    """Its own fields of config.json for ids of special symbols -> these."""
    FIELDS: Table

    def describes(self, options: Mapping[str, Any]) -> bool:
        """Whether a model has its layers, and perhaps more than them."""

    def to_config(self, options: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
        """The part of config.json that describes the layers; `saved` are all options of a checkpoint."""

    def from_config(self, config: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """The options that a config.json describes, in addition to RoBERTa's and instead of them."""

    def as_roberta(self, state: Mapping[str, Tensor], options: Mapping[str, Any]) -> dict[str, Tensor]:
        """Its parameters by the names of RobertaPreLayerNorm, with the prefix `roberta.`."""

    def from_roberta(self, state: Mapping[str, Tensor], options: Mapping[str, Any]) -> dict[str, Tensor]:
        """The other way round."""


FAMILIES: tuple[Family, ...] = (modernbert, esm)
"""The first that describes a model is its family."""


def family_of(options: Mapping[str, Any]) -> Family | None:
    """That of a model of these options; None for the layers of RoBERTa."""
    return next((family for family in FAMILIES if family.describes(options)), None)


def family_called(model_type: Any) -> Family | None:
    """That of a config.json; None for RoBERTa and its like."""
    return next((family for family in FAMILIES if model_type == family.MODEL_TYPE), None)


def fields_of(config: Mapping[str, Any]) -> Table:
    """What becomes of each field of this config.json."""
    family = family_called(config.get("model_type"))
    return CONFIG if family is None else family.FIELDS


def check_switches(options: Mapping[str, Any], path: Path) -> None:
    """Refuse a model with switches that the classes of Hugging Face for its layers lack."""
    family = family_of(options)
    if family is None:
        check_has_no_switch(options, path=path, other="Hugging Face's RoBERTa")
    else:
        lacking = {name: options[name] for name in family.LACKS if name in options}
        check_has_no_switch(lacking, path=path, other=f"Hugging Face's {family.NAME}")
