"""The names of `registry.TRAININGS`, registered with fairseq: a task and a criterion each, of the same two classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.tasks import TASK_REGISTRY, register_task

from roberta_plugin.criterions.finetuning import FineTuningCriterion
from roberta_plugin.option_slices import load_options, owners_of
from roberta_plugin.registry import CRITERION_OPTIONS, TRAININGS, Extension, leave_out, on_registration
from roberta_plugin.tasks.finetuning import FineTuningTask


def register_trainings(extension: Extension | None = None) -> None:
    """Register all names with fairseq, or those of one extension; what is registered stays as it is."""
    for name in TRAININGS if extension is None else extension.trainings:
        if name not in TASK_REGISTRY:
            try:
                _register(name)
            except Exception as error:  # whatever a foreign module raises
                owner = TRAININGS.owner(name)
                leave_out(f"The {TRAININGS.noun} {name!r} of {owner.package} is", owner, error)
    for key, entry in () if extension is None else extension.criterion_options.items():
        late = ValueError(f"the criterion {entry.training} is registered already: use an entry point")
        owner = CRITERION_OPTIONS.owner(key)
        leave_out(f"The {CRITERION_OPTIONS.noun} {key!r} of {owner.package} is", owner, late)
    if register_trainings not in on_registration:
        on_registration.append(register_trainings)


def _register(name: str) -> None:
    title = "".join(part.title() for part in name.split("_"))
    task = type(f"{title}Task", (FineTuningTask,), {"name": name, "__doc__": f"Fine-tuning, as {name}."})
    register_task(name, dataclass=TRAININGS.load(name, "task_options"))(task)
    options = _criterion_options(name)
    criterion = type(f"{title}Criterion", (FineTuningCriterion,), {"name": name, "config": options})
    register_criterion(name, dataclass=options)(criterion)


def _criterion_options(name: str) -> Any:
    """The dataclass of a criterion's options, with the fields that other extensions add."""
    options = TRAININGS.load(name, "criterion_options")
    entries = [key for key, entry in CRITERION_OPTIONS.items() if entry.training == name]
    added = [kind for _, kind in load_options(CRITERION_OPTIONS, entries, part="options", taken=owners_of(options))]
    if not added:
        return options
    bases = (*added, options)
    return dataclass(type(options.__name__, bases, {"__doc__": options.__doc__, "__module__": options.__module__}))
