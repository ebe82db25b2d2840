"""Recipe -> fairseq-train's arguments, completed for its number of GPUs."""

from __future__ import annotations

import itertools
from pathlib import Path

from roberta_plugin.launch.recipe import LaunchSettings
from roberta_plugin.training import arguments as train_arguments
from roberta_plugin.training.arguments import OUR_TASK, PACKAGE, value_of
from roberta_plugin.training.batch_size import plan_batch, sequences_in_tokens


def complete(recipe: LaunchSettings) -> tuple[str, ...]:
    """The recipe's fairseq-train arguments with the save folder and the batch for its number of GPUs.

    Raises:
        ValueError: if the recipe sets what follows from it, or its batch cannot be shared out.
    """
    arguments = _with_user_dir(_words(recipe))
    for option, remedy in {
        "--save-dir": "checkpoints go to RUN-DIR/checkpoints",
        "--distributed-world-size": "it is nodes x gpus_per_node",
        "--distributed-rank": "it follows from SLURM",
        "--distributed-init-method": "it follows from SLURM and --port",
        "--distributed-port": "--port of `roberta launch` sets it",
        "--device-id": "it follows from SLURM",
        "--no-last-checkpoints": "a restart resumes from the last one",
        "--no-save": "a restart resumes from a checkpoint",
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
    return (*arguments, *batch_arguments(recipe))


def _with_user_dir(arguments: list[str]) -> list[str]:
    """The arguments with the last --user-dir alone, and without one that is this plugin: the job's snapshot has it."""
    train_arguments.check_user_dir(arguments)
    found: list[str] = []
    while "--user-dir" in arguments[:-1]:
        at = arguments.index("--user-dir")
        found = arguments[at : at + 2]
        arguments = arguments[:at] + arguments[at + 2 :]
    return [*arguments, *found] if found and Path(found[1]).name != PACKAGE.name else arguments


def _words(recipe: LaunchSettings) -> list[str]:
    """The recipe's arguments, `--name=value` in two words."""
    return [part for text in recipe.train for part in (text.split("=", 1) if text.startswith("--") else [text])]


def batch_arguments(recipe: LaunchSettings) -> tuple[str, ...]:
    """The batch of one GPU (given: the most that fits) and the update frequency; the last value of an option wins.

    Where the number of GPUs does not divide the batch, --update-sequences keeps it (`data/update_batches.py`).

    Raises:
        ValueError: if the batch cannot be shared out among the recipe's number of GPUs.
    """
    arguments = _words(recipe)
    if recipe.batch_sequences is not None:
        most = int(value_of(arguments, "--batch-size", needed_for="--batch-sequences"))
        may_differ = ("--task", OUR_TASK) in itertools.pairwise(arguments)
        if recipe.batch_sequences % recipe.num_gpus and {"--max-tokens", "--tokens-per-sample"} <= set(arguments):
            tokens, length = (
                int(value_of(arguments, name, needed_for="")) for name in ("--max-tokens", "--tokens-per-sample")
            )
            most = min(most, max(1, tokens // length))  # these batches are not cut by their tokens
        plan = plan_batch(recipe.batch_sequences, num_gpus=recipe.num_gpus, most_per_gpu=most, may_differ=may_differ)
        options = ("--batch-size", str(plan.per_gpu), "--update-freq", str(plan.update_freq))
        is_even = plan.per_gpu * plan.update_freq * recipe.num_gpus == recipe.batch_sequences
        return options if is_even else (*options, "--update-sequences", str(recipe.batch_sequences))
    length = int(value_of(arguments, "--tokens-per-sample", needed_for="--batch-tokens"))
    most = int(value_of(arguments, "--max-tokens", needed_for="--batch-tokens")) // length
    if most < 1:
        raise ValueError(
            f"--max-tokens is smaller than --tokens-per-sample ({length}): a batch of one GPU would be empty."
        )
    sequences = sequences_in_tokens(recipe.batch_tokens or 0, tokens_per_sample=length)
    plan = plan_batch(sequences, num_gpus=recipe.num_gpus, most_per_gpu=most)
    return ("--max-tokens", str(plan.per_gpu * length), "--update-freq", str(plan.update_freq))
