"""A small data-bin of made-up text, and the real commands run on it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from roberta_plugin.cli import main
from roberta_plugin.data.mmap_tokens import MmapTokensWriter
from tests.conftest import REPOSITORY
from tests.forked_training import PLUGIN, ForkedTrainings, run_forked
from tests.slurm_cluster import free_ports

HEAVY_VERBS = (
    "doctor",
    "evaluate",
    "export",
    "finetune",
    "import",
    "plan",
    "predict",
    "prepare",
    "pretrain",
    "profile",
)
HEAVY_VERBS += ("study", "sweep")
NUM_SYMBOLS = 120  # in dict.txt; ids 4 to 123


def write_data_bin(
    folder: Path, *, num_documents: int = 60, valid_documents: int = 10, seed: int = 0, dtype: str = "uint16"
) -> Path:
    """Write dict.txt, train and valid: documents of 3 to 9 lines of 5 to 30 tokens, blank lines between documents.

    Half of the tokens follow from the one before, the others are drawn from a few frequent ones, so that a model has
    something to learn quickly and something to learn slowly.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _data_bin(num_documents, valid_documents, seed, dtype).items():
        (folder / name).unlink(missing_ok=True)  # somebody may have mapped it
        (folder / name).write_bytes(content)
    return folder


@functools.cache
def _data_bin(num_documents: int, valid_documents: int, seed: int, dtype: str) -> dict[str, bytes]:
    """The files of `write_data_bin`, whose random numbers are drawn once in a process."""
    lines = [f"{symbol} {NUM_SYMBOLS - symbol + 1}\n" for symbol in range(1, NUM_SYMBOLS + 1)]
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        for split, count in (("train", num_documents), ("valid", valid_documents)):
            with MmapTokensWriter(Path(folder) / split, np.dtype(dtype)) as writer:
                for _ in range(count):
                    for _ in range(rng.integers(3, 10)):
                        line = np.empty(rng.integers(5, 31), dtype=dtype)
                        line[:] = 3 + np.minimum(rng.zipf(1.5, len(line)), NUM_SYMBOLS)
                        for i in range(1, len(line) - 1):
                            if rng.random() < 0.5:
                                line[i] = 4 + (int(line[i - 1]) * 7 + 1) % NUM_SYMBOLS
                        line[-1] = 2
                        writer.write(line, np.array([len(line)]))
                    writer.write(np.array([2], dtype=dtype), np.array([1]))
        files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    return {"dict.txt": "".join(lines).encode(), **files}


def command(name: str) -> list[str]:
    """The console command `name` of the environment that runs the tests."""
    return [str(Path(sys.executable).parent / name)]


def environment() -> dict[str, str]:
    """One thread for each process, no GPU: the same arithmetic everywhere."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(REPOSITORY)}


def run(
    arguments: list[str], *, timeout: float = 300, fork_of: str | None = PLUGIN
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; the caller checks the return code.

    Args:
        arguments: the command and its arguments.
        timeout: seconds.
        fork_of: what a command of fairseq, or a verb of roberta that imports fairseq, is forked from, see
            `forked_training.IMPORTS`; of "fairseq" at most where it does not use this plugin. None: a new process.
    """
    if fork_of and imports_fairseq(arguments):
        if Path(arguments[0]).name != "roberta" and str(REPOSITORY / "roberta_plugin") not in arguments:
            fork_of = "fairseq"
        return run_forked(arguments, cwd=REPOSITORY, environment=environment(), timeout=timeout, fork_of=fork_of)
    return subprocess.run(
        arguments, cwd=REPOSITORY, env=environment(), capture_output=True, text=True, timeout=timeout, check=False
    )


def run_here(arguments: list[str], capture: pytest.CaptureFixture[str]) -> subprocess.CompletedProcess[str]:
    """Run a command of roberta as a call in this process, which tests have imported everything into."""
    capture.readouterr()
    code = main(arguments[1:])
    said = capture.readouterr()
    return subprocess.CompletedProcess(arguments, code, said.out, said.err)


def imports_fairseq(arguments: list[str]) -> bool:
    """Whether most of a command's start is the import of fairseq."""
    name, verb = Path(arguments[0]).name, next(iter(arguments[1:]), "")
    return name.startswith("fairseq-") or (name == "roberta" and verb in HEAVY_VERBS)


def train_command(data: str | Path, save_dir: Path, *options: str) -> list[str]:
    """`fairseq-train` of a tiny model with the settings that the integration tests share."""
    return [
        *command("fairseq-train"),
        str(data),
        *("--user-dir", str(REPOSITORY / "roberta_plugin"), "--cpu", "--seed", "3"),
        *("--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm"),
        *("--arch", "fast_roberta_tiny", "--encoder-layers", "2", "--encoder-embed-dim", "32"),
        *("--encoder-ffn-embed-dim", "64", "--encoder-attention-heads", "2"),
        *("--tokens-per-sample", "64", "--batch-size", "4"),
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-6", "--clip-norm", "0.0"),
        *("--lr-scheduler", "polynomial_decay", "--lr", "3e-3", "--warmup-updates", "5", "--weight-decay", "0.01"),
        *("--save-dir", str(save_dir), "--log-format", "json", "--log-interval", "1"),
        *("--log-file", str(save_dir) + ".log"),
        *options,
    ]


def launched_words(data: str | Path, *options: str) -> list[str]:
    """What follows `--` in `roberta launch` and `roberta train` for the same training: without what these add."""
    words = train_command(data, Path("unused"))[1:]
    for option in ("--save-dir", "--log-file", "--user-dir"):
        at = words.index(option)
        del words[at : at + 2]
    return [*words, *options]


def grid_train(data: Path) -> dict[str, str]:
    """The options of that command as the section `train` of a grid file, without those that a sweep gives."""
    words, train = train_command(data, Path("unused"))[2:], {"data": str(data)}
    while words:
        name = words.pop(0).removeprefix("--")
        train[name] = words.pop(0) if words and not words[0].startswith("--") else "true"
    for name in ("save-dir", "log-file", "log-format", "seed"):
        del train[name]
    return {**train, "no-epoch-checkpoints": "true", "keep-interval-updates": "1"}


def finetune_command(data: Path, save_dir: Path, task: str, *options: str) -> list[str]:
    """`fairseq-train` of a tiny model on prepared data, with the criterion of the task's name; options given last win."""
    return [
        *command("fairseq-train"),
        str(data),
        *(
            *("--user-dir", str(REPOSITORY / "roberta_plugin"), "--cpu", "--seed", "3", "--task", task),
            *("--criterion", task),
        ),
        *("--arch", "fast_roberta_tiny", "--encoder-layers", "2", "--encoder-embed-dim", "32"),
        *("--encoder-ffn-embed-dim", "64", "--encoder-attention-heads", "2"),
        *("--optimizer", "roberta_adamw", "--required-batch-size-multiple", "1", "--no-epoch-checkpoints"),
        *("--save-dir", str(save_dir), "--log-format", "json", "--log-interval", "10"),
        *("--log-file", str(save_dir) + ".log"),
        *options,
    ]


def rank_commands(arguments: list[str], num_ranks: int) -> list[list[str]]:
    """The commands of `num_ranks` processes of fairseq-train on this machine, which talk by gloo."""
    place = ["--distributed-init-method", f"tcp://127.0.0.1:{free_ports(1)[0]}", "--distributed-no-spawn"]
    place += ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    place += ["--distributed-world-size", str(num_ranks)]
    return [[*arguments, *place, "--distributed-rank", str(rank)] for rank in range(num_ranks)]


def run_ranks(arguments: list[str], num_ranks: int) -> str:
    """Run fairseq-train as `num_ranks` processes, which must all succeed; return what the first one says."""
    commands = rank_commands(arguments, num_ranks)
    ranks = ForkedTrainings(commands, cwd=REPOSITORY, environment=environment()).wait(timeout=120)
    output = ranks[0].stdout + ranks[0].stderr
    assert [rank.returncode for rank in ranks] == [0] * num_ranks, output[-3000:]
    assert f"distributed_world_size': {num_ranks}" in output
    return output


def same_weights(save_dir: Path, other: Path) -> dict[str, Any]:
    """The last checkpoint of a folder, which has the weights of the other folder's, to the last bit."""
    found, expected = (torch.load(each / "checkpoint_last.pt", weights_only=True) for each in (save_dir, other))
    assert found["model"].keys() == expected["model"].keys()
    unlike = [name for name, value in found["model"].items() if not torch.equal(value, expected["model"][name])]
    assert not unlike, unlike
    return found


def logged(save_dir: Path, kind: str) -> list[dict[str, str]]:
    """The JSON records of `kind` ("train_inner", "train" or "valid") in the log of `train_command`, each once."""
    path = Path(str(save_dir) + ".log")
    key = {"train_inner": "update", "train": "train_loss", "valid": "valid_loss"}[kind]
    lines = path.read_text().splitlines() if path.exists() else []
    records = [json.loads(line) for line in lines if line.startswith('{"') and line.endswith("}")]
    chosen = [record for record in records if key in record]
    return [record for record, before in zip(chosen, [None, *chosen], strict=False) if record != before]


def kill_at_update(arguments: list[str], save_dir: Path, update: int, *, timeout: float = 240) -> int:
    """Start the command and kill -9 its whole process group once the log shows `update`; return the update it was at."""
    training = ForkedTrainings([arguments], cwd=REPOSITORY, environment=environment())
    deadline = time.monotonic() + timeout
    try:
        while time.monotonic() < deadline:
            updates = [int(record["num_updates"]) for record in logged(save_dir, "train_inner")]
            if updates and updates[-1] >= update:
                return updates[-1]
            if codes := training.codes():
                raise AssertionError(f"the run ended (code {codes[0]}) before update {update}")
            time.sleep(0.005)
        raise AssertionError(f"update {update} was not reached in {timeout} s")
    finally:
        training.kill()
