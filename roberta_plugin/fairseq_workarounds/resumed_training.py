"""Fault 24: a training goes on with other data, or with another head, than it was started with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fairseq.trainer import Trainer

from roberta_plugin.fairseq_workarounds.training_loop import when_loaded, wrap
from roberta_plugin.finetuning import identity
from roberta_plugin.models.checkpoints.heads import ALL_HEADS
from roberta_plugin.models.checkpoints.options import saved_options

_OF_NO_HEAD = {"data", "seed", "finetune_from_model", "ddp_backend"}  # options of the tasks


def load_checkpoint(fairseqs: Callable[..., Any], trainer: Any, filename: str, *arguments: Any, **options: Any) -> Any:
    """fairseq's `Trainer.load_checkpoint`, with a check of what is continued."""
    if arguments[0] if arguments else options.get("reset_optimizer", False):
        return fairseqs(trainer, filename, *arguments, **options)
    with when_loaded(lambda state: check_continues(trainer, state, Path(filename))):
        return fairseqs(trainer, filename, *arguments, **options)


def check_continues(trainer: Any, state: Mapping[str, Any], path: Path) -> None:
    """Refuse a checkpoint of other data or with other heads than those of the training that would continue it.

    Raises:
        ValueError: naming what differs.
    """
    remedy = (
        f"To continue, give what it was started with; to train something else, give another --save-dir, and "
        f"--finetune-from-model {path} to begin with these weights."
    )
    if prepared := getattr(trainer.task, "prepared", None):
        try:
            identity.check_task(state, prepared, checkpoint=path)
        except ValueError as error:
            raise ValueError(f"{error} {remedy}") from None
    model = trainer.get_model()
    if not hasattr(model, "sentence_heads") or model.cfg.load_checkpoint_heads:  # fairseq's own, or heads as there
        return
    theirs, ours = _head_shapes(state["model"]), _head_shapes(model.state_dict())
    if theirs and theirs != ours:
        different = list(_differences(saved_options(state)[0], trainer.cfg.task))
        different = different or [f"{', '.join(sorted({name.split('.')[1] for name in theirs}))} has other sizes"]
        raise ValueError(f"{path} is of a training with another head: {'; '.join(different)}. {remedy}")


def install() -> None:
    """Check checkpoints that are continued."""
    wrap(Trainer, "load_checkpoint", load_checkpoint)


def _head_shapes(parameters: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in parameters.items() if name.startswith(ALL_HEADS)}


def _differences(saved: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(saved.keys() - _OF_NO_HEAD):
        if isinstance(saved[name], str | int | float) and name in given and saved[name] != given[name]:
            yield f"--{name.replace('_', '-')} was {saved[name]} and is {given[name]} now"
