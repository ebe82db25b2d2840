"""The files of a trained model: its checkpoint, the dict.txt of its vocabulary, and its tokenizer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from roberta_plugin.data.mixture import data_folders
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.json_files import read_json
from roberta_plugin.models.checkpoints.options import saved_options

GPT2_FILES = "https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe"
CHECKPOINT_NAMES = ("checkpoint_best.pt", "checkpoint_last.pt", "model.pt")


def find_checkpoint(folder: Path, name: str | None) -> Path:
    """The checkpoint called `name` in `folder`, or the first of the usual names that exists."""
    names = (name,) if name else CHECKPOINT_NAMES
    for candidate in names:
        if (folder / candidate).is_file():
            return folder / candidate
    raise FileNotFoundError(
        f"No checkpoint in {folder}: looked for {', '.join(names)}. Give the folder that fairseq-train wrote to "
        "(--save-dir), or name the file with checkpoint_file."
    )


def find_dictionary(checkpoint: Path, state: dict[str, Any], data: str | os.PathLike[str] | None) -> Path:
    """The dict.txt of `data` if given, else of the checkpoint's own folder, else of the folder it was trained on."""
    candidates = [Path(data)] if data is not None else [checkpoint.parent]
    if data is None:
        trained_on = saved_options(state)[0].get("data")
        trained_on = trained_on[0] if isinstance(trained_on, list) and trained_on else trained_on  # as of 2019
        candidates += data_folders(str(trained_on))[:1] if trained_on else []
    for folder in candidates:
        for path in (folder / "dict.txt", folder / "input0" / "dict.txt"):
            if path.is_file():
                return path
    raise FileNotFoundError(
        f"No dict.txt for {checkpoint}: looked in {', '.join(map(str, candidates))}. Name the folder that holds "
        "dict.txt and the tokenizer's files with data=..."
    )


def find_tokenizer(checkpoint: Path, dictionary: Path, folder: str | os.PathLike[str] | None) -> Tokenizer:
    """The tokenizer of `folder` if given, else of the folder of dict.txt, of the one above, or of the checkpoint's."""
    if folder is not None:
        return load_tokenizer(folder)
    above = [dictionary.parent.parent] if dictionary.parent.name == "input0" else []
    candidates = [dictionary.parent, *above, checkpoint.parent]
    for candidate in candidates:
        try:
            return load_tokenizer(candidate)
        except FileNotFoundError:
            continue
    raise FileNotFoundError(
        f"No tokenizer for {checkpoint}: looked in {', '.join(dict.fromkeys(map(str, candidates)))}. A model needs the "
        "very files that it was trained with; for fairseq's released RoBERTa they are encoder.json and vocab.bpe of "
        f"GPT-2 ({GPT2_FILES}). Put them beside dict.txt, or name their folder with tokenizer=..."
    )


def resolve_checkpoint(path: Path) -> Path:
    """A checkpoint file itself; or the checkpoint of its folder, of a run's folder, or the best of a fine-tuning.

    Raises:
        FileNotFoundError: if there is none.
    """
    if path.is_file():
        return path
    if not path.exists():
        raise FileNotFoundError(f"There is no {path}: give a checkpoint file, or a folder that holds one.")
    if (path / "runs" / "report.json").is_file():
        return best_run_of(path)
    is_run = not any((path / name).is_file() for name in CHECKPOINT_NAMES) and (path / "checkpoints").is_dir()
    return find_checkpoint(path / "checkpoints" if is_run else path, None)


def best_run_of(folder: Path) -> Path:
    """The checkpoint of the best run of a finished `roberta finetune`.

    Raises:
        FileNotFoundError: if the folder holds no finished run.
    """
    report = folder / "runs" / "report.json"
    content = read_json(
        report, keys=["ensemble"], remedy=f"run the fine-tuning in {folder} again, which writes it anew"
    )
    members = content["ensemble"] if content else []
    if not members:
        raise FileNotFoundError(f"{report} names no finished run. Give a checkpoint file instead.")
    best = members[0]
    return Path(folder, "runs", best["run"], "checkpoints", Path(best["checkpoint"]).name)  # the folder may be moved
