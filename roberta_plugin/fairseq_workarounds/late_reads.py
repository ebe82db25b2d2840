"""Fault 35: every update waits until the GPU has finished it.

fairseq looks at the norm of the gradient before the optimizer's step, and logs the sums of the update after it; with
several ranks it also copies sums to the GPU, divides by one of them, and compares the norms of all ranks. Each of these
waits until the GPU has finished everything. The GPU is then idle until the next forward pass begins: 2 to 4 ms of an
update of 30.

Here an update reads what the one before has computed, which has long been finished:

    the norm      is not read before the step. Where it is not finite, the GPU leaves the weights as they are
                  (`RobertaAdamW.skips`), and the next update ends the training
    the sums      are logged one update late; but at once where somebody reads them: every --log-interval updates,
                  before a validation, a checkpoint and the end of an epoch. So the log has the same numbers
    the norms     of ranks are compared every 100th update

This holds on a GPU, with `roberta_adamw` in bf16 or fp32. The loss scale of --fp16 and --amp needs the norm at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
import torch
from fairseq.logging import metrics
from torch import Tensor

from roberta_plugin.fairseq_workarounds.divergence import explain

CHECKED_EVERY = 100  # updates between two comparisons of the ranks' norms
_STATE = "_roberta_late_reads"


class HostCopy:
    """Numbers of a device, on their way to the host."""

    def __init__(self, values: Tensor) -> None:
        """`values` (n,) are copied when the device has computed them; nobody waits."""
        self._event: Any = None
        if values.is_cuda and torch.cuda.is_available():
            self._numbers = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._numbers.copy_(values, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()
        else:
            self._numbers = values.to("cpu", non_blocking=True)

    def read(self) -> list[float]:
        """The numbers; waits until they have arrived."""
        if self._event is not None:
            self._event.synchronize()
        return self._numbers.tolist()  # type: ignore[no-any-return]


@dataclass
class LateLog:
    """The logging outputs of an update, whose tensors are on their way to the host."""

    outputs: Sequence[Mapping[str, Any]] | None
    numbers: dict[str, Any]
    _places: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    _copy: HostCopy | None = None

    @classmethod
    def start(cls, outputs: Iterable[Mapping[str, Any]] | None, sample_size: Any, norm: Tensor) -> LateLog:
        """Begin to copy all scalars at once."""
        copies = None if outputs is None else [dict(output) for output in outputs]
        numbers = {"sample_size": sample_size, "gradient_norm": norm}
        found = cls(copies, numbers)
        values = []
        for each in (*(copies or []), numbers):
            for name, value in each.items():
                if torch.is_tensor(value) and value.dim() == 0 and value.is_cuda == norm.is_cuda:
                    found._places.append((each, name))
                    values.append(value.detach().double())
        found._copy = HostCopy(torch.stack(values))
        return found

    def arrive(self) -> LateLog:
        """With numbers in the place of tensors."""
        if self._copy is not None:
            for (each, name), number in zip(self._places, self._copy.read(), strict=True):
                each[name] = number
            self._copy = None
        return self


@dataclass
class LateReads:
    """Values that a trainer has not read yet."""

    gradient_norm: Tensor | None = None
    """Values of the update that is being made."""
    log: LateLog | None = None
    """Values of the update before."""
    has_logged: bool = False
    write: Callable[[LateLog], Any] | None = None


def state_of(trainer: Any) -> LateReads:
    """The values that the trainer has not read yet."""
    if getattr(trainer, _STATE, None) is None:
        setattr(trainer, _STATE, LateReads())
    state: LateReads = getattr(trainer, _STATE)
    return state


def may_read_late(trainer: Any) -> bool:
    """True if the training need not look at an update before the next."""
    cfg = trainer.cfg
    return (
        is_on_gpu(trainer)
        and not (cfg.common.fp16 or cfg.common.amp or getattr(trainer, "tpu", False) or cfg.optimization.use_bmuf)
        and cfg.distributed_training.ddp_backend not in ("slowmo", "fully_sharded")
        and _skipping(trainer.optimizer) is not None
        and getattr(trainer.task, "announces_stops", False)
    )


def is_on_gpu(trainer: Any) -> bool:
    """True if the host can run ahead of the device."""
    return is_gpu(trainer.device)


def is_gpu(device: torch.device) -> bool:
    """True if it is a GPU."""
    return device.type == "cuda"


def _skipping(optimizer: Any) -> Any:
    """The optimizer that can leave a step out on the device, behind fairseq's wrapper; None if it cannot."""
    inner = getattr(optimizer, "fp32_optimizer", None) or getattr(optimizer, "wrapped_optimizer", None) or optimizer
    return inner if hasattr(inner, "skips") else None


def clip_grad_norm(fairseqs: Callable[..., Tensor], trainer: Any, clip_norm: float) -> Tensor:
    """fairseq's method; returns the norm of the update before, on the host, which fairseq looks at."""
    norm = fairseqs(trainer, clip_norm)
    if not may_read_late(trainer):
        return norm
    state = state_of(trainer)
    state.gradient_norm = norm
    _skipping(trainer.optimizer).skips = torch.isfinite(norm).logical_not().float()
    before = 0.0 if state.log is None else state.log.arrive().numbers["gradient_norm"]
    if not math.isfinite(before):
        raise_diverged(trainer)
    return torch.tensor(before)


def check_grad_norms(fairseqs: Callable[..., None], trainer: Any, grad_norm: Tensor) -> None:
    """fairseq's comparison of the ranks' norms, every 100th time."""
    state = state_of(trainer)
    if not may_read_late(trainer) or state.gradient_norm is None:
        fairseqs(trainer, grad_norm)
    elif trainer.get_num_updates() % CHECKED_EVERY == 0:
        fairseqs(trainer, state.gradient_norm)


def reduce_and_log_stats(
    fairseqs: Callable[..., Any], trainer: Any, logging_outputs: Any, sample_size: Any, grad_norm: Any = None
) -> Any:
    """Log what the update before has left, and leave this update's for the next; see fault 35."""
    sample_size = sample_size.number if isinstance(sample_size, Divisor) else sample_size
    state = state_of(trainer)
    if grad_norm is None or state.gradient_norm is None or not may_read_late(trainer):
        return fairseqs(trainer, logging_outputs, sample_size, grad_norm)
    left, state.log = state.log, LateLog.start(logging_outputs, sample_size, state.gradient_norm)
    state.gradient_norm = None

    def write(log: LateLog) -> Any:
        log.arrive()
        return fairseqs(trainer, log.outputs, log.numbers["sample_size"], torch.tensor(log.numbers["gradient_norm"]))

    state.write = write
    result = {} if left is None else write(left)
    # The first one begins the measurement of time
    if not state.has_logged or trainer.get_num_updates() % trainer.cfg.common.log_interval == 0:
        state.has_logged = True
        result = read_now(trainer) or result
    return result


def read_now(trainer: Any) -> Any:
    """Log what the last update has left, because somebody reads the log.

    Raises:
        FloatingPointError: if its gradients are not finite.
    """
    state = state_of(trainer)
    left, state.log = state.log, None
    if left is None or state.write is None:
        return None
    with metrics.aggregate("train"), metrics.aggregate("train_inner"):
        result = state.write(left)
    if not math.isfinite(left.numbers["gradient_norm"]):
        raise_diverged(trainer)
    return result


def raise_diverged(trainer: Any) -> None:
    """Name the last update, whose step was left out."""
    raise FloatingPointError(explain(trainer, "the gradients are NaN or infinite", update=trainer.get_num_updates()))


def validate_and_save(
    fairseqs: Callable[..., Any], cfg: Any, trainer: Any, task: Any, epoch_itr: Any, subsets: Any, end_of_epoch: bool
) -> Any:
    """The end of an update. At the end of an epoch, the log is read."""
    if end_of_epoch:
        read_now(trainer)
    return fairseqs(cfg, trainer, task, epoch_itr, subsets, end_of_epoch)


def validate(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, *args: Any) -> Any:
    """A validation, which logs elsewhere."""
    read_now(trainer)
    return fairseqs(cfg, trainer, *args)


def save_checkpoint(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, *args: Any, **options: Any) -> Any:
    """A checkpoint, which has the meters of the log."""
    read_now(trainer)
    return fairseqs(cfg, trainer, *args, **options)


class Divisor:
    """A number of the device that counts as True: fairseq asks whether a sum of sample sizes is 0, and would wait."""

    def __init__(self, number: Tensor) -> None:
        self.number = number

    def __bool__(self) -> bool:
        return True

    def __rtruediv__(self, numerator: float) -> Tensor:
        return numerator / torch.where(self.number == 0, 1.0, self.number)


def aggregate_logging_outputs(fairseqs: Callable[..., Any], trainer: Any, *args: Any, **options: Any) -> Any:
    """fairseq's sums over ranks. The sum of the sample sizes divides without a wait, and 0 divides as 1."""
    outputs, (sample_size, *others) = fairseqs(trainer, *args, **options)
    if torch.is_tensor(sample_size) and is_on_gpu(trainer):
        sample_size = Divisor(sample_size)
    return outputs, (sample_size, *others)


def all_reduce_dict(fairseqs: Callable[..., Any], data: Mapping[str, Any], device: torch.device, group: Any) -> Any:
    """fairseq's sums over ranks of the numbers in a dict, with numbers of the host sent to a GPU without a wait."""
    of_host = {name: value for name, value in data.items() if not torch.is_tensor(value)}
    if not is_gpu(device) or not of_host:
        return fairseqs(data, device, group)
    numbers = torch.tensor(list(of_host.values()), dtype=torch.double, pin_memory=torch.cuda.is_available())
    on_device = numbers.to(device, non_blocking=True)
    return fairseqs({**data, **dict(zip(of_host, on_device.unbind(), strict=True))}, device, group)
