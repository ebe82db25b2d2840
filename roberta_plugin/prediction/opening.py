"""Opens a model for prediction, on its device, with the kind of answers that it was trained for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import TASKS, benchmark_of, kind_of_task
from roberta_plugin.hub import RobertaHub
from roberta_plugin.kinds import KINDS, TASK_KINDS, kind_class
from roberta_plugin.kinds.base import Kind, Official
from roberta_plugin.prediction.settings import PredictSettings


def open_kind(settings: PredictSettings) -> Kind:
    """The model of the settings, ready to answer."""
    device = usable_device(settings.device)
    wanted = settings.task_kind or ("score" if settings.score else None)
    kind = None if wanted is None else kind_class(TASK_KINDS[wanted])  # imported before the model
    hub = RobertaHub.from_pretrained(
        settings.model,
        data=settings.data,
        tokenizer=settings.tokenizer,
        precision=settings.precision,
        device=device,
    )
    kind = kind or kind_class(kind_of_model(hub))
    is_own = kind.name == kind_of_training(hub.trained_on)  # else its numbers would decide about something else
    found = kind.numbers_of(hub.trained_on.get(identity.DECISIONS, {})) if is_own else {}
    return kind.answering(hub, settings, _official(str(hub.trained_on.get("task"))), found)


def _official(task: str) -> Official:
    """How a fine-tuning task reads records; by no rules for models of an unknown task."""
    return benchmark_of(task).rules if task in TASKS else Official()


def kind_of_model(hub: RobertaHub) -> str:
    """The kind of task that a model was fine-tuned for, or fill_mask if it was not.

    Raises:
        ValueError: if the checkpoint does not say it and its heads leave it open.
    """
    trained = kind_of_training(hub.trained_on)
    if trained is not None:
        return trained
    for name in ("question_answering", "tagging", "summary"):
        if hub.heads_of(kind_class(name).head):
            return name
    heads = hub.heads_of("classification")
    if not heads:
        return "fill_mask"
    if all(hub.num_classes(head) > 1 for head in heads):
        return "classification"
    raise ValueError(
        f"The checkpoint does not say what its head {heads[0]} with one output was trained for: give --task-kind, one "
        f"of {', '.join(TASK_KINDS)}."
    )


def kind_of_training(trained_on: Mapping[str, Any]) -> str | None:
    """The kind that answers for a fine-tuned checkpoint (`finetuning/identity.py`); None if it does not record it."""
    settings = trained_on.get("settings", {})
    name = kind_of_task(str(trained_on.get("task"))) or settings.get("kind")
    if name not in KINDS:
        return None
    return TASK_KINDS[KINDS[name].task_kind or name]


def usable_device(name: str | None) -> str:
    """The device of this name, or a GPU if there is one, or the CPU."""
    device = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0][:120]
        raise ValueError(f"--device {device} cannot be used here ({reason}). Give cpu, or leave it out.") from error
    return device
