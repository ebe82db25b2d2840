"""The options and the head of a model <-> config.json of Hugging Face's classes.

Both describe the same architecture. Theirs has more options: options that RoBERTa does not have are refused, never
ignored. `families` has the differences of other classes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from roberta_plugin.conversion.families import Family, families, family_called, layers_of
from roberta_plugin.conversion.huggingface_parameters import token_types
from roberta_plugin.conversion.portable import (
    MASKED_LM,
    Head,
    PortableModel,
    counterpart_of,
    formats,
    usual_kind,
)
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import all_tasks, kind_of_task, unknown_task
from roberta_plugin.finetuning.kinds import KINDS, kind_class
from roberta_plugin.finetuning.kinds.base import is_length
from roberta_plugin.finetuning.kinds.outputs import is_number
from roberta_plugin.finetuning.layouts.texts import TextLayout
from roberta_plugin.models.checkpoints import saved_options
from roberta_plugin.models.config import ACTIVATIONS, FastRobertaConfig
from roberta_plugin.models.state_dicts import FINAL_NORM, ROWS_BEFORE_POSITIONS
from roberta_plugin.moved import find_former_name
from roberta_plugin.settings import short

PRE_NORM = "roberta-prelayernorm"  # model_type of encoders that normalize before their sublayers
_ROBERTAS = {
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    PRE_NORM: "RobertaPreLayerNorm",
}
ENCODER_ONLY = "Model"  # end of the name of the class without a head
_SIZES = {
    "num_hidden_layers": "encoder_layers",
    "hidden_size": "encoder_embed_dim",
    "intermediate_size": "encoder_ffn_embed_dim",
    "num_attention_heads": "encoder_attention_heads",
}
_DROPOUTS = {"hidden_dropout_prob": "dropout", "attention_probs_dropout_prob": "attention_dropout"}
_THEIR_EPSILON = 1e-12  # the epsilon of layer norms if config.json does not have it
# Our own entries, which transformers keeps. The first has the task, empty for tables of your own, and the settings of
# fine-tuning, without labels; the second the `TextLayout` of a model that does not cut long texts at their end.
REMEMBERED = "fine_tuned_on"
TEXTS = "text_layout"
_LENGTHS = ("max_length", "question_length", "doc_stride")
_WORDS: Mapping[str, Collection[str]] = {"kind": KINDS, "order": ("passage", "question")}


def class_names() -> dict[str, str]:
    """The model_type in config.json -> the beginning of the names of its classes."""
    return {**_ROBERTAS, **{family.MODEL_TYPE: family.CLASS for family in families()}}


def to_config(
    model: PortableModel, family: Family | None, *, model_type: str, special_ids: Mapping[str, int]
) -> dict[str, Any]:
    """The content of config.json.

    Raises:
        ValueError: if Hugging Face's classes cannot compute this model.
    """
    options, saved = layers_of(model.state), saved_options(model.state)[1]
    check_head(model)
    model_type = PRE_NORM if FINAL_NORM in model.state["model"] else model_type
    model_type = model_type if family is None else family.MODEL_TYPE
    kind, facts = model.head.kind, model.head.hugging_face
    config: dict[str, Any] = {
        "architectures": [class_names()[model_type] + facts.suffix],
        "model_type": model_type,
        **{theirs: options[ours] for theirs, ours in _SIZES.items()},
        **{theirs: float(saved.get(ours) or 0.0) for theirs, ours in _DROPOUTS.items()},
        "classifier_dropout": float(saved.get("pooler_dropout") or 0.0),
        "hidden_act": options["activation_fn"],
        "vocab_size": len(model.vocabulary),
        "max_position_embeddings": options["max_positions"] + ROWS_BEFORE_POSITIONS,
        "type_vocab_size": len(token_types(model.state)),
        "layer_norm_eps": options.get("layer_norm_eps", FastRobertaConfig.layer_norm_eps),
        "initializer_range": 0.02,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": "untie_weights_roberta" not in options,
        "dtype": str(next(iter(model.parameters.values())).dtype).removeprefix("torch."),
        **special_ids,
    }
    if family is not None:
        config = {name: value for name, value in config.items() if name not in family.OF_ROBERTA}
        config |= family.to_config(options, saved)
    if facts.code is not None:
        name = f"{facts.code.stem}.{class_names()[model_type]}{facts.suffix}"
        config["auto_map"] = {**config["auto_map"], facts.auto_class: name}
    if facts.problem_type or model.head.facts.has_labels:
        labels = model.labels or tuple(f"LABEL_{number}" for number in range(model.head.num_outputs))
        config["id2label"] = {str(number): label for number, label in enumerate(labels)}
        config["label2id"] = {label: number for number, label in enumerate(labels)}
    if facts.problem_type:
        config["problem_type"] = facts.problem_type
    if trained_on := _fine_tuned_on(model, options["max_positions"]):
        config[REMEMBERED] = trained_on
    if model.decides_by:
        config[identity.DECISIONS] = model.decides_by
    if model.text_layout.long_texts is not None:
        config[TEXTS] = asdict(model.text_layout)
    settings, of_kind = identity.read_record(model.state).get("settings") or {}, model.head.facts
    if of_kind.recorded and all(name in settings for name in of_kind.recorded):
        names = (*of_kind.recorded, *of_kind.also_recorded)
        config[kind] = {name: settings[name] for name in names if name in settings}
    return config


def _fine_tuned_on(model: PortableModel, max_positions: int) -> dict[str, Any] | None:
    """The entry on the model's fine-tuning; None if there is nothing to record.

    The record of the checkpoint may be about another head than the exported one: the masked-LM head of a classifier
    gets no entry. If the task is known, such as RTE, the entry has all settings that an export records. A model with
    only an inferred task, such as an imported classifier, gets its lengths, unless they are the model's own.
    """
    trained = identity.read_record(model.state)
    settings = trained.get("settings") or {}
    is_of_masked_lm = settings.get("kind") in KINDS and kind_class(settings["kind"]).head == MASKED_LM
    if is_of_masked_lm != (model.head.kind == MASKED_LM):
        return None
    task, is_inferred = trained.get("task"), trained.get(identity.IS_INFERRED)
    kept = {name: value for name, value in settings.items() if _is_setting(name, value)}
    if kind_of_task(str(task)) is not None and not is_inferred and model.was_trained_for_its_answers:
        return {"task": task, "settings": kept}
    lengths = {name: kept[name] for name in _LENGTHS if name in kept}
    return None if lengths in ({}, {"max_length": max_positions}) else {"task": "", "settings": lengths}


def remembered(config: Mapping[str, Any], path: Path) -> tuple[str, dict[str, Any], dict[str, float]]:
    """The entries of an export of ours: the task of fine-tuning, its settings, and the numbers that decide.

    They are "" and {} if there are no such entries.

    Raises:
        ValueError: if no export of ours could have written an entry.
    """
    of_kinds = {name: kind for name, kind in formats().items() if kind.recorded}
    checks: dict[str, Callable[[dict[str, Any]], bool]] = {
        **_ENTRIES,
        **{name: partial(_are_recorded, kind) for name, kind in of_kinds.items()},
    }
    entries = {name: config[name] for name in checks if config.get(name) is not None}
    check_task(entries.get(REMEMBERED), path)
    for name, entry in entries.items():
        try:
            is_ours, why = isinstance(entry, dict) and checks[name](entry), ""
        except KeyError:
            is_ours, why = False, ""
        except (TypeError, ValueError) as error:
            is_ours, why = False, f" ({error})"
        if not is_ours:
            raise ValueError(f"{path}: {name} was not written by an export{why}: delete the entry.")
    trained = entries.get(REMEMBERED, {"task": "", "settings": {}})
    layout = asdict(TextLayout(**entries[TEXTS])) if TEXTS in entries else {}
    settings = {**trained["settings"], **layout}
    for name in of_kinds:
        settings |= entries.get(name, {})
    return trained["task"], settings, dict(entries.get(identity.DECISIONS, {}))


def check_task(entry: object, path: Path) -> None:
    """Refuse a fine-tuning task of an extension that is not installed."""
    if isinstance(entry, dict) and isinstance(entry.get("task"), str) and entry["task"] not in ("", *all_tasks()):
        raise ValueError(f"{path}: {unknown_task(entry['task'])}")


def check_head(model: PortableModel) -> None:
    """Refuse a head that Hugging Face's classes cannot compute."""
    for name, value in model.parameters.items():
        if name.startswith(model.head.module) and name.endswith(".dense.weight") and value.size(0) != value.size(1):
            raise ValueError(
                f"{model.path} has no counterpart among Hugging Face's classes: the inner dimension of its head is "
                f"{value.size(0)}, theirs is {value.size(1)}."
            )


def from_config(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The options of `fast_roberta` that a config.json describes.

    Raises:
        ValueError: naming the entry, if it does not describe a RoBERTa.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in class_names():
        raise ValueError(
            f"{path}: the model_type is {model_type!r}, but only {', '.join(class_names())} are read. Use it with "
            "transformers. If it is an export of a model of yours, export that checkpoint again."
        )
    family = family_called(model_type)
    _check_numbers(config, family, path)
    # Heads have their own dropout in ModernBERT and in newer files; otherwise transformers uses that of the encoder.
    has_own_dropout = family is not None or config.get("classifier_dropout") is not None
    in_heads = "classifier_dropout" if has_own_dropout else "hidden_dropout_prob"
    entry = "hidden_act" if family is None else family.ACTIVATION
    activation = config.get(entry, "gelu")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ValueError(f"{path}: {entry} must be one of {', '.join(ACTIVATIONS)}, got {activation!r}.")
    return {
        "_name": "fast_roberta",
        **{ours: config[theirs] for theirs, ours in _SIZES.items()},
        **{ours: float(config.get(theirs) or 0.0) for theirs, ours in _DROPOUTS.items()},
        "activation_dropout": 0.0,
        **({"encoder_normalize_before": True} if model_type == PRE_NORM else {}),
        "pooler_dropout": float(config.get(in_heads) or 0.0),
        "activation_fn": activation,
        "layer_norm_eps": config.get("layer_norm_eps", _THEIR_EPSILON),
        "pooler_activation_fn": "tanh",
        "max_positions": config["max_position_embeddings"] - ROWS_BEFORE_POSITIONS,
        "untie_weights_roberta": config.get("tie_word_embeddings") is False,
        "load_checkpoint_heads": False,
        **(family.from_config(config, path) if family else {}),
    }


def _check_numbers(config: Mapping[str, Any], family: Family | None, path: Path) -> None:
    """Refuse a config.json with impossible sizes, dropouts or an impossible epsilon."""
    for name in (*_SIZES, "vocab_size", "max_position_embeddings"):
        value, least = config.get(name), ROWS_BEFORE_POSITIONS if name == "max_position_embeddings" else 0
        if not isinstance(value, int) or isinstance(value, bool) or value <= least:
            raise ValueError(f"{path}: {name} must be a whole number above {least}, got {short(value)}.")
    for name in (*_DROPOUTS, *(family.DROPOUTS if family else ()), "classifier_dropout"):
        value = config.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and (not is_number or not 0 <= value <= 1):
            raise ValueError(f"{path}: {name} must be a number from 0 to 1, got {short(value)}.")
    epsilon = config.get("layer_norm_eps", _THEIR_EPSILON)
    if not isinstance(epsilon, float) or not 0.0 < epsilon <= 1.0:
        raise ValueError(f"{path}: layer_norm_eps must be a number above 0, at most 1, got {epsilon!r}.")
    if config["hidden_size"] % config["num_attention_heads"]:
        raise ValueError(
            f"{path}: hidden_size {config['hidden_size']} is not a multiple of num_attention_heads "
            f"{config['num_attention_heads']}: copy the file again."
        )


def _is_setting(name: str, value: object) -> bool:
    """True for a setting of fine-tuning that an export records."""
    if name in _WORDS:
        return isinstance(value, str) and value in _WORDS[name]
    return name in _LENGTHS and is_length(value)


# Our own entries of config.json -> True if an export can have written such an entry.
_ENTRIES: dict[str, Callable[[dict[str, Any]], bool]] = {
    REMEMBERED: lambda entry: (
        entry["task"] in ("", *all_tasks())
        and isinstance(entry["settings"], dict)
        and all(map(_is_setting, entry["settings"], entry["settings"].values()))
    ),
    TEXTS: lambda entry: bool(TextLayout(**entry).checked()),
    identity.DECISIONS: lambda entry: all(map(is_number, entry, entry.values())),
}


def _are_recorded(kind: Any, entry: dict[str, Any]) -> bool:
    """True if an entry of a kind has its settings (`Kind.recorded`)."""
    checks = {**kind.recorded, **kind.also_recorded}
    has_all = kind.recorded.keys() <= entry.keys() <= checks.keys()
    return has_all and all(checks[name](value) for name, value in entry.items())


def head_of(config: Mapping[str, Any], path: Path) -> tuple[Head | None, tuple[str, ...]]:
    """The head that a config.json names, and the labels of its classes; None for a bare encoder.

    Raises:
        ValueError: if it has a head without a counterpart here.
    """
    family = family_called(config["model_type"])
    suffix = _read_suffix(config, path)
    if suffix == ENCODER_ONLY:
        return None, ()
    kinds = _kinds_by_suffix(family)
    if suffix not in kinds:
        beginning = class_names()[config["model_type"]]
        raise ValueError(
            f"{path}: the architecture is {config['architectures'][0]!r}, which has no counterpart here. Classes that "
            f"are read: {', '.join(beginning + ending for ending in (*kinds, ENCODER_ONLY))}."
        )
    names = config.get("id2label") or {}
    num_labels = (len(names) if isinstance(names, dict) else 0) or config.get("num_labels", 2)
    if not isinstance(names, dict) or not isinstance(num_labels, int):
        raise ValueError(
            f'{path}: id2label must be an object such as {{"0": "no"}}, and num_labels a whole number: copy the '
            "file again."
        )
    kind = kinds[suffix]
    if counterpart_of(kind).problem_type:
        kind = _kind_of_problem(kind, str(config.get("problem_type") or None), num_labels, path)
    facts = formats()[kind]
    labels = _names_of_classes(names, path) if facts.has_labels else ()
    # A kind such as multi-label is recognized by having labels, so it gets numbers as labels if the file has none.
    # The usual kind of so many outputs is recognized without labels, and LABEL_0, LABEL_1 are not names.
    if facts.has_labels and facts.head == "classification" and kind != usual_kind(num_labels):
        labels = labels or tuple(map(str, range(num_labels)))
    elif all(label.startswith("LABEL_") for label in labels):
        labels = ()
    head = Head(kind=kind, name=facts.default_head_name)
    number = head.hugging_face.num_outputs
    return replace(head, num_outputs=num_labels if number is None else number), labels


def _read_suffix(config: Mapping[str, Any], path: Path) -> str:
    """The end of the name of the class in `architectures`, such as ForMaskedLM."""
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1 or not isinstance(architectures[0], str):
        raise ValueError(
            f"{path}: architectures must name the class of the model, such as "
            f'["{class_names()[config["model_type"]]}ForMaskedLM"], got {architectures!r}: write it into this file.'
        )
    return str(architectures[0]).removeprefix(class_names()[config["model_type"]])


def _kinds_by_suffix(family: Family | None) -> dict[str, str]:
    """The first kind of each class with a head, by the end of the class's name.

    A family only has some of the classes, and classes that come with their code.
    """
    kinds = {kind.hugging_face.suffix: name for name, kind in reversed(formats().items()) if kind.hugging_face}
    kinds.pop(ENCODER_ONLY, None)  # of a kind without a head, if one is installed
    if family is None:
        return kinds
    return {
        suffix: kind
        for suffix, kind in kinds.items()
        if suffix in family.CLASSES or counterpart_of(kind).code is not None
    }


def _kind_of_problem(kind: str, problem: str, num_labels: int, path: Path) -> str:
    """The kind of ForSequenceClassification by problem_type or, without one, by the number of outputs.

    One output is a number, several are classes. The opposite is refused: transformers computes such losses, but there
    is no kind for them here.
    """
    if problem == ("single_label_classification" if num_labels == 1 else "regression"):
        raise ValueError(
            f"{path}: problem_type is {problem!r} with {num_labels} outputs, which is not read here. Use it with "
            "transformers, or start from another model."
        )
    usual = "regression" if num_labels == 1 else "single_label_classification"
    kinds = {each.hugging_face.problem_type: name for name, each in formats().items() if each.hugging_face}
    return kinds.get(problem, kinds.get(usual, kind))


def _names_of_classes(names: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """The entry id2label in the order of its numbers, which a file may write as text."""
    labels = {int(number) if number.isdecimal() else number: str(label) for number, label in names.items()}
    if labels.keys() != set(range(len(names))) or len(set(labels.values())) < len(names):
        raise ValueError(
            f"{path}: id2label must give each class from 0 to {len(names) - 1} a name of its own, but it is "
            f"{names!r:.100}: correct it."
        )
    return tuple(labels[number] for number in range(len(labels)))


def __getattr__(name: str) -> Any:
    """Former names."""
    return find_former_name(__name__, name)
