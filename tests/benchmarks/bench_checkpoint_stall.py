"""How long a checkpoint stops the training: --background-checkpoints beside the ordinary way, on a CPU.

    python -m tests.benchmarks.bench_checkpoint_stall [--arch large] [--bf16] [--write]

One process with fairseq's trainer, our model with a vocabulary of 50,265 and Adam's moments in fp32; both ways save in
turn, each a file of its own and checkpoint_last.pt, checked and synced, and make updates of one block in between. The
time is that of `checkpoint_utils.save_checkpoint`, in which nothing is computed. In the background the copy of the state
takes it; from a GPU that copy goes over the bus instead. The folder is a temporary one ($TMPDIR). Needs three times a
checkpoint's bytes of memory, and four times of disk.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.bench_loader import write_data
from tests.benchmarks.report import Report, machine

SIDES = ("synchronous", "in the background")


class Training:
    """fairseq's trainer on made-up text, which makes an update or saves."""

    def __init__(self, folder: Path, arch: str, *, is_bf16: bool) -> None:
        from roberta_plugin.training.arguments import parse, to_config

        write_data(folder, num_tokens=200_000)
        words = [str(folder), "--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--cpu"]
        words += [
            "--arch",
            f"fast_roberta_{arch}",
            "--optimizer",
            "roberta_adamw",
            "--lr",
            "1e-4",
            "--num-workers",
            "0",
        ]
        words += ["--tokens-per-sample", "64", "--batch-size", "1", "--save-dir", str(folder / "checkpoints")]
        words += ["--save-interval-updates", "1", "--keep-interval-updates", "1", "--disable-validation"]
        self.cfg = to_config(parse([*words, *(["--bf16"] if is_bf16 else [])]))
        from fairseq import checkpoint_utils, tasks
        from fairseq.trainer import Trainer

        from roberta_plugin.fairseq_workarounds.background_checkpoints import writer

        task = tasks.setup_task(self.cfg.task)
        task.load_dataset("train")
        model, criterion = task.build_model(self.cfg.model), task.build_criterion(self.cfg.criterion)
        self.num_parameters = sum(parameter.numel() for parameter in model.parameters())
        self.trainer = Trainer(self.cfg, task, model, criterion)
        self.checkpoints, self.writer = checkpoint_utils, writer
        _, self.epoch = checkpoint_utils.load_checkpoint(self.cfg.checkpoint, self.trainer)
        self.blocks = self.epoch.next_epoch_itr(shuffle=False)
        self.trainer.begin_epoch(1)

    def update(self) -> float:
        """Seconds of an update."""
        started = time.perf_counter()
        self.trainer.train_step([next(self.blocks)])
        return time.perf_counter() - started

    def save(self, side: str) -> tuple[float, float]:
        """Seconds for which the training stands still, and CPU seconds of all threads meanwhile."""
        self.cfg.task.background_checkpoints = self.trainer.cfg.task.background_checkpoints = side != SIDES[0]
        started, cpu = time.perf_counter(), time.process_time()
        self.checkpoints.save_checkpoint(self.cfg.checkpoint, self.trainer, self.epoch, None)
        return time.perf_counter() - started, time.process_time() - cpu

    def last_bytes(self) -> int:
        """The size of a checkpoint."""
        return (Path(self.cfg.checkpoint.save_dir) / "checkpoint_last.pt").stat().st_size


def measure(training: Training, repeats: int) -> dict[str, Any]:
    """Seconds of saves by side, of updates before and during writes, and until a background checkpoint is safe."""
    found: dict[str, Any] = {"alone": [], "during": [], "safe": []}
    found |= {"stall": {side: [] for side in SIDES}, "cpu": {side: [] for side in SIDES}}
    for _ in range(2):
        training.update()
    training.save(SIDES[1])  # allocates the host memory, which later saves use again
    training.writer.wait()
    for _ in range(repeats):
        for side in SIDES:
            found["alone"] += [training.update(), training.update()]
            started = time.perf_counter()
            seconds, cpu = training.save(side)
            found["stall"][side].append(seconds)
            found["cpu"][side].append(cpu)
            print(f"{side}: {seconds:.2f} s, {cpu:.2f} s of CPU time", flush=True)
            if side == SIDES[0]:
                continue
            while not training.writer.is_done:
                seconds = training.update()
                if not training.writer.is_done:
                    found["during"].append(seconds)
            training.writer.wait()
            found["safe"].append(time.perf_counter() - started)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the report to tests/benchmarks/results")
    parser.add_argument("--arch", default="large", help="size of the model")
    parser.add_argument("--bf16", action="store_true", help="weights in bf16 with fp32 masters, which are saved too")
    parser.add_argument("--repeats", type=int, default=3, help="saves of each side")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of torch")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    load = os.getloadavg()[0]
    precision = "bf16" if arguments.bf16 else "fp32"
    name = f"checkpoint_stall_{arguments.arch}_{precision}_cpu{len(os.sched_getaffinity(0))}"
    report = Report(name, "Checkpoints in the background", __doc__ or "", machine())
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder), arguments.arch, is_bf16=arguments.bf16)
        found = measure(training, arguments.repeats)
        gigabytes = training.last_bytes() / 1e9
    title = f"{arguments.arch}, {training.num_parameters / 1e6:.0f} M parameters, {precision}: {gigabytes:.2f} GB a checkpoint"
    report.table(title, found["stall"], baseline=SIDES[0], amount=gigabytes, unit="GB")
    report.table("CPU seconds of it, all threads", found["cpu"], baseline=SIDES[0], amount=gigabytes, unit="GB")
    medians = {key: statistics.median(found[key] or [float("nan")]) for key in ("safe", "alone", "during")}
    report.text(
        f"A background checkpoint and its copy were safe after {medians['safe']:.1f} s. An update took "
        f"{medians['alone']:.2f} s alone and {medians['during']:.2f} s during a write (medians of {len(found['alone'])} "
        f"and {len(found['during'])})."
    )
    report.text(
        f"{arguments.threads} threads. Load average: {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end."
    )
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
