"""`roberta plan`: what a recipe will take on 8 to 1024 GPUs, before it is submitted; `roberta profile`: some updates
of a fairseq-train command under torch's profiler.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_plugin.cli.command import command
from roberta_plugin.json_files import write_json
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
    restart_minutes: float = setting(
        6,
        "from a failure until the job trains again: in the queue, starting, reading the checkpoint",
        metavar="MINUTES",
        smallest=0,
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
    from roberta_plugin.planner.plan import Failures, as_json, as_markdown, plan_table
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
    failures = None
    if settings.failures_per_day is not None:
        failures = Failures(per_day=settings.failures_per_day, restart_s=60 * settings.restart_minutes)
    rows = plan_table(training, counts=settings.gpus, machine=machine, failures=failures)
    print(as_markdown(training, rows, machine), end="")
    if settings.json is not None:
        write_json(settings.json, as_json(training, rows, machine))
    return 0


@dataclass(frozen=True, kw_only=True)
class ProfileSettings(Checked):
    """What to profile; the fields are options of `roberta profile`."""

    output_dir: Path = setting(Path("runs/profile"), "folder to write to")
    steps: int = setting(5, "updates to profile", smallest=1)
    warm_up: int = setting(3, "updates before them that are not recorded", smallest=1)
    rows: int = setting(10, "operations in the table", smallest=1)
    training: tuple[str, ...] = setting(
        REQUIRED, "what follows fairseq-train, after --", flag="training", nargs="+", metavar="..."
    )


@command(
    ProfileSettings,
    usage="roberta profile [--output-dir FOLDER] [--steps N] [--warm-up N] -- DATA-BIN [fairseq-train options]",
)
def profile(settings: ProfileSettings) -> int:
    """Runs some updates of a fairseq-train command in this process, on one device, and writes a trace (trace.json, for
    chrome://tracing or ui.perfetto.dev) and a table of the costliest operations (table.txt). Nothing is saved.
    """
    folder = settings.output_dir
    folder.mkdir(parents=True, exist_ok=True)
    trainer, updates = prepare(settings.training)
    key = "self_device_time_total" if trainer.cuda else "self_cpu_time_total"

    def write(profiler: Any) -> None:
        profiler.export_chrome_trace(str(folder / "trace.json"))
        table = profiler.key_averages().table(sort_by=key, row_limit=settings.rows, max_name_column_width=60)
        (folder / "table.txt").write_text(table + "\n", encoding="utf-8")
        print(table)

    seconds, num_tokens = profile_updates(trainer, updates, warm_up=settings.warm_up, steps=settings.steps, write=write)
    speed = f"{settings.steps} updates, {num_tokens / seconds:,.0f} tokens/s with the profiler on"
    print(f"{speed}; trace and table in {folder}")
    return 0


def prepare(argv: Sequence[str]) -> tuple[Any, Any]:
    """fairseq's trainer for the command line, and the samples of its updates, as fairseq-train would make them."""
    import numpy as np
    from fairseq import tasks, utils
    from fairseq.data import iterators
    from fairseq.trainer import Trainer

    from roberta_plugin.launch import arguments as train_arguments

    cfg = train_arguments.to_config(train_arguments.parse(argv))
    utils.import_user_module(cfg.common)
    if cfg.distributed_training.distributed_world_size > 1:
        cfg.distributed_training.distributed_world_size = 1
    np.random.seed(cfg.common.seed)
    utils.set_torch_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    epoch = trainer.get_train_iterator(epoch=1, load_dataset=True)
    trainer.begin_epoch(1)
    return trainer, iterators.GroupedIterator(epoch.next_epoch_itr(), cfg.optimization.update_freq[0])


def profile_updates(
    trainer: Any, updates: Any, *, warm_up: int, steps: int, write: Callable[[Any], None]
) -> tuple[float, int]:
    """Run `warm_up` and then `steps` updates, `write` their profile, and return the steps' seconds and tokens.

    Raises:
        ValueError: if the data have fewer updates in an epoch.
    """
    import torch
    from torch.profiler import ProfilerActivity, schedule
    from torch.profiler import profile as profiled

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if trainer.cuda else [])]
    phases = schedule(wait=0, warmup=warm_up, active=steps, repeat=1)
    num_tokens = done = 0
    start = end = time.perf_counter()
    with profiled(activities=activities, schedule=phases, on_trace_ready=write) as profiler:
        for samples in itertools.islice(updates, warm_up + steps):
            if done == warm_up:
                start = time.perf_counter()
            trainer.train_step(samples)
            if trainer.cuda and done == warm_up + steps - 1:
                torch.cuda.synchronize()
            end = time.perf_counter()
            num_tokens += sum(sample["ntokens"] for sample in samples) if done >= warm_up else 0
            done += 1
            profiler.step()
    if done < warm_up + steps:
        raise ValueError(
            f"The data have only {done} updates in an epoch, and --warm-up {warm_up} and --steps {steps} need "
            f"{warm_up + steps}: lower them or the batch size."
        )
    return end - start, num_tokens
