"""The speed of one GPU -> step time, days, GPU-hours and memory on many.

    shape (flops.py) + speed of one GPU ---> compute time of a step
    gradients + network (network.py)    ---> time of the all-reduce, most of it hidden by the backward pass
    shape + precision (memory.py)       ---> memory per GPU, and how long a checkpoint stops all of them
    failures (goodput.py)               ---> time that is lost with them, where their rate is given

The result is a lower bound on the time: waiting for data, validation and slow nodes are not included, and a GPU is
slower at smaller batches than in the measured run. The measured speed includes the optimizer's step as often as that
run made it: measure with --update-freq 1 to plan for many GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from roberta_plugin.data.rounding import ceil_div
from roberta_plugin.planner.flops import Shape, flops_per_token
from roberta_plugin.planner.goodput import Failures, goodput
from roberta_plugin.planner.memory import Memory, Precision, checkpoint_bytes, memory_of
from roberta_plugin.planner.network import Machine, all_reduce_seconds
from roberta_plugin.training.batch_size import BatchPlan, plan_batch

BACKWARD_SHARE = 2 / 3  # of a step's FLOPs: 4 of 6 per weight
BUCKET_BYTES = 25 * 2**20  # fairseq's --bucket-cap-mb; nothing hides the all-reduce of the last bucket
FILES_PER_SAVE = 2  # the checkpoint under its own name, and checkpoint_last.pt
HOST_COPY_GB_S = 10.0  # of a state, from a GPU to page-locked memory; an assumption: PCIe 4.0 x16 has 32 nominally
GPU_COUNTS = (8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training, and its speed on one GPU."""

    shape: Shape
    precision: Precision
    batch_sequences: int  # per update, on all GPUs together
    most_per_gpu: int  # sequences in one forward pass of a GPU
    num_updates: int
    tokens_per_second: float  # of one GPU alone
    has_dropout: bool = True
    has_eager_attention: bool = False
    recompute: bool = False
    save_minutes: float = 0.0  # between checkpoints by the clock; 0: none
    save_updates: int = 0  # between checkpoints by updates; 0: none
    saves_in_background: bool = False
    may_differ: bool = True  # whether the GPUs' batches may differ by a sequence, as those of the pretraining task
    overlaps: bool = True  # whether the all-reduce overlaps the backward pass: torch's DDP, not legacy_ddp

    @property
    def tokens_per_update(self) -> int:
        """Tokens per update on all GPUs together."""
        return self.batch_sequences * self.shape.tokens_per_sample

    @property
    def flops(self) -> float:
        """FLOPs of the whole training, recomputation not counted."""
        return flops_per_token(self.shape) * self.tokens_per_update * self.num_updates


@dataclass(frozen=True, kw_only=True)
class Row:
    """The training on one number of GPUs; times in seconds."""

    num_gpus: int
    per_gpu: int
    update_freq: int
    compute: float
    all_reduce: float
    exposed: float  # the part of the all-reduce that the backward pass does not hide
    step: float
    saving: float  # time lost to checkpoints, as a fraction of training time
    days: float
    gpu_hours: float
    tokens_per_second: float
    efficiency: float  # compute time / step time
    memory: Memory
    goodput: float | None = None  # fraction of time with kept updates; None: failures not counted


def plan(training: Training, *, num_gpus: int, machine: Machine, failures: Failures | None = None) -> Row:
    """The training on `num_gpus` GPUs.

    fairseq all-reduces the gradients once per update, during the backward pass of the last of its `update_freq`
    batches, each bucket as soon as it is full (Li et al. 2020, "PyTorch Distributed", section 3.2.3). So the step takes
    the longer of the two, and the last bucket is always exposed.

    Raises:
        ValueError: if the batch cannot be divided among the GPUs, or with `failures` no checkpoint is saved.
    """
    batch = batch_of(training, num_gpus=num_gpus, most_per_gpu=training.most_per_gpu)
    of_sequence = training.shape.tokens_per_sample / training.tokens_per_second
    one_batch = batch.per_gpu * of_sequence
    compute = ceil_div(training.batch_sequences, num_gpus) * of_sequence  # of the GPU with the largest share
    num_bytes = training.shape.num_parameters * training.precision.size
    all_reduce = all_reduce_seconds(num_bytes, num_gpus=num_gpus, machine=machine)
    last_bucket = all_reduce_seconds(min(num_bytes, BUCKET_BYTES), num_gpus=num_gpus, machine=machine)
    exposed = max(all_reduce - BACKWARD_SHARE * one_batch, last_bucket) if training.overlaps else all_reduce
    step = compute + exposed
    saving = saving_share(training, step=step, machine=machine)
    days = step * (1 + saving) * training.num_updates / 86_400
    row = Row(
        num_gpus=num_gpus,
        per_gpu=batch.per_gpu,
        update_freq=batch.update_freq,
        compute=compute,
        all_reduce=all_reduce,
        exposed=exposed,
        step=step,
        saving=saving,
        days=days,
        gpu_hours=24 * days * num_gpus,
        tokens_per_second=training.tokens_per_update / step,
        efficiency=compute / step,
        memory=memory_on(training, batch_size=batch.per_gpu, num_gpus=num_gpus),
    )
    if failures is None:
        return row
    kept = goodput_of(training, row, machine=machine, failures=failures)
    days /= kept * (1 + saving)  # its share is in goodput
    return replace(row, goodput=kept, days=days, gpu_hours=24 * days * num_gpus)


def batch_of(training: Training, *, num_gpus: int, most_per_gpu: int) -> BatchPlan:
    """Split the batch of an update, with at most `most_per_gpu` blocks in a forward pass."""
    return plan_batch(
        training.batch_sequences, num_gpus=num_gpus, most_per_gpu=most_per_gpu, may_differ=training.may_differ
    )


def memory_on(training: Training, *, batch_size: int, num_gpus: int) -> Memory:
    """Memory of each of `num_gpus` GPUs with `per_gpu` blocks in a forward pass."""
    return memory_of(
        training.shape,
        precision=training.precision,
        batch_size=batch_size,
        is_distributed=num_gpus > 1,
        has_dropout=training.has_dropout,
        has_eager_attention=training.has_eager_attention,
        recompute=training.recompute,
    )


def saving_share(training: Training, *, step: float, machine: Machine) -> float:
    """Fraction of time lost to checkpoints.

    Rank 0 writes the checkpoint, then its copy checkpoint_last.pt, and the other ranks wait; in the background, they
    wait for the copy of the state, and for the previous checkpoint if it is not written yet.

    Example: 5.7 GB twice at 1 GB/s every 15 minutes  ->  11.4 / 900 = 1.3 %; in the background 0.57 / 900 = 0.06 %.
    """
    written, copied = write_seconds(training, machine=machine)
    periods = _periods(training, step=step)
    if not training.saves_in_background:
        return sum(written / period for period in periods)
    return sum(max(copied, written - period) / period for period in periods)


def write_seconds(training: Training, *, machine: Machine) -> tuple[float, float]:
    """Seconds to write a checkpoint, and to copy the state from the GPU."""
    size = checkpoint_bytes(training.shape, training.precision) / 1e9
    return FILES_PER_SAVE * size / machine.write_gb_s, size / HOST_COPY_GB_S


def _periods(training: Training, *, step: float) -> list[float]:
    return [period for period in (60 * training.save_minutes, training.save_updates * step) if period]


def goodput_of(training: Training, row: Row, *, machine: Machine, failures: Failures) -> float:
    """The fraction of updates that are kept, by `goodput.py`.

    Raises:
        ValueError: if the recipe saves neither by the clock nor by updates.
    """
    saves = sum(1 / period for period in _periods(training, step=row.step))
    if not saves:
        raise ValueError(
            "The recipe saves no checkpoint before the end of an epoch, so a failure can cost everything: add "
            "checkpoint_minutes: 15."
        )
    between = failures.between(row.num_gpus)
    kept = goodput(
        1 / saves,
        stall=row.saving / saves,
        restart=failures.restart_s,
        between_failures=between,
        delay=write_seconds(training, machine=machine)[0] if training.saves_in_background else 0.0,
    )
    if kept < 1e-6:
        raise ValueError(
            f"With a failure every {between:.3g} s on {row.num_gpus:,} GPUs nothing would be kept: save more often, or "
            "give a lower --failures-per-day."
        )
    return kept


def plan_table(
    training: Training, *, counts: Sequence[int], machine: Machine, failures: Failures | None = None
) -> list[Row]:
    """A row for each number of GPUs among which the batch can be divided.

    Raises:
        ValueError: if it cannot be divided for any of them.
    """
    rows, reason = [], ""
    for count in counts:
        try:
            rows.append(plan(training, num_gpus=count, machine=machine, failures=failures))
        except ValueError as error:
            reason = str(error)
    if not rows:
        raise ValueError(reason)
    return rows
