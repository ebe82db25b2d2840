"""A plan as a table with its assumptions and advice, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from roberta_plugin.planner.flops import flops_per_token
from roberta_plugin.planner.goodput import GPUS_OF_RATE, PUBLISHED, Failures, best_interval, goodput
from roberta_plugin.planner.memory import SHARE_TO_FILL, checkpoint_bytes, largest_batch
from roberta_plugin.planner.network import Machine
from roberta_plugin.planner.plan import HOST_COPY_GB_S, Row, Training, batch_of, memory_on, write_seconds

_COLUMNS = (
    *("GPUs", "batch x accumulated", "step s", "all-reduce ms", "exposed ms"),
    *("tokens/s", "efficiency", "saving", "days", "GPU-hours", "GB per GPU"),
)


def as_markdown(training: Training, rows: Sequence[Row], machine: Machine, failures: Failures | None = None) -> str:
    """The plan as text with a Markdown table."""
    shape = training.shape
    peak = training.tokens_per_second * flops_per_token(shape) / (machine.peak_tflops * 1e12)
    per_token = flops_per_token(shape) / 1e9
    price = machine.price_per_gpu_hour
    columns = (*_COLUMNS, *([] if price is None else ["cost"]), *([] if failures is None else ["goodput"]))
    lines = [
        f"{shape.num_parameters / 1e6:,.1f} M parameters, {per_token:.2f} GFLOPs per token, "
        f"{training.tokens_per_update:,} tokens per update, {training.num_updates:,} updates: {training.flops:.3g} "
        "FLOPs.",
        f"One GPU: {training.tokens_per_second:,.0f} tokens/s, {peak:.1%} of {machine.peak_tflops:,.0f} TFLOP/s.",
        "",
        "| " + " | ".join(columns) + " |",
        "| --- " * len(columns) + "|",
    ]
    for row in rows:
        fits = "" if row.memory.total <= machine.memory_gb * 1e9 else f" (of {machine.memory_gb:g}: too much)"
        lines.append(
            f"| {row.num_gpus:,} | {row.per_gpu} x {row.update_freq} | {row.step:.3g} | {1e3 * row.all_reduce:.1f} | "
            f"{1e3 * row.exposed:.1f} | {row.tokens_per_second:,.0f} | {row.efficiency:.1%} | {row.saving:.1%} | "
            f"{row.days:.3g} | {row.gpu_hours:,.0f} | {row.memory.total / 1e9:.1f}{fits} |"
            + ("" if price is None else f" {row.gpu_hours * price:,.0f} |")
            + ("" if row.goodput is None else f" {row.goodput:.2%} |")
        )
    memory = rows[0].memory
    lines += [
        "",
        f"Memory on {rows[0].num_gpus} GPUs: weights, gradients and optimizer {memory.states / 1e9:.1f} GB, buckets "
        f"{memory.buckets / 1e9:.1f} GB, activations {memory.activations / 1e9:.1f} GB, CUDA about 1 GB.",
        f"A checkpoint: {checkpoint_bytes(shape, training.precision) / 1e9:.1f} GB, written twice at "
        f"{machine.write_gb_s:g} GB/s"
        + (f" in the background, copied at {HOST_COPY_GB_S:g} GB/s." if training.saves_in_background else "."),
        batch_advice(training, rows[0], machine=machine),
    ]
    if failures is not None:
        lines.append(failure_advice(training, rows[-1], machine=machine, failures=failures))
    return "\n".join(lines) + "\n"


def batch_advice(training: Training, row: Row, *, machine: Machine) -> str:
    """A sentence on the `batch_size` that fills the GPU, for the number of GPUs of `row`."""
    most = largest_batch(
        lambda batch_size: memory_on(training, batch_size=batch_size, num_gpus=row.num_gpus),
        gpu_bytes=machine.memory_gb * 1e9,
    )
    if most == 0:
        return (
            f"Not even one block fits into {SHARE_TO_FILL:.0%} of {machine.memory_gb:g} GB: try "
            "checkpoint_activations, or memory_efficient_bf16 with roberta_adamw."
        )
    best = batch_of(training, num_gpus=row.num_gpus, most_per_gpu=most)
    fits = f"By this estimate, {most:,} blocks in one forward pass fill {SHARE_TO_FILL:.0%} of {machine.memory_gb:g} GB"
    if best.per_gpu == row.per_gpu:
        return f"{fits}; of the sizes that divide the batch, {row.per_gpu:,} is the largest."
    return (
        f"{fits}: with batch_size {best.per_gpu:,}, an update on {row.num_gpus:,} GPUs has {best.update_freq:,} "
        f"forward passes instead of {row.update_freq:,}."
    )


def failure_advice(training: Training, row: Row, *, machine: Machine, failures: Failures) -> str:
    """The assumed failures, and the best time between checkpoints for the number of GPUs of `row`."""
    between = failures.between(row.num_gpus)
    written, copied = write_seconds(training, machine=machine)
    stall, delay = (copied, written) if training.saves_in_background else (written, 0.0)
    best = max(best_interval(stall=stall, between_failures=between), delay)
    reached = goodput(best, stall=stall, restart=failures.restart_s, between_failures=between, delay=delay)
    return (
        f"Failures: {failures.per_day:g} a day on {GPUS_OF_RATE:,} GPUs ("
        + ", ".join(f"{name}: {rate:.2g}" for name, rate in PUBLISHED.items())
        + f"), {failures.restart_s / 60:g} minutes for a restart. On {row.num_gpus:,} GPUs, one every "
        f"{between / 3600:,.3g} hours: a checkpoint every {best / 60:.3g} minutes is best, with a goodput of "
        f"{reached:.2%}."
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
