"""Fault 14: --amp divides gradients by the loss scale twice, and forgets the scale in checkpoints."""

from __future__ import annotations

from typing import Any

from fairseq.optim import AMPOptimizer

_KEY = "grad_scaler"


def step(self: Any) -> None:
    """Update the parameters; `clip_grad_norm` has already unscaled the gradients."""
    self.scaler.step(self.optimizer)  # the object that the scaler unscaled; fairseq passes its wrapper
    self.scaler.update()


def state_dict(self: Any) -> dict[str, Any]:
    """The optimizer's state, with the loss scaler's."""
    return {**self.fp32_optimizer.state_dict(), _KEY: self.scaler.state_dict()}


def load_state_dict(self: Any, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
    """Load such a state; without a saved loss scale, the initial one stays."""
    self.fp32_optimizer.load_state_dict(state_dict, optimizer_overrides)
    if self.scaler.is_enabled() and state_dict.get(_KEY):
        self.scaler.load_state_dict(state_dict[_KEY])


def install() -> None:
    """Replace fairseq's methods."""
    AMPOptimizer.step = step
    AMPOptimizer.state_dict = state_dict
    AMPOptimizer.load_state_dict = load_state_dict
