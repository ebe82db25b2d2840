"""`--optimizer roberta_adamw`: torch's fused AdamW inside fairseq's trainer, with the paper's settings as defaults.

fairseq's own `adam` is a loop of small operations over every parameter unless apex is installed. The update is the
same decoupled weight decay (Loshchilov & Hutter 2019), applied to all parameters as fairseq does, and Adam
(Kingma & Ba 2015, algorithm 1). One difference: algorithm 1 adds epsilon after the bias correction of the second
moment, fairseq before it, so its epsilon is effectively larger in the first few hundred updates.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II


@dataclass
class RobertaAdamWConfig(FairseqDataclass):
    """Options of the optimizer, named as fairseq's `adam` names them; defaults from the paper's Table 9."""

    adam_betas: Any = field(default="(0.9, 0.98)", metadata={"help": "decay rates of the two moments"})
    adam_eps: float = field(default=1e-6, metadata={"help": "epsilon in the denominator"})
    weight_decay: float = field(default=0.01, metadata={"help": "decoupled weight decay"})
    lr: list[float] = II("optimization.lr")


def parse_betas(value: Any) -> tuple[float, float]:
    """Read "(0.9, 0.98)" or a pair of numbers.

    Raises:
        ValueError: if it is no pair of numbers in [0, 1).
    """
    parts = value.strip("()[] ").split(",") if isinstance(value, str) else list(value)
    try:
        betas = [float(part) for part in parts]
    except ValueError:
        betas = []
    if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
        raise ValueError(f"--adam-betas must be two numbers from 0 to below 1, as '(0.9, 0.98)', got {value!r}.")
    return betas[0], betas[1]


@register_optimizer("roberta_adamw", dataclass=RobertaAdamWConfig)
class RobertaAdamW(FairseqOptimizer):
    """torch.optim.AdamW, fused; runs in fp32 and under fairseq's fp16 and bf16 wrappers (fp32 master weights)."""

    def __init__(self, cfg: RobertaAdamWConfig, params: Iterable[torch.nn.Parameter]) -> None:
        super().__init__(cfg)
        self._optimizer = torch.optim.AdamW(params, fused=True, **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """Settings that override those stored in a checkpoint."""
        return {
            "lr": self.cfg.lr[0] if isinstance(self.cfg.lr, Sequence) else self.cfg.lr,
            "betas": parse_betas(self.cfg.adam_betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
        """Take over a state of this optimizer or of fairseq's `adam`, whose moments mean the same."""
        super().load_state_dict(state_dict, optimizer_overrides)
        for group in self.param_groups:  # a state of fairseq's adam has none of these
            group.update(fused=True, foreach=None, decoupled_weight_decay=True)
            group.update(amsgrad=False, maximize=False, capturable=False, differentiable=False)

    @property
    def supports_flat_params(self) -> bool:
        """The fp16 and bf16 wrappers may hand over all parameters as one flat tensor."""
        return True
