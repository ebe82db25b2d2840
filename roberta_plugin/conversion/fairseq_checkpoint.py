"""Checkpoints in fairseq's layout, ours and fairseq's, of any year -> a portable model.

Reads a .pt file, the folder of one, the folder of a run, the --output-dir of `roberta finetune`, or an archive
as fairseq's authors distribute them (see `fairseq_archive`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roberta_plugin.conversion.gpt2_files import gpt2_tokenizer
from roberta_plugin.conversion.heads import choose_head, labels_of
from roberta_plugin.conversion.number_scale import on_scale_of_labels
from roberta_plugin.conversion.portable import PortableModel, SourceKind, check_vocabulary
from roberta_plugin.conversion.run_folders import (
    CHECKPOINT_NAMES,
    find_checkpoint,
    find_dictionary,
    find_tokenizer,
    training_data,
)
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import MADE_UP, SPECIALS, Vocabulary
from roberta_plugin.finetuning import identity
from roberta_plugin.models.checkpoints.building import model_arguments
from roberta_plugin.models.checkpoints.loading import load_state
from roberta_plugin.models.checkpoints.names import TOKENS, from_older_fairseq
from roberta_plugin.models.checkpoints.options import model_options, saved_options

_KEPT_OF_TASK = (str, int, float, bool)


def read_checkpoint(
    path: Path, *, data: Path | None = None, head: str | None = None, source: SourceKind = "checkpoint"
) -> PortableModel:
    """The model of a checkpoint, with its tokenizer and vocabulary.

    Args:
        path: see above.
        data: folder with dict.txt and the tokenizer, where they are not found beside the checkpoint.
        head: name of the head to use; see `choose_head`.
        source: form of the file, for messages.

    Raises:
        FileNotFoundError: if the checkpoint, dict.txt or the tokenizer is missing.
        ValueError: if they do not fit each other, or the checkpoint is damaged or of another model.
    """
    checkpoint = find_checkpoint(path, None)
    if data is None and (path / "data" / "dict.txt").is_file():
        data = path / "data"  # after `roberta finetune`, if its folder was moved
    state = on_scale_of_labels(load_state(checkpoint, for_use=True))
    dictionary = find_dictionary(checkpoint, state, data)
    vocabulary = Vocabulary.load(dictionary)
    content = in_our_layout(state, checkpoint)
    check_vocabulary(len(content["model"][TOKENS]), vocabulary, path=checkpoint, words=dictionary)
    chosen = choose_head(content, head, checkpoint)
    labels = labels_of(content, chosen, data=dictionary.parent.parent)
    if not identity.of_checkpoint(content) and (trained_on := training_data(state, dictionary)):
        settings = {**trained_on["settings"], "labels": list(labels)}
        content["task_state"][identity.KEY] = {"task": "", "settings": settings}
    return PortableModel(
        state=content,
        tokenizer=tokenizer_of(checkpoint, dictionary, vocabulary, data),
        vocabulary=vocabulary,
        head=chosen,
        labels=labels,
        path=checkpoint,
        source=source,
        training=training_facts(state),
    )


def in_our_layout(state: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The content of a checkpoint with our names of parameters and the options of our model.

    Raises:
        ValueError: if it is of another model, or one that normalizes before its layers.
    """
    arguments = vars(model_arguments(state, path))
    task, saved = saved_options(state)
    if saved.get("encoder_normalize_before"):
        raise ValueError(f"{path} normalizes before each layer (encoder_normalize_before), and RoBERTa after it.")
    content = {**state, "model": from_older_fairseq(state["model"])}
    try:
        sizes = model_options(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    options: dict[str, Any] = {
        name: value for name, value in arguments.items() if name not in ("arch", "load_checkpoint_heads")
    }
    for name, text in sizes.items():
        options.setdefault(name.replace("-", "_"), int(text) if text.isdigit() else text == "true" or text)
    options |= {"_name": "fast_roberta"}
    del options["arch"]
    known = {name: value for name, value in task.items() if isinstance(value, _KEPT_OF_TASK)}
    if known.get("_name") == "sentence_prediction":  # fairseq's; ours reads its models
        known["_name"] = "roberta_sentence_prediction"
    return {
        "args": None,
        "cfg": {"task": known, "model": options},
        "model": content["model"],
        "task_state": dict(state.get("task_state") or {}),
        **{name: state[name] for name in ("huggingface",) if name in state},
    }


def training_facts(state: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint's record of its training; tokens count full blocks, so they are an upper bound.

    Example: 100 updates of 2 x 8 blocks of 512 tokens on 4 GPUs -> {"updates": 100, "tokens": 3276800, ...}.
    """
    config = state.get("cfg") or {}
    sections = ("optimization", "dataset", "lr_scheduler", "optimizer", "task", "distributed_training")
    options: dict[str, Any] = dict(vars(state["args"])) if isinstance(state.get("args"), argparse.Namespace) else {}
    for section in sections:
        content = config.get(section) if isinstance(config, Mapping) else None
        options |= dict(content) if isinstance(content, Mapping) else {}
    names = ("lr", "batch_size", "max_update", "warmup_updates", "weight_decay", "adam_betas", "tokens_per_sample")
    facts = {name: options[name] for name in names if options.get(name) is not None}
    history = state.get("optimizer_history") or [{}]
    updates = history[-1].get("num_updates", 0)
    seconds = float((state.get("extra_state") or {}).get("previous_training_time", 0))  # of several ranks, a tensor
    facts |= {"updates": updates} if updates else {}
    facts |= {"hours": round(seconds / 3600, 2)} if seconds else {}
    batch, length = options.get("batch_size"), options.get("tokens_per_sample")
    if updates and batch and length:
        frequency = (options.get("update_freq") or [1])[0]
        of_update = batch * frequency * (options.get("distributed_world_size") or 1)
        facts["tokens"] = updates * length * (options.get("update_sequences") or of_update)
    return facts


def tokenizer_of(checkpoint: Path, dictionary: Path, vocabulary: Vocabulary, data: Path | None) -> Tokenizer:
    """The tokenizer beside the files of a checkpoint, or GPT-2's where dict.txt is that of fairseq's released models.

    Raises:
        FileNotFoundError: if there is none.
    """
    try:
        if data is not None:
            return load_tokenizer(data)
        return find_tokenizer(checkpoint, dictionary, None)
    except FileNotFoundError:
        if not is_of_gpt2(vocabulary):
            raise
    return gpt2_tokenizer(checkpoint.parent)


def is_of_gpt2(vocabulary: Vocabulary) -> bool:
    """Whether the symbols are the 50,257 ids of GPT-2's encoder.json, as in fairseq's released models."""
    listed = [symbol for symbol in vocabulary.symbols[len(SPECIALS) : vocabulary.num_binarized]]
    numbers = {symbol for symbol in listed if symbol.isdigit()}
    return len(numbers) > 50_000 and all(symbol in numbers or symbol.startswith((MADE_UP, "<")) for symbol in listed)


def is_checkpoint(path: Path) -> bool:
    """Whether a path is a checkpoint file or a folder that holds one."""
    if path.is_file():
        return path.suffix == ".pt"
    folders = (path, path / "checkpoints")
    has_file = any((folder / name).is_file() for folder in folders for name in CHECKPOINT_NAMES)
    return has_file or (path / "runs" / "report.json").is_file()
