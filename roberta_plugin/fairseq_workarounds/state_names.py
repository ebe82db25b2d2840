"""Fault 15: a compatible state is refused because its class in fairseq has another name."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.trainer import Trainer

from roberta_plugin.fairseq_workarounds.training_loop import when_loaded, wrap

logger = logging.getLogger(__name__)

# Class of the present training -> classes whose state has the same meaning.
_CRITERIONS = {"RobertaMaskedLMCriterion": {"MaskedLmLoss"}}
_OPTIMIZERS = {
    "RobertaAdamW": {"FairseqAdam"},
    # With roberta_adamw both keep fp32 masters, moments and the loss scaler under the same names.
    "FP16Optimizer": {"MemoryEfficientFP16Optimizer"},
    "MemoryEfficientFP16Optimizer": {"FP16Optimizer"},
}


def load_checkpoint(fairseqs: Callable[..., Any], trainer: Any, filename: str, *arguments: Any, **options: Any) -> Any:
    """fairseq's `Trainer.load_checkpoint`, with the class names that it expects in the checkpoint."""

    def rename(state: dict[str, Any]) -> None:
        history = state.get("optimizer_history")
        if history:
            _rename(history[-1], "criterion_name", type(trainer.get_criterion()).__name__, _CRITERIONS)
            if getattr(trainer.cfg.optimizer, "_name", None) == "roberta_adamw":
                _rename(history[-1], "optimizer_name", _optimizer_class(trainer.cfg), _OPTIMIZERS)

    with when_loaded(rename):
        return fairseqs(trainer, filename, *arguments, **options)


def install() -> None:
    """Accept states of fairseq's classes as states of ours."""
    wrap(Trainer, "load_checkpoint", load_checkpoint)


def _rename(entry: dict[str, Any], key: str, ours: str, taken_over: dict[str, set[str]]) -> None:
    saved = entry.get(key)
    if saved in taken_over.get(ours, ()):
        logger.info(f"The checkpoint's {key} is {saved}: {ours} takes over its state.")
        entry[key] = ours


def _optimizer_class(cfg: Any) -> str:
    """Name of the class that `Trainer._build_optimizer` will build; building it here would double its memory."""
    if cfg.common.fp16 or cfg.common.bf16:
        is_efficient = cfg.common.memory_efficient_fp16 or cfg.common.memory_efficient_bf16
        return "MemoryEfficientFP16Optimizer" if is_efficient else "FP16Optimizer"
    return "AMPOptimizer" if cfg.common.amp else str(OPTIMIZER_REGISTRY[cfg.optimizer._name].__name__)
