"""The model that a fine-tuning starts from: read once, and held against the data before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from roberta_plugin.checkpoint_files import load_state, sha256_of_parameters
from roberta_plugin.data.tokenizers import WORDS_ALONE
from roberta_plugin.data.tokenizers.whitespace import is_meant
from roberta_plugin.finetuning.benchmarks import benchmark_of, kind_of, option_fields
from roberta_plugin.finetuning.benchmarks.base import MAX_LENGTH
from roberta_plugin.finetuning.identity import check_words, read_record
from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.finetuning.layouts.windows import question_length
from roberta_plugin.finetuning.preparation import DataSettings
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.record import option_name

Settings = TypeVar("Settings", bound=DataSettings)


@dataclass(frozen=True)
class Start:
    """The model that fine-tuning starts from: its file, the file's content, and the options that build such a model."""

    checkpoint: Path
    state: dict[str, Any]
    options: dict[str, str]
    initial: dict[str, str]  # options that draw new weights as its own pretraining did; none where its weights are used
    num_symbols: int
    is_fine_tuned: bool
    from_scratch: bool = False  # only its architecture is used

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the fine-tuning that it comes from, or of the vectors that it was made for; {} for others."""
        return dict(read_record(self.state).get("settings") or {})

    @property
    def max_positions(self) -> int:
        """Tokens of a sequence at most."""
        return int(self.options["max-positions"])

    @property
    def longest(self) -> float:
        """Tokens that it can be fine-tuned with."""
        from roberta_plugin.models.config import has_position_limit  # imports torch

        options = {name.replace("-", "_"): value for name, value in self.options.items()}
        return self.max_positions if has_position_limit(options) else math.inf

    @cached_property
    def sha256(self) -> str:
        """A hash of all parameters: the optimizer's state may have been dropped from the file."""
        return sha256_of_parameters(self.checkpoint, self.state["model"])

    def train_options(self, max_length: int) -> dict[str, str]:
        """Options of fairseq-train that start from it, for sequences of a length that `check_model` allows."""
        options = {**self.options, "max-positions": str(max(self.max_positions, max_length))}
        return options if self.from_scratch else {**options, "finetune-from-model": str(self.checkpoint.resolve())}


def starting_model(path: Path, *, from_scratch: bool = False) -> Start:
    """Read a checkpoint, or the checkpoint of the best run of the fine-tuning in a folder."""
    from roberta_plugin.conversion.model_files import find_checkpoint
    from roberta_plugin.models import checkpoints
    from roberta_plugin.models.adapters import merge
    from roberta_plugin.models.head_parameters import is_of_head

    checkpoint = find_checkpoint(path, None) if path.is_dir() else path
    state = load_state(checkpoint)
    checkpoints.model_arguments(state, checkpoint)  # raises for a model that cannot be built
    try:
        options = checkpoints.model_options(state)
        merge(dict(state["model"]))
    except ValueError as error:
        raise ValueError(f"--model {checkpoint}: {error}") from error
    return Start(
        checkpoint,
        state,
        options,
        initial=checkpoints.initial_options(state) if from_scratch else {},
        num_symbols=checkpoints.num_symbols(state),
        is_fine_tuned=any(is_of_head(name) for name in state["model"]),
        from_scratch=from_scratch,
    )


def with_taken_over(data: Settings, start: Start) -> Settings:
    """The settings of a fine-tuning on own tables, with the model's settings in place of options that are not given."""
    options = data.task_options
    if options.own_kind is None:
        return data
    taken = kind_class(options.own_kind).taken_over(start.settings)
    length = taken.pop("max_length", None)
    if data.max_length is None and length is not None:
        data = replace(data, max_length=min(int(length), start.max_positions))
    return replace(data, options=options.taking_over(taken))


def taken_over_remarks(start: Start, prepared: Prepared) -> Iterator[str]:
    """Remarks on settings that the data take over from the model's fine-tuning, and on those that differ."""
    model, data = kind_of(prepared).taken_over(start.settings), prepared.settings
    model = {name: value for name, value in model.items() if value is not None}
    if model.get("max_length") == min(MAX_LENGTH, start.max_positions) == data["max_length"]:
        del model["max_length"]
    same = {name: value for name, value in model.items() if data.get(name) == value}
    if any(value not in (False, "mean") for value in same.values()):
        yield f"{prepared.folder} takes over {_options(same)} from {start.checkpoint}."
    if changes := [
        f"{_options({name: data.get(name)})} ({_options({name: model[name]})})" for name in model.keys() - same
    ]:
        yield (
            f"{prepared.folder} has {', '.join(sorted(changes))}. The options in parentheses are those of "
            f"{start.checkpoint}, which the training leaves."
        )


def _options(settings: Mapping[str, Any]) -> str:
    return ", ".join(
        option_name(name)
        if value is True
        else f"{option_name(name)} {'not given' if value in (None, False) else value}"
        for name, value in settings.items()
    )


def tokenizer_of(data: DataSettings, start: Start) -> tuple[Path, Path | None]:
    """The folder of the tokenizer and the dict.txt to prepare data with, from --tokenizer, or else from the model.

    Raises:
        FileNotFoundError: if the model has none; says what to give.
        ValueError: as `check_positions`.
    """
    from roberta_plugin.conversion.model_files import find_dictionary, tokenizer_folder

    check_positions(start, data)
    if data.tokenizer is not None:
        is_of_model = is_meant(data.tokenizer)
        return data.tokenizer, find_dictionary(start.checkpoint, start.state, None) if is_of_model else None
    try:
        dictionary = find_dictionary(start.checkpoint, start.state, None)
        return tokenizer_folder(start.checkpoint, dictionary), dictionary
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"--tokenizer is missing, and no tokenizer was found with the model: give the folder with the tokenizer's "
            f"files and dict.txt. ({str(error).partition('. ')[0]}.) {WORDS_ALONE}"
        ) from error


def check_positions(start: Start, data: DataSettings) -> None:
    """Refuse, before preparing, a length that exceeds the model's positions or is too short for the task."""
    max_length, options, settings = data.max_length, data.task_options, benchmark_of(data.task).settings
    assert max_length is not None
    if max_length > start.longest:
        raise ValueError(
            f"--max-length {max_length}: {start.checkpoint} has {start.max_positions} positions. Give at most that, or "
            "leave it out."
        )
    try:
        settings(max_length=max_length, options=options)
    except ValueError as error:
        if max_length < start.max_positions or max_length >= MAX_LENGTH:
            raise
        settings(max_length=MAX_LENGTH, options=options)  # raises where the length is not the reason
        length = question_length(start.max_positions, MAX_LENGTH)
        has_questions = any(item.name == "question_length" for item in option_fields(data.task))
        shorter = f"give --question-length {length}, or " if has_questions else ""
        raise ValueError(
            f"{error} --max-length cannot be more than {start.max_positions} here, the positions of "
            f"{start.checkpoint}: {shorter}pretrain a model with more positions (RoBERTa has 512)."
        ) from error


def check_model(start: Start, prepared: Prepared) -> None:
    """Refuse data with another vocabulary than the model's, or with longer sequences."""
    if start.num_symbols != len(prepared.vocabulary):
        raise ValueError(
            f"{start.checkpoint} has a vocabulary of {start.num_symbols:,} symbols, and {prepared.folder} one "
            f"of {len(prepared.vocabulary):,}: prepare the data with the tokenizer and the dict.txt of that model."
        )
    check_words(start.state, prepared, checkpoint=start.checkpoint)
    if prepared.settings["max_length"] > start.longest:
        raise ValueError(
            f"{start.checkpoint} has {start.max_positions} positions, and {prepared.folder} sequences of up to "
            f"{prepared.settings['max_length']} tokens: delete that folder (rm -r {prepared.folder}) and give "
            f"--max-length {start.max_positions}, or give the --data of another one."
        )
