"""Small sets of documents whose summaries are the sentences with the word "good"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from roberta_plugin.extensions.summaries.options import SummariesOptions
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.prepared import Prepared
from tests.tiny_benchmarks import words_tokenizer

NUM_SENTENCES, NUM_GOOD = 8, 3


def write_raw(folder: Path, *, sizes: dict[str, int] | None = None, seed: int = 0) -> Path:
    """JSON Lines of made-up documents; three of eight sentences are the summary, in any order."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for name, size in (sizes or {"train": 30, "valid": 12}).items():
        lines = [json.dumps(document(f"{name}-{number}", rng)) for number in range(size)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def document(id_: str, rng: np.random.Generator) -> dict[str, Any]:
    """A document as a list of sentences."""
    is_good = rng.permutation(np.arange(NUM_SENTENCES) < NUM_GOOD)
    sentences = []
    for good in is_good.tolist():
        words = ["".join(rng.choice(list("xyzqkvw"), 3)) for _ in range(2)] + ["good" if good else "bad"]
        sentences.append(" ".join(rng.permutation(words)))
    chosen = rng.permutation(np.flatnonzero(is_good)).tolist()
    return {"id": id_, "text": sentences, "summary": [sentences[number] for number in chosen]}


def write_prepared(folder: Path, *, raw: Path | None = None, **changes: Any) -> Prepared:
    """The same, prepared with windows of 64 tokens, which most documents do not fit into."""
    raw = raw or write_raw(folder / "raw")
    tokenizer, vocabulary = words_tokenizer()
    settings = {"tokenizer": tokenizer, "vocabulary": vocabulary, "max_length": 64, "options": SummariesOptions()}
    benchmark_of("summaries").prepare(raw, folder / "prepared", **{**settings, **changes})
    return Prepared.open(folder / "prepared")
