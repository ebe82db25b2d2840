"""`roberta profile`: some updates of a fairseq-train command under torch's profiler."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_plugin.cli.command import command
from roberta_plugin.settings import REQUIRED, Checked, setting


@dataclass(frozen=True, kw_only=True)
class ProfileSettings(Checked):
    """Settings of `roberta profile`, whose options they are."""

    output_dir: Path = setting(Path("runs/profile"), "folder to write to")
    steps: int = setting(5, "updates to profile", smallest=1)
    warm_up: int = setting(3, "updates before them that are not recorded", smallest=1)
    rows: int = setting(10, "operations in the table", smallest=1)
    training: tuple[str, ...] = setting(
        REQUIRED, "arguments of fairseq-train, after --", flag="training", nargs="+", metavar="..."
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
