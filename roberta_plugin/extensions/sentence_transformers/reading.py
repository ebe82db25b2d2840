"""The files of sentence-transformers in a folder of Hugging Face -> how features become a vector.

modules.json                           the parts of the model, in order
1_Pooling/config.json                  mean, <s> (cls) or max
2_Normalize                            if vectors have the length 1
sentence_bert_config.json              most tokens of a text
config_sentence_transformers.json      prompts; vectors are compared by their cosine
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from roberta_plugin.data.tokenizers.huggingface_fields import COPY, SHORTEST, well_formed
from roberta_plugin.foreign_fields import FLAG, Table, check_fields, known, noted, only
from roberta_plugin.json_files import read_json

_IDENTITY = "torch.nn.modules.linear.Identity"
# Kinds of modules, and the fields of each file of sentence-transformers.
MODULES = ("Transformer", "Pooling", "Normalize", "Dropout")
"""Parts of a model that are read; dropout does nothing in a trained model."""
POOLING: Table = {
    **known("pooling_mode embedding_dimension word_embedding_dimension"),
    "include_prompt": only(True, False, None),
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
CROSS_ENCODER: Table = {  # the same file of a model with a head for classes or a score
    **SENTENCE_BERT,
    "transformer_task": only("sequence-classification"),
    "module_output_name": only("scores"),
    "modality_config": only({"text": {"method": "forward", "method_output_name": "logits"}}),
}
SENTENCE_TRANSFORMERS: Table = {
    **known("prompts default_prompt_name model_type __version__"),
    "similarity_fn_name": noted(
        "vectors are the answers here, and an export compares them by their cosine", "cosine", None
    ),
    "activation_fn": noted("answers are the model's own numbers, as transformers has them", _IDENTITY),
    "truncate_dim": noted("vectors are whole", None),
}
_POOLINGS = {"cls": "first", "mean": "mean", "max": "max"}
_LEGACY_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_USUAL_PROMPTS = ("query", "document")  # of every model, empty unless a file says otherwise
_ENCODER_ALONE = "Use it with sentence-transformers, or delete modules.json to read only the encoder."


def vectors_of(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The settings by which a model of sentence-transformers makes a vector of a text, and notes.

    Example: a folder with cls pooling and Normalize -> {"pooling": "first", "normalize": True}. {} for other folders.

    Raises:
        ValueError: for parts that have no counterpart here.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return {}, []
    with well_formed(folder):
        return _read_parts(folder, path)


def is_inside(part: str) -> bool:
    """True if the path of a part, as modules.json has it, stays in the folder of that file."""
    path = PurePosixPath(part.replace("\\", "/"))
    return not path.is_absolute() and ".." not in path.parts and ":" not in part


def _pooling(folder: Path, part: str) -> tuple[dict[str, Any], list[str]]:
    """The settings of the Pooling part of modules.json, and notes."""
    file = folder / part / "config.json"
    how = read_json(file, keys=(), remedy=COPY)
    if how is None:
        raise FileNotFoundError(
            f"{folder / 'modules.json'} names {part}, but {file} is missing, which says how features become a vector: "
            "copy it from where the model comes from."
        )
    notes = check_fields(how, POOLING, file, remedy=_ENCODER_ALONE)
    said = [name for name in ("pooling_mode", *_LEGACY_POOLINGS) if name in how]
    pooling = how.get("pooling_mode") or [mode for name, mode in _LEGACY_POOLINGS.items() if how.get(name) is True]
    modes = [pooling] if isinstance(pooling, str) else list(pooling)
    if not said and how.keys() & {"embedding_dimension", "word_embedding_dimension"}:
        modes = ["mean"]  # the default of sentence-transformers
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise ValueError(
            f"{file}: the pooling is {' and '.join(map(str, modes)) or 'not given'}, and only {', '.join(_POOLINGS)} "
            f"is read here. {_ENCODER_ALONE}"
        )
    left_out = {"include_prompt": False} if how.get("include_prompt") is False else {}
    return {"pooling": _POOLINGS[modes[0]], **left_out}, notes


def _read_parts(folder: Path, path: Path) -> tuple[dict[str, Any], list[str]]:
    """The settings and notes of a folder whose modules.json is `path`.

    A SentenceTransformer has the parts Transformer, Pooling and perhaps Normalize; a CrossEncoder is a Transformer
    alone, whose head answers.
    """
    modules = _read_modules(path)
    names = [name for name, _ in modules if name != "Dropout"]
    where = folder / "config_sentence_transformers.json"
    found = read_json(where, keys=(), remedy=COPY)
    content = found or {}
    is_cross_encoder = names == ["Transformer"] and content.get("model_type") == "CrossEncoder"
    if not is_cross_encoder:
        if names == ["Transformer"] and found is None:
            raise FileNotFoundError(
                f"{path} names only a Transformer, and {where.name}, which says if it is a CrossEncoder, is missing: "
                "copy it from where the model comes from."
            )
        _check_names(path, names)
    if place := dict(modules)["Transformer"]:
        raise ValueError(
            f'{path}: the Transformer is in the folder {place!r}: move its files here, and make its path "".'
        )
    settings: dict[str, Any] = {}
    notes: list[str] = []
    if not is_cross_encoder:
        pooling, notes_of_pooling = _pooling(folder, dict(modules)["Pooling"])
        settings |= {**pooling, "normalize": "Normalize" in names}
        notes += notes_of_pooling
    if found is None:
        notes.append(f"{folder} has no {where.name}: prompts for texts, if the model has any, are not known.")
    lengths, notes_of_lengths = _read_lengths(folder, CROSS_ENCODER if is_cross_encoder else SENTENCE_BERT)
    prompts, notes_of_prompts = _read_prompts(content, where, is_cross_encoder=is_cross_encoder)
    return {**settings, **lengths, **prompts}, [*notes, *notes_of_lengths, *notes_of_prompts]


def _read_modules(path: Path) -> list[tuple[str, str]]:
    """The parts of modules.json, in order: the kind, such as Pooling, and its path inside the folder."""
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
    return modules


def _check_names(path: Path, names: list[str]) -> None:
    """Refuse parts that have no counterpart here."""
    others = [name for name in names if name not in MODULES]
    if others or names[:2] != ["Transformer", "Pooling"] or names.count("Pooling") > 1:
        raise ValueError(
            f"{path} names {', '.join(others or names)}, and only a Transformer with one Pooling and Normalize is read "
            f"here. {_ENCODER_ALONE}"
        )


def _read_lengths(folder: Path, fields: Table) -> tuple[dict[str, Any], list[str]]:
    """The most tokens of a text by sentence_bert_config.json, as `max_length`, and notes."""
    settings: dict[str, Any] = {}
    notes: list[str] = []
    for file in sorted(folder.glob("sentence_*_config.json")):
        content = read_json(file, keys=(), remedy=COPY) or {}
        notes += check_fields(content, fields, file, remedy=_ENCODER_ALONE)
        if (length := content.get("max_seq_length")) is not None:
            if not isinstance(length, int) or length < SHORTEST:
                raise ValueError(f"{file}: max_seq_length must be {SHORTEST} or more, got {length!r}. {_ENCODER_ALONE}")
            settings["max_length"] = length
    return settings, notes


def _read_prompts(content: dict[str, Any], where: Path, *, is_cross_encoder: bool) -> tuple[dict[str, Any], list[str]]:
    """The prompts of config_sentence_transformers.json, as settings of the model, and notes.

    Raises:
        ValueError: if they are not texts, or the default is not one of them.
    """
    notes = check_fields(content, SENTENCE_TRANSFORMERS, where, remedy=_ENCODER_ALONE)
    prompts, default = content.get("prompts") or {}, content.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise ValueError(f"{where}: prompts must be texts by their names, got {prompts!r:.80}. {_ENCODER_ALONE}")
    if default is not None and default not in (*prompts, *_USUAL_PROMPTS):
        raise ValueError(
            f"{where}: default_prompt_name is {default!r}, and prompts has only {', '.join(prompts) or 'none'}. Make "
            "it null, or one of them."
        )
    named = {name: text for name, text in prompts.items() if text}
    if not named:
        return {}, notes
    if is_cross_encoder:
        notes.append(f"{where} has prompts, which are not followed here for a CrossEncoder: {named}.")
        return {}, notes
    begin = f" {default!r} is put in front of texts for which no other one is named." if default in named else ""
    notes.append(
        f"{where} has prompts: {named}. `roberta predict --prompt-name NAME` and `embed(texts, prompt_name=NAME)` put "
        f"one in front of each text; trainings read texts as they are.{begin}"
    )
    return {"prompts": prompts, **({"default_prompt_name": default} if default in named else {})}, notes


def named_files(folder: Path) -> set[str]:
    """The configurations of parts that modules.json names. Its faults are ignored here and reported later."""
    try:
        parts = json.loads((folder / "modules.json").read_bytes())
        return {f"{part['path']}/config.json" for part in parts if part["path"] and is_inside(part["path"])}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return set()
