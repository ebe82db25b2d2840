"""A run folder keeps the settings that it began with, except those that concern the machines.

The number of GPUs, the folder of logs and the last update change where and how long the model is trained, not what is
trained. Any other difference is refused and shown, unless `--accept-changes` is given; then the launch records it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from roberta_plugin.launch import status
from roberta_plugin.launch.recipe import LaunchSettings
from roberta_plugin.training import arguments as train_arguments

# By the beginnings of their names in fairseq's namespace.
FREE = (
    # how an update's batch is shared out and computed; the batch is compared instead
    *("batch_size", "required_batch_size", "max_tokens", "update_freq", "update_seq", "num_workers", "cpu"),
    "data_buffer_size",
    *("distributed", "device_id", "ddp", "bucket_cap", "fix_batches", "find_unused", "broadcast", "nprocs", "tpu"),
    *("fp16_", "min_loss_scale", "threshold_loss_scale", "on_cpu_convert", "empty_cache", "attention_backend"),
    *(
        "compile",
        "memory_efficient",
        "all_gather",
        "heartbeat",
        "localsgd",
        "slowmo",
        "pipeline",
        "zero",
        "use_sharded",
    ),
    # what is logged, saved and validated, and when it ends
    *("log", "tensorboard", "wandb", "azureml", "aim", "no_progress", "profile", "plasma", "suppress", "reset_logging"),
    *(
        "background_checkpoints",
        "save",
        "keep",
        "no_",
        "checkpoint",
        "write_checkpoints",
        "load_checkpoint",
        "best_checkpoint",
        "maximize_best",
    ),
    *("valid", "disable_valid", "ignore_unused_valid", "max_valid", "fixed_validation", "skip_invalid", "patience"),
    *("max_update", "max_epoch", "stop", "user_dir", "model_parallel", "use_plasma", "simul", "quant"),
    *("async", "combine_valid", "dataset_impl", "continue_once", "finetune_from", "use_bmuf", "criterion_log"),
)
COMPARED = {"no_mask", "no_shuffle"}  # though they begin like one of FREE


def check(recipe: LaunchSettings, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """All changes since the run began that were accepted, those of this launch last.

    Raises:
        ValueError: for a change that was not, with the old and the new value.
    """
    before = status.read_launch(recipe.output_dir)
    if before is None:
        return ()
    found = _batch_changes(recipe, before)
    if before.arguments:
        found += _update_changes(recipe, before, arguments)
        found += differences(before.arguments, arguments)
    if found and not recipe.accept_changes:
        raise ValueError(
            f"The run folder {recipe.output_dir} was begun with other settings: {'; '.join(found)}. Keep them (the "
            f"number of GPUs may change), choose another --output-dir, or accept "
            "the change by --accept-changes."
        )
    return (*before.changes, *found)


def differences(before: tuple[str, ...], now: tuple[str, ...]) -> list[str]:
    """The options of fairseq-train that differ and matter, as in `--lr 0.1 instead of 0.2`."""
    old, new = (vars(train_arguments.parse(arguments)) for arguments in (before, now))
    names = sorted(old.keys() | new.keys())
    return [
        f"--{name.replace('_', '-')} {_shown(new.get(name))} instead of {_shown(old.get(name))}"
        for name in names
        if _matters(name) and _plain(name, old.get(name)) != _plain(name, new.get(name))
    ]


def _matters(name: str) -> bool:
    return name in COMPARED or not name.startswith(FREE)


def _plain(name: str, value: Any) -> Any:
    """The value; the folders of the data by their absolute paths."""
    if name != "data" or not isinstance(value, str):
        return value
    return re.sub(r"[^,:@]+", lambda match: str(Path(match.group()).absolute()), value)


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value) if isinstance(value, str) else str(value)


def _batch_changes(recipe: LaunchSettings, before: status.Launch) -> list[str]:
    pairs = (
        ("--batch-sequences", recipe.batch_sequences, before.batch_sequences),
        ("--batch-tokens", recipe.batch_tokens, before.batch_tokens),
    )
    return [f"{name} {_shown(now)} instead of {_shown(old)}" for name, now, old in pairs if now != old]


def _update_changes(recipe: LaunchSettings, before: status.Launch, arguments: tuple[str, ...]) -> list[str]:
    """The batch of an update, where no setting of its own fixes it; with another number of GPUs alone it may change."""
    if recipe.batch_sequences is not None or recipe.batch_tokens is not None:
        return []
    old, new = (train_arguments.parse(words) for words in (before.arguments, arguments))
    found = []
    for name in ("batch_size", "max_tokens"):
        was, now = (int(getattr(parsed, name) or 0) * int(parsed.update_freq[0]) for parsed in (old, new))
        if was != now and was * before.num_gpus != now * recipe.num_gpus:
            found.append(
                f"--{name.replace('_', '-')} x --update-freq x GPUs {now * recipe.num_gpus} instead of "
                f"{was * before.num_gpus}"
            )
    return found
