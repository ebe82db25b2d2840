"""fairseq-train's command line: read it with fairseq's own parser, and complete it for a number of GPUs."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import roberta_plugin
from roberta_plugin.data import mixture

from .batch_size import plan_batch, sequences_in_tokens
from .recipe import Recipe

OUR_TASK = "roberta_masked_lm"
OURS = Path(roberta_plugin.__file__).parent


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """fairseq's namespace of options.

    Raises:
        ValueError: where fairseq-train would print its usage and exit, with fairseq's reason.
    """
    roberta_plugin.register()
    from fairseq import options

    from roberta_plugin.fairseq_workarounds import tpu_option

    with _command_line(["fairseq-train", *arguments]):
        parser = options.get_training_parser()
        parser.error = _refuse  # type: ignore[method-assign]
        try:
            parsed: argparse.Namespace = options.parse_args_and_arch(parser, input_args=list(arguments))
        except (SyntaxError, NameError) as error:  # fairseq evaluates the text of some values
            raise ValueError(_unreadable(arguments, error)) from error
    tpu_option.take_back_tpu(parsed, arguments)
    return parsed


def complete(recipe: Recipe) -> tuple[str, ...]:
    """The recipe's fairseq-train arguments with the save folder and the batch for its number of GPUs.

    Raises:
        ValueError: if the recipe sets what follows from it, or its batch cannot be shared out.
    """
    arguments = [part for word in recipe.train for part in (word.split("=", 1) if word.startswith("--") else [word])]
    if "--user-dir" in arguments[:-1] and Path(arguments[arguments.index("--user-dir") + 1]).name == OURS.name:
        at = arguments.index("--user-dir")
        del arguments[at : at + 2]  # the job imports this plugin by itself, from its snapshot
    for option, remedy in {
        "--save-dir": "checkpoints go to RUN-DIR/checkpoints",
        "--distributed-world-size": "it is nodes x gpus_per_node",
        "--distributed-rank": "it follows from SLURM",
        "--distributed-init-method": "it follows from SLURM and --port",
        "--distributed-port": "--port of `roberta launch` sets it",
        "--device-id": "it follows from SLURM",
        "--no-last-checkpoints": "a restart goes on from the last one",
        "--no-save": "a restart goes on from a checkpoint",
        "--restore-file": "a restart would load it again; --finetune-from-model loads a model the first time only",
    }.items():
        if option in arguments:
            raise ValueError(f"The recipe gives fairseq-train {option}: leave it out, for {remedy}.")
    arguments += ["--save-dir", str(recipe.save_dir)]
    if recipe.batch_sequences is None and recipe.batch_tokens is None:
        return tuple(arguments)
    if recipe.batch_sequences is not None and recipe.batch_tokens is not None:
        raise ValueError("Both --batch-sequences and --batch-tokens are given: the effective batch is one of them.")
    if "--update-freq" in arguments:
        raise ValueError(
            "--update-freq follows from the effective batch and the number of GPUs: leave one of them out."
        )
    return tuple(arguments + _batch_arguments(recipe, arguments))


def _batch_arguments(recipe: Recipe, arguments: list[str]) -> list[str]:
    """The batch of one GPU (given: the most that fits) and the update frequency; the last value of an option wins."""
    if recipe.batch_sequences is not None:
        most = int(value_of(arguments, "--batch-size", needed_for="--batch-sequences"))
        plan = plan_batch(recipe.batch_sequences, num_gpus=recipe.num_gpus, most_per_gpu=most)
        return ["--batch-size", str(plan.per_gpu), "--update-freq", str(plan.update_freq)]
    length = int(value_of(arguments, "--tokens-per-sample", needed_for="--batch-tokens"))
    most = int(value_of(arguments, "--max-tokens", needed_for="--batch-tokens")) // length
    if most < 1:
        raise ValueError(
            f"--max-tokens is smaller than --tokens-per-sample ({length}): a batch of one GPU would be empty."
        )
    sequences = sequences_in_tokens(recipe.batch_tokens or 0, tokens_per_sample=length)
    plan = plan_batch(sequences, num_gpus=recipe.num_gpus, most_per_gpu=most)
    return ["--max-tokens", str(plan.per_gpu * length), "--update-freq", str(plan.update_freq)]


def value_of(arguments: Sequence[str], option: str, *, needed_for: str) -> str:
    """The value of an option, the last one where it is given twice."""
    values = [after for word, after in itertools.pairwise(arguments) if word == option]
    if not values:
        raise ValueError(f"{needed_for} needs {option} among fairseq-train's options: the most that one GPU can take.")
    return values[-1]


def data_folders(parsed: argparse.Namespace) -> list[Path]:
    """The folders of binarized data that the options name."""
    data = str(getattr(parsed, "data", "") or "")
    if parsed.task == OUR_TASK:
        return mixture.data_folders(data)
    return [Path(folder) for folder in data.split(":") if folder]


def to_config(parsed: argparse.Namespace) -> Any:
    """fairseq's structured configuration of the options."""
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    return convert_namespace_to_omegaconf(parsed)


def _unreadable(arguments: Sequence[str], error: SyntaxError | NameError) -> str:
    """Which option has the value that fairseq could not evaluate."""
    text = error.text.strip() if isinstance(error, SyntaxError) and error.text else str(getattr(error, "name", ""))
    pairs = [f"{name} {value}" for name, value in itertools.pairwise(arguments) if text and text in value]
    found = next((pair for pair in pairs if pair.startswith("--")), repr(text))
    return f"fairseq-train cannot read {found}: it must be a number, or several as [1, 2] ({error})."


def _refuse(message: str) -> NoReturn:
    raise ValueError(f"fairseq-train would refuse these options: {message}")


@contextlib.contextmanager
def _command_line(words: list[str]) -> Iterator[None]:
    """Let sys.argv be `words`, which fairseq reads in passing whatever it is asked to parse; hide its usage text."""
    before = sys.argv
    sys.argv = words
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        sys.argv = before
