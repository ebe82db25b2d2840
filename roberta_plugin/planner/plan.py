"""The speed of one GPU -> step time, days, GPU-hours and memory on many.

    shape + speed of one GPU         ---> compute time of a step
    gradients + network              ---> time of the all-reduce, most of it hidden by the backward pass
    shape + precision                ---> memory per GPU, and how long a checkpoint stops all of them
    failures, restarts, checkpoints  ---> goodput, the fraction of time with kept progress (see `goodput`)

The result is a lower bound on the time: waiting for data, validation and slow nodes are not included, and a GPU is
slower at smaller batches than in the measured run. Where blocks or batches grow, a row and its memory are those of the
largest, and the days those of the schedule. The measured speed includes the optimizer's step as often as that
run made it: measure with --update-freq 1 to plan for many GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from roberta_plugin.data.rounding import ceil_div
from roberta_plugin.launch.batch_size import BatchPlan, plan_batch
from roberta_plugin.planner.training import (
    SHARE_TO_FILL,
    Machine,
    Memory,
    Training,
    all_reduce_seconds,
    checkpoint_bytes,
    estimate_memory,
    flops_per_token,
    largest_batch,
)
from roberta_plugin.reports import markdown_table

BACKWARD_SHARE = 2 / 3  # of a step's FLOPs: 4 of 6 per weight
BUCKET_BYTES = 25 * 2**20  # fairseq's --bucket-cap-mb; nothing hides the all-reduce of the last bucket
DAY_S = 86_400.0
GPUS_OF_RATE = 1024  # rates are for this number of GPUs
FILES_PER_SAVE = 2  # the checkpoint under its own name, and checkpoint_last.pt


@dataclass(frozen=True, kw_only=True)
class Failures:
    """Failure rates, and the time until a failed job trains again."""

    per_day: float  # of GPUS_OF_RATE GPUs; in proportion for others
    restart_s: float = 360.0  # noticed in one minute, two in the queue (SLURM's, of a requeued job), three to start

    def between(self, num_gpus: int) -> float:
        """Mean seconds between the failures of a job on `num_gpus` GPUs."""
        return DAY_S / self.per_day * GPUS_OF_RATE / num_gpus if self.per_day else math.inf


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
    batch = split_batch(training, num_gpus=num_gpus, most_per_gpu=training.most_per_gpu)
    sequence_s = training.shape.tokens_per_sample / training.tokens_per_second
    one_batch = batch.per_gpu * sequence_s
    compute = ceil_div(training.batch_sequences, num_gpus) * sequence_s  # of the GPU with the largest share
    num_bytes = training.shape.num_parameters * training.precision.size
    all_reduce = all_reduce_seconds(num_bytes, num_gpus=num_gpus, machine=machine)
    last_bucket = all_reduce_seconds(min(num_bytes, BUCKET_BYTES), num_gpus=num_gpus, machine=machine)
    exposed = max(all_reduce - BACKWARD_SHARE * one_batch, last_bucket) if training.overlaps else all_reduce
    step = compute + exposed
    saving = saving_share(training, step=step, machine=machine)
    days = (compute * training.growth + exposed) * (1 + saving) * training.num_updates / 86_400
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
        memory=estimate_memory(training, batch_size=batch.per_gpu, num_gpus=num_gpus),
    )
    if failures is None:
        return row
    kept = expected_goodput(training, row, machine=machine, failures=failures)
    days /= kept * (1 + saving)  # its share is in goodput
    return replace(row, goodput=kept, days=days, gpu_hours=24 * days * num_gpus)


def split_batch(training: Training, *, num_gpus: int, most_per_gpu: int) -> BatchPlan:
    """Split the batch of an update, with at most `most_per_gpu` blocks in a forward pass."""
    return plan_batch(
        training.batch_sequences, num_gpus=num_gpus, most_per_gpu=most_per_gpu, may_differ=training.may_differ
    )


def saving_share(training: Training, *, step: float, machine: Machine) -> float:
    """Fraction of time lost to checkpoints.

    Rank 0 writes the checkpoint, then its copy checkpoint_last.pt, and the other ranks wait.

    Example: 5.7 GB twice at 1 GB/s every 15 minutes  ->  11.4 / 900 = 1.3 %.
    """
    seconds = FILES_PER_SAVE * checkpoint_bytes(training.shape, training.precision) / 1e9 / machine.write_gb_s
    return sum(seconds / period for period in _periods(training, step=step))


def _periods(training: Training, *, step: float) -> list[float]:
    return [period for period in (60 * training.save_minutes, training.save_updates * step) if period]


def expected_goodput(training: Training, row: Row, *, machine: Machine, failures: Failures) -> float:
    """The fraction of updates that are kept, by `goodput`.

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
    kept = goodput(1 / saves, stall=row.saving / saves, restart=failures.restart_s, between_failures=between)
    if kept < 1e-6:
        raise ValueError(
            f"With a failure every {between:.3g} s on {row.num_gpus:,} GPUs nothing would be kept: save more often, or "
            "give a lower --failures-per-day."
        )
    return kept


def goodput(interval: float, *, stall: float, restart: float, between_failures: float) -> float:
    """The fraction of time with kept work; all in seconds.

        |-- tau --|C|-- tau --|C|-- lost --X---- R ----|-- tau --|C| ...

    A job on many nodes fails when one of them does, at random with mean M between failures (a Poisson process). The
    work since the last checkpoint is lost, and R passes until the job trains again; a failure may also hit a checkpoint
    or a restart. To keep tau of work takes, in the mean, M e^(R/M) (e^((tau + C)/M) - 1) of time: the complete model of
    Daly (2006, "A higher order estimate of the optimum checkpoint interval for restart dumps").

    Example: large on 1,024 GPUs, 11 s a checkpoint every 15 minutes, a failure a day, 6 minutes for a restart:
    goodput(900, stall=11, restart=360, between_failures=86_400) -> 0.9786.

    Args:
        interval: training between two checkpoints, tau.
        stall: time for which a checkpoint stops the training, C.
        restart: from a failure to the next update, R.
        between_failures: mean time between failures of the job, M; infinite: none.
    """
    if math.isinf(between_failures):
        return interval / (interval + stall)
    rate = 1 / between_failures
    try:
        return interval * rate / (math.exp(restart * rate) * math.expm1((interval + stall) * rate))
    except OverflowError:
        return 0.0


def plan_table(
    training: Training, *, counts: Sequence[int], machine: Machine, failures: Failures | None = None
) -> list[Row]:
    """A row for each number of GPUs among which the batch can be divided."""
    rows, reason = [], ""
    for count in counts:
        try:
            rows.append(plan(training, num_gpus=count, machine=machine, failures=failures))
        except ValueError as error:
            reason = str(error)
    if not rows:
        raise ValueError(reason)
    return rows


def as_markdown(training: Training, rows: Sequence[Row], machine: Machine) -> str:
    """The plan as text with a Markdown table."""
    shape = training.shape
    peak = training.tokens_per_second * flops_per_token(shape) / (machine.peak_tflops * 1e12)
    per_token = flops_per_token(shape) / 1e9
    grows = f" at most ({training.growth:.0%} of its FLOPs in a mean update)" if training.growth < 1 else ""
    table = [table_cells(row, machine) for row in rows]
    lines = [
        f"{shape.num_parameters / 1e6:,.1f} M parameters, {per_token:.2f} GFLOPs per token, "
        f"{training.tokens_per_update:,} tokens per update{grows}, {training.num_updates:,} updates: "
        f"{training.flops:.3g} FLOPs.",
        f"One GPU: {training.tokens_per_second:,.0f} tokens/s, {peak:.1%} of {machine.peak_tflops:,.0f} TFLOP/s.",
        "",
        markdown_table(list(table[0]), [list(cells.values()) for cells in table]),
    ]
    memory = rows[0].memory
    lines += [
        "",
        f"Memory on {rows[0].num_gpus} GPUs: weights, gradients and optimizer {memory.states / 1e9:.1f} GB, buckets "
        f"{memory.buckets / 1e9:.1f} GB, activations {memory.activations / 1e9:.1f} GB, CUDA about 1 GB.",
        f"A checkpoint: {checkpoint_bytes(shape, training.precision) / 1e9:.1f} GB, written twice at "
        f"{machine.write_gb_s:g} GB/s.",
        batch_advice(training, rows[0], machine=machine),
    ]
    return "\n".join(lines) + "\n"


def table_cells(row: Row, machine: Machine) -> dict[str, str]:
    """The cells of a row by their columns."""
    fits = "" if row.memory.total <= machine.memory_gb * 1e9 else f" (of {machine.memory_gb:g}: too much)"
    cells = {
        "GPUs": f"{row.num_gpus:,}",
        "batch x accumulated": f"{row.per_gpu} x {row.update_freq}",
        "step s": f"{row.step:.3g}",
        "all-reduce ms": f"{1e3 * row.all_reduce:.1f}",
        "exposed ms": f"{1e3 * row.exposed:.1f}",
        "tokens/s": f"{row.tokens_per_second:,.0f}",
        "efficiency": f"{row.efficiency:.1%}",
        "saving": f"{row.saving:.1%}",
        "days": f"{row.days:.3g}",
        "GPU-hours": f"{row.gpu_hours:,.0f}",
        "GB per GPU": f"{row.memory.total / 1e9:.1f}{fits}",
    }
    if machine.price_per_gpu_hour is not None:
        cells["cost"] = f"{row.gpu_hours * machine.price_per_gpu_hour:,.0f}"
    if row.goodput is not None:
        cells["goodput"] = f"{row.goodput:.2%}"
    return cells


def batch_advice(training: Training, row: Row, *, machine: Machine) -> str:
    """A sentence on the `batch_size` that fills the GPU, for the number of GPUs of `row`."""
    most = largest_batch(training, num_gpus=row.num_gpus, gpu_bytes=machine.memory_gb * 1e9)
    if most == 0:
        return (
            f"Not even one block fits into {SHARE_TO_FILL:.0%} of {machine.memory_gb:g} GB: try "
            "checkpoint_activations, or memory_efficient_bf16 with roberta_adamw."
        )
    best = split_batch(training, num_gpus=row.num_gpus, most_per_gpu=most)
    fits = f"By this estimate, {most:,} blocks in one forward pass fill {SHARE_TO_FILL:.0%} of {machine.memory_gb:g} GB"
    if best.per_gpu == row.per_gpu:
        return f"{fits}; of the sizes that divide the batch, {row.per_gpu:,} is the largest."
    return (
        f"{fits}: with batch_size {best.per_gpu:,}, an update on {row.num_gpus:,} GPUs has {best.update_freq:,} "
        f"forward passes instead of {row.update_freq:,}."
    )


def as_json(training: Training, rows: Sequence[Row], machine: Machine) -> dict[str, Any]:
    """The plan as a JSON object."""
    price = machine.price_per_gpu_hour
    costs: list[dict[str, float]] = [{} if price is None else {"cost": row.gpu_hours * price} for row in rows]
    return {
        "training": asdict(training) | {"flops": training.flops, "num_parameters": training.shape.num_parameters},
        "machine": asdict(machine),
        "rows": [
            asdict(row) | {"memory_bytes": row.memory.total} | cost for row, cost in zip(rows, costs, strict=True)
        ],
    }
