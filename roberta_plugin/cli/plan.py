"""`roberta plan`: what a recipe will take on 8 to 1024 GPUs, before it is submitted."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roberta_plugin.planner.goodput import Failures


def add_parser(subparsers: Any) -> None:
    """Add `roberta plan` and its options."""
    parser = subparsers.add_parser(
        "plan",
        help="what a training costs: FLOPs, memory, hours, for any number of GPUs",
        description="Reads a recipe as `roberta launch` does and the speed of one GPU, and works out the rest: FLOPs, "
        "time of a step, of the all-reduce and of checkpoints, days, GPU-hours, memory, for several numbers of GPUs. "
        "The formulas and where they come from are in roberta_plugin/planner/{flops,memory,network,goodput,plan}.py.",
    )
    parser.add_argument("--config", type=Path, required=True, help="recipe (YAML), as those in slurm/")
    parser.add_argument(
        "--machine",
        required=True,
        help="kind of node: v100, v100-dgx2, a100, h100, h200 or b200, or "
        "a YAML file with a machine of your own (roberta_plugin/planner/machines.py has its keys)",
    )
    parser.add_argument("--price", type=float, metavar="PER_GPU_HOUR", help="also show what it costs, at this price")
    parser.add_argument("--write-gb-s", type=float, help="speed at which rank 0 writes checkpoints, in GB/s (1)")
    parser.add_argument("--tokens-per-second", type=float, help="speed of one GPU, measured with this recipe")
    parser.add_argument("--log", type=Path, help="output of a run of this recipe on one GPU, with --log-format json")
    parser.add_argument("--utilization", type=float, help="share of the peak to assume, where nothing was measured")
    parser.add_argument("--gpus", type=int, nargs="+", help="numbers of GPUs (8 16 32 64 128 256 512 1024)")
    parser.add_argument(
        "--failures-per-day",
        type=float,
        metavar="N",
        help="count failures as well: so many a day among 1,024 GPUs, in proportion for other numbers",
    )
    parser.add_argument(
        "--restart-minutes",
        type=float,
        metavar="MINUTES",
        help="from a failure until the job trains again: in the queue, starting, reading the checkpoint (6)",
    )
    parser.add_argument("--json", type=Path, help="also write the plan to this file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the plan."""
    from roberta_plugin.launch.recipe import load_recipe
    from roberta_plugin.planner.inputs import training_of
    from roberta_plugin.planner.machines import machine_of
    from roberta_plugin.planner.plan import GPU_COUNTS, plan_table
    from roberta_plugin.planner.presentation import as_json, as_markdown

    machine = machine_of(args.machine)
    for option, name, value in (
        ("price", "price_per_gpu_hour", args.price),
        ("write-gb-s", "write_gb_s", args.write_gb_s),
    ):
        if value is not None:
            if not 0 < value < float("inf"):
                raise ValueError(f"--{option} must be positive, got {value}.")
            machine = dataclasses.replace(machine, **{name: value})
    training = training_of(
        load_recipe(args.config, flags={}),
        machine=machine,
        tokens_per_second=args.tokens_per_second,
        log=args.log,
        utilization=args.utilization,
    )
    failures = failures_of(args)
    rows = plan_table(training, counts=args.gpus or GPU_COUNTS, machine=machine, failures=failures)
    print(as_markdown(training, rows, machine, failures), end="")
    if args.json:
        write_json(args.json, as_json(training, rows, machine))
    return 0


def write_json(path: Path, content: Any) -> None:
    """Write the file that --json names.

    Raises:
        OSError: naming the option, the path and the remedy, if it cannot be written.
    """
    from roberta_plugin.files import NO_ROOM, atomic_write

    try:
        with atomic_write(path, "w") as file:
            json.dump(content, file, indent=2)
    except OSError as error:
        if error.errno in NO_ROOM:  # `roberta` says what to do about a full disk
            raise
        raise OSError(
            f"--json {path} cannot be written ({os.strerror(error.errno or 0)}): name a file in a folder that exists "
            "and that you can write to."
        ) from error


def failures_of(args: argparse.Namespace) -> Failures | None:
    """The failures to count, if any.

    Raises:
        ValueError: for a bad number, or a time to restart without a rate.
    """
    from roberta_plugin.planner.goodput import Failures

    if args.failures_per_day is None:
        if args.restart_minutes is not None:
            raise ValueError("--restart-minutes is for --failures-per-day: give the rate as well.")
        return None
    if not 0 < args.failures_per_day < float("inf"):
        raise ValueError(f"--failures-per-day must be positive, got {args.failures_per_day}.")
    if args.restart_minutes is not None and not 0 <= args.restart_minutes < float("inf"):
        raise ValueError(f"--restart-minutes must not be negative, got {args.restart_minutes}.")
    minutes = {} if args.restart_minutes is None else {"restart_s": 60 * args.restart_minutes}
    return Failures(per_day=args.failures_per_day, **minutes)
