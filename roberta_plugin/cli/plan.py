"""`roberta plan`: what a recipe will take on 8 to 1024 GPUs, before it is submitted."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_plugin.cli.command import command
from roberta_plugin.files import NO_ROOM, atomic_write
from roberta_plugin.planner.plan import Failures, as_json, as_markdown, plan_table
from roberta_plugin.settings import REQUIRED, Checked, setting


@dataclass(frozen=True, kw_only=True)
class PlanSettings(Checked):
    """What to plan; the fields are options of `roberta plan`."""

    config: Path = setting(REQUIRED, "recipe (YAML), as those in slurm/")
    machine: str = setting(
        REQUIRED,
        "YAML file with the numbers of your nodes and their network, such as slurm/machine.yaml",
        metavar="FILE",
    )
    price: float | None = setting(None, "also show what it costs, at this price", metavar="PER_GPU_HOUR", above=0)
    write_gb_s: float | None = setting(
        None, "speed at which rank 0 writes checkpoints, in GB/s", default_text=1, above=0
    )
    tokens_per_second: float | None = setting(None, "speed of one GPU, measured with this recipe", above=0)
    log: Path | None = setting(None, "output of a run of this recipe on one GPU, with --log-format json")
    utilization: float | None = setting(
        None, "share of the peak to assume, where nothing was measured", above=0, largest=1
    )
    gpus: tuple[int, ...] = setting(
        (8, 16, 32, 64, 128, 256, 512, 1024), "numbers of GPUs", nargs="+", metavar="N", smallest=1
    )
    failures_per_day: float | None = setting(
        None, "include failures: this many per day among 1,024 GPUs, in proportion for other numbers", above=0
    )
    restart_minutes: float | None = setting(
        None,
        "from a failure until the job trains again: in the queue, starting, reading the checkpoint",
        metavar="MINUTES",
        smallest=0,
        default_text=f"{Failures.restart_s / 60:g}",
        goes_with={"failures_per_day": ()},
    )
    json: Path | None = setting(None, "also write the plan to this file")


@command(PlanSettings)
def plan(settings: PlanSettings) -> int:
    """Reads a recipe as `roberta launch` does and the speed of one GPU, and works out the rest: FLOPs, time of a step,
    of the all-reduce and of checkpoints, days, GPU-hours, memory, for several numbers of GPUs. The formulas and their
    sources are in roberta_plugin/planner/{training,plan}.py.
    """
    from roberta_plugin.launch.recipe import load_recipe
    from roberta_plugin.planner.training import read_machine, read_training

    machine = read_machine(settings.machine)
    if settings.price is not None:
        machine = dataclasses.replace(machine, price_per_gpu_hour=settings.price)
    if settings.write_gb_s is not None:
        machine = dataclasses.replace(machine, write_gb_s=settings.write_gb_s)
    recipe = load_recipe(settings.config, flags={})
    training = read_training(
        recipe,
        machine=machine,
        tokens_per_second=settings.tokens_per_second,
        log=settings.log,
        utilization=settings.utilization,
    )
    minutes = {} if settings.restart_minutes is None else {"restart_s": 60 * settings.restart_minutes}
    failures = Failures(per_day=settings.failures_per_day, **minutes) if settings.failures_per_day is not None else None
    rows = plan_table(training, counts=settings.gpus, machine=machine, failures=failures)
    print(as_markdown(training, rows, machine), end="")
    if settings.json is not None:
        write_json(settings.json, as_json(training, rows, machine))
    return 0


def write_json(path: Path, content: Any) -> None:
    """Write the file that --json names.

    Raises:
        OSError: naming the option, the path and the remedy, if it cannot be written.
    """
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
