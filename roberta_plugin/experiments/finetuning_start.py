"""The model that `roberta finetune` starts from, and whether it fits the data."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.paper_settings import MAX_LENGTH
from roberta_plugin.json_files import read_json
from roberta_plugin.kinds.windows import question_length

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roberta_plugin.experiments.finetuning_settings import FinetuneSettings
    from roberta_plugin.finetuning.options import TaskOptions
    from roberta_plugin.finetuning.prepared import Prepared


class Start(NamedTuple):
    """The model that fine-tuning starts from: its file, the file's content, and the options that build such a model."""

    checkpoint: Path
    state: dict[str, Any]
    options: dict[str, str]

    @property
    def max_positions(self) -> int:
        """Tokens of a sequence at most."""
        return int(self.options["max-positions"])


START = "start.json"  # in the folder of a fine-tuning: from which weights and examples its runs have started


def starting_model(path: Path) -> Start:
    """Read the checkpoint that --model names, or the best one of the fine-tuning in a folder."""
    from roberta_plugin.experiments.inference import load_state
    from roberta_plugin.models.checkpoints.building import model_arguments
    from roberta_plugin.models.checkpoints.options import model_options

    checkpoint = checkpoint_of(path)
    state = load_state(checkpoint)
    try:
        options = model_options(state)
    except ValueError as error:
        raise ValueError(f"--model {checkpoint}: {error}") from error
    model_arguments(state, checkpoint)  # raises for a model that cannot be built
    return Start(checkpoint, state, options)


def checkpoint_of(path: Path, *, option: str = "--model") -> Path:
    """The checkpoint itself, that of an imported model's folder, or the best one of the fine-tuning in a folder.

    Args:
        path: the file or folder.
        option: how the user gave it.

    Raises:
        FileNotFoundError: if the folder holds none.
        ValueError: if it is a model of another format, which must be imported first.
    """
    from roberta_plugin.conversion.fairseq_archive import is_archive
    from roberta_plugin.conversion.fairseq_checkpoint import is_checkpoint
    from roberta_plugin.conversion.huggingface_folder import is_huggingface_folder
    from roberta_plugin.conversion.run_folders import best_of_finetuning, find_checkpoint

    if is_archive(path) or (is_huggingface_folder(path) and not is_checkpoint(path)):
        then = "--model FOLDER --tokenizer FOLDER" if option == "--model" else f"{option} FOLDER"
        raise ValueError(
            f"{option} {path} is a model of another format. Import it first: roberta import {path} --output-dir "
            f"FOLDER; then give {then}."
        )
    if not path.is_dir():
        return path
    if is_checkpoint(path):
        return find_checkpoint(path, None)
    best = best_of_finetuning(path)
    if best is None:
        report = path / "runs" / "report.json"
        why = f"{report} names no finished run" if report.is_file() else "the folder holds no checkpoint"
        raise FileNotFoundError(f"{option} {path}: {why}. Give a checkpoint file instead.")
    return best


def tokenizer_of(settings: FinetuneSettings, start: Start) -> tuple[Path, Path | None]:
    """The folder of the tokenizer and the dict.txt: those of --tokenizer, else of the model, as `roberta predict` does.

    Raises:
        FileNotFoundError: if the model has none; says what to give.
    """
    from roberta_plugin.conversion.run_folders import find_dictionary, tokenizer_folder

    if settings.tokenizer is not None:
        return settings.tokenizer, None
    try:
        dictionary = find_dictionary(start.checkpoint, start.state, None)
        return tokenizer_folder(start.checkpoint, dictionary), dictionary
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"--tokenizer is missing, and no tokenizer was found with the model: give the folder with the tokenizer's "
            f"files and dict.txt. ({str(error).partition('. ')[0]}.)"
        ) from error


def check_positions(start: Start, task: str, *, max_length: int, options: TaskOptions) -> None:
    """Refuse, before preparing, a length that exceeds the model's positions or is too short for the task."""
    from roberta_plugin.finetuning.benchmarks import benchmark_of

    if max_length > start.max_positions:
        raise ValueError(
            f"--max-length {max_length}: {start.checkpoint} has {start.max_positions} positions. Give at most that, or "
            "leave it out."
        )
    try:
        benchmark_of(task).settings(task, max_length=max_length, options=options)
    except ValueError as error:
        if max_length < start.max_positions or max_length >= MAX_LENGTH:
            raise
        length = question_length(start.max_positions, MAX_LENGTH)
        raise ValueError(
            f"{error} --max-length cannot be more than {start.max_positions} here, the positions of "
            f"{start.checkpoint}: give --question-length {length}, or pretrain a model "
            "with more positions (RoBERTa has 512)."
        ) from error


def check_model(start: Start, prepared: Prepared) -> None:
    """Refuse data with another vocabulary than the model's, or with longer sequences.

    Raises:
        ValueError: naming both.
    """
    from roberta_plugin.finetuning.identity import check_words
    from roberta_plugin.models.checkpoints.options import num_symbols

    if num_symbols(start.state) != len(prepared.vocabulary):
        raise ValueError(
            f"{start.checkpoint} has a vocabulary of {num_symbols(start.state):,} symbols, and {prepared.folder} one "
            f"of {len(prepared.vocabulary):,}: prepare the data with the tokenizer and the dict.txt of that model."
        )
    check_words(start.state, prepared, checkpoint=start.checkpoint)
    if start.max_positions < prepared.settings["max_length"]:
        raise ValueError(
            f"{start.checkpoint} has {start.max_positions} positions, and {prepared.folder} sequences of up to "
            f"{prepared.settings['max_length']} tokens: delete that folder (rm -r {prepared.folder}) and give "
            f"--max-length {start.max_positions}, or give the --data of another one."
        )


def check_start(start: Start | None, prepared: Prepared, folder: Path, *, has_runs: bool) -> None:
    """Refuse a folder whose runs have started from other weights or other examples; else record those of this start.

    The runs record the paths of the model and of the data. A pretraining that goes on writes other weights to the same
    path, and a folder that is prepared anew has other examples; those of a test set may be others.

    Args:
        start: the model; None if its weights are not used.
        prepared: the data.
        folder: the folder of the fine-tuning.
        has_runs: whether there are any.

    Raises:
        ValueError: naming the model or the data.
    """
    now = {
        "sha256": sha256_of_weights(start.state) if start else None,
        **{f"sha256_of_{split}": prepared.sha256_of_inputs(split) for split in prepared.splits if "test" not in split},
    }
    known = read_json(folder / START, keys=["sha256"], remedy="delete it if --model and the data are the same") or {}
    for name, digest in now.items():
        if has_runs and digest and known.get(name) not in (None, digest):
            what, path = ("weights", start.checkpoint) if start and name == "sha256" else ("examples", prepared.folder)
            raise ValueError(
                f"{folder} holds runs that started from other {what}: {path} has changed since. Give another "
                f"--output-dir, or delete {folder / 'runs'} and {folder / 'results'} if the runs are not needed any "
                "more."
            )
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / START, "w") as file:
        json.dump({"model": str(start.checkpoint) if start else None, **now}, file, indent=2)


def sha256_of_weights(state: Mapping[str, Any]) -> str:
    """A hash of all parameters with their names: the optimizer's state may have been dropped from the file."""
    import torch

    digest = hashlib.sha256()
    for name, value in sorted(state["model"].items()):
        if torch.is_tensor(value):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
            digest.update(value.detach().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
