"""Models of Hugging Face that have counterparts here and not the layers of its RoBERTa, a module each.

Another one is a module with the names of `Family`, which an extension names in its `families`. The rest of the
conversion knows RobertaPreLayerNorm's names, so theirs are changed into those, and back.
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
from roberta_plugin.models.config import SWITCHES, check_has_no_switch
from roberta_plugin.registry import FAMILIES


class Family(Protocol):
    """What a module says of its models; `options` are those of `fast_roberta`, as `layers_of` returns them."""

    MODEL_TYPE: str
    CLASS: str
    """The beginning of the names of its classes."""
    LACKS: tuple[str, ...]
    """Our switches that it lacks."""
    CLASSES: tuple[str, ...]
    """Ends of the names of its classes with a head that are read and written."""
    ACTIVATION: str
    """The field of config.json for `--activation-fn`."""
    DROPOUTS: Mapping[str, str]
    """Its own fields of config.json for dropout -> ours."""
    OF_ROBERTA: tuple[str, ...]
    """Fields of RoBERTa's config.json that it lacks."""
    SPECIAL_IDS: Mapping[str, str]
    """Its own fields of config.json for ids of special symbols -> these."""
    FIELDS: Table

    def describes(self, options: Mapping[str, Any]) -> bool:
        """Whether a model has its layers, and perhaps more than them: see `LACKS`."""

    def to_config(self, options: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
        """The part of config.json that describes the layers; `saved` are all options of a checkpoint."""

    def from_config(self, config: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """The options that a config.json describes, in addition to RoBERTa's and instead of them."""

    def as_roberta(self, state: Mapping[str, Tensor], options: Mapping[str, Any]) -> dict[str, Tensor]:
        """Its parameters by the names of RobertaPreLayerNorm, with the prefix `roberta.`."""

    def from_roberta(self, state: Mapping[str, Tensor], options: Mapping[str, Any]) -> dict[str, Tensor]:
        """The other way round."""


def families() -> tuple[Family, ...]:
    """All families.

    The first that has all that a model has is its family. The last has all that any model has.
    """
    return (*(FAMILIES.load(name) for name in FAMILIES), portable_code)


def layers_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """`architecture` of a checkpoint, and `num_segments` if it has embeddings of them, for which there is no option."""
    number = num_segments_of(state)
    return {**architecture(state), **({"num_segments": number} if number else {})}


def family_of(options: Mapping[str, Any], kind: str) -> Family | None:
    """The family of a model with these options (see `layers_of`) and a head of this kind; None: RoBERTa itself."""
    if "num_segments" in options:  # which the token types of other classes are not: tokenizers of RoBERTa give 0 alone
        return portable_code
    if counterpart_of(kind).code is not None:
        return portable_code
    has_gelu = options["activation_fn"] == "gelu"
    is_alone = not has_module(kind)
    # All classes of transformers have tanh.
    if not counterpart_of(kind).has_pooler or options["pooler_activation_fn"] == "tanh":
        if not options.keys() & {*SWITCHES, "no_layernorm_embedding"} and (has_gelu or kind != MASKED_LM):
            return None
        for family in families()[:-1]:
            has_all = not options.keys() & {*family.LACKS} and (
                is_alone or counterpart_of(kind).suffix in family.CLASSES
            )
            if family.describes(options) and has_all:
                return family
    return portable_code


def family_called(model_type: Any) -> Family | None:
    """The family with this model_type in config.json; None for RoBERTa and its like."""
    return next((family for family in families() if model_type == family.MODEL_TYPE), None)


def fields_of(config: Mapping[str, Any]) -> Table:
    """What becomes of each field of this config.json."""
    family = family_called(config.get("model_type"))
    return CONFIG if family is None else family.FIELDS


def needs_code(model: PortableModel) -> bool:
    """Whether its export brings code, as no class of transformers computes it."""
    return family_of(layers_of(model.state), model.head.kind) is portable_code


def trust(model: PortableModel) -> str:
    """The argument, in code, that opens the export of a model that needs code."""
    return ", trust_remote_code=True" if needs_code(model) else ""


def arguments_without_pooler(model: PortableModel) -> dict[str, Any]:
    """What the class without a head is called with, so that it adds no pooler with fresh weights."""
    family = family_of(layers_of(model.state), model.head.kind)
    return {"add_pooling_layer": False} if family is None else {}


def check_switches(options: Mapping[str, Any], path: Path) -> None:
    """Refuse a model with switches that no class has, the exported code included."""
    lacking = {name: options[name] for name in portable_code.LACKS if name in options}
    check_has_no_switch(lacking, path=path, other="Hugging Face's RoBERTa, even by code of ours,", instead=instead())
