"""The commands under attack by `kills`: how each is started, and what must come out the same however often it dies."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from tests.conftest import REPOSITORY
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_corpus import command, grid_train, rank_commands, run, train_command, write_data_bin
from tests.tiny_glue import write_task

UPDATES = 60


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A command, or one per rank, that resumes when it is started again."""

    name: str
    start: Callable[[Path], list[list[str]]]
    """Folder to work in -> the commands to start together."""
    result: Callable[[Path], Any]
    """Folder -> what an uninterrupted run and a killed one must agree in."""
    writes: str = ""
    """In the paths of the folders whose writes matter, relative to the folder; "": all folders below it."""
    leaves: tuple[str, ...] = ()
    """Globs of what must not be there at the end: files that a killed start began."""
    forgets: bool = False
    """Whether a cut of the power is tried, too: what was not synced is lost."""
    kills: int = 1
    """How many times as often it is killed as others: it takes seconds, not a minute."""


def pretraining(name: str, inputs: Path, data: str, *options: str, ranks: int = 1) -> Subject:
    """fairseq-train with defaults, validation included, that saves every five updates."""

    def start(folder: Path) -> list[list[str]]:
        arguments = train_command(data, folder / "checkpoints", *options)
        for option, value in (("--optimizer", "roberta_adamw"), ("--batch-size", "2")):
            arguments[arguments.index(option) + 1] = value
        arguments += ["--max-update", str(UPDATES), "--total-num-update", str(UPDATES), "--no-epoch-checkpoints"]
        arguments += ["--save-interval-updates", "5", "--keep-interval-updates", "2"]
        arguments += ["--validate-interval-updates", "25"]
        # Ten megabytes, of which a kill can hit any, and no more work.
        arguments += ["--max-positions", "20000"]
        return [arguments] if ranks == 1 else rank_commands(arguments, ranks)

    leaves = ("checkpoints/*tmp*", "checkpoints/.*tmp*")
    return Subject(
        name=name, start=start, result=trained_state, writes="checkpoints", leaves=leaves, forgets=ranks == 1
    )


def trained_state(folder: Path) -> dict[str, Any]:
    """Parameters, optimizer state and position of the last checkpoint, as hashes and numbers."""
    return state_of(folder / "checkpoints" / "checkpoint_last.pt")


def state_of(path: Path) -> dict[str, Any]:
    """Parameters, optimizer state and position of a checkpoint; an error if a part of the file is not as written."""
    with zipfile.ZipFile(path) as archive:
        wrong = archive.testzip()
        assert wrong is None, f"the checksum of its part {wrong} is wrong"
    torch.serialization.add_safe_globals([argparse.Namespace])
    state = torch.load(path, weights_only=True)
    return {
        "updates": state["optimizer_history"][-1]["num_updates"],
        "parameters": digest(state["model"]),
        "optimizer": digest(state["last_optimizer_state"]),
        "position": digest(state["extra_state"]["train_iterator"]),
    }


def digest(tree: Any) -> str:
    """SHA-256 of all tensors and plain values of nested dicts and lists."""
    sha = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            sha.update(value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                sha.update(str(key).encode())
                add(value[key])
        elif isinstance(value, list | tuple):
            for item in value:
                add(item)
        else:
            sha.update(repr(value).encode())

    add(tree)
    return sha.hexdigest()


def files(folder: Path, *, skip: tuple[str, ...] = ()) -> dict[str, str]:
    """Path below the folder -> SHA-256, of all files."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(skip or ("\0",))
    }


def binarize(inputs: Path) -> Subject:
    """`roberta binarize` of 4 MB in small parts, by two workers."""
    text = inputs / "text.txt"
    if not text.exists():
        lines = (f"good bad {number % 977} is {number % 31} so\n" if number % 40 else "\n" for number in range(200_000))
        text.write_text("".join(lines))
    words = ["--train", str(text), "--tokenizer", str(inputs / "tokenizer"), "--part-bytes", "50000"]
    words += ["--workers", "2", "--no-progress"]
    return Subject(
        name="binarize",
        start=lambda folder: [[*command("roberta"), "binarize", *words, OUTPUT, str(folder / "data-bin")]],
        result=lambda folder: files(folder / "data-bin"),
        leaves=("data-bin/**/*tmp*",),
        kills=4,
    )


def prepare(inputs: Path, *, replaces: bool) -> Subject:
    """`roberta prepare SST-2` of so many examples that most of the time goes into writing; anew, or over a folder."""
    raw, small = inputs / "many" / "SST-2", inputs / "few"
    words = ["--tokenizer", str(inputs / "tokenizer"), "--max-length", "128", "--overwrite"]
    if not raw.exists():
        write_task(inputs / "many", "SST-2", train=12_000)
        glue = str(inputs / "glue" / "SST-2")
        must([*command("roberta"), "prepare", "SST-2", *words, "--raw", glue, OUTPUT, str(small)])

    def start(folder: Path) -> list[list[str]]:
        if replaces and not any(folder.glob("*data*")):
            shutil.copytree(small, folder / "data")
        return [[*command("roberta"), "prepare", "SST-2", *words, "--raw", str(raw), OUTPUT, str(folder / "data")]]

    return Subject(
        name="prepare --overwrite" if replaces else "prepare",
        start=start,
        result=lambda folder: files(folder / "data", skip=(".",)),
        leaves=(".*data*",),
        kills=4,
    )


def grid_content(inputs: Path) -> dict[str, Any]:
    """A grid file of two cells with two seeds."""
    train = grid_train(inputs / "a") | {"max-update": "30", "total-num-update": "30"}
    train |= {"save-interval-updates": "5", "optimizer": "roberta_adamw"}
    metric = {"log": "valid", "value": "ppl", "goal": "min", "at": "last"}
    return {"train": train, "axes": {"lr": ["1e-4", "1e-2"]}, "seeds": ["1", "2"], "metric": metric}


def sweep(inputs: Path) -> Subject:
    """`roberta sweep` of two cells with two seeds, two runs at a time."""

    def start(folder: Path) -> list[list[str]]:
        grid = folder / "grid.yaml"  # not among the inputs, which several trees share: it has this one's --user-dir
        grid.write_text(yaml.safe_dump(grid_content(inputs)))
        return [[*command("roberta"), "sweep", str(grid), OUTPUT, str(folder / "sweep"), "--parallel", "2"]]

    return Subject(
        name="sweep",
        start=start,
        result=lambda folder: json.loads((folder / "sweep" / "report.json").read_text())["cells"],
        writes="checkpoints",
        leaves=("sweep/*/*/checkpoints/*tmp*", "sweep/*/*/checkpoints/.*tmp*"),
    )


def finetune(inputs: Path) -> Subject:
    """`roberta finetune SST-2`: two seeds of one cell, evaluation and predictions."""
    words = ["--raw", str(inputs / "glue" / "SST-2"), "--tokenizer", str(inputs / "tokenizer"), "--max-length", "64"]
    words += ["--model", str(inputs / "pretrained" / "checkpoint_last.pt"), "--seeds", "1", "2", "--parallel", "2"]
    words += ["--only", "lr=1e-5", "--only", "batch=16", "--epochs", "3"]

    def result(folder: Path) -> Any:
        results = folder / "tuned" / "results"
        return [
            json.loads((results / "evaluation_valid.json").read_text())["median"],
            files(results, skip=("eval", "results")),
        ]

    return Subject(
        name="finetune",
        start=lambda folder: [[*command("roberta"), "finetune", "SST-2", *words, OUTPUT, str(folder / "tuned")]],
        result=result,
        writes="checkpoints",
        leaves=("tuned/runs/*/*/checkpoints/*tmp*", "tuned/runs/*/*/checkpoints/.*tmp*"),
    )


OUTPUT = "--output-dir"
SIZES = ("--encoder-layers", "2", "--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "64")
SIZES += ("--encoder-attention-heads", "2", "--max-positions", "64")


def write_inputs(folder: Path) -> Path:
    """Data-bins `a` and `b`, a tokenizer, raw SST-2 and a pretrained checkpoint, once."""
    if (folder / "done").exists():
        return folder
    write_data_bin(folder / "a")
    write_data_bin(folder / "b", seed=1)
    write_tokenizer(folder / "tokenizer")
    write_task(folder / "glue", "SST-2")
    (folder / "small.txt").write_text("good bad good\nbad good bad\n\n" * 40)
    words = ["--train", str(folder / "small.txt"), "--valid", str(folder / "small.txt")]
    words += ["--tokenizer", str(folder / "tokenizer"), OUTPUT, str(folder / "small"), "--no-progress"]
    must([*command("roberta"), "binarize", *words])
    options = ["--cpu", "--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--tokens-per-sample", "64"]
    options += ["--arch", "fast_roberta_tiny", *SIZES, "--batch-size", "4", "--optimizer", "roberta_adamw"]
    options += ["--lr", "1e-3", "--max-update", "3", "--save-dir", str(folder / "pretrained")]
    must([*command("fairseq-train"), str(folder / "small"), "--user-dir", str(REPOSITORY / "roberta_plugin"), *options])
    (folder / "done").touch()
    return folder


def checkpoints_below(folder: Path) -> list[Path]:
    """The files that a start would take."""
    return sorted(path for path in folder.rglob("checkpoint*.pt") if path.parent.name == "checkpoints")


def must(arguments: list[str]) -> None:
    """Run a command that has to succeed."""
    done = run(arguments)
    assert done.returncode == 0, done.stderr[-3000:]


def all_subjects(inputs: Path) -> list[Subject]:
    """Everything that `kills` attacks."""
    a, b = inputs / "a", inputs / "b"
    return [
        pretraining("pretraining, fp32", inputs, str(a)),
        pretraining("pretraining, bf16", inputs, str(a), "--bf16"),
        pretraining("pretraining, packed", inputs, str(a), "--pack-sequences", "--sample-break-mode", "complete"),
        pretraining("pretraining, mixture A@3,B@1", inputs, f"{a}@3,{b}@1"),
        pretraining(
            "pretraining, --update-freq 3, 2 workers", inputs, str(a), "--update-freq", "3", "--num-workers", "2"
        ),
        pretraining("pretraining, 2 ranks, --update-freq 3", inputs, str(a), "--update-freq", "3", ranks=2),
        pretraining("pretraining, 2 ranks, bf16", inputs, str(a), "--bf16", ranks=2),
        binarize(inputs),
        prepare(inputs, replaces=False),
        prepare(inputs, replaces=True),
        sweep(inputs),
        finetune(inputs),
    ]
