"""Models of Hugging Face that have counterparts here but other layers than its RoBERTa. Each is a module.

To add another one, write a module with the names of `Family`, and name it in the `families` of an extension. The rest
of the conversion knows RobertaPreLayerNorm's names, so a family changes its names into these, and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from roberta_plugin.conversion import portable_code
from roberta_plugin.conversion.fields import CONFIG
from roberta_plugin.conversion.formats import instead
from roberta_plugin.conversion.portable import MASKED_LM, PortableModel, counterpart_of, has_module
from roberta_plugin.foreign_fields import Table
from roberta_plugin.models.checkpoints import architecture, num_segments_of
from roberta_plugin.models.config import BEYOND_HUGGING_FACE, check_has_no_switch
from roberta_plugin.registry import FAMILIES


class Family(Protocol):
    """The names of such a module. `options` are options of `fast_roberta`, as `layers_of` returns them."""

    MODEL_TYPE: str
    CLASS: str
    """The beginning of the names of its classes."""
    LACKS: tuple[str, ...]
    """Our switches that it does not support."""
    CLASSES: tuple[str, ...]
    """Ends of the names of its classes with a head that are read and written."""
    ACTIVATION: str
    """The field of config.json for `--activation-fn`."""
    DROPOUTS: Mapping[str, str]
    """Its own fields of config.json for dropout -> ours."""
    OF_ROBERTA: tuple[str, ...]
    """Fields of RoBERTa's config.json that it does not have."""
    SPECIAL_IDS: Mapping[str, str]
    """Its own fields of config.json for ids of special symbols -> these."""
    FIELDS: Table

    def describes(self, options: Mapping[str, Any]) -> bool:
        """True if a model has its layers, and perhaps further parts: see `LACKS`."""

    def to_config(self, options: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
        """The part of config.json that describes the layers; `saved` are all options of a checkpoint."""

    def from_config(self, config: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """The options that a config.json describes. They are added to RoBERTa's options and override them."""

    def as_roberta(self, state: Mapping[str, Tensor], options: Mapping[str, Any]) -> dict[str, Tensor]:
        """Its parameters by the names of RobertaPreLayerNorm, with the prefix `roberta.`."""

    def from_roberta(self, state: Mapping[str, Tensor], options: Mapping[str, Any]) -> dict[str, Tensor]:
        """The inverse of `as_roberta`."""


def families() -> tuple[Family, ...]:
    """All families.

    The family of a model is the first one that supports all of its parts. The last one supports all parts.
    """
    return (*(FAMILIES.load(name) for name in FAMILIES), portable_code)


def layers_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """`architecture` of a checkpoint, and `num_segments` if it has segment embeddings, for which there is no option."""
    number = num_segments_of(state)
    return {**architecture(state), **({"num_segments": number} if number else {})}


def family_of(options: Mapping[str, Any], kind: str) -> Family | None:
    """The family of a model with these options (see `layers_of`) and a head of this kind; None: RoBERTa itself."""
    if "num_segments" in options:  # token types of other classes cannot replace them: RoBERTa's tokenizers only give 0
        return portable_code
    if counterpart_of(kind).code is not None:
        return portable_code
    has_gelu = options["activation_fn"] == "gelu"
    is_alone = not has_module(kind)
    # All classes of transformers have tanh.
    if not counterpart_of(kind).has_pooler or options["pooler_activation_fn"] == "tanh":
        if options.keys().isdisjoint(BEYOND_HUGGING_FACE) and (has_gelu or kind != MASKED_LM):
            return None
        for family in families()[:-1]:
            has_all = not options.keys() & {*family.LACKS} and (
                is_alone or counterpart_of(kind).suffix in family.CLASSES
            )
            if family.describes(options) and has_all:
                return family
    return portable_code


def family_called(model_type: object) -> Family | None:
    """The family with this model_type in config.json; None for RoBERTa and its like."""
    return next((family for family in families() if model_type == family.MODEL_TYPE), None)


def fields_of(config: Mapping[str, Any]) -> Table:
    """The rules for the fields of this config.json."""
    family = family_called(config.get("model_type"))
    return CONFIG if family is None else family.FIELDS


def needs_code(model: PortableModel) -> bool:
    """True if its export contains code, because no class of transformers computes it."""
    return family_of(layers_of(model.state), model.head.kind) is portable_code


def trust(model: PortableModel) -> str:
    """The argument, as code, by which the export of a model that needs code is opened; empty for other models."""
    return ", trust_remote_code=True" if needs_code(model) else ""


def arguments_without_pooler(model: PortableModel) -> dict[str, Any]:
    """Arguments for the class without a head, so that it does not add a pooler with newly initialized weights."""
    family = family_of(layers_of(model.state), model.head.kind)
    return {"add_pooling_layer": False} if family is None else {}


def check_switches(options: Mapping[str, Any], path: Path) -> None:
    """Refuse a model with switches that no class supports, not even the exported code."""
    lacking = {name: options[name] for name in portable_code.LACKS if name in options}
    check_has_no_switch(lacking, path=path, other="Hugging Face's RoBERTa, even by code of ours,", instead=instead())
