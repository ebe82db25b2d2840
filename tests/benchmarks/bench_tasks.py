"""What is a small model good for? Fine-tuning on real data, beside random weights and answers without a network.

    python -m tests.benchmarks.bench_tasks --work FOLDER --model runs/two_hours/checkpoint_best.pt --tokenizer TOKENIZER

`roberta finetune` with three seeds on each task, once from the model (examples/pretrain/two_hours.sh) and once with
--from-scratch, by the same settings; beside what always giving the most frequent answer gets, and, where the input is a
text or a pair, TF-IDF: with logistic regression, or for STS-B the cosine. A task that an earlier call has finished is
not done again; calls with different --tasks may share FOLDER. The model reads 128 tokens: passages of SQuAD are cut into windows.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import os
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import hstack
from scipy.stats import pearsonr, spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, matthews_corrcoef
from sklearn.model_selection import GridSearchCV

from roberta_plugin.finetuning.prepared import Prepared
from tests.benchmarks.report import Report, machine
from tests.conftest import REPOSITORY, SHARED_DATA
from tests.real_data import unpack
from tests.tiny_corpus import command

SEEDS = ("1", "2", "3")
SQUAD_ARTICLES = {"train": 60, "dev": 12}  # of 442 and 48


@dataclass(frozen=True)
class Task:
    """A task and how the small model is trained on it: far higher rates than the paper's for large ones."""

    metric: str
    epochs: int
    raw: str
    lr: str = "3e-4"
    batch: str = "32"
    name: str = ""
    """As `roberta finetune` calls it; empty: as in the table."""
    options: tuple[str, ...] = field(default=())
    columns: tuple[str, ...] = ()
    """Of the official file, for TF-IDF: one text or two, and the label; by number where the file has no header."""


TASKS = {
    "CoLA": Task("mcc", 5, "glue/CoLA", columns=("3", "1")),
    "SST-2": Task("accuracy", 1, "glue/SST-2", columns=("sentence", "label")),
    "MRPC": Task("acc_and_f1", 5, "glue/MRPC", columns=("#1 String", "#2 String", "Quality")),
    "STS-B": Task("pearson_spearman", 5, "glue/STS-B", columns=("sentence1", "sentence2", "score")),
    "RTE": Task("accuracy", 5, "glue/RTE", columns=("sentence1", "sentence2", "label")),
    "WNUT-17": Task("f1", 10, "ner/wnut17", batch="16", name="wnut17"),
    "SQuAD 1.1": Task(
        "f1", 2, "squad-part", name="squad1", options=("--doc-stride", "64", "--question-length", "32")
    ),
    "summaries": Task(
        "rouge1_rouge2",
        2,
        "summaries",
        batch="16",
        options=("--doc-stride", "112", "--length-share", "0.4", "--set", "length-share=0.4"),
    ),
}  # fmt: skip


def call(*words: str) -> None:
    """A command of this environment, on one thread; an error ends the benchmark."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    print("$", " ".join(words), flush=True)
    subprocess.run([*command(words[0]), *words[1:]], cwd=REPOSITORY, check=True, env=environment)


def make_raw_files(raw: Path) -> None:
    """The official files, unpacked, and the parts of SQuAD that a CPU can do."""
    for name in ("glue", "squad", "ner"):
        if not (raw / f"{name}.done").is_file():
            unpack(SHARED_DATA, name, raw)
            (raw / f"{name}.done").touch()
    (raw / "squad-part").mkdir(exist_ok=True)
    for split, number in SQUAD_ARTICLES.items():
        content = json.loads((raw / "squad" / f"{split}-v1.1.json").read_text(encoding="utf-8"))
        content["data"] = content["data"][:number]
        (raw / "squad-part" / f"{split}-v1.1.json").write_text(json.dumps(content), encoding="utf-8")
    (raw / "summaries").mkdir(exist_ok=True)
    for split, ours in (("train", "train.jsonl"), ("dev", "valid.jsonl")):
        name = f"bbc_news_summary.{split}.jsonl"
        with (
            lzma.open(SHARED_DATA / "summaries" / f"{name}.xz") as packed,
            open(raw / "summaries" / ours, "wb") as plain,
        ):
            shutil.copyfileobj(packed, plain)


def finetune(name: str, arguments: argparse.Namespace, side: str, *flags: str) -> dict[str, Any]:
    """What `roberta finetune` found on the development set."""
    task, folder = TASKS[name], arguments.work / name.replace(" ", "-") / side
    words = ["--raw", str(arguments.work / "raw" / task.raw), "--tokenizer", str(arguments.tokenizer), *task.options]
    words += ["--model", str(arguments.model), "--output-dir", str(folder), "--data", str(folder.parent / "data")]
    words += ["--epochs", str(task.epochs), "--only", f"lr={task.lr}", "--only", f"batch={task.batch}"]
    found = folder / "results" / "evaluation_valid.json"
    if not found.is_file():
        call("roberta", "finetune", task.name or name, *words, "--seeds", *SEEDS, *flags)
    evaluation: dict[str, Any] = json.loads(found.read_text())
    return evaluation


def rows(path: Path, columns: tuple[str, ...]) -> list[list[str]]:
    """The texts and the label of each complete row of a GLUE file; columns of a file without a header are numbers."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        lines = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    numbered = columns[0].isdigit()
    numbers = [int(name) if numbered else lines[0].index(name) for name in columns]
    complete = (line for line in lines[0 if numbered else 1 :] if len(line) > max(numbers))
    return [[line[number] for number in numbers] for line in complete]


def tfidf(task: Task, raw: Path) -> float:
    """TF-IDF of words and bigrams with logistic regression; two texts: their common terms and their differences.

    Of words alone, and the cosine of the two, where the answer is a number. The regression's strength is chosen by cross-validation.
    """
    train, dev = (rows(raw / task.raw / f"{split}.tsv", task.columns) for split in ("train", "dev"))
    is_number = task.metric == "pearson_spearman"
    vectors = TfidfVectorizer(ngram_range=(1, 1 if is_number else 2), token_pattern=r"\w+", sublinear_tf=not is_number)
    vectors.fit([text for row in train for text in row[:-1]])
    answers = [row[-1] for row in dev]

    def features(part: list[list[str]]) -> Any:
        sides = [vectors.transform(column) for column in list(zip(*part, strict=True))[:-1]]
        return sides[0] if len(sides) == 1 else hstack([sides[0].multiply(sides[1]), abs(sides[0] - sides[1])]).tocsr()

    if is_number:
        one, other = (vectors.transform(column) for column in list(zip(*dev, strict=True))[:2])
        cosines, scores = np.asarray(one.multiply(other).sum(axis=1)).ravel(), [float(answer) for answer in answers]
        return 50.0 * float(pearsonr(cosines, scores)[0] + spearmanr(cosines, scores)[0])
    labels = [row[-1] for row in train]
    search = GridSearchCV(LogisticRegression(max_iter=2000), {"C": [0.1, 1, 10, 100]}, cv=5).fit(
        features(train), labels
    )
    guesses = search.predict(features(dev))
    accuracy = 100.0 * float(np.mean(guesses == np.array(answers)))
    if task.metric == "mcc":
        return 100.0 * float(matthews_corrcoef(answers, guesses))
    if task.metric == "acc_and_f1":
        return (accuracy + 100.0 * float(f1_score(answers, guesses, pos_label="1"))) / 2
    return accuracy


def most_frequent(name: str, found: dict[str, Any]) -> str:
    """What the most frequent answer would get, by the metric of the table; for summaries the beginning of the text."""
    metric = TASKS[name].metric
    if metric in ("mcc", "pearson_spearman") or name in ("WNUT-17", "SQuAD 1.1"):
        return "0.0"  # a constant; no entity; no answer
    if name == "summaries":
        return f"{found['details']['baseline'][metric]:.1f}"
    split = Prepared.open(found["data"]).split("valid")
    labels = Counter(split.columns["label"].tolist())
    if metric == "acc_and_f1":  # all are paraphrases
        positive = labels[1] / len(split)
        return f"{50 * (positive + 2 * positive / (1 + positive)):.1f}"
    return f"{100 * labels.most_common(1)[0][1] / len(split):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for everything that is made")
    parser.add_argument("--model", type=Path, required=True, help="pretrained checkpoint")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of its tokenizer")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="tasks to fine-tune on (all)")
    parser.add_argument("--write", action="store_true", help="write the report to tests/benchmarks/results")
    arguments = parser.parse_args()
    for name in ("work", "model", "tokenizer"):
        setattr(arguments, name, getattr(arguments, name).resolve())
    raw = arguments.work / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    make_raw_files(raw)
    report = Report("tasks_cpu1", "What a small model is good for", __doc__ or "", machine())
    lines = ["| task | metric | epochs, lr, batch | most frequent answer | TF-IDF | random weights | pretrained |"]
    lines.append("| --- | --- | --- |" + " ---: |" * 4)
    for name in arguments.tasks:
        task, cells = TASKS[name], []
        for side, flags in (("scratch", ("--from-scratch",)), ("pretrained", ())):
            found = finetune(name, arguments, side, *flags)
            values = [member["metrics"][task.metric] for member in found["members"]]
            cells.append(f"{found['median'][task.metric]:.1f} ({min(values):.1f} to {max(values):.1f})")
        counted = f"{tfidf(task, raw):.1f}" if task.columns else ""
        settings = f"{task.epochs}, {task.lr}, {task.batch}"
        lines.append(
            f"| {name} | {task.metric} | {settings} | {most_frequent(name, found)} | {counted} | {' | '.join(cells)} |"
        )
    report.text("\n".join(lines))
    report.text(
        f"Medians of {len(SEEDS)} seeds on the development sets (lowest to highest). Summaries: the beginning of the "
        f"same length instead of the most frequent answer. SQuAD: the first {SQUAD_ARTICLES['train']} and "
        f"{SQUAD_ARTICLES['dev']} articles."
    )
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
