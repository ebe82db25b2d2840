"""Fault 31: a training that diverges ends with a traceback and without a remedy, or goes on with a loss that is NaN.

fairseq raises a FloatingPointError where gradients are NaN or infinite, or where the loss scale of --fp16 has fallen to
its minimum. Where only the loss of a validation is NaN, it goes on, and no later checkpoint is ever the best one.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from typing import Any

_OF_RANKS = "inconsistent between workers"  # another fault, with a remedy of its own
_OURS = "Update "


def train_step(fairseqs: Callable[..., Any], trainer: Any, *args: Any, **options: Any) -> Any:
    """fairseq's `Trainer.train_step`; an update without finite numbers is named with its likely cause.

    Raises:
        FloatingPointError: the same on all ranks.
    """
    try:
        return fairseqs(trainer, *args, **options)
    except FloatingPointError as error:
        if _OF_RANKS in str(error) or str(error).startswith(_OURS):  # of an update that --amp has tried again
            raise
        is_scale = "loss scale" in str(error)
        fact = "the loss scale has fallen to its minimum" if is_scale else "the gradients are NaN or infinite"
        update = trainer.get_num_updates() + 1
        raise FloatingPointError(explain(trainer, fact, update=update, is_scale=is_scale)) from error


def valid_stats(
    fairseqs: Callable[..., dict[str, Any]], cfg: Any, trainer: Any, stats: dict[str, Any], *args: Any
) -> dict[str, Any]:
    """fairseq's numbers of a validation; a loss that is NaN ends the training before it is saved as the best.

    Raises:
        FloatingPointError: likewise.
    """
    result = fairseqs(cfg, trainer, stats, *args)
    if "loss" in result and not math.isfinite(float(result["loss"])):
        fact = f"the loss of the validation is {float(result['loss']):g}"
        raise FloatingPointError(explain(trainer, fact, update=trainer.get_num_updates()))
    return result


def explain(trainer: Any, fact: str, *, update: int, is_scale: bool = False) -> str:
    """A message: what happened at which update, the likely cause and the remedy."""
    cfg, rate = trainer.cfg, float(trainer.get_lr() or 0.0)
    peak = max(cfg.optimization.lr, default=rate)
    remedies = [f"a lower --lr (now {peak:g}; a third of it, say)"]
    warm_up = getattr(cfg.lr_scheduler, "warmup_updates", None)
    if warm_up is not None:
        remedies.append(f"a longer warm-up (--warmup-updates, now {warm_up:g})")
    if not cfg.optimization.clip_norm:
        remedies.append("--clip-norm 1")
    if is_scale or cfg.common.fp16:
        remedies.append("--bf16 instead of --fp16, where the GPU has it")
    folder = cfg.checkpoint.save_dir
    last = os.path.join(folder, "checkpoint_last.pt")
    again = f" The same command would go on from {last} to the same end." if os.path.exists(last) else ""
    return (
        f"{_OURS}{update:,}: {fact}, so the training cannot go on. It has most likely diverged, at a learning rate of "
        f"{rate:g}: give {', or '.join(remedies)}, and another folder for it.{again}"
    )


def quiet_detector() -> None:
    """Keep fairseq from logging all gradients as tensors when one of them is NaN; it still names the module."""
    logging.getLogger("fairseq.nan_detector").setLevel(logging.WARNING)
