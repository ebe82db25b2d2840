"""The model that `roberta finetune` starts from, and whether it fits the data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from roberta_plugin.cli.prepare import MAX_LENGTH

if TYPE_CHECKING:
    from roberta_plugin.finetuning.prepared import Prepared


class Start(NamedTuple):
    """The model that fine-tuning starts from: its file, what that holds, and the options that build a model like it."""

    checkpoint: Path
    state: dict[str, Any]
    options: dict[str, str]

    @property
    def max_positions(self) -> int:
        """Tokens of a sequence at most."""
        return int(self.options["max-positions"])


def starting_model(path: Path) -> Start:
    """Read the checkpoint that --model names, or the best one of the fine-tuning that lies in a folder."""
    from roberta_plugin.finetuning.inference import load_state
    from roberta_plugin.models.checkpoint_model import model_arguments
    from roberta_plugin.models.checkpoint_options import model_options

    checkpoint = checkpoint_of(path)
    state = load_state(checkpoint)
    try:
        options = model_options(state)
    except ValueError as error:
        raise ValueError(f"--model {checkpoint}: {error}") from error
    model_arguments(state, checkpoint)  # refuses what is not built elsewhere either
    return Start(checkpoint, state, options)


def checkpoint_of(path: Path) -> Path:
    """The checkpoint itself, or the best one of the fine-tuning that lies in a folder.

    Raises:
        FileNotFoundError: if the folder holds no finished run.
    """
    from roberta_plugin.cluster.json_files import read_json

    report = path / "runs" / "report.json"
    if not path.is_dir():
        return path
    content = read_json(report, keys=["ensemble"], remedy=f"run the fine-tuning in {path} again, which writes it anew")
    members = content["ensemble"] if content else []
    if not members:
        raise FileNotFoundError(f"--model {path}: {report} names no finished run. Give a checkpoint file instead.")
    return Path(members[0]["checkpoint"])


def check_positions(start: Start, task: str, *, max_length: int, options: dict[str, str]) -> None:
    """Refuse, before preparing, a length that the model does not have or the task cannot do with."""
    from roberta_plugin.finetuning.suites import suite_of

    if max_length > start.max_positions:
        raise ValueError(
            f"--max-length {max_length}: {start.checkpoint} has {start.max_positions} positions. Give at most that, or "
            "leave it out."
        )
    try:
        suite_of(task).settings(task, max_length=max_length, options=options)
    except ValueError as error:
        if max_length < start.max_positions or max_length >= MAX_LENGTH:
            raise
        raise ValueError(
            f"{error} --max-length cannot be more than {start.max_positions} here, the positions of "
            f"{start.checkpoint}: give --option question-length={max(1, start.max_positions // 4)}, or pretrain a "
            "model with more positions (RoBERTa has 512)."
        ) from error


def check_model(start: Start, prepared: Prepared) -> None:
    """Refuse data of other words than the model's, or with longer sequences.

    Raises:
        ValueError: naming both.
    """
    from roberta_plugin.finetuning.identity import check_words
    from roberta_plugin.models.checkpoint_options import num_symbols

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
