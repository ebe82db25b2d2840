"""The planner beside measured runs: what it predicts from one short run on one process, and what then is measured.

    python -m tests.benchmarks.bench_plan [--write]

Real `fairseq-train` runs on a CPU, one thread a process, with a 4-layer model (dimension 256, blocks of 128 tokens). The
speed of the first run is all that the planner is told, besides how long two processes take to add up the gradients of
the model by themselves. Runs take turns, and of each the fastest update of all rounds counts, the least disturbed one on
a machine that has other work to do.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from roberta_plugin.launch.log import curve
from roberta_plugin.planner.plan import plan
from roberta_plugin.planner.training import (
    ACHIEVED,
    Machine,
    Precision,
    Shape,
    Training,
    flops_per_token,
    vocabulary_size,
)
from tests.benchmarks.harness import Report, options
from tests.slurm_cluster import free_ports
from tests.tiny_corpus import command, environment, write_data_bin

LAYERS, DIM, LENGTH, BATCH, UPDATES = 4, 256, 128, 8, 14
ADD_UP = """
import sys, time, torch
import torch.distributed as dist
rank, port, numbers = map(int, sys.argv[1:])
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
gradients, seconds = torch.ones(numbers), []
for _ in range(7):
    dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(gradients)
    seconds.append(time.perf_counter() - start)
print(sorted(seconds)[3])
dist.destroy_process_group()
"""


def words_of(data: Path, *, layers: int, update_freq: int) -> list[str]:
    """A run of UPDATES updates that saves nothing."""
    words = ["--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--user-dir", "roberta_plugin"]
    words += ["--arch", "fast_roberta_tiny", "--encoder-layers", layers, "--encoder-embed-dim", DIM]
    words += ["--encoder-ffn-embed-dim", 4 * DIM, "--encoder-attention-heads", 4, "--tokens-per-sample", LENGTH]
    words += ["--batch-size", BATCH, "--update-freq", update_freq, "--optimizer", "roberta_adamw", "--lr", 1e-4]
    words += ["--max-update", UPDATES, "--num-workers", 0, "--log-format", "json", "--log-interval", 1]
    words += ["--ddp-backend", "legacy_ddp", "--cpu", "--no-save", "--disable-validation"]
    return [*command("fairseq-train"), str(data), *map(str, words)]


def tokens_per_second(words: list[str], *, processes: int = 1) -> float:
    """Speed of the fastest update of a run, all processes together."""
    port = free_ports(1)[0]
    started = []
    for rank in range(processes):
        place = ["--distributed-init-method", f"tcp://127.0.0.1:{port}", "--distributed-world-size", str(processes)]
        place += ["--distributed-rank", str(rank), "--distributed-no-spawn", "--distributed-backend", "gloo"]
        started.append(
            subprocess.Popen(
                [*words, *(place if processes > 1 else [])],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    logs = [process.communicate()[0] for process in started]
    assert all(process.returncode == 0 for process in started), logs[0][-2000:]
    assert processes == 1 or f"distributed_world_size': {processes}" in logs[0], "the processes trained by themselves"
    return max(curve(logs[0].splitlines(), kind="train_inner", value="wps").values)


def seconds_to_add_up(numbers: int) -> float:
    """Seconds in which two processes add up so many fp32 numbers."""
    port = free_ports(1)[0]
    words = [sys.executable, "-c", ADD_UP]
    started = [
        subprocess.Popen([*words, str(rank), str(port), str(numbers)], env=environment(), stdout=subprocess.PIPE)
        for rank in range(2)
    ]
    outputs = [process.communicate()[0] for process in started]
    return float(outputs[0])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often every run is made")
    arguments = parser.parse_args()
    measured: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = write_data_bin(Path(folder) / "data-bin", num_documents=2000)
        shape = Shape(
            num_layers=LAYERS,
            dim=DIM,
            ffn_dim=4 * DIM,
            num_heads=4,
            vocab_size=vocabulary_size([data]),
            max_positions=LENGTH,
            tokens_per_sample=LENGTH,
        )
        for _ in range(arguments.rounds):
            for name, value in (
                ("one process", tokens_per_second(words_of(data, layers=LAYERS, update_freq=1))),
                ("4 accumulated", tokens_per_second(words_of(data, layers=LAYERS, update_freq=4))),
                ("8 layers", tokens_per_second(words_of(data, layers=8, update_freq=1))),
                ("2 processes", tokens_per_second(words_of(data, layers=LAYERS, update_freq=1), processes=2)),
                ("adding up", seconds_to_add_up(shape.num_parameters)),
            ):
                measured.setdefault(name, []).append(value)
    best = {name: max(values) for name, values in measured.items()}
    best["adding up"] = min(measured["adding up"])
    gigabytes = 4 * shape.num_parameters / 1e9
    here = Machine(
        name="here", peak_tflops=1, memory_gb=1, inside_gb_s=gigabytes / best["adding up"] / ACHIEVED, between_gb_s=1
    )
    training = Training(
        shape=shape,
        precision=Precision(is_half=False),
        batch_sequences=BATCH,
        most_per_gpu=BATCH,
        num_updates=UPDATES,
        tokens_per_second=best["one process"],
        overlaps=False,
    )
    deeper = replace(shape, num_layers=8)
    planned = {
        "4 accumulated": plan(replace(training, batch_sequences=4 * BATCH), num_gpus=1, machine=here).tokens_per_second,
        "8 layers": best["one process"] * flops_per_token(shape) / flops_per_token(deeper),
        "2 processes": plan(replace(training, batch_sequences=2 * BATCH), num_gpus=2, machine=here).tokens_per_second,
    }
    report = Report("plan_cpu2", "The planner beside measured runs", __doc__)
    report.text(
        f"Told: {best['one process']:,.0f} tokens/s of one process; {gigabytes * 1e3:.0f} MB of gradients added up "
        f"by two processes in {1e3 * best['adding up']:.0f} ms."
    )
    rows = []
    for name, expected in planned.items():
        spread = f"{best[name]:,.0f} ({min(measured[name]):,.0f}-{max(measured[name]):,.0f})"
        rows.append((name, f"{expected:,.0f}", spread, f"{expected / best[name]:.2f}"))
    report.rows(("run", "planned tokens/s", "measured tokens/s (all rounds)", "planned / measured"), rows)
    report.text(
        f"Best of {arguments.rounds} runs of {UPDATES} updates. The rounds of the first run had "
        f"{min(measured['one process']):,.0f} to {max(measured['one process']):,.0f} tokens/s."
    )
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
