"""Fault 24: training resumes with different data or a different head."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fairseq.trainer import Trainer

from roberta_plugin.fairseq_workarounds.training_loop import when_loaded, wrap
from roberta_plugin.finetuning import identity
from roberta_plugin.models.checkpoints.names import ALL_HEADS, saved_options

logger = logging.getLogger(__name__)

_OF_NO_HEAD = {"data", "seed", "finetune_from_model", "ddp_backend"}  # options of the tasks


def load_checkpoint(fairseqs: Callable[..., Any], trainer: Any, filename: str, *arguments: Any, **options: Any) -> Any:
    """fairseq's `Trainer.load_checkpoint`, with a check of the checkpoint's data and heads."""
    is_reset = arguments[0] if arguments else options.get("reset_optimizer", False)
    check = warn_of_other_words if is_reset else check_continues
    with when_loaded(lambda state: check(trainer, state, Path(filename))):
        return fairseqs(trainer, filename, *arguments, **options)


def check_continues(trainer: Any, state: Mapping[str, Any], path: Path) -> None:
    """Refuse to resume from a checkpoint with different data or heads.

    Raises:
        ValueError: naming the differences.
    """
    remedy = "To continue, give the options that it was started with; to train something else, give another --save-dir"
    try:
        _check_words(trainer.task, state, path)
        remedy += f", and --finetune-from-model {path} to begin with these weights"
        if prepared := getattr(trainer.task, "prepared", None):
            identity.check_task(state, prepared, checkpoint=path)
            split = trainer.cfg.dataset.train_subset
            identity.check_examples(state, prepared, split=split, checkpoint=path)
        _check_heads(trainer, state, path)
    except ValueError as error:
        raise ValueError(f"{error} {remedy}.") from None


def warn_of_other_words(trainer: Any, state: Mapping[str, Any], path: Path) -> None:
    """Warn if a training begins with weights of another vocabulary, which may be intended."""
    try:
        _check_words(trainer.task, state, path)
    except ValueError as error:
        logger.warning(str(error))


def install() -> None:
    """Check checkpoints before a training resumes from them."""
    wrap(Trainer, "load_checkpoint", load_checkpoint)


def _check_words(task: Any, state: Mapping[str, Any], path: Path) -> None:
    ours = (task.state_dict() or {}).get(identity.KEY)
    if isinstance(ours, Mapping):  # not in tasks of fairseq
        identity.check_same_words(state, ours, checkpoint=path, data=str(task.cfg.data))


def _check_heads(trainer: Any, state: Mapping[str, Any], path: Path) -> None:
    if getattr(trainer.cfg.model, "load_checkpoint_heads", False):  # those of the checkpoint
        return
    theirs, ours = _head_shapes(state["model"]), _head_shapes(trainer.get_model().state_dict())
    if theirs and theirs != ours:
        different = list(_different_options(saved_options(state)[0], trainer.cfg.task))
        name = min(name for name, _ in theirs.items() ^ ours.items())
        different.append(f"{name} was {_shown(theirs.get(name))} and is {_shown(ours.get(name))} now")
        raise ValueError(f"{path} is of a training with another head: {'; '.join(different)}.")


def _head_shapes(parameters: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in parameters.items() if name.startswith(ALL_HEADS)}


def _shown(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else " x ".join(map(str, shape))


def _different_options(saved: Mapping[str, Any], given: Any) -> Iterator[str]:
    if not isinstance(given, Mapping):  # fairseq's older tasks have the options of everything
        return
    for name in sorted(saved.keys() - _OF_NO_HEAD):
        if isinstance(saved[name], str | int | float) and name in given and saved[name] != given[name]:
            option = "task" if name == "_name" else name.replace("_", "-")
            yield f"--{option} was {saved[name]} and is {given[name]} now"
