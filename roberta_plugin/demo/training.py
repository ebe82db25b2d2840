"""Pretraining with the real `fairseq-train`, with a progress bar; the same command resumes from its last checkpoint."""

from __future__ import annotations

import itertools
import os
from contextlib import closing
from pathlib import Path

import roberta_plugin
from roberta_plugin.data.blocks import BreakMode
from roberta_plugin.launch.log import parse_line, show_on
from roberta_plugin.launch.process import lines_of, train_program
from roberta_plugin.machine import num_cores
from roberta_plugin.progress import progress_bar

# Chosen for minutes of training on two cores. Blocks and batches are small and the learning rate is high, because early
# in training more updates help more than more tokens. More than the paper's 15 % of the tokens are predicted, so each
# block teaches more (Wettig et al. 2023, "Should You Mask 15% in Masked Language Modeling?").
TOKENS_PER_SAMPLE = 32
BREAK_MODE: BreakMode = "none"
OPTIONS = {
    "--task": "roberta_masked_lm",
    "--criterion": "roberta_masked_lm",
    "--arch": "fast_roberta_tiny",
    "--encoder-embed-dim": "192",
    "--encoder-ffn-embed-dim": "768",
    "--encoder-attention-heads": "6",
    "--dropout": "0.0",
    "--attention-dropout": "0.0",
    "--init-std": "width",
    "--init-attention": "neighbors",
    "--sample-break-mode": BREAK_MODE,
    "--tokens-per-sample": str(TOKENS_PER_SAMPLE),
    "--batch-size": "16",
    "--batch-size-valid": "128",
    "--mask-prob": "0.4",
    "--optimizer": "roberta_adamw",
    "--lr": "1.5e-3",
    "--lr-scheduler": "polynomial_decay",
    "--num-workers": "0",
    "--distributed-world-size": "1",
    "--log-format": "json",
    "--log-interval": "20",
    "--save-interval": "1000000",  # save by updates, never by epochs
    "--validate-interval": "1000000",
    "--keep-interval-updates": "1",
}
SWITCHES = ("--encoder-normalize-before", "--zero-init-residual")
WARMUP_SHARE = 0.06
NUM_VALIDATIONS = 8  # each also saves a checkpoint, from which a killed run resumes
MAX_THREADS = 8  # the model is too small to use more
# Threads that spin while they wait make a busy machine ten times slower; a short spin costs an idle machine nothing.
SPIN_COUNT = "1000"


def train_command(data_bin: Path, save_dir: Path, *, updates: int, seed: int) -> list[str]:
    """The command line of `fairseq-train`; the learning rate reaches zero with the last update."""
    options = {
        "--user-dir": str(Path(roberta_plugin.__file__).parent),
        **OPTIONS,
        "--warmup-updates": str(max(1, round(WARMUP_SHARE * updates))),
        "--total-num-update": str(updates),
        "--max-update": str(updates),
        "--save-interval-updates": str(max(1, updates // NUM_VALIDATIONS)),
        "--seed": str(seed),
        "--save-dir": str(save_dir),
    }
    return [*train_program(), str(data_bin), *SWITCHES, *itertools.chain.from_iterable(options.items())]


def pretrain(command: list[str], *, log: Path, updates: int, lock: int) -> None:
    """Train to the end, from the last checkpoint if there is one; `lock` is inherited by the training."""
    threads = os.environ.get("OMP_NUM_THREADS") or str(min(MAX_THREADS, num_cores()))
    bar = progress_bar("training", total=updates, unit="update")
    with closing(lines_of(command, log=log, lock=lock, environment={"OMP_NUM_THREADS": threads})) as lines, bar:
        for line in lines:
            record = parse_line(line)
            if record and "num_updates" in record.values:
                show_on(bar, record)
