"""Low-rank adapters <-> peft's format: adapter_config.json and adapter_model.safetensors.

The second file has the two matrices of each adapter (`models/adapters.py`), by the names of Hugging Face's modules, and
the whole head, which peft calls a module to save. It does not have the model that they adapt and that they need.
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from roberta_plugin.checkpoint_files import check_numbers, read_tensors
from roberta_plugin.conversion.comparison import compare
from roberta_plugin.conversion.fairseq_format import ADAPTERS
from roberta_plugin.conversion.families import check_switches, family_of, layers_of, trust
from roberta_plugin.conversion.formats import Format
from roberta_plugin.conversion.huggingface import (
    check_types,
    complete,
    read_safetensors,
    task_of_import,
    write_weights,
)
from roberta_plugin.conversion.huggingface_model import check_head
from roberta_plugin.conversion.huggingface_parameters import TRUNK, to_hugging_face, with_base_prefix
from roberta_plugin.conversion.portable import (
    MASKED_LM,
    Head,
    PortableModel,
    encoder_alone,
    formats,
    task_state,
    translate,
    usual_kind,
)
from roberta_plugin.conversion.settings import CommonExportSettings
from roberta_plugin.foreign_fields import FLAG, Table, check_fields, known, only
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.models.adapters import merge

CONFIG, WEIGHTS, OLD_WEIGHTS = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
_PREFIX = "base_model.model."
_ADVICE = "Copy the file again."
_BACK = {theirs: ours for ours, theirs in TRUNK.items()}
# Fields that describe adapters here, and fields that would change the weights in another way.
FIELDS: Table = {
    **known("""
        r lora_alpha modules_to_save target_modules exclude_modules layers_to_transform layers_pattern
        lora_dropout loftq_config eva_config corda_config runtime_config qalora_group_size task_type auto_mapping
        peft_version base_model_name_or_path revision inference_mode megatron_config megatron_core
    """),
    "use_rslora": FLAG,
    "peft_type": only("LORA"),
    # Other values subtract the adapters' first values from the base model's weights, which then differ from its folder.
    "init_lora_weights": only(True, False, "gaussian", "orthogonal", "eva", None),
    "bias": only("none", None),
    **dict.fromkeys(
        ("use_dora", "use_qalora", "lora_bias", "fan_in_fan_out", "ensure_weight_tying"), only(False, None)
    ),
    **dict.fromkeys(("rank_pattern", "alpha_pattern"), only({}, None)),
    **dict.fromkeys(
        (
            *("layer_replication", "target_parameters", "trainable_token_indices", "alora_invocation_tokens"),
            *("arrow_config", "use_bdlora", "kasa_config", "velora_config", "monteclora_config", "lora_ga_config"),
        ),
        only(None, {}, []),
    ),
}


class PeftFormat(Format):
    """A folder of peft, for the model that the adapters were trained on."""

    has_tokenizer = has_logit_rules = False
    tokenizer = "the tokenizer of the other model"
    changes_answers = True

    def check(self, model: PortableModel) -> None:  # noqa: D102
        check_switches(model.state["cfg"]["model"], model.path)

    def write(self, model: PortableModel, folder: Path, settings: CommonExportSettings) -> Sequence[str]:  # noqa: D102
        write_adapter(model, folder)
        return ()

    def usage(self, model: PortableModel) -> str:  # noqa: D102
        return usage(model)

    def read_beside(self, folder: Path) -> tuple[dict[str, Any], list[str]]:  # noqa: D102
        note = (
            f"{folder} has adapters of peft beside its weights ({CONFIG}), which transformers adds to them. Here, use "
            f"`roberta import {folder} --adapter {folder}`."
        )
        return {}, [note]


@dataclass(frozen=True)
class Adapter:
    """The adapter in a folder, which `roberta import` adds to a model."""

    path: Path

    def add(self, model: PortableModel) -> PortableModel:
        """The model with the adapter."""
        return add_adapter(model, self.path)

    def compare(self, model: PortableModel, base: PortableModel) -> str:
        """Compare the result with peft's."""
        return compare_with_adapter(model, base, self.path)


def usage(model: PortableModel) -> str:
    """The section of a model card on how to use an adapter."""
    name = f"AutoModel{model.head.hugging_face.suffix}"
    return (
        "A low-rank adapter and a head, for the model that it was trained on:\n\n```python\nfrom peft import "
        f"PeftModel\nfrom transformers import {name}\n\n"
        f'base = {name}.from_pretrained("THAT MODEL", num_labels={model.head.num_outputs}{trust(model)})\n'
        'model = PeftModel.from_pretrained(base, "FOLDER")\n```'
    )


def read_adapter(folder: Path) -> dict[str, Tensor]:
    """All tensors of an adapter, from today's file or from the file of peft before 0.5, without running its code.

    Raises:
        ValueError: if they are not numbers that an adapter can have.
    """
    path = weights_file(folder)
    if path.name == WEIGHTS:
        tensors = read_safetensors(path)
    else:
        tensors = read_tensors(path, advice=_ADVICE)
        if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
            raise ValueError(f"{path} is not a state dict: {_ADVICE}")
        check_numbers(path, tensors)
    check_types(tensors, path)
    return tensors


def weights_file(folder: Path) -> Path:
    """The file with the weights of an adapter; if there is none, the name of today's file."""
    old = folder / OLD_WEIGHTS
    return old if old.is_file() and not (folder / WEIGHTS).is_file() else folder / WEIGHTS


def compare_with_adapter(model: PortableModel, base: PortableModel, folder: Path) -> str:
    """Compare a model that has the adapters of a folder with peft; without peft, only the base model (`compare`)."""
    if importlib.util.find_spec("peft") is None:
        return compare(base)
    if any(name.startswith(f"{_PREFIX}encoder.layer.") for name in read_adapter(folder)):  # has no head
        model = replace(model, head=encoder_alone())

    def adapt(theirs: Any) -> Any:
        from peft import PeftModel

        return PeftModel.from_pretrained(theirs, folder)

    return compare(model, adapt=adapt, base=base)


def write_adapter(model: PortableModel, folder: Path) -> None:
    """Write the adapters and the head of a model into an existing folder."""
    adapters: dict[str, Tensor] = model.state.get(ADAPTERS) or {}
    if not adapters:
        raise ValueError(f"{model.path} has no adapters: fine-tune it with --set lora-rank=8, or use --to huggingface.")
    if model.head.kind == MASKED_LM or model.head.is_encoder:
        raise ValueError(
            f"{model.path} has no fine-tuned head, and adapters are written with a head: use --to huggingface or "
            "sentence-transformers, which add the adapters to the weights."
        )
    check_head(model)
    options = layers_of(model.state)
    family = family_of(options, model.head.kind)
    if family is not family_of(options, MASKED_LM):
        raise ValueError(
            f"{model.path} has a head that transformers does not have for the model's class: use --to huggingface."
        )
    theirs = to_hugging_face(model.state, model.head, family=family)
    trunk = next(name for name in theirs if name.endswith(".word_embeddings.weight")).partition(".")[0]
    of_head = {name: value for name, value in theirs.items() if not name.startswith(f"{trunk}.") or ".pooler." in name}
    parameters = {f"{_PREFIX}{name}": value for name, value in of_head.items()}
    heads = {name.removeprefix(f"{trunk}.").partition(".")[0] for name in of_head}
    modules = []
    for name in adapters:
        layer, _, part = name.partition(".adapter.")
        if part != "scale":
            inner = translate(f"{layer}.weight", TRUNK).removeprefix("roberta.").removesuffix(".weight")
            modules.append(f"{trunk}.{inner}")
            parameters[f"{_PREFIX}{modules[-1]}.{part}.weight"] = adapters[name]
    rank = next(len(value) for name, value in adapters.items() if name.endswith("lora_A"))
    scale = next(float(value) for name, value in adapters.items() if name.endswith("scale"))
    config = {
        "peft_type": "LORA",
        **{"use_dora": False, "fan_in_fan_out": False, "bias": "none", "rank_pattern": {}, "alpha_pattern": {}},
        "task_type": model.head.hugging_face.peft_task,
        "base_model_name_or_path": None,
        "r": rank,
        "lora_alpha": round(rank * scale, 4),
        "lora_dropout": 0.0,
        "target_modules": sorted(set(modules)),
        "modules_to_save": sorted(heads),
        "inference_mode": True,
    }
    write_weights(folder, parameters, name=WEIGHTS)
    write_json(folder / CONFIG, config)


def add_adapter(model: PortableModel, folder: Path) -> PortableModel:
    """A model with the adapters of a folder added to its weights, and with the folder's head, if there is one.

    Raises:
        ValueError: if the adapters have another form or belong to another model.
    """
    path = weights_file(folder)
    config = read_json(folder / CONFIG, keys=["r", "lora_alpha"], remedy="copy the file again")
    if config is None or not path.is_file():
        missing = CONFIG if config is None else WEIGHTS
        raise FileNotFoundError(f"--adapter {folder} has no {missing}: name the folder that peft has written.")
    notes = check_fields(config, FIELDS, folder / CONFIG, remedy="Merge it with peft, and import the merged model.")
    rank, scale = _read_scale(config, folder / CONFIG)
    parameters, head = dict(model.parameters), {}
    tensors = read_adapter(folder)
    _check_named(config, tensors, path)
    weights = {name.removeprefix(_PREFIX): value for name, value in tensors.items()}
    options = layers_of(model.state)
    for name, value in with_base_prefix(weights, family_of(options, MASKED_LM), options, path).items():
        name = f"roberta.{name}" if name.startswith("encoder.layer.") else name  # the model had no head
        if ".lora_" in name:
            parameters |= _place(name, value, parameters, rank=rank, scale=scale, path=path)
        else:
            head[name] = value
    _check_layers(config, parameters, path)
    try:
        if not merge(parameters):
            raise ValueError("it has no adapters")
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} is not complete ({error}). {_ADVICE}") from error
    check_numbers(path, parameters)  # sums may be infinite where their parts are not
    model = replace(model, state={**model.state, "model": parameters}, notes=(*model.notes, *notes))
    return _add_head(model, head, path) if head else model


def _read_scale(config: Mapping[str, Any], where: Path) -> tuple[int, float]:
    """The rank, and the factor of the product of the two matrices: alpha / r or, with rsLoRA, alpha / sqrt(r)."""
    rank, alpha = config["r"], config["lora_alpha"]
    are_numbers = isinstance(rank, int) and isinstance(alpha, int | float) and bool not in (type(rank), type(alpha))
    if not are_numbers or rank < 1 or not math.isfinite(alpha):
        raise ValueError(f"{where}: r and lora_alpha must be numbers, got {rank!r} and {alpha!r}. {_ADVICE}")
    return rank, float(alpha / (rank**0.5 if config.get("use_rslora") else rank))


def _place(
    name: str, value: Tensor, parameters: Mapping[str, Tensor], *, rank: int, scale: float, path: Path
) -> dict[str, Tensor]:
    """One matrix of an adapter by our names, with the scale.

    Example: roberta.encoder.layer.0.attention.self.query.lora_A.weight (r, D) ->
    encoder.sentence_encoder.layers.0.self_attn.q_proj.adapter.lora_A, and .adapter.scale beside it.
    """
    layer, _, part = name.partition(".lora_")
    try:
        module = translate(f"{layer}.weight", _BACK).removesuffix(".weight")
        axis = {"A.weight": 1, "B.weight": 0}[part]
        fits = value.dim() == 2 and value.size(axis) == parameters[f"{module}.weight"].size(axis)
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{path}: there is no place for {name}: it is an adapter of another model, of embeddings or of a head. "
            "Merge it with peft, and import the merged model."
        ) from error
    if not fits or value.size(1 - axis) != rank:
        raise ValueError(f"{path}: {name} has the shape {tuple(value.shape)}: it is for another model.")
    return {f"{module}.adapter.lora_{part[0]}": value, f"{module}.adapter.scale": value.new_tensor(scale)}


def _check_named(config: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse an adapter without weights of the modules that its adapter_config.json names.

    peft also names modules that a model may not have (score beside classifier). So of these modules, one must be there,
    and all modules that every RoBERTa has.
    """
    for field, mark in (("target_modules", ".lora_"), ("modules_to_save", "")):
        named = config.get(field) or ()
        if isinstance(named, str) and field == "target_modules":
            continue  # a regular expression, or all linear layers
        if not isinstance(named, list | tuple) or not all(isinstance(name, str) for name in named):
            raise ValueError(f"{path.parent / CONFIG}: {field} must be a list of names, got {named!r:.80}. {_ADVICE}")
        has = {name: any(f".{name}." in f".{each}" and mark in each for each in tensors) for name in named}
        in_all = [
            name
            for name in named
            if any(each.endswith(_hide_number(name)) for each in map(_hide_number, TRUNK.values()))
        ]
        lacking = [name for name in (in_all if mark else ()) if not has[name]] or [*has] * (not any(has.values()))
        if lacking:
            raise ValueError(
                f"{path.parent / CONFIG}: {field} names {lacking[0]}, and {path} has no weights of it: copy "
                "both files again from the same place."
            )


def _check_layers(config: Mapping[str, Any], parameters: Mapping[str, Tensor], path: Path) -> None:
    """Refuse an adapter whose weights are not those of the modules that its adapter_config.json names, layer by layer.

    peft draws weights that are missing, and leaves out weights of other modules.
    """
    targets, layers = config.get("target_modules"), config.get("layers_to_transform")
    if not isinstance(targets, list) or config.get("exclude_modules") or config.get("layers_pattern"):
        return
    chosen = None if layers is None else {str(each) for each in (layers if isinstance(layers, list) else [layers])}
    for name, value in parameters.items():
        number = re.search(r"\.layers\.(\d+)\.", name)
        if number is None or not name.endswith(".weight") or value.dim() != 2:
            continue
        theirs = translate(name, TRUNK).removesuffix(".weight").removeprefix("roberta.")
        is_named = any(f".roberta.{theirs}".endswith(f".{each}") or each.endswith(f".{theirs}") for each in targets)
        is_named = is_named and (chosen is None or number[1] in chosen)
        has_weights = f"{name.removesuffix('.weight')}.adapter.lora_A" in parameters
        if is_named != has_weights:
            has, names = ("has", "does not name it") if has_weights else ("has no", "names it")
            raise ValueError(
                f"{path} {has} weights for {theirs}, and {CONFIG} {names}: copy both files again from the same place."
            )


def _hide_number(name: str) -> str:
    """The name of a module with {} for the number of its layer, after a dot."""
    return re.sub(r"\.\d+\.", ".{}.", f".{name}")


def _add_head(model: PortableModel, weights: Mapping[str, Tensor], path: Path) -> PortableModel:
    """The model with the head of an adapter as its own head."""
    out = weights.get("classifier.out_proj.weight", weights.get("classifier.weight"))
    kind = _kind_of_head(weights, path, is_single=out is not None and len(out) == 1)
    head = Head(kind=kind, name=formats()[kind].default_head_name)
    number = len(out) if head.hugging_face.num_outputs is None and out is not None else head.hugging_face.num_outputs
    head = replace(head, num_outputs=number or 0)
    width = model.parameters["encoder.sentence_encoder.embed_tokens.weight"].size(1)
    parameters = {**model.parameters, **_translate_head(weights, head, path, width=width)}
    options = model.state["cfg"]["model"]
    complete(parameters, head, is_tied=not options.get("untie_weights_roberta"))
    positions = int(options["max_positions"])
    task = {"_name": head.facts.task, "max_positions": positions, "classification_head_name": head.name}
    settings = {"max_length": positions, **head.hugging_face.settings}
    settings |= {"labels": []} if "kind" in settings else {}
    trained = task_state(
        task=task_of_import(parameters, head),
        settings=settings,
        is_inferred=True,
        made_anew=(),
        mask_keeps_space=model.mask_keeps_space,
        tokenizer=model.tokenizer,
        vocabulary=model.vocabulary,
    )
    config = {**model.state["cfg"], "task": task}
    state = {**model.state, "cfg": config, "model": parameters, "task_state": trained}
    note = "Adapters do not say whether a text may have several labels: it has one here."
    notes = (*model.notes, note) if kind == "classification" else model.notes
    return replace(model, state=state, head=head, labels=(), notes=notes)


def _kind_of_head(weights: Mapping[str, Tensor], path: Path, *, is_single: bool) -> str:
    """The first kind whose modules the weights are: all that it needs, and no others.

    With a single output (`is_single`) it is a number, if that kind has these modules; or an option of a choice, but not
    tags of words, whose `classifier` has the same name.
    """
    modules = {name.rpartition(".")[0] for name in weights}
    kinds = [
        kind
        for kind, facts in formats().items()
        if (theirs := facts.hugging_face) and kind != MASKED_LM and modules <= set(theirs.names.values())
        if all(name in modules for part, name in theirs.names.items() if part not in theirs.optional)
        if not (is_single and theirs.least_outputs > 1)
    ]
    if not kinds:
        raise ValueError(
            f"{path} has the whole modules {', '.join(sorted(weights))} (modules_to_save), which are not a head that "
            "can be read: merge it with peft, and import the merged model."
        )
    usual = usual_kind(1)
    return usual if usual in kinds and is_single else kinds[0]


def _translate_head(weights: Mapping[str, Tensor], head: Head, path: Path, *, width: int) -> dict[str, Tensor]:
    """The head by our names; refused unless each of its modules has a weight and a bias of the right shape."""
    names = head.hugging_face.names
    modules = {name.rpartition(".")[0] for name in weights}
    table = {theirs: f"{head.module}.{ours}" for ours, theirs in names.items()}
    parameters = {translate(name, table): value for name, value in weights.items()}
    rows = {"out_proj": head.num_outputs, **head.hugging_face.rows}
    shapes = {
        f"{head.module}.{part}.{name}": (rows.get(part, width), width)[: 2 - (name == "bias")]
        for part, theirs in names.items()
        for name in ("weight", "bias")
        if theirs in modules
    }
    if {name: tuple(value.shape) for name, value in parameters.items()} != shapes:
        raise ValueError(
            f"{path}: its head is not complete, or of another model: {', '.join(sorted(weights))}. {_ADVICE}"
        )
    return parameters
