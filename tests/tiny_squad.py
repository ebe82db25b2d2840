"""Small SQuAD files: the answer to every question is the word "good", where the passage has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from roberta_plugin.extensions.spans.options import SquadOptions
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.prepared import Prepared
from tests.tiny_benchmarks import words_tokenizer

VERSIONS = {"squad1": "1.1", "squad2": "2.0"}


def write_raw(
    folder: Path, *, task: str = "squad2", sizes: dict[str, int] | None = None, num_words: int = 12, seed: int = 0
) -> Path:
    """Files of made-up passages, a question each; half of those of SQuAD 2.0 have no answer."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for name, size in (sizes or {"train": 30, "dev": 12}).items():
        paragraphs = [_paragraph(task, f"{name}-{number}", num_words, rng) for number in range(size)]
        write_json(folder / f"{name}-v{VERSIONS[task]}.json", paragraphs, task=task)
    return folder


def _paragraph(task: str, id_: str, num_words: int, rng: np.random.Generator) -> dict[str, Any]:
    words = ["".join(rng.choice(list("xyzqk"), 2)) for _ in range(num_words)] + ["bad", "bad"]
    is_impossible = task == "squad2" and bool(rng.integers(2))
    words += [] if is_impossible else ["good"]
    rng.shuffle(words)
    context = " ".join(words)
    answers = [] if is_impossible else [{"text": "good", "answer_start": context.index("good")}]
    return {"context": context, "qas": [question(task, id_, answers)]}


def question(task: str, id_: str, answers: list[dict[str, Any]] | None, text: str = "What?") -> dict[str, Any]:
    """An entry of `qas`."""
    entry: dict[str, Any] = {"id": id_, "question": text}
    if task == "squad2":
        entry["is_impossible"] = not answers
    return entry if answers is None else {**entry, "answers": answers}


def write_json(path: Path, paragraphs: list[dict[str, Any]], *, task: str = "squad2") -> Path:
    """A file of one article."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"version": VERSIONS[task], "data": [{"title": "made up", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(content, ensure_ascii=False))
    return path


def write_prepared(folder: Path, *, task: str = "squad2", raw: Path | None = None, **changes: Any) -> Prepared:
    """The same, prepared with windows of 32 tokens, which most passages do not fit into."""
    raw = raw or write_raw(folder / "raw", task=task)
    tokenizer, vocabulary = words_tokenizer()
    options = SquadOptions(question_length=8, doc_stride=10)
    settings = {"tokenizer": tokenizer, "vocabulary": vocabulary, "max_length": 32, "options": options, **changes}
    benchmark_of(task).prepare(raw, folder / "prepared", **settings)
    return Prepared.open(folder / "prepared")
