"""`--optimizer roberta_adamw`: torch's fused AdamW inside fairseq's trainer, with the paper's settings as defaults.

fairseq's own `adam` is a loop of small operations over every parameter unless apex is installed. The update is the
same decoupled weight decay (Loshchilov & Hutter 2019), applied to all parameters as fairseq does, and Adam
(Kingma & Ba 2015, algorithm 1). One difference: algorithm 1 adds epsilon after the bias correction of the second
moment, fairseq before it, so its epsilon is effectively larger in the first few hundred updates.

With --layer-lr-decay the learning rate falls from the heads to the embeddings, by this factor a layer (Clark et al.
2020, section A.2). Which layer a parameter belongs to, fine-tuning tasks write onto it (`tasks/layer_depth.py`).
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
    layer_lr_decay: float = field(
        default=1.0,
        metadata={
            "help": "in fine-tuning, each layer's learning rate is that of the layer above it times this; heads have "
            "the full one, embeddings the lowest. 1: the same for all"
        },
    )
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


def layer_groups(params: Iterable[torch.nn.Parameter], decay: float) -> list[dict[str, Any]]:
    """Parameters by the number of layers above them, the fewest first; "lr_scale" is their share of the learning rate.

    Raises:
        ValueError: if `decay` is none, or a parameter does not tell its layer.
    """
    if not 0.0 < decay <= 1.0:
        raise ValueError(f"--layer-lr-decay must lie above 0 and be at most 1, got {decay}.")
    if decay == 1.0:
        return [{"params": list(params)}]
    groups: dict[int, list[torch.nn.Parameter]] = {}
    for parameter in params:
        layers_above = getattr(parameter, "optim_overrides", {}).get("layers_above")
        if layers_above is None:
            raise ValueError(
                "--layer-lr-decay needs to know each parameter's layer. The fine-tuning tasks of this package tell it; "
                "with --fp16 and with --ddp-backend fully_sharded, fairseq joins all parameters and forgets it: give "
                "--fp16-no-flatten-grads or --bf16, and another backend, or leave --layer-lr-decay out."
            )
        groups.setdefault(layers_above, []).append(parameter)
    return [{"params": groups[above], "lr_scale": decay**above} for above in sorted(groups)]


@register_optimizer("roberta_adamw", dataclass=RobertaAdamWConfig)
class RobertaAdamW(FairseqOptimizer):
    """torch.optim.AdamW, fused; runs in fp32 and under fairseq's fp16 and bf16 wrappers (fp32 master weights)."""

    def __init__(self, cfg: RobertaAdamWConfig, params: Iterable[torch.nn.Parameter]) -> None:
        super().__init__(cfg)
        groups = layer_groups(params, cfg.layer_lr_decay)
        self._optimizer = torch.optim.AdamW(groups, fused=True, **self.optimizer_config)
        self._lr_scales = [group.get("lr_scale", 1.0) for group in groups]
        self.set_lr(self.optimizer_config["lr"])

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
        """Take over a state of this optimizer or of fairseq's `adam`, whose moments mean the same.

        Raises:
            ValueError: if one of the two was made with --layer-lr-decay and the other without.
        """
        if len(state_dict["param_groups"]) != len(self.param_groups):
            raise ValueError(
                f"The checkpoint's optimizer has {len(state_dict['param_groups'])} groups of parameters and this one "
                f"{len(self.param_groups)}: --layer-lr-decay was 1 in one of the two trainings. Give it as before, or "
                "--reset-optimizer."
            )
        super().load_state_dict(state_dict, optimizer_overrides)
        for group, lr_scale in zip(self.param_groups, self._lr_scales, strict=True):
            # A state of fairseq's adam has none of these, and one with another decay has other scales.
            group.update(fused=True, foreach=None, decoupled_weight_decay=True, lr_scale=lr_scale)
            group.update(amsgrad=False, maximize=False, capturable=False, differentiable=False)

    def set_lr(self, lr: float) -> None:
        """Set the learning rate; each group has its share of it."""
        for group, lr_scale in zip(self.param_groups, self._lr_scales, strict=True):
            group["lr"] = lr * lr_scale

    def get_lr(self) -> float:
        """The learning rate of the heads."""
        return float(self.param_groups[0]["lr"] / self._lr_scales[0])

    @property
    def supports_flat_params(self) -> bool:
        """The fp16 and bf16 wrappers may hand over all parameters as one flat tensor."""
        return True
