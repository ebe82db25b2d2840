"""The fields of Hugging Face's files, of peft's and of sentence-transformers': what becomes of each (`foreign_fields`).

Those of a tokenizer are in `data/tokenizers/huggingface_fields`.

config.json  adapter_config.json
modules.json  1_Pooling/config.json  sentence_bert_config.json  config_sentence_transformers.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from roberta_plugin.data.tokenizers.huggingface_fields import COPY, SHORTEST, well_formed
from roberta_plugin.foreign_fields import FLAG, Table, check_fields, known, noted, only
from roberta_plugin.json_files import read_json
from roberta_plugin.models.checkpoints import saved_options
from roberta_plugin.settings import short

# Used, only for training or generated text, or how the other program opens the file.
CONFIG: Table = {
    **known("""
        model_type architectures vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size
        hidden_act hidden_dropout_prob attention_probs_dropout_prob max_position_embeddings type_vocab_size
        layer_norm_eps classifier_dropout id2label label2id num_labels _num_labels fine_tuned_on text_layout embedding
        decides_by bos_token_id eos_token_id sep_token_id tokenizer_class dtype torch_dtype
        initializer_range gradient_checkpointing finetuning_task
        use_cache decoder_start_token_id cross_attention_hidden_size tie_encoder_decoder max_length min_length do_sample
        early_stopping num_beams num_beam_groups top_k top_p typical_p temperature repetition_penalty length_penalty
        diversity_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences
        forced_bos_token_id forced_eos_token_id remove_invalid_values begin_suppress_tokens suppress_tokens
        exponential_decay_length_penalty output_scores return_dict_in_generate prefix task_specific_params
        _name_or_path _attn_implementation_autoset attn_implementation chunk_size_feed_forward output_attentions
        output_hidden_states output_past return_dict torchscript tf_legacy_loss transformers_version use_bfloat16
        adapters language name
    """),
    "tie_word_embeddings": FLAG,
    "position_embedding_type": only("absolute", None),
    "pad_token_id": only(1),
    "pruned_heads": only({}, None),
    "quantization_config": only(None),
    # With is_causal a token sees those on its left alone, in any class of transformers.
    **dict.fromkeys(("is_decoder", "add_cross_attention", "is_encoder_decoder", "is_causal"), only(False, None)),
    "transformers_weights": only(None),  # weights in a file of another name
    "problem_type": only(None, "", "regression", "single_label_classification", "multi_label_classification"),
    "auto_map": noted("code of other authors is not run", None, {}),
    "sentence_transformers": noted("answers are the model's own numbers, as transformers has them", None, {}),
}

# What peft adds to the weights, and what would change them otherwise.
ADAPTER: Table = {
    **known("""
        r lora_alpha modules_to_save target_modules exclude_modules layers_to_transform layers_pattern
        lora_dropout loftq_config eva_config corda_config runtime_config qalora_group_size task_type auto_mapping
        peft_version base_model_name_or_path revision inference_mode megatron_config megatron_core
    """),
    "use_rslora": FLAG,
    "peft_type": only("LORA"),
    # These take their share out of the base model's weights, which then are not those of its own folder.
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

_IDENTITY = "torch.nn.modules.linear.Identity"
# Of sentence-transformers, by the name of the file or of the kind of module.
MODULES = ("Transformer", "Pooling", "Normalize", "Dropout")
"""Parts of a model that are read; dropout does nothing in a trained one."""
POOLING: Table = {
    **known("pooling_mode embedding_dimension word_embedding_dimension include_prompt"),
    **dict.fromkeys(
        (
            *("pooling_mode_cls_token", "pooling_mode_mean_tokens", "pooling_mode_max_tokens"),
            *("pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"),
        ),
        FLAG,
    ),
}
SENTENCE_BERT: Table = {
    **known("max_seq_length model_args tokenizer_args config_args"),
    "do_lower_case": only(False, None),
    "transformer_task": only("feature-extraction", None),
    "module_output_name": only("token_embeddings", None),
    "modality_config": only({"text": {"method": "forward", "method_output_name": "last_hidden_state"}}, None),
}
CROSS_ENCODER: Table = {  # instead, of a model with a head for classes or a score
    **SENTENCE_BERT,
    "transformer_task": only("sequence-classification"),
    "module_output_name": only("scores"),
    "modality_config": only({"text": {"method": "forward", "method_output_name": "logits"}}),
}
SENTENCE_TRANSFORMERS: Table = {
    **known("prompts model_type __version__"),
    "default_prompt_name": only(None),
    "similarity_fn_name": noted(
        "vectors are answers here, and an export compares them by their cosine", "cosine", None
    ),
    "activation_fn": noted("answers are the model's own numbers, as transformers has them", _IDENTITY),
    "truncate_dim": noted("vectors are whole", None),
}

# Of checkpoints of fairseq: what its sentence_prediction puts around texts, and what prepares texts in its hub.
FAIRSEQ_TASK: Table = {
    "init_token": noted("here every text begins with <s>, 0", 0),
    "separator_token": noted("here </s> </s>, 2, is between two texts", 2),
    "shorten_method": noted("texts lose what is at their end", "none", "truncate", None),
}
FAIRSEQ_TEXT: Table = {
    "bpe_add_prefix_space": noted("write the space in front of texts yourself", False, None),
    "tokenizer": noted("texts are not cut into words before the BPE", None, "space"),
}

_WITH_TRANSFORMERS = "Use it with transformers, or start from another."
_POOLINGS = {"cls": "first", "mean": "mean", "max": "max"}
_LEGACY_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_ENCODER_ALONE = "Use it with sentence-transformers; or delete modules.json, and the encoder is read alone."


def check_config(config: Mapping[str, Any], table: Table, path: Path) -> list[str]:
    """Notes on the fields of a config.json by `CONFIG` or a family's table; raises as `check_fields`."""
    return check_fields(config, table, path, remedy=_WITH_TRANSFORMERS)


def rotary_base(value: Any, name: str, path: Path) -> float:
    """The base of rotary positions that the entry `name` of a config.json gives; raises ValueError if it is none."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1 < value <= sys.float_info.max:
        raise ValueError(f"{path}: {name} must be a number above 1, got {short(value)}.")
    return float(value)


def check_adapter(config: Mapping[str, Any], path: Path) -> list[str]:
    """Notes on the fields of an adapter_config.json; raises as `check_fields`."""
    return check_fields(config, ADAPTER, path, remedy="Merge it with peft, and import the merged model.")


def check_fairseq(state: Mapping[str, Any], path: Path) -> list[str]:
    """Notes on how fairseq prepared a checkpoint's texts; its model's own options are in `models/checkpoints.py`."""
    task, model = saved_options(state)
    config = state.get("cfg")
    config = config if isinstance(config, Mapping) else {}  # damage is named where the model is built
    text: dict[str, Any] = {name: model[name] for name in FAIRSEQ_TEXT if name in model}  # until 2020, all in one place
    for name, section in (("bpe", config.get("bpe")), ("tokenizer", config.get("tokenizer"))):
        if isinstance(section, Mapping):
            text |= {"tokenizer": section.get("_name")} if name == "tokenizer" else dict(section)
    of_task = task if task.get("_name") == "sentence_prediction" else {}
    notes = []
    for content, table in ((of_task, FAIRSEQ_TASK), (text, FAIRSEQ_TEXT)):
        entries = {name: value for name, value in content.items() if name in table}
        notes += check_fields(entries, table, path, remedy="")
    return notes


def vectors_of(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The settings of a model of sentence-transformers, by which a text becomes a vector, and notes.

    Example: a folder with cls pooling and Normalize -> {"pooling": "first", "normalize": True}. {} for other folders.

    Raises:
        ValueError: for parts that have no counterpart here.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return {}, []
    with well_formed(folder):
        return _vectors_of(folder, path)


def is_inside(part: str) -> bool:
    """True if the path of a part, as modules.json has it, stays in the folder of that file."""
    path = PurePosixPath(part.replace("\\", "/"))
    return not path.is_absolute() and ".." not in path.parts and ":" not in part


def _pooling(folder: Path, part: str) -> tuple[str, list[str]]:
    """The pooling that the Pooling part of modules.json says, and notes."""
    file = folder / part / "config.json"
    how = read_json(file, keys=(), remedy=COPY)
    if how is None:
        raise FileNotFoundError(
            f"{folder / 'modules.json'} names {part}, and {file} is missing, which says how features become a vector: "
            "copy it from where the model comes from."
        )
    notes = check_fields(how, POOLING, file, remedy=_ENCODER_ALONE)
    said = [name for name in ("pooling_mode", *_LEGACY_POOLINGS) if name in how]
    pooling = how.get("pooling_mode") or [mode for name, mode in _LEGACY_POOLINGS.items() if how.get(name) is True]
    modes = [pooling] if isinstance(pooling, str) else list(pooling)
    if not said and how.keys() & {"embedding_dimension", "word_embedding_dimension"}:
        modes = ["mean"]  # as sentence-transformers has it
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise ValueError(
            f"{file}: the pooling is {' and '.join(map(str, modes)) or 'not said'}, and only {', '.join(_POOLINGS)} "
            f"is read here. {_ENCODER_ALONE}"
        )
    return _POOLINGS[modes[0]], notes


def _vectors_of(folder: Path, path: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        modules = [(str(part["type"]), str(part["path"])) for part in json.loads(path.read_bytes())]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{path} is not a list of the parts of a model ({error}): {COPY}.") from error
    modules = [
        (kind.rpartition(".")[2] if kind.startswith("sentence_transformers.") else kind, at) for kind, at in modules
    ]
    for kind, at in modules:
        if not is_inside(at):
            raise ValueError(f"{path}: the part {kind} is in {at!r}, which leads out of this folder. {_ENCODER_ALONE}")
    names = [name for name, _ in modules if name != "Dropout"]
    others = [name for name in names if name not in MODULES]
    where = folder / "config_sentence_transformers.json"
    found = read_json(where, keys=(), remedy=COPY)
    content = found or {}
    is_cross_encoder = names == ["Transformer"] and content.get("model_type") == "CrossEncoder"
    if others or (names[:2] != ["Transformer", "Pooling"] and not is_cross_encoder) or names.count("Pooling") > 1:
        listed = ", ".join(others or names)
        if names == ["Transformer"] and found is None:
            raise FileNotFoundError(
                f"{path} names a Transformer alone, and {where.name}, which says whether that is a CrossEncoder, is "
                "missing: copy it from where the model comes from."
            )
        raise ValueError(
            f"{path} names {listed}, and only a Transformer with one Pooling and Normalize is read here. "
            f"{_ENCODER_ALONE}"
        )
    if place := dict(modules)["Transformer"]:
        raise ValueError(
            f'{path}: the Transformer is in the folder {place!r}: move its files here, and make its path "".'
        )
    settings: dict[str, Any] = {} if is_cross_encoder else {"pooling": "mean", "normalize": "Normalize" in names}
    notes: list[str] = []
    if not is_cross_encoder:
        pooling, of_pooling = _pooling(folder, dict(modules)["Pooling"])
        settings["pooling"] = pooling
        notes += of_pooling
    if found is None:
        notes.append(f"{folder} has no {where.name}: prompts for texts, if the model has any, are not known.")
    for file in sorted(folder.glob("sentence_*_config.json")):
        of_text = read_json(file, keys=(), remedy=COPY) or {}
        notes += check_fields(
            of_text, CROSS_ENCODER if is_cross_encoder else SENTENCE_BERT, file, remedy=_ENCODER_ALONE
        )
        if (length := of_text.get("max_seq_length")) is not None:
            if not isinstance(length, int) or length < SHORTEST:
                raise ValueError(f"{file}: max_seq_length must be {SHORTEST} or more, got {length!r}. {_ENCODER_ALONE}")
            settings["max_length"] = length
    prompts = {name: text for name, text in (content.get("prompts") or {}).items() if text}
    default = content.get("default_prompt_name")
    notes += check_fields(
        {**content, "default_prompt_name": default if default in prompts else None},
        SENTENCE_TRANSFORMERS,
        where,
        remedy="Make it null, and write the prompt in front of each text.",
    )
    if prompts:
        notes.append(f"{where} has prompts, which are not followed: write them in front of texts: {prompts}.")
    return settings, notes
