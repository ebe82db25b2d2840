"""Options of a model <-> Hugging Face's config.json.

Both describe the same architecture, but theirs has more options: those that RoBERTa lacks are refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roberta_plugin.conversion.heads import FORMATS, HAS_LABELS, MASKED_LM, Head, Kind
from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import TASKS
from roberta_plugin.finetuning.glue.tasks import TASKS as GLUE_TASKS
from roberta_plugin.models.checkpoints.names import ROWS_BEFORE_POSITIONS
from roberta_plugin.models.checkpoints.options import model_options, saved_options
from roberta_plugin.models.config import FastRobertaConfig
from roberta_plugin.models.cpu.activations import ACTIVATIONS

# model_type -> begin of the names of its classes
MODEL_TYPES = {"roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"}
ENCODER_ONLY = "Model"  # end of the name of the class without a head
HEAD_NAMES: dict[Kind, str] = {  # names of imported heads: the defaults of our tasks
    "masked_lm": MASKED_LM,
    "classification": "sentence_classification_head",
    "regression": "sentence_classification_head",
    "multi_label": "sentence_classification_head",
    "multiple_choice": "sentence_classification_head",
    "question_answering": "span_head",
    "tagging": "token_head",
}
_PROBLEM_TYPES: dict[Kind, str] = {  # of ForSequenceClassification
    "classification": "single_label_classification",
    "regression": "regression",
    "multi_label": "multi_label_classification",
}
_SIZES = {
    "num_hidden_layers": "encoder_layers",
    "hidden_size": "encoder_embed_dim",
    "intermediate_size": "encoder_ffn_embed_dim",
    "num_attention_heads": "encoder_attention_heads",
}
_DROPOUTS = {"hidden_dropout_prob": "dropout", "attention_probs_dropout_prob": "attention_dropout"}
_THEIR_EPSILON = 1e-12  # of layer norms, where config.json does not name it
REMEMBERED = "fine_tuned_on"  # our own entry: task and settings of fine-tuning, without labels; transformers keeps it
_LENGTHS = ("max_length", "question_length", "doc_stride")
_KINDS = (*sorted({task.kind for task in GLUE_TASKS.values()}), "tagging")
_WORDS = {"kind": _KINDS, "order": ("passage", "question")}


def to_config(model: PortableModel, *, model_type: str, special_ids: Mapping[str, int]) -> dict[str, Any]:
    """The content of config.json.

    Args:
        model: the model to describe.
        model_type: one of `MODEL_TYPES`.
        special_ids: bos_token_id, pad_token_id and eos_token_id.

    Raises:
        ValueError: if Hugging Face's classes cannot compute this model.
    """
    options, saved = model_options(model.state), saved_options(model.state)[1]
    _check_expressible(model, options, saved)
    kind = model.head.kind
    num_positions = int(options["max-positions"])
    config: dict[str, Any] = {
        "architectures": [MODEL_TYPES[model_type] + FORMATS[kind].suffix],
        "model_type": model_type,
        **{theirs: int(options[ours.replace("_", "-")]) for theirs, ours in _SIZES.items()},
        **{theirs: float(saved.get(ours) or 0.0) for theirs, ours in _DROPOUTS.items()},
        "classifier_dropout": float(saved.get("pooler_dropout") or 0.0),
        "hidden_act": options["activation-fn"],
        "vocab_size": len(model.vocabulary),
        "max_position_embeddings": num_positions + ROWS_BEFORE_POSITIONS,
        "type_vocab_size": 1,
        "layer_norm_eps": float(saved.get("layer_norm_eps") or FastRobertaConfig.layer_norm_eps),
        "initializer_range": 0.02,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": not saved.get("untie_weights_roberta"),
        "dtype": str(next(iter(model.parameters.values())).dtype).removeprefix("torch."),
        **special_ids,
    }
    if kind in (*HAS_LABELS, "regression"):
        labels = model.labels or tuple(f"LABEL_{number}" for number in range(model.head.num_outputs))
        config["id2label"] = {str(number): label for number, label in enumerate(labels)}
        config["label2id"] = {label: number for number, label in enumerate(labels)}
    if kind in _PROBLEM_TYPES:
        config["problem_type"] = _PROBLEM_TYPES[kind]
    trained = identity.of_checkpoint(model.state)
    settings = dict(trained.get("settings") or {})
    is_of_this_head = (settings.get("kind") == "phrase_ranking") == (kind == MASKED_LM)  # which has no other head
    is_known = trained.get("task") in TASKS and trained["task"] != "custom"  # whose settings hold names of columns
    if is_known and not trained.get(identity.IS_INFERRED) and is_of_this_head:
        kept = {name: value for name, value in settings.items() if _is_setting(name, value)}
        config[REMEMBERED] = {"task": trained["task"], "settings": kept}
    return config


def _check_expressible(model: PortableModel, options: Mapping[str, str], saved: Mapping[str, Any]) -> None:
    kind, problems = model.head.kind, []
    if saved.get("encoder_normalize_before"):
        problems.append("it normalizes before each layer")
    if kind == MASKED_LM and options["activation-fn"] != "gelu":
        problems.append(f"its masked-LM head has the activation {options['activation-fn']}, and theirs gelu")
    if kind not in (MASKED_LM, "tagging") and options["pooler-activation-fn"] != "tanh":
        problems.append(f"its head has the activation {options['pooler-activation-fn']}, and theirs tanh")
    for name, value in model.parameters.items():
        if name.startswith(model.head.module) and name.endswith(".dense.weight") and value.size(0) != value.size(1):
            problems.append(f"the inner dimension of its head is {value.size(0)}, and theirs {value.size(1)}")
    if problems:
        raise ValueError(f"{model.path} has no counterpart among Hugging Face's classes: {'; '.join(problems)}.")


def from_config(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The options of `fast_roberta` that a config.json describes.

    Raises:
        ValueError: naming the entry, if it describes another model than a RoBERTa.
    """
    found = config.get("model_type")
    if not isinstance(found, str) or found not in MODEL_TYPES:
        raise ValueError(
            f"{path}: the model_type is {found!r}, which is not read: only {', '.join(MODEL_TYPES)} are RoBERTa."
        )
    required = {
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
        "pad_token_id": 1,
    }
    for name, wanted in required.items():
        if config.get(name, wanted) != wanted:
            raise ValueError(
                f"{path}: {name} is {config[name]!r}, and RoBERTa here has {wanted!r}: such a model cannot be read. "
                "Use it with transformers, or start from another."
            )
    for name in (*_SIZES, "vocab_size", "max_position_embeddings"):
        value = config.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{path}: {name} must be a whole number above 0, got {value!r}.")
    for name in (*_DROPOUTS, "classifier_dropout"):
        value = config.get(name)
        if value is not None and (not isinstance(value, int | float) or not 0 <= value <= 1):
            raise ValueError(f"{path}: {name} must be a number from 0 to 1, got {value!r}.")
    epsilon = config.get("layer_norm_eps", _THEIR_EPSILON)
    if not isinstance(epsilon, float) or not 0.0 < epsilon <= 1.0:
        raise ValueError(f"{path}: layer_norm_eps must be a number above 0, at most 1, got {epsilon!r}.")
    if config["hidden_size"] % config["num_attention_heads"]:
        raise ValueError(
            f"{path}: hidden_size {config['hidden_size']} is not a multiple of num_attention_heads "
            f"{config['num_attention_heads']}: copy the file again."
        )
    activation = config.get("hidden_act", "gelu")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ValueError(f"{path}: hidden_act must be one of {', '.join(ACTIVATIONS)}, got {activation!r}.")
    return {
        "_name": "fast_roberta",
        **{ours: config[theirs] for theirs, ours in _SIZES.items()},
        **{ours: float(config.get(theirs) or 0.0) for theirs, ours in _DROPOUTS.items()},
        "activation_dropout": 0.0,
        "pooler_dropout": float(config.get("classifier_dropout") or 0.0),
        "activation_fn": activation,
        "layer_norm_eps": epsilon,
        "pooler_activation_fn": "tanh",
        "max_positions": config["max_position_embeddings"] - ROWS_BEFORE_POSITIONS,
        "untie_weights_roberta": config.get("tie_word_embeddings") is False,
        "load_checkpoint_heads": False,
    }


def remembered_training(config: Mapping[str, Any], path: Path) -> tuple[str, dict[str, Any]]:
    """The task of fine-tuning and its settings that an export of ours recorded; "" and {} if there is no such entry.

    Raises:
        ValueError: if no export of ours could have written the entry.
    """
    entry = config.get(REMEMBERED)
    if entry is None:
        return "", {}
    task, settings = (entry.get("task"), entry.get("settings")) if isinstance(entry, dict) else (None, None)
    if task not in TASKS or not isinstance(settings, dict) or not all(map(_is_setting, settings, settings.values())):
        raise ValueError(f"{path}: {REMEMBERED} was not written by an export: delete the entry.")
    return str(task), settings


def _is_setting(name: str, value: Any) -> bool:
    """Whether it is a setting of fine-tuning that an export records."""
    if name in _WORDS:
        return value in _WORDS[name]
    return name in _LENGTHS and isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 20


def head_of(config: Mapping[str, Any], path: Path) -> tuple[Head | None, tuple[str, ...]]:
    """The head that a config.json names, and the labels of its classes; None for a bare encoder.

    Raises:
        ValueError: if it has a head that ours have no counterpart for.
    """
    named = config.get("architectures")
    if not isinstance(named, list) or len(named) != 1 or not isinstance(named[0], str):
        raise ValueError(
            f"{path}: architectures must name the class of the model, such as "
            f'["{MODEL_TYPES[config["model_type"]]}ForMaskedLM"], got {named!r}: write it into this file.'
        )
    architecture = named[0]
    suffix = architecture.removeprefix(MODEL_TYPES[config["model_type"]])
    if suffix == ENCODER_ONLY:
        return None, ()
    kinds: dict[str, Kind] = {format_.suffix: kind for kind, format_ in reversed(FORMATS.items())}
    if suffix not in kinds:
        raise ValueError(
            f"{path}: the architecture is {architecture!r}, which has no counterpart here. Those that are read: "
            f"{', '.join(MODEL_TYPES[config['model_type']] + known for known in (*kinds, ENCODER_ONLY))}."
        )
    kind = kinds[suffix]
    names, num_labels = config.get("id2label") or {}, config.get("num_labels", 2)
    if not isinstance(names, dict) or not isinstance(num_labels, int):
        raise ValueError(
            f'{path}: id2label must be an object such as {{"0": "no"}}, and num_labels a whole number: copy the '
            "file again."
        )
    num_labels = len(names) or num_labels
    if kind == "classification" and (num_labels == 1 or config.get("problem_type") == "regression"):
        kind = "regression"
    if kind == "classification" and config.get("problem_type") == _PROBLEM_TYPES["multi_label"]:
        kind = "multi_label"
    labels = tuple(str(names[str(number)]) for number in range(num_labels) if str(number) in names)
    if kind == "multi_label":  # its checkpoints tell it by the number of its labels
        labels = tuple(str(names.get(str(number), number)) for number in range(num_labels))
    elif kind not in HAS_LABELS or all(label.startswith("LABEL_") for label in labels):
        labels = ()
    num_outputs = {"masked_lm": 0, "multiple_choice": 1, "question_answering": 2}.get(kind, num_labels)
    return Head(kind=kind, name=HEAD_NAMES[kind], num_outputs=num_outputs), labels
