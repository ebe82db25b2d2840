"""Refuses bad options before the start that fairseq-train and our classes would refuse after it.

The rules stand where they act: in the classes that the options name (`check_options`), in `tasks/training_options.py`
and in `tasks/masked_lm_options.py`. Nothing is built here, and no data is read but a prepared folder's settings.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import fields
from typing import Any

from omegaconf import MISSING

from roberta_plugin.training.arguments import OUR_TASK


def check_options(parsed: Namespace) -> None:
    """Check the options of task, model, criterion, optimizer and learning rate, and those of fairseq around them.

    Args:
        parsed: options as `arguments.parse` returns them.

    Raises:
        FileNotFoundError: for fine-tuning, if the prepared folder does not exist.
        ValueError: naming the option, its value and the remedy.
    """
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.optim import OPTIMIZER_REGISTRY
    from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    from roberta_plugin.tasks.masked_lm_options import check_positions
    from roberta_plugin.tasks.training_options import check_training_options

    registries: dict[str, dict[str, Any]] = {
        "task": TASK_REGISTRY,
        "arch": ARCH_MODEL_REGISTRY,
        "criterion": CRITERION_REGISTRY,
        "optimizer": OPTIMIZER_REGISTRY,
        "lr_scheduler": LR_SCHEDULER_REGISTRY,
    }
    for kind, registry in registries.items():
        chosen = registry.get(getattr(parsed, kind, None) or "")
        options = with_defaults(parsed, chosen)
        check = getattr(chosen, "check_options", None)
        if check is not None:
            check(options)
        for name in needed_by(chosen):
            if getattr(options, name) in (None, MISSING):
                option, owner = (f"--{word.replace('_', '-')}" for word in (name, kind))
                raise ValueError(f"{option} is missing: {owner} {getattr(parsed, kind)} needs it.")
    check_training_options(parsed)
    if parsed.task == OUR_TASK:
        for limit in ("max_tokens", "max_tokens_valid"):
            check_positions(
                parsed.tokens_per_sample,
                max_positions=getattr(parsed, "max_positions", None),
                max_tokens=getattr(parsed, limit, None),
                limit=f"--{limit.replace('_', '-')}",
            )


def with_defaults(parsed: Namespace, chosen: Any) -> Namespace:
    """All options, with the defaults of a registered class of fairseq; options of two classes are left out."""
    dataclass = getattr(chosen, "__dataclass", None)
    return Namespace(**{**(vars(dataclass()) if dataclass else {}), **vars(parsed)})


def needed_by(chosen: Any) -> list[str]:
    """Options of a class of fairseq's registries that have no default, or that of another option, which may be null."""
    dataclass = getattr(chosen, "__dataclass", None)
    found = fields(dataclass) if dataclass else ()
    return [item.name for item in found if item.default == MISSING or str(item.default).startswith("${")]
