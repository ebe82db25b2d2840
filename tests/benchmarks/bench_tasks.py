"""Fine-tuning on real data from a small model of our own pretraining, beside the same model from random weights.

    python -m tests.benchmarks.bench_tasks --work FOLDER [--write]

The whole way by the commands of the README: a byte-level BPE and a data-bin of the books corpus, pretraining on blocks
of 64 tokens, and `roberta finetune` on each task with three seeds, once from that model and once with --from-scratch.
Every step goes on where an earlier call stopped, so FOLDER may hold some of them already. The model is tiny, saw some
nine million tokens and reads 64 at a time, which leaves a passage of RACE some 20 and cuts those of SQuAD into windows
of about 40: the numbers show that the procedure works, not what RoBERTa can do.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from roberta_plugin.finetuning.prepared import Prepared
from tests.benchmarks.report import Report, machine
from tests.conftest import REPOSITORY, SHARED_DATA
from tests.real_data import unpack
from tests.tiny_corpus import command

LENGTH = 64  # tokens of a block, and of a model input
SEEDS = ("1", "2", "3")
# Parts of what is too large for a CPU: passages of RACE's middle school, articles of SQuAD 2.0.
RACE_PASSAGES = {"train": 300, "dev": 200}
SQUAD_ARTICLES = {"train": 5, "dev": 4}
PRETRAINING = (
    "--task roberta_masked_lm --criterion roberta_masked_lm --arch fast_roberta_small --encoder-embed-dim 256 "
    "--encoder-ffn-embed-dim 1024 --encoder-attention-heads 4 --dropout 0.0 --attention-dropout 0.0 --max-positions 256 "
    "--sample-break-mode complete --mask-prob 0.3 --optimizer roberta_adamw --clip-norm 1.0 --seed 1 --cpu "
    "--lr-scheduler polynomial_decay --no-epoch-checkpoints --keep-interval-updates 1 --save-interval-updates 500 "
    "--disable-validation --num-workers 0 --log-format json --log-interval 200 "
    f"--tokens-per-sample {LENGTH} --batch-size 16 --lr 1.2e-3 --warmup-updates 600 --total-num-update 15000 "
    "--max-update 10000"
)


@dataclass(frozen=True)
class Task:
    """A task and how the small model is trained on it: far higher rates than the paper's for large ones."""

    metric: str
    epochs: int
    lr: str = "3e-4"
    batch: str = "32"
    options: tuple[str, ...] = field(default=())


TASKS = {
    "CoLA": Task("mcc", 5),
    "SST-2": Task("accuracy", 1),
    "MRPC": Task("acc_and_f1", 3),
    "STS-B": Task("pearson_spearman", 3),
    "RTE": Task("accuracy", 3),
    "squad2": Task("f1", 1, batch="48", options=("--doc-stride", "40", "--question-length", "20")),
    "race": Task("accuracy", 1, batch="16", options=("--question-length", "40")),
}


def call(*words: str) -> None:
    """A command of this environment, on one thread; an error ends the benchmark."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    print("$", " ".join(words), flush=True)
    subprocess.run([*command(words[0]), *words[1:]], cwd=REPOSITORY, check=True, env=environment)


def pretrain(work: Path) -> None:
    """Make the pretrained checkpoint, by whatever steps are still to be done."""
    for split in ("train", "valid"):
        text = work / f"{split}.txt"
        if not text.is_file():
            with lzma.open(SHARED_DATA / "text" / f"books.{split}.txt.xz") as packed, open(text, "wb") as plain:
                shutil.copyfileobj(packed, plain)
    if not (work / "tokenizer").is_dir():
        texts = ("--input", str(work / "train.txt"), "--vocab-size", "10000")
        call("roberta", "tokenizer", "train", *texts, "--output-dir", str(work / "tokenizer"))
    if not (work / "data-bin").is_dir():
        texts = ("--train", str(work / "train.txt"), "--valid", str(work / "valid.txt"))
        where = ("--tokenizer", str(work / "tokenizer"), "--output-dir", str(work / "data-bin"))
        call("roberta", "binarize", *texts, *where, "--no-progress")
    where = ("--user-dir", str(REPOSITORY / "roberta_plugin"), "--save-dir", str(work / "pretrained"))
    call("fairseq-train", str(work / "data-bin"), *where, *PRETRAINING.split())


def raw_files(work: Path) -> dict[str, Path]:
    """Task -> folder of its official files, unpacked."""
    raw = work / "raw"
    for name in ("glue", "squad", "race"):
        if not (raw / f"{name}.done").is_file():
            unpack(SHARED_DATA, name, raw)
            (raw / f"{name}.done").touch()
    part = raw / "race-part"
    for split, number in RACE_PASSAGES.items():
        (part / split / "middle").mkdir(parents=True, exist_ok=True)
        for path in sorted((raw / "race" / "RACE" / split / "middle").glob("*.txt"))[:number]:
            shutil.copy(path, part / split / "middle" / path.name)
    (raw / "squad-part").mkdir(exist_ok=True)
    for split, number in SQUAD_ARTICLES.items():
        content = json.loads((raw / "squad" / f"{split}-v2.0.json").read_text(encoding="utf-8"))
        content["data"] = content["data"][:number]
        (raw / "squad-part" / f"{split}-v2.0.json").write_text(json.dumps(content), encoding="utf-8")
    found = {task: raw / "glue" / task for task in TASKS}
    return {**found, "squad2": raw / "squad-part", "race": part}


def finetune(name: str, raw: Path, work: Path, side: str, *flags: str) -> dict:
    """What `roberta finetune` found on the development set."""
    task, folder = TASKS[name], work / name / side
    model = work / "pretrained" / "checkpoint_last.pt"
    words = ["--raw", str(raw), "--tokenizer", str(work / "tokenizer"), "--max-length", str(LENGTH)]
    words += task.options
    words += ["--model", str(model), "--output-dir", str(folder), "--data", str(folder.parent / "data")]
    words += ["--epochs", str(task.epochs), "--only", f"lr={task.lr}", "--only", f"batch={task.batch}"]
    found = folder / "results" / "evaluation_valid.json"
    if not found.is_file():
        call("roberta", "finetune", name, *words, "--seeds", *SEEDS, "--parallel", "2", *flags)
    return json.loads(found.read_text())


def majority(name: str, data: Path) -> str:
    """What the most frequent answer would get, by the metric of the table."""
    split = Prepared.open(data).split("valid")
    if name == "squad2":
        has_answer = [bool(record["answers"]) for record in split.records() if "question" in record and "id" in record]
        return f"{100 * (1 - np.mean(has_answer)):.1f}"
    if name == "race":
        return f"{100 / np.diff(split.offsets).mean():.1f}"
    labels = Counter(split.columns["label"].tolist())
    if name in ("CoLA", "STS-B"):
        return "0.0"
    share = labels.most_common(1)[0][1] / len(split)
    if name == "MRPC":  # all are paraphrases: accuracy and F1 of that answer
        positive = labels[1] / len(split)
        return f"{50 * (positive + 2 * positive / (1 + positive)):.1f}"
    return f"{100 * share:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for everything that is made")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="tasks to fine-tune on (all)")
    parser.add_argument("--write", action="store_true", help="write the report to tests/benchmarks/results")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    pretrain(work)
    raw = raw_files(work)
    report = Report("tasks_cpu2", "Fine-tuning a small model on real data", __doc__ or "", machine())
    report.text(f"Pretraining: `{PRETRAINING}`.")
    lines = ["| task | metric | epochs, lr, batch | majority | from scratch | pretrained |", "|" + " --- |" * 6]
    for name in arguments.tasks:
        task = TASKS[name]
        cells = []
        for side, flags in (("scratch", ("--from-scratch",)), ("pretrained", ())):
            found = finetune(name, raw[name], work, side, *flags)
            values = [member["metrics"][task.metric] for member in found["members"]]
            cells.append(f"{found['median'][task.metric]:.1f} ({min(values):.1f} to {max(values):.1f})")
        settings = f"{task.epochs}, {task.lr}, {task.batch}"
        lines.append(
            f"| {name} | {task.metric} | {settings} | {majority(name, work / name / 'data')} | {' | '.join(cells)} |"
        )
    report.text("\n".join(lines))
    report.text(f"Medians of {len(SEEDS)} seeds on the development sets (lowest to highest).")
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
