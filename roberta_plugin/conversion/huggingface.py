"""A Hugging Face folder <-> a portable model: its files, and parts that only one of the two has.

config.json                            see `huggingface_model`
model.safetensors                      up to 5 GB of weights; only the parameters in use are read
model-00001-of-00002.safetensors ...   and model.safetensors.index.json, the file of each parameter
pytorch_model.bin                      is also read, without running code of the file
tokenizer.json ...                     see `huggingface_tokenizers`

Files of other formats beside these may hold further settings of the model: `formats.Format.read_beside`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import split_state_dict_into_shards_factory
from torch import Tensor

from roberta_plugin.checkpoint_files import check_numbers, read_tensors
from roberta_plugin.conversion import model_card, portable_code
from roberta_plugin.conversion.families import (
    check_switches,
    family_called,
    family_of,
    fields_of,
    layers_of,
)
from roberta_plugin.conversion.fields import check_config
from roberta_plugin.conversion.formats import Format, formats_in
from roberta_plugin.conversion.huggingface_model import from_config, head_of, remembered, to_config
from roberta_plugin.conversion.huggingface_parameters import (
    ORIGINAL,
    POOLER,
    SEGMENT_ROWS,
    THEIR_POSITIONS,
    TOKEN_TYPES,
    WORDS,
    from_hugging_face,
    to_hugging_face,
    with_base_prefix,
)
from roberta_plugin.conversion.huggingface_tokenizers import (
    model_type_of,
    special_ids,
    write_tokenizer,
)
from roberta_plugin.conversion.model_files import CONFIG, OLD_WEIGHTS, WEIGHTS
from roberta_plugin.conversion.portable import MASKED_LM, Head, PortableModel, check_vocabulary, num_classes, task_state
from roberta_plugin.conversion.settings import CommonExportSettings
from roberta_plugin.data.tokenizers.huggingface import read_tokenizer, their_ids
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.records import WhiteSpace
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.models.config import has_position_limit
from roberta_plugin.models.initial_weights import STANDARD_DEVIATION
from roberta_plugin.models.state_dicts import POSITIONS, ROWS_BEFORE_POSITIONS, TOKENS, read_sizes

_ADVICE = "Copy the file again."


class HuggingFaceFormat(Format):
    """A folder that transformers opens."""

    program, library = "transformers", "transformers"
    has_windows = has_decisions = has_code = True
    who_decides = "`roberta predict` and the code above do that."

    def check(self, model: PortableModel) -> None:  # noqa: D102
        check_switches(model.state["cfg"]["model"], model.path)

    def write(self, model: PortableModel, folder: Path, settings: CommonExportSettings) -> Sequence[str]:  # noqa: D102
        write_huggingface(model, folder, max_shard_bytes=settings.max_shard_bytes)
        return ()

    def usage(self, model: PortableModel) -> str:  # noqa: D102
        return model_card.usage(model)


def write_huggingface(
    model: PortableModel, folder: Path, *, max_shard_bytes: int, white_space: WhiteSpace | None = None
) -> None:
    """Write config.json, the weights and the tokenizer into an existing folder.

    `white_space` is how the model reads it, if not as its head does.

    Raises:
        ValueError: if the model has no counterpart among Hugging Face's classes.
    """
    model_type = model_type_of(model)
    ids = special_ids(model)
    order = their_ids(model.tokenizer, model.vocabulary.symbols)
    token_ids = {"bos_token_id": ids["<s>"], "pad_token_id": ids["<pad>"], "eos_token_id": ids["</s>"]}
    family = family_of(layers_of(model.state), model.head.kind)
    token_ids |= {name: ids[symbol] for name, symbol in family.SPECIAL_IDS.items()} if family else {}
    config = to_config(model, family, model_type=model_type, special_ids=token_ids)
    parameters = to_hugging_face(
        model.state,
        model.head,
        family=family,
        is_tied=config["tie_word_embeddings"],
        order=None if order is None else order.argsort(),
    )
    write_weights(folder, parameters, max_shard_bytes=max_shard_bytes)
    max_length = model.state["cfg"]["model"]["max_positions"]
    write_tokenizer(model, folder, model_type=model_type, max_length=max_length, white_space=white_space)
    if family is portable_code:
        for code in filter(None, (portable_code.CODE, model.head.hugging_face.code)):
            shutil.copyfile(code, folder / code.name)
    write_json(folder / CONFIG, config, ensure_ascii=False)


def read_huggingface(path: Path) -> PortableModel:
    """The model in a Hugging Face folder, or in a safetensors file of one.

    config.json gives options and head, the weights are compared with them, and then the tokenizer with the weights. A
    part of a head that the folder does not have gets newly initialized weights.

    Raises:
        ValueError: if it is not a RoBERTa, or its files do not fit each other.
    """
    folder, file = (path.parent, path) if path.is_file() else (path, None)
    vectors, notes = _beside(folder)
    config = read_config(folder)
    where = folder / CONFIG
    options = from_config(config, where)
    notes += check_config(config, fields_of(config), where)
    head, labels = head_of(config, where)
    family = family_called(config["model_type"])
    weights, notes_on_names = _unwrap(read_weights(folder, file=file), has_family=family is not None)
    notes += notes_on_names
    weights = with_base_prefix(weights, family, options, path)
    _check_words(weights, config, where)
    if head is not None and head.kind == MASKED_LM:
        _check_masked_lm(weights, options, where, has_gelu=family is None)
    foreign = read_tokenizer(folder, num_symbols=config["vocab_size"])
    notes += foreign.notes
    is_bare = head is None
    head = head or Head(kind=MASKED_LM, name=MASKED_LM)
    vocabulary = Vocabulary.from_symbols(foreign.symbols)
    order = their_ids(foreign.tokenizer, vocabulary.symbols)
    try:
        parameters, merged = from_hugging_face(weights, head, order=order, has_table=has_position_limit(options))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    _check_sizes(parameters, options, where)
    _check_classes(parameters, head, where)
    check_vocabulary(len(parameters[TOKENS]), vocabulary, path=path, vocabulary_path=folder)
    notes += _notes_on_weights(merged, path)
    made_anew = complete(parameters, head, is_tied=not options["untie_weights_roberta"])
    trained, recorded, decides_by = remembered(config, where)
    is_for_vectors = is_bare and "pooling" in {*vectors, *recorded}  # then nobody misses a head
    if made_anew and not is_for_vectors:
        has_no_head = is_bare or head.kind == MASKED_LM  # or only a part of its own head
        has_answers = "no complete head" if has_no_head else f"a head for {head.kind} only"
        notes.append(f"The model has {has_answers}: the missing parts have newly initialized, untrained weights.")
    if is_bare and not vectors and f"{POOLER}.weight" in weights:
        notes.append("Its pooler, a layer on the features of <s>, is left out.")
    length = min(options["max_positions"], foreign.max_length or options["max_positions"])
    settings = {"max_length": length, **head.hugging_face.settings, **recorded, **vectors}
    if vectors:
        settings["max_length"] = min(length, vectors.get("max_length", length))
    if "kind" in settings:
        settings["labels"] = list(labels)
    state = {
        "args": None,
        "cfg": {"task": _task_of(head, options["max_positions"]), "model": options},
        "model": parameters,
        "task_state": task_state(
            task=trained or task_of_import(parameters, head),
            settings=settings,
            is_inferred=not trained,
            made_anew=[MASKED_LM] if "encoder.lm_head.dense.weight" in made_anew else [],
            mask_keeps_space=foreign.mask_keeps_space,
            tokenizer=foreign.tokenizer,
            vocabulary=vocabulary,
            decides_by=decides_by,
        ),
        **({ORIGINAL: merged} if merged else {}),
    }
    return PortableModel(
        state=state,
        tokenizer=foreign.tokenizer,
        vocabulary=vocabulary,
        head=head,
        labels=labels,
        path=path,
        source="huggingface",
        notes=tuple(notes),
    )


def _check_classes(parameters: Mapping[str, Tensor], head: Head, path: Path) -> None:
    """Compare the classes of config.json with those of the weights."""
    if (rows := num_classes(parameters, head)) not in (None, head.num_outputs):
        raise ValueError(
            f"{path}: id2label or num_labels says {head.num_outputs} classes, and the weights have {rows}: correct it."
        )


def _notes_on_weights(merged: Mapping[str, Tensor], path: Path) -> list[str]:
    """A note if tokens had several types, one of which all tokens get here."""
    types = merged.get("token_types")
    if types is None or bool((types == types[0]).all()):
        return []
    return [
        f"{path}: its token types have different embeddings. All tokens get the first one here; the others are kept "
        "for exports."
    ]


def _task_of(head: Head, max_positions: int) -> dict[str, Any]:
    """The options of the task that trains the head, as a checkpoint records them."""
    if head.kind == MASKED_LM:
        return {"_name": head.facts.task, "tokens_per_sample": max_positions}
    return {"_name": head.facts.task, "max_positions": max_positions, "classification_head_name": head.name}


def _beside(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Settings of a model, and notes, from files of other formats beside its own."""
    settings: dict[str, Any] = {}
    notes: list[str] = []
    for form in formats_in(folder):
        further, of_form = form.read_beside(folder)
        settings |= further
        notes += of_form
    return settings, notes


def _check_words(weights: dict[str, Tensor], config: dict[str, Any], path: Path) -> None:
    """Refuse weights of another vocabulary, or with wrong shapes, before allocating memory for them."""
    counts = {WORDS: "vocab_size", THEIR_POSITIONS: None, TOKEN_TYPES: None, SEGMENT_ROWS: "num_segments"}
    for name, field in counts.items():
        value, rows = weights.get(name), config.get(field, 0) if field else None
        if value is None and rows:
            raise ValueError(f"{path.parent}: the weights have no {name}: they belong to another kind of model.")
        if value is None:
            continue
        is_float = value.is_floating_point() and value.element_size() > 1  # 8-bit numbers need a scale from elsewhere
        if value.dim() != 2 or value.size(1) != config["hidden_size"] or not is_float:
            raise ValueError(
                f"{path}: the parameters do not fit the model: {name} has the shape {tuple(value.shape)} and holds "
                f"{str(value.dtype).removeprefix('torch.')}, and hidden_size is {config['hidden_size']}."
            )
        if rows is not None and len(value) != rows:
            raise ValueError(
                f"{path}: the parameters do not fit the model: {field} is {rows}, and the weights have embeddings "
                f"of {len(value)} {'segments' if name == SEGMENT_ROWS else 'symbols'}. Copy both from the same place."
            )


def _check_masked_lm(weights: dict[str, Tensor], options: dict[str, Any], path: Path, *, has_gelu: bool) -> None:
    """Refuse a masked-LM head whose answers would differ here, or that is not complete."""
    decoder, is_tied = weights.get("lm_head.decoder.weight"), not options["untie_weights_roberta"]
    if has_gelu and options["activation_fn"] != "gelu":
        raise ValueError(
            f"{path}: hidden_act is {options['activation_fn']!r}, but the masked-LM head of this class always has "
            "gelu. Here, both are one option. Use it with transformers, or import the encoder alone: in architectures, "
            "write Model instead of ForMaskedLM."
        )
    if not is_tied and decoder is None:
        raise ValueError(
            f"{path}: tie_word_embeddings is false, but the weights have no lm_head.decoder.weight: {_ADVICE}"
        )
    if is_tied and decoder is not None and not torch.equal(decoder, weights[WORDS]):
        raise ValueError(
            f"{path}: tie_word_embeddings says that lm_head.decoder.weight is the matrix of the embeddings, but the "
            "weights have another matrix. Make it false to use both."
        )


def _check_sizes(parameters: dict[str, Tensor], options: dict[str, Any], path: Path) -> None:
    """Refuse a config.json that does not belong to the weights, before allocating memory for it."""
    sizes = read_sizes(parameters)
    if POSITIONS in parameters:
        sizes["max_positions"] = len(parameters[POSITIONS]) - ROWS_BEFORE_POSITIONS
    for option, size in sizes.items():
        if options[option] != size:
            raise ValueError(
                f"{path}: the parameters do not fit the model: by this file {option} is {options[option]}, and the "
                f"weights have {size}. Copy both from the same place."
            )


def task_of_import(parameters: Mapping[str, Tensor], head: Head) -> str:
    """The fine-tuning task that an imported model records, by the parts of its head that decide something."""
    theirs = head.hugging_face
    lacks = any(not bool(parameters[f"{head.module}.{part}.weight"].any()) for part in theirs.optional)
    return theirs.task_without_optional if lacks else theirs.task


def complete(parameters: dict[str, Tensor], head: Head, *, is_tied: bool) -> set[str]:
    """Add missing parts in place, with newly initialized weights; return the names of the new parameters."""
    words = parameters[TOKENS]
    dim = words.size(1)
    generator = torch.Generator().manual_seed(1)
    fresh: dict[str, Tensor] = {
        "encoder.lm_head.dense.weight": torch.empty(dim, dim).normal_(std=STANDARD_DEVIATION, generator=generator),
        "encoder.lm_head.dense.bias": torch.zeros(dim),
        "encoder.lm_head.layer_norm.weight": torch.ones(dim),
        "encoder.lm_head.layer_norm.bias": torch.zeros(dim),
        "encoder.lm_head.bias": torch.zeros(len(words)),
    }
    for part in head.hugging_face.optional:
        rows = head.hugging_face.rows.get(part, dim)
        fresh |= {
            f"{head.module}.{part}.weight": torch.zeros(rows, dim),
            f"{head.module}.{part}.bias": torch.zeros(rows),
        }
    for part, alike in {"dense": "layers.0.fc1", "layer_norm": "layers.0.final_layer_norm"}.items():
        if f"encoder.sentence_encoder.{alike}.bias" not in parameters:  # as in ModernBERT
            del fresh[f"encoder.lm_head.{part}.bias"]
    missing = fresh.keys() - parameters.keys()
    parameters |= {name: fresh[name].to(words.dtype) for name in missing}
    if is_tied or "encoder.lm_head.weight" not in parameters:
        parameters["encoder.lm_head.weight"] = words
    return missing


def read_config(folder: Path) -> dict[str, Any]:
    """The content of config.json."""
    path = folder / CONFIG
    content = read_json(path, keys=(), remedy="copy the file again")
    if content is None:
        raise FileNotFoundError(
            f"There is no {path}, which describes the model: weights alone are not enough. Copy {CONFIG} and the "
            "tokenizer's files from where the weights come from."
        )
    return content


def read_weights(folder: Path, *, file: Path | None = None) -> dict[str, Tensor]:
    """All parameters of a folder, or of one safetensors file of it."""
    parameters: dict[str, Tensor] = {}
    for path in [file] if file else _weight_files(folder):
        if path.suffix == ".safetensors":
            parameters |= read_safetensors(path)
            continue
        state = read_tensors(path, advice=_ADVICE)
        if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
            raise ValueError(f"{path} is not a state dict: {_ADVICE}")
        check_numbers(path, state)
        parameters |= state
    check_types(parameters, file or folder)
    return parameters


def check_types(parameters: Mapping[str, Tensor], path: Path) -> None:
    """Refuse weights that are not floating-point numbers of 16 bits or more, as quantized ones are.

    Shares of a scale, which is kept elsewhere, would be read as the weights themselves.
    """
    for name, value in parameters.items():
        is_float = value.is_floating_point() and value.element_size() > 1
        if name.endswith((".weight", ".bias")) and not is_float:
            raise ValueError(
                f"{path}: {name} holds {str(value.dtype).removeprefix('torch.')}, and only floating-point numbers of "
                "16 bits or more are read. Save the model again by the program that wrote it, in float32."
            )


def write_weights(
    folder: Path, parameters: Mapping[str, Tensor], *, max_shard_bytes: int = sys.maxsize, name: str = WEIGHTS
) -> None:
    """Write parameters as safetensors; above `max_shard_bytes`, as several files and an index."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    split = split_state_dict_into_shards_factory(
        dict(parameters),
        get_storage_size=lambda tensor: tensor.nbytes,
        filename_pattern=name.replace(".safetensors", "{suffix}.safetensors"),
        max_shard_size=max_shard_bytes,
    )
    for file, names in split.filename_to_tensors.items():
        written: set[int] = set()  # safetensors refuses shared memory, such as that of shared layers
        content = {}
        for key in names:
            tensor = parameters[key].contiguous()
            content[key] = tensor.clone() if tensor.data_ptr() in written else tensor
            written.add(tensor.data_ptr())
        (folder / file).touch()
        mode = (folder / file).stat().st_mode  # the usual mode; safetensors' files are for their owner alone
        try:
            save_file(content, folder / file, metadata={"format": "pt"})
            (folder / file).chmod(mode)
        except SafetensorError as error:  # names no file
            raise ValueError(
                f"{folder / file} ({sum(tensor.nbytes for tensor in content.values()):,} bytes) cannot be written "
                f"({error}). Free some space there, and run the same command again."
            ) from error
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        write_json(folder / f"{name}.index.json", index)


def _weight_files(folder: Path) -> list[Path]:
    for name in (WEIGHTS, OLD_WEIGHTS):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            return _indexed_files(index)
    for pattern, what in _OTHER_WEIGHTS.items():
        if other := next(folder.glob(pattern), None):
            raise FileNotFoundError(
                f"{folder} has no weights that can be read here: {other.name} is {what}. {WEIGHTS} or {OLD_WEIGHTS} is "
                "needed."
            )
    raise FileNotFoundError(
        f"No weights in {folder}: looked for {WEIGHTS} and {OLD_WEIGHTS}, and their .index.json. Copy them from where "
        f"{CONFIG} comes from."
    )


_SAVE_AGAIN = "open it with transformers 4, and save it by `save_pretrained`"
_OTHER_WEIGHTS = {
    "tf_model*.h5": f"TensorFlow's: {_SAVE_AGAIN} (`from_tf=True`)",
    "flax_model*.msgpack": f"Flax's: {_SAVE_AGAIN} (`from_flax=True`)",
    "*.onnx": "a graph that another program exported: use the folder from which it was made",
    "openvino_model.xml": "a graph of OpenVINO: use the folder from which it was made",
    "*.gguf": "a file of llama.cpp: take the folder that it was made from",
}
_WRAPPERS = {
    "_orig_mod.": "torch.compile",
    "module.": "DistributedDataParallel",
    "model.": "a module of Lightning or another program",
}


def _unwrap(weights: dict[str, Tensor], *, has_family: bool) -> tuple[dict[str, Tensor], list[str]]:
    """Parameters without prefixes that a program around the model has put before all names, and notes on these."""
    notes: list[str] = []
    names = [*weights]
    while wrapper := next((each for each in _WRAPPERS if names and all(name.startswith(each) for name in names)), None):
        inner = [name.removeprefix(wrapper) for name in names]
        if wrapper == "model." and has_family and not all(name.startswith(("model.", "head.")) for name in inner):
            break  # the names of ModernBERT begin so
        notes.append(
            f"All names of its parameters begin with {wrapper}, as {_WRAPPERS[wrapper]} writes them: left out."
        )
        weights, names = dict(zip(inner, weights.values(), strict=True)), inner
    return weights, notes


def _indexed_files(index: Path) -> list[Path]:
    """The files that an index names, which must be beside it."""
    where = (read_json(index, keys=(), remedy="copy the file again") or {}).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise ValueError(f"{index} has no weight_map, the file of each parameter: {_ADVICE}")
    names = sorted(set(map(str, where.values())))
    for name in names:
        if Path(name).name != name:
            raise ValueError(f"{index}: {name!r} is not the name of a file in this folder. {_ADVICE}")
        if not (index.parent / name).is_file():
            raise FileNotFoundError(f"{index} names {name}, which is not there: {_ADVICE}")
    return [index.parent / name for name in names]


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 -- not a dict
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged or not a safetensors file ({error}). {_ADVICE}") from error
    check_numbers(path, tensors)
    return tensors
