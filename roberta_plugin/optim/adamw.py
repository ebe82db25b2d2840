"""`--optimizer roberta_adamw`: torch's fused AdamW inside fairseq's trainer, with the paper's settings as defaults.

fairseq's own `adam` is a loop of small operations over every parameter unless apex is installed. The update is the
same decoupled weight decay (Loshchilov & Hutter 2019), applied to all parameters as fairseq does, and Adam
(Kingma & Ba 2015, algorithm 1). One difference: algorithm 1 adds epsilon after the bias correction of the second
moment, fairseq before it, so its epsilon is effectively larger in the first few hundred updates.

Under --memory-efficient-fp16 and -bf16 fairseq hands over the model's half-precision parameters themselves. The
optimizer then keeps fp32 masters of its own, and makes fp32 gradients for a part of the parameters at a time: the same
updates as under --fp16 and --bf16 with 4 bytes per parameter less, the fp32 copy of the gradients. (fairseq's `adam`
keeps no masters there, and rounds its updates away: a change below 0.4 % of a bf16 weight is lost.)

With --layer-lr-decay the learning rate falls from the heads to the embeddings, by this factor a layer (Clark et al.
2020, section A.2). Fine-tuning tasks store each parameter's layer on it (`set_layer_depths`).

With --no-decay-norms-and-biases only matrices and embeddings decay, as in BERT's code and in Hugging Face's trainer.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II
from torch import nn
from typing_extensions import override

from roberta_plugin.fairseq_import import OwnGroup
from roberta_plugin.optim import master_weights
from roberta_plugin.settings import setting

logger = logging.getLogger(__name__)

_NUMBERS_AT_A_TIME = 2**25  # fp32 gradients of this many parameters at a time: 128 MB, or the largest matrix
_LAYER = re.compile(r"encoder\.sentence_encoder\.layers\.(\d+)\.")
_ENCODER = "encoder.sentence_encoder."


@dataclass
class RobertaAdamWConfig(FairseqDataclass):
    """Options of the optimizer, named as fairseq's `adam` names them; defaults from the paper's Table 9."""

    adam_betas: Any = setting("(0.9, 0.98)", "decay rates of the two moments")
    adam_eps: float = setting(1e-6, "epsilon in the denominator", smallest=0)
    weight_decay: float = setting(0.01, "decoupled weight decay", smallest=0)
    no_decay_norms_and_biases: bool = setting(
        False, "apply --weight-decay to matrices and embeddings only, as BERT does"
    )
    layer_lr_decay: float = setting(
        1.0,
        "in fine-tuning, the learning rate of each layer is this times the rate of the layer above; heads have the "
        "full rate, embeddings the lowest",
        above=0,
        largest=1,
    )
    lr: list[float] = II("optimization.lr")


def parse_betas(value: Any) -> tuple[float, float]:
    """Read "(0.9, 0.98)" or a pair of numbers.

    Raises:
        ValueError: if it is not a pair of numbers in [0, 1).
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
    """Parameters by the number of layers above them, fewest first; "lr_scale" is their share of the learning rate."""
    if decay == 1.0:
        return [{"params": list(params)}]
    groups: dict[int, list[torch.nn.Parameter]] = {}
    for parameter in params:
        layers_above = getattr(parameter, "optim_overrides", {}).get("layers_above")
        if layers_above is None:
            raise ValueError(
                "--layer-lr-decay needs to know each parameter's layer. The fine-tuning tasks of this package know it; "
                "with --fp16 and with --ddp-backend fully_sharded, fairseq joins all parameters and forgets it: give "
                "--fp16-no-flatten-grads or --bf16, and another backend, or leave --layer-lr-decay out."
            )
        groups.setdefault(layers_above, []).append(parameter)
    return [{"params": groups[above], "lr_scale": decay**above} for above in sorted(groups)]


def without_decay(groups: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The groups, each split into matrices and, without decay, norms and biases.

    Raises:
        ValueError: if all parameters are one flat vector, in which they cannot be distinguished.
    """
    groups = list(groups)
    if not any(parameter.dim() > 1 for group in groups for parameter in group["params"]):
        raise ValueError(
            "--no-decay-norms-and-biases finds no matrix: with --fp16 and with --ddp-backend fully_sharded, fairseq "
            "joins all parameters. Give --fp16-no-flatten-grads or --bf16, and another backend, or leave it out."
        )
    parts = []
    for group in groups:
        matrices = [parameter for parameter in group["params"] if parameter.dim() > 1]
        vectors = [parameter for parameter in group["params"] if parameter.dim() <= 1]
        parts += [{**group, "params": matrices}, {**group, "params": vectors, "weight_decay": 0.0}]
    return [part for part in parts if part["params"]]


class _ScalingAdamW(torch.optim.AdamW):
    """AdamW that divides the gradients by a scale inside the fused step, which saves a pass over them."""

    supports_step_with_scale = True  # fairseq's wrappers for half precision ask for it


class _MasterAdamW(_ScalingAdamW):
    """AdamW of fp32 masters, with the interface of fairseq's wrapper for --memory-efficient-fp16 and -bf16."""

    supports_memory_efficient_fp16 = True
    disable_mem_eff_fp16_loading_hack = True  # the wrapper would put the state back on the CPU after it is loaded


@register_optimizer("roberta_adamw", dataclass=RobertaAdamWConfig)
class RobertaAdamW(OwnGroup, FairseqOptimizer):
    """torch.optim.AdamW, fused; in fp32, under --amp, and with fp32 master weights under --fp16 and --bf16."""

    skips: torch.Tensor | None = None
    """1 where the next step is to leave everything as it is, else 0: a number of the device (), which nobody reads."""

    def __init__(self, cfg: RobertaAdamWConfig, params: Iterable[torch.nn.Parameter]) -> None:
        super().__init__(cfg)
        self.check_options(cfg)
        params = list(params)
        self._halves = params if any(parameter.dtype in master_weights.HALF for parameter in params) else []
        self._masters = [_fp32_copy(half) for half in self._halves]
        groups = layer_groups(self._masters or params, cfg.layer_lr_decay)
        groups = without_decay(groups) if cfg.no_decay_norms_and_biases else groups
        optimizer_class = _MasterAdamW if self._masters else _ScalingAdamW
        self._optimizer = optimizer_class(groups, fused=True, **self.optimizer_config)
        self._lr_scales = [group.setdefault("lr_scale", 1.0) for group in self.param_groups]
        self.set_lr(self.optimizer_config["lr"])

    @classmethod
    @override
    def check_options(cls, cfg: Any) -> None:
        super().check_options(cfg)
        parse_betas(cfg.adam_betas)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """Settings that override those stored in a checkpoint."""
        return {
            "lr": self.cfg.lr[0] if isinstance(self.cfg.lr, Sequence) else self.cfg.lr,
            "betas": parse_betas(self.cfg.adam_betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }

    @property
    def params(self) -> Iterator[torch.nn.Parameter]:
        """The model's parameters, which have the gradients."""
        yield from self._halves or super().params

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, scale: Any = 1.0, groups: Any = None) -> None:
        """Update the parameters with their gradients divided by `scale`."""
        with self._dividing_by(scale), self._skipping():
            if not self._masters:
                self._optimizer.step(closure)
                return
            for part in _parts(self._halves, self._masters):
                gradients = [torch.empty_like(master) for _, master, _ in part]
                torch._foreach_copy_(gradients, [gradient for _, _, gradient in part])
                for (_, master, _), gradient in zip(part, gradients, strict=True):
                    master.grad = gradient
                self._optimizer.step()
                torch._foreach_copy_([half.data for half, _, _ in part], [master.data for _, master, _ in part])
                for _, master, _ in part:
                    master.grad = None

    @contextmanager
    def _dividing_by(self, scale: Any) -> Iterator[None]:
        """Let the fused kernel divide gradients by `scale`, a number or a tensor, without a device-to-host sync."""
        if not torch.is_tensor(scale) and scale == 1.0:
            yield
            return
        options = {"dtype": torch.float32, "device": self.param_groups[0]["params"][0].device}
        # A number is filled in by a kernel: to copy it from the host would wait for all that the GPU still has to do.
        divisor = scale.to(**options) if torch.is_tensor(scale) else torch.full((), scale, **options)
        self._optimizer.grad_scale = divisor  # type: ignore[attr-defined]
        try:
            yield
        finally:
            del self._optimizer.grad_scale  # type: ignore[attr-defined]

    @contextmanager
    def _skipping(self) -> Iterator[None]:
        """Let the fused kernel leave everything as it is where `skips` is 1; it holds for one step."""
        if self.skips is None:
            yield
            return
        self._optimizer.found_inf = self.skips  # type: ignore[attr-defined]
        try:
            yield
        finally:
            del self._optimizer.found_inf  # type: ignore[attr-defined]
            self.skips = None

    @torch.no_grad()
    def clip_grad_norm(
        self, max_norm: float, aggregate_norm_fn: Callable[[torch.Tensor], torch.Tensor] | None = None
    ) -> torch.Tensor:
        """Scale the gradients down to a norm of `max_norm`, unless that is 0; return the norm before, in fp32.

        In three launches on a GPU, where fairseq's loop over the parameters takes two for each.
        """
        gradients = [parameter.grad for parameter in self.params if parameter.grad is not None]
        if not gradients:
            return torch.zeros((), device=next(iter(self.params)).device)
        norms = torch._foreach_norm(gradients, 2, dtype=torch.float32)
        norm = torch.linalg.vector_norm(torch.stack(norms))
        norm = norm if aggregate_norm_fn is None else aggregate_norm_fn(norm)
        if max_norm > 0:
            torch._foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp_(max=1))
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Moments, settings, and the fp32 masters if the optimizer keeps them."""
        state = dict(super().state_dict())
        if self._masters:
            state[master_weights.KEY] = [master.detach() for master in self._masters]
        return state

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
        """Take over a state of this optimizer or of fairseq's `adam`, whose moments mean the same.

        The settings come from this training's options, not from the checkpoint; --optimizer-overrides override both.

        Raises:
            ValueError: if one of the two was made with --layer-lr-decay or --no-decay-norms-and-biases and the other
                without, or other parameters are trained.
        """
        if len(state_dict["param_groups"]) != len(self.param_groups):
            raise ValueError(
                f"The checkpoint's optimizer has {len(state_dict['param_groups'])} groups of parameters and this one "
                f"{len(self.param_groups)}: --layer-lr-decay or --no-decay-norms-and-biases was given in one of the "
                "two trainings only. Give them as before, or begin anew with the weights: --finetune-from-model and "
                "another --save-dir."
            )
        theirs, ours = (
            sum(len(group["params"]) for group in groups) for groups in (state_dict["param_groups"], self.param_groups)
        )
        if theirs != ours:
            raise ValueError(
                f"The checkpoint's optimizer has {theirs} matrices and vectors, and this one {ours}: other parts of "
                "the model were trained. Give --freeze-layers, --lora-rank and --input-format as before, or begin anew "
                "with the weights: --finetune-from-model and another --save-dir."
            )
        names = ("betas", "eps", "weight_decay", "lr_scale")
        settings = [{name: group[name] for name in names} for group in self.param_groups]
        _report_changes(state_dict["param_groups"], settings)
        super().load_state_dict(_for_fused_adamw(state_dict, settings), optimizer_overrides)
        if self._masters:
            pairs = zip(self._halves, self._masters, strict=True)
            master_weights.restore(
                state_dict, [master.data for master in self._masters], halves=((h.data, m.data) for h, m in pairs)
            )

    def set_lr(self, lr: float) -> None:
        """Set the learning rate; each group gets its share of it."""
        for group, lr_scale in zip(self.param_groups, self._lr_scales, strict=True):
            group["lr"] = lr * lr_scale

    def get_lr(self) -> float:
        """The learning rate of the heads."""
        return float(self.param_groups[0]["lr"] / self._lr_scales[0])

    @property
    def supports_flat_params(self) -> bool:
        """The fp16 and bf16 wrappers may hand over all parameters as one flat tensor."""
        return True


def _fp32_copy(half: torch.nn.Parameter) -> torch.nn.Parameter:
    master = torch.nn.Parameter(half.detach().float())
    if hasattr(half, "optim_overrides"):
        master.optim_overrides = half.optim_overrides  # type: ignore[attr-defined]
    return master


def _parts(
    halves: Sequence[torch.nn.Parameter], masters: Sequence[torch.nn.Parameter]
) -> Iterator[list[tuple[torch.nn.Parameter, torch.nn.Parameter, torch.Tensor]]]:
    """Parameters with gradients, their masters and the gradients, a limited number at a time."""
    part: list[tuple[torch.nn.Parameter, torch.nn.Parameter, torch.Tensor]] = []
    for half, master in zip(halves, masters, strict=True):
        if half.grad is None:
            continue
        if part and sum(chosen.numel() for chosen, _, _ in part) + half.numel() > _NUMBERS_AT_A_TIME:
            yield part
            part = []
        part.append((half, master, half.grad))
    if part:
        yield part


def _for_fused_adamw(state_dict: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A state of ours or of fairseq's `adam` as torch's fused AdamW loads it.

    torch puts the step counters on the parameters' device only if the groups *to be loaded* say that they are fused,
    which fairseq's `adam` does not have; and its version for apex may keep the counter in the group.
    """
    flags = {"fused": True, "foreach": None, "amsgrad": False, "maximize": False, "capturable": False}
    flags |= {"differentiable": False, "decoupled_weight_decay": True}
    groups, state = [], dict(state_dict["state"])
    for saved, ours in zip(state_dict["param_groups"], settings, strict=True):
        step = saved.get("step")
        if step is not None:
            state |= {number: {"step": step, **state[number]} for number in saved["params"] if number in state}
        groups.append({name: value for name, value in saved.items() if name != "step"} | flags | dict(ours))
    return {**state_dict, "state": state, "param_groups": groups}


def _report_changes(saved: Sequence[Mapping[str, Any]], settings: Sequence[Mapping[str, Any]]) -> None:
    """Log the settings that differ from the checkpoint's."""
    for name, option in {"betas": "--adam-betas", "eps": "--adam-eps", "weight_decay": "--weight-decay"}.items():
        before, now = saved[0].get(name), settings[0][name]
        if isinstance(before, list):  # betas of some checkpoints, where ours are a tuple
            before = tuple(before)
        if before is not None and before != now:
            logger.info(f"{option} is {now} from here on; the checkpoint was trained with {before}.")
    shares = [[group.get("lr_scale", 1.0) for group in groups] for groups in (saved, settings)]
    if shares[0] != shares[1]:
        logger.info(f"--layer-lr-decay: shares of the learning rate are {shares[1]} from here on, before {shares[0]}.")


def set_layer_depths(model: nn.Module) -> None:
    """Store on each parameter of a RoBERTa, ours or fairseq's, the number of layers above it.

    An optimizer receives parameters without names. `optim_overrides` is one of the two attributes that fairseq copies
    from a parameter to its fp32 master copy (--bf16, or --fp16 with --fp16-no-flatten-grads).

    A parameter that several layers share counts as one of the highest of them.

    Example: with 12 layers, heads have 0, the top layer 1, the first layer 12 and embeddings 13.
    """
    pairs = model.named_parameters(remove_duplicate=False)
    numbers = {parameter: int(match[1]) for name, parameter in pairs if (match := _LAYER.match(name))}
    num_layers = max(numbers.values(), default=-1) + 1
    for name, parameter in model.named_parameters():
        in_embeddings = name.startswith(_ENCODER) and parameter not in numbers
        above = num_layers + 1 if in_embeddings else num_layers - numbers.get(parameter, num_layers)
        parameter.optim_overrides = {"layers_above": above}  # type: ignore[attr-defined]
