"""What is a small model good for? Fine-tuning on real data, beside random weights and answers without a network.

    python -m tests.benchmarks.bench_tasks --work FOLDER --model runs/night/checkpoint_last.pt --tokenizer TOKENIZER

`roberta finetune` with three seeds on each task, once from the model (recipe night) and once with
--from-scratch, by the same settings; beside what always giving the most frequent answer gets, and TF-IDF: for a text or
a pair with logistic regression, for STS-B the cosine, for SQuAD the sentence most like the question. What an
earlier call has finished is not done again; calls with different --tasks may share FOLDER. The model reads 128 tokens:
passages are cut into windows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import hstack
from scipy.stats import pearsonr, spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, make_scorer, matthews_corrcoef
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from roberta_plugin.extensions.summaries.layout import sentences_of
from roberta_plugin.extensions.texts.glue import FILES
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds.answer_scores import answer_score
from tests.benchmarks.harness import Report, options
from tests.conftest import REPOSITORY, SHARED_DATA
from tests.real_data import unpack
from tests.tiny_benchmarks import examples_of
from tests.tiny_corpus import command

SEEDS = ("1", "2", "3")
SQUAD_ARTICLES = {"train": 15, "dev": 12}  # of 442 and 48


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


TASKS = {
    "CoLA": Task("mcc", 5, "glue/CoLA", batch="16"),
    "SST-2": Task("accuracy", 1, "glue/SST-2"),
    "MRPC": Task("acc_and_f1", 4, "glue/MRPC", batch="16"),
    "STS-B": Task("pearson_spearman", 4, "glue/STS-B", batch="16"),
    "RTE": Task("accuracy", 4, "glue/RTE", batch="16"),
    "WNUT-17": Task("f1", 6, "ner/wnut17", batch="16", name="wnut17"),
    "SQuAD 1.1": Task(
        "f1", 2, "squad-part", batch="48", name="squad1", options=("--doc-stride", "64", "--question-length", "32")
    ),
    "summaries": Task(
        "rouge1",
        2,
        "summaries",
        lr="1e-3",
        batch="36",
        options=("--doc-stride", "112", "--length-share", "0.4", "--set", "length-share=0.4", "--set", "batch-size=12"),
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
    if (raw / "parts.done").is_file():
        return
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
    (raw / "parts.done").touch()


def check_model(arguments: argparse.Namespace) -> None:
    """Refuse another model than that of the results in the folder.

    Raises:
        FileNotFoundError: if the model or the tokenizer does not exist.
        ValueError: if the folder's results are of another model.
    """
    if not arguments.tokenizer.is_dir():
        raise FileNotFoundError(f"--tokenizer {arguments.tokenizer} is no folder.")
    with open(arguments.model, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    note = arguments.work / "model.sha256"
    if note.is_file() and note.read_text() != found and any(arguments.work.glob("*/*/runs")):
        raise ValueError(f"{arguments.work} has results of another model than {arguments.model}: give another --work.")
    note.write_text(found)


def finetune(name: str, arguments: argparse.Namespace, side: str, *flags: str) -> dict[str, Any]:
    """What `roberta finetune` found on the development set; it resumes, and refuses other settings than before."""
    task, folder = TASKS[name], arguments.work / name.replace(" ", "-") / side
    words = ["--raw", str(arguments.work / "raw" / task.raw), "--tokenizer", str(arguments.tokenizer), *task.options]
    words += ["--model", str(arguments.model), "--output-dir", str(folder), "--data", str(folder.parent / "data")]
    words += ["--epochs", str(task.epochs), "--only", f"lr={task.lr}", "--only", f"batch={task.batch}"]
    words += ["--set", "matmul-precision=medium"]
    call("roberta", "finetune", task.name or name, *words, "--seeds", *SEEDS, *flags)
    evaluation: dict[str, Any] = json.loads((folder / "results" / "evaluation_valid.json").read_text())
    return evaluation


def tfidf(name: str, raw: Path) -> float | None:
    """What counts of words get by TF-IDF; None where they have no answer to give.

    For SQuAD see `nearest_sentences`; for GLUE, of words and bigrams, with logistic regression. Of two texts their common
    terms and their differences. Of words alone, and the cosine of the two, where the answer is a number. The strength of
    the regression is chosen by the task's metric in cross-validation.
    """
    benchmark, metric = benchmark_of(TASKS[name].name or name), TASKS[name].metric
    if benchmark.name == "squad1":
        return nearest_sentences(raw / TASKS[name].raw)
    if (official := FILES.get(benchmark.name)) is None:
        return None
    files = official.find(raw / TASKS[name].raw, None)
    train, dev = (official.read(split, files[split], None) for split in ("train", "valid"))
    is_number = metric == "pearson_spearman"
    vectors = TfidfVectorizer(ngram_range=(1, 1 if is_number else 2), token_pattern=r"\w+", sublinear_tf=not is_number)
    vectors.fit([text for example in train for text in example.texts])

    def features(part: list[Example]) -> Any:
        sides = [vectors.transform(texts) for texts in zip(*(example.texts for example in part), strict=True)]
        if is_number:
            return np.asarray(sides[0].multiply(sides[1]).sum(axis=1)).ravel()
        return sides[0] if len(sides) == 1 else hstack([sides[0].multiply(sides[1]), abs(sides[0] - sides[1])]).tocsr()

    labels, right = (
        [each.target if is_number else official.labels.index(each.target) for each in part] for part in (train, dev)
    )
    if is_number:
        cosines = features(dev)
        return 50.0 * float(pearsonr(cosines, right)[0] + spearmanr(cosines, right)[0])
    of_metric = {"mcc": matthews_corrcoef, "accuracy": accuracy_score, "acc_and_f1": accuracy_and_f1}[metric]
    search = GridSearchCV(
        LogisticRegression(max_iter=2000),
        {"C": [0.1, 1, 10, 100]},
        scoring=make_scorer(of_metric),
        cv=StratifiedKFold(5, shuffle=True, random_state=1),
    )
    return 100.0 * float(of_metric(right, search.fit(features(train), labels).predict(features(dev))))


def accuracy_and_f1(right: Any, guesses: Any) -> float:
    """The mean of the two, as of MRPC."""
    return float(accuracy_score(right, guesses) + f1_score(right, guesses)) / 2


def nearest_sentences(raw: Path) -> float:
    """F1 on SQuAD 1.1 of answering with the passage's sentence whose words are most like the question's."""
    examples = examples_of("squad1", raw)
    vectors = TfidfVectorizer(token_pattern=r"\w+").fit({each.texts[0] for each in examples["train"]})
    sentences = {each.texts[0]: sentences_of(each.texts[0]) for each in examples["valid"]}
    of_passages = {passage: vectors.transform(texts) for passage, texts in sentences.items()}
    scores = []
    for example in examples["valid"]:
        passage, question = example.texts
        best = int((of_passages[passage] @ vectors.transform([question]).T).toarray().argmax())
        scores.append(answer_score(sentences[passage][best], [answer.text for answer in example.target]).f1)
    return 100.0 * float(np.mean(scores))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for everything that is made")
    parser.add_argument("--model", type=Path, required=True, help="pretrained checkpoint")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of its tokenizer")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="tasks to fine-tune on (all)")
    arguments = parser.parse_args()
    if arguments.write and set(arguments.tasks) != set(TASKS):
        parser.error("--write replaces the whole table: leave --tasks out; tasks that are finished are not done again")
    for name in ("work", "model", "tokenizer"):
        setattr(arguments, name, getattr(arguments, name).resolve())
    raw = arguments.work / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    check_model(arguments)
    make_raw_files(raw)
    report = Report("tasks_cpu1", "What a small model is good for", __doc__)
    rows = []
    for name in arguments.tasks:
        task, cells = TASKS[name], []
        for side, flags in (("scratch", ("--from-scratch",)), ("pretrained", ())):
            found = finetune(name, arguments, side, *flags)
            values = [member["metrics"][task.metric] for member in found["members"]]
            cells.append(f"{found['median'][task.metric]:.1f} ({min(values):.1f} to {max(values):.1f})")
        answers = (found["baseline"].get(task.metric), tfidf(name, raw))
        cells = ["" if value is None else f"{value:.1f}" for value in answers] + cells
        rows.append((name, task.metric, f"{task.epochs}, {task.lr}, {task.batch}", *cells))
    head = ("task", "metric", "epochs, lr, batch", "most frequent answer", "TF-IDF", "random weights", "pretrained")
    report.rows(head, rows, texts=3)
    notes = [f"Medians of {len(SEEDS)} seeds on the development sets (lowest to highest)."]
    if "summaries" in arguments.tasks:
        notes.append("Summaries: the beginning of the same length instead of the most frequent answer.")
    if "SQuAD 1.1" in arguments.tasks:
        notes.append(f"SQuAD: the first {SQUAD_ARTICLES['train']} and {SQUAD_ARTICLES['dev']} articles.")
    report.text(" ".join(notes))
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
