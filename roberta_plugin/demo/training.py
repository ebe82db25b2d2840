"""Pretraining with the real `fairseq-train`, its length fitted to a time budget, with a progress bar.

The learning rate has to reach zero when the time is up, so the number of
updates is fixed beforehand: a short run measures the speed, and the run folder keeps the plan made from it. The budget
is for updates and validations; the start-up of fairseq-train comes on top, so a slow start does not shorten the
training. A resumed run uses the same plan and command, and fairseq resumes from its last checkpoint.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import roberta_plugin
from roberta_plugin.data.blocks import BreakMode
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.demo.steps import DemoFolder
from roberta_plugin.machine import num_cores
from roberta_plugin.progress import progress_bar
from roberta_plugin.training.log import Record, parse_line, show_on
from roberta_plugin.training.process import failure, lines_of, train_program

# Chosen for five minutes of training on two cores. Blocks and batches are small and the learning rate is
# high, because early in training more updates help more than more tokens. More than the paper's 15 % of the tokens are
# predicted, so each block teaches more (Wettig et al. 2023, "Should You Mask 15% in Masked Language Modeling?").
TOKENS_PER_SAMPLE = 32
BREAK_MODE: BreakMode = "none"
BATCH_SIZE = 16
MASK_PROB = 0.4
MODEL = {
    "--arch": "fast_roberta_tiny",
    "--encoder-embed-dim": "192",
    "--encoder-ffn-embed-dim": "768",
    "--encoder-attention-heads": "6",
    "--dropout": "0.0",
    "--attention-dropout": "0.0",
    "--init-std": "width",
    "--init-attention": "neighbors",
}
SWITCHES = ["--encoder-normalize-before", "--zero-init-residual"]
PEAK_LR = 1.5e-3
WARMUP_SHARE = 0.06
BATCH_SIZE_VALID = 128
MAX_VALIDATIONS = 8  # each also saves a checkpoint, from which a killed run resumes
VALIDATION_SHARE = 0.1  # of the time at most
CALIBRATION_S = 12.0
SAFETY = 0.9  # of the time that the measured speed allows: the speed of a shared machine varies
END_SHARE = 0.03  # of the time, for the last validation and checkpoint if the time is up before the updates are done
MIN_UPDATES = 20  # made on any machine, however small the budget
SLOWDOWN = 10  # the minimum is made even if the training runs this many times slower than measured
FORWARD_SHARE = 0.4  # cost of validating on a token, relative to training on it
MAX_THREADS = 8  # the model is too small to use more
# Threads that spin while they wait make a busy machine ten times slower; a short spin costs an idle machine nothing.
SPIN_COUNT = "1000"


class Plan(NamedTuple):
    """How long to train, computed from the measured speed."""

    num_updates: int
    stop_after_s: float
    seconds_per_update: float
    num_validations: int
    threads: int


def train_command(run: DemoFolder, *, num_updates: int, extra: dict[str, str]) -> list[str]:
    """The command line of `fairseq-train` with the demo's settings."""
    options = {
        "--user-dir": str(Path(roberta_plugin.__file__).parent),
        "--task": "roberta_masked_lm",
        "--criterion": "roberta_masked_lm",
        **MODEL,
        "--sample-break-mode": BREAK_MODE,
        "--tokens-per-sample": str(TOKENS_PER_SAMPLE),
        "--batch-size": str(BATCH_SIZE),
        "--batch-size-valid": str(BATCH_SIZE_VALID),
        "--mask-prob": str(MASK_PROB),
        "--optimizer": "roberta_adamw",
        "--lr": str(PEAK_LR),
        "--lr-scheduler": "polynomial_decay",
        "--warmup-updates": str(max(1, round(WARMUP_SHARE * num_updates))),
        "--total-num-update": str(num_updates),
        "--max-update": str(num_updates),
        "--seed": str(run.settings.seed),
        "--num-workers": "0",
        "--distributed-world-size": "1",
        "--log-format": "json",
        "--log-interval": "20",
        **extra,
    }
    return [*train_program(), str(run.data_bin), *SWITCHES, *itertools.chain.from_iterable(options.items())]


def plan_training(run: DemoFolder) -> Plan:
    """Train for a few seconds, discard the result, and plan the number of updates that fit into the budget.

    Measured with all cores and with one: on a busy machine, threads that wait for each other are slower than one.
    """
    budget = 60 * run.settings.minutes
    seconds = min(CALIBRATION_S, 0.2 * budget)
    choices = thread_choices()
    speeds = {threads: measure_speed(run, threads=threads, seconds=seconds / len(choices)) for threads in choices}
    threads = min(speeds, key=lambda threads: speeds[threads])
    return make_plan(
        speeds[threads],
        budget_s=budget,
        valid_batches=MmapTokens(run.data_bin / "valid").num_tokens / (TOKENS_PER_SAMPLE * BATCH_SIZE),
        threads=threads,
    )


def thread_choices() -> list[int]:
    """Numbers of threads worth trying: OMP_NUM_THREADS if set, else all cores and one."""
    if os.environ.get("OMP_NUM_THREADS", "").isdigit():
        return [int(os.environ["OMP_NUM_THREADS"])]
    return sorted({min(MAX_THREADS, num_cores()), 1}, reverse=True)


def measure_speed(run: DemoFolder, *, threads: int, seconds: float) -> float:
    """Measure the seconds of an update."""
    log = run.path / "speed.log"
    command = train_command(run, num_updates=10**6, extra={"--save-dir": str(run.path / "unused")})
    command = [*command, "--no-save", "--disable-validation"]
    seen: list[tuple[float, int]] = []  # (time, updates done)
    with closing(train(run, command, log=log, threads=threads)) as records:
        for record in records:
            seen.append((time.monotonic(), int(record.values["num_updates"])))
            if seen[-1][0] - seen[0][0] >= seconds and len(seen) > 1:
                break
    if len(seen) < 2:
        raise failure("The speed measurement ended before it had measured a speed", log)
    # The median ignores a short burst of other work on the machine.
    return statistics.median(
        (time_after - time_before) / (after - before)
        for (time_before, before), (time_after, after) in itertools.pairwise(seen)
    )


def make_plan(seconds_per_update: float, *, budget_s: float, valid_batches: float, threads: int) -> Plan:
    """The number of updates for which training and validations stay within the budget; at least `MIN_UPDATES`.

    The start-up is not counted in `budget_s`.

    Example: 300 s, 0.05 s per update, 20 validation batches -> 8 validations of 0.4 s each, 5335 updates, and a stop
    after 291 s if the machine turns out slower.
    """
    validation_s = FORWARD_SHARE * valid_batches * seconds_per_update
    num_validations = max(1, min(MAX_VALIDATIONS, int(VALIDATION_SHARE * budget_s / validation_s)))
    training_s = SAFETY * (budget_s - (num_validations + 1) * validation_s)
    return Plan(
        num_updates=max(MIN_UPDATES, int(training_s / seconds_per_update)),
        # fairseq's clock starts when the trainer is built, after most of the start-up.
        stop_after_s=max((1 - END_SHARE) * budget_s, SLOWDOWN * MIN_UPDATES * seconds_per_update),
        seconds_per_update=seconds_per_update,
        num_validations=num_validations,
        threads=threads,
    )


def pretrain(run: DemoFolder, plan: Plan) -> dict[str, Any]:
    """Train to the end of the plan, from the last checkpoint if there is one; return the number of updates made."""
    extra = {
        "--save-dir": str(run.checkpoints),
        "--stop-time-hours": f"{plan.stop_after_s / 3600:.5f}",
        "--save-interval": "1000000",  # save by updates, never by epochs
        "--validate-interval": "1000000",
        "--save-interval-updates": str(max(1, plan.num_updates // plan.num_validations)),
        "--keep-interval-updates": "1",
    }
    command = train_command(run, num_updates=plan.num_updates, extra=extra)
    num_updates = last_update(run.train_log)  # a resumed training that had already ended logs no more updates
    bar = progress_bar("training", total=plan.num_updates, unit="update")
    with closing(train(run, command, log=run.train_log, threads=plan.threads)) as records, bar:
        for record in records:
            num_updates = int(record.values["num_updates"])
            show_on(bar, record)
    if not (run.checkpoints / "checkpoint_last.pt").is_file():
        raise failure("The training left no checkpoint", run.train_log)
    return {"num_updates": num_updates, "planned_updates": plan.num_updates, "command": command}


def last_update(log: Path) -> int:
    """The number of updates in the last record of a log; 0 if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    records = [record.values for record in map(parse_line, lines) if record]
    return int(next((values["num_updates"] for values in reversed(records) if "num_updates" in values), 0))


def train(run: DemoFolder, command: list[str], *, log: Path, threads: int) -> Generator[Record, None, None]:
    """Run `fairseq-train` and yield the records of its log as they appear."""
    environment = {"OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", SPIN_COUNT)}
    with closing(lines_of(command, log=log, environment=environment, lock=run.lock_descriptor)) as lines:
        for line in lines:
            record = parse_line(line)
            if record and "num_updates" in record.values:
                yield record
