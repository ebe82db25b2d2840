"""Tagging, coreference and own tables on real data, from a small model of our own pretraining.

    python -m tests.benchmarks.bench_applications --work FOLDER --model CHECKPOINT --tokenizer FOLDER [--write]

`roberta finetune` with three seeds for WNUT-17 (Derczynski et al. 2017), SuperGLUE's WSC, and two own tables by
`custom`: reviews with a label (SST-2) and pairs of sentences with a number (STS-B), the first 4,000 rows of each, beside
what the most frequent answer gets. The model is that of examples/pretrain/small_100m.sh. A step that an earlier call
has finished is not done again. The model is small: the numbers show that the procedure works, not what RoBERTa can do.
WNUT-17's rate and epochs were chosen by a trial with one seed on the same development set.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from roberta_plugin.finetuning.prepared import Prepared
from tests.benchmarks.report import Report, machine
from tests.conftest import SHARED_DATA
from tests.real_data import unpack
from tests.tiny_corpus import command

SEEDS = ("1", "2", "3")
ROWS = 4000  # of SST-2's 67,349 and STS-B's 5,749
LENGTH = 128  # most tokens of an input


@dataclass(frozen=True)
class Application:
    """A set and how the small model is trained on it: far higher rates than the paper's for large ones."""

    task: str
    raw: str
    metric: str
    epochs: int
    lr: str
    batch: str
    options: tuple[str, ...] = ()


def _table(name: str, kind: str, *columns: str) -> tuple[str, ...]:
    words = ("--kind", kind, "--train", f"{name}.train.tsv", "--valid", f"{name}.valid.tsv")
    return (*words, *(f"--{option}-column={column}" for option, column in (each.split("=") for each in columns)))


APPLICATIONS = {
    "WNUT-17": Application("wnut17", "ner/wnut17", "f1", 15, "3e-4", "16"),
    "WSC": Application("WSC", "superglue", "accuracy", 3, "1e-4", "8"),
    "own table: reviews": Application(
        "custom", "tables", "accuracy", 2, "5e-4", "16", _table("reviews", "classification", "text=sentence")
    ),
    "own table: similarity": Application(
        "custom",
        "tables",
        "pearson_spearman",
        2,
        "5e-4",
        "16",
        _table("similarity", "regression", "text=sentence1", "text-pair=sentence2", "label=score"),
    ),
}


def call(*words: str) -> None:
    """A command of this environment, on one thread; an error ends the benchmark."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    print("$", " ".join(words), flush=True)
    subprocess.run([*command(words[0]), *words[1:]], check=True, env=environment)


def raw_files(work: Path) -> Path:
    """The folder of the official files, unpacked, and of the tables."""
    raw = work / "raw"
    for name in ("ner", "superglue", "glue"):
        if not (raw / f"{name}.done").is_file():
            unpack(SHARED_DATA, name, raw)
            (raw / f"{name}.done").touch()
    (raw / "tables").mkdir(exist_ok=True)
    for name, folder in (("reviews", "SST-2"), ("similarity", "STS-B")):
        for split, official in (("train", "train"), ("valid", "dev")):
            with open(raw / "glue" / folder / f"{official}.tsv", encoding="utf-8") as file:
                (raw / "tables" / f"{name}.{split}.tsv").write_text("".join(islice(file, ROWS + 1)), "utf-8")
    return raw


def finetune(name: str, raw: Path, work: Path, arguments: argparse.Namespace) -> tuple[dict[str, Any], float]:
    """What `roberta finetune` found on the development set, and the seconds that it took."""
    application, folder = APPLICATIONS[name], work / name.replace(" ", "-").replace(":", "")
    found, took = folder / "results" / "evaluation_valid.json", folder / "seconds"
    if not took.is_file():
        started = time.monotonic()
        words = ["--raw", str(raw / application.raw), "--tokenizer", str(arguments.tokenizer), *application.options]
        words += ["--model", str(arguments.model), "--output-dir", str(folder), "--max-length", str(LENGTH)]
        words += ["--epochs", str(arguments.epochs or application.epochs)]
        words += ["--only", f"lr={application.lr}", "--only", f"batch={application.batch}", "--seeds", *SEEDS]
        call("roberta", "finetune", application.task, *words)
        took.write_text(f"{time.monotonic() - started:.0f}")
    return json.loads(found.read_text()), float(took.read_text())


def most_frequent(name: str, found: dict[str, Any]) -> float:
    """What always giving the most frequent answer gets, by the metric of the table."""
    application = APPLICATIONS[name]
    if application.task == "wnut17" or application.metric == "pearson_spearman":
        return 0.0  # no entity; a constant
    if application.task == "custom":
        return float(found["details"]["baseline"][application.metric])
    split = Prepared.open(found["data"]).split("valid")
    labels = Counter(split.columns["label"].tolist())
    return 100 * labels.most_common(1)[0][1] / len(split)


def updates_of(model: Path) -> str:
    """How long a checkpoint was pretrained."""
    state = torch.load(model, map_location="cpu", weights_only=False, mmap=True)
    history = [f"{each['num_updates']:,}" for each in state["optimizer_history"]]
    return f"{history[-1]} updates on blocks of {state['cfg']['task']['tokens_per_sample']} tokens"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for everything that is made")
    parser.add_argument("--model", type=Path, required=True, help="pretrained checkpoint")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of its tokenizer")
    parser.add_argument("--tasks", nargs="+", choices=APPLICATIONS, default=list(APPLICATIONS), help="sets (all)")
    parser.add_argument("--epochs", type=int, help="instead of those of the table, for a trial")
    parser.add_argument("--write", action="store_true", help="write the report to tests/benchmarks/results")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    raw = raw_files(arguments.work)
    report = Report("applications_cpu1", "Applications from a small model, on real data", __doc__ or "", machine())
    report.text(f"Pretraining: examples/pretrain/small_100m.sh; the last part: {updates_of(arguments.model)}.")
    lines = [
        "| set | metric | epochs, lr, batch | most frequent answer | median of 3 seeds | ensemble | seconds |",
        "|" + " --- |" * 7,
    ]
    for name in arguments.tasks:
        application = APPLICATIONS[name]
        found, seconds = finetune(name, raw, arguments.work, arguments)
        values = [member["metrics"][application.metric] for member in found["members"]]
        settings = f"{arguments.epochs or application.epochs}, {application.lr}, {application.batch}"
        lines.append(
            f"| {name} | {application.metric} | {settings} | {most_frequent(name, found):.1f} | "
            f"{found['median'][application.metric]:.1f} ({min(values):.1f} to {max(values):.1f}) | "
            f"{found['ensemble'][application.metric]:.1f} | {seconds:.0f} |"
        )
    report.text("\n".join(lines))
    report.text("Development sets; medians with the lowest and the highest; seconds of all seeds, on one core.")
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
