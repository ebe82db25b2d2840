"""Scores of sentences beside minicons, on one CPU: pseudo-log-likelihood of sentences of BLiMP, by both variants.

    pip install minicons==0.3.39 "transformers<5" && OMP_NUM_THREADS=1 python -m tests.benchmarks.bench_scoring [--write]

Models with random weights, the same on both sides, and GPT-2's BPE: 4 layers of width 256, and base. The sentences are
the first pairs of each paradigm. Ours gets the list of texts; minicons gets it in batches of its best size, which is
found first on a part of the texts. Both turn texts into scores, tokenizing included, and their scores are compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from roberta_plugin.hub import RobertaHub
from roberta_plugin.tables import read_table
from tests.benchmarks.harness import Report, in_turn, load, machine, options, seconds_of
from tests.conftest import SHARED_DATA
from tests.hugging_face import import_transformers
from tests.hugging_face_pipelines import masked_lm_of, random_hub, tokenizer_of
from tests.parity.minicons_results import METRICS

BATCH_SIZES = (4, 16, 64)  # sentences, each with a copy for every token
SMALL = {"encoder_layers": 4, "encoder_embed_dim": 256, "encoder_ffn_embed_dim": 1024, "encoder_attention_heads": 4}


def sentences(folder: Path, number: int) -> list[str]:
    """The sentences of the first pair of each paradigm, then of the second one, and so on."""
    paradigms = [read_table(path) for path in sorted(folder.rglob("blimp/*.jsonl"))]
    rows = (row for same in zip(*paradigms, strict=True) for row in same)
    texts = (row.text(name) for row in rows for name in ("sentence_good", "sentence_bad"))
    return list(itertools.islice(texts, number))


def by_minicons(model: Any, texts: list[str], metric: str, size: int) -> list[float]:
    """The sums of the log-probabilities."""
    found: list[float] = []
    for start in range(0, len(texts), size):
        found += model.sequence_score(
            texts[start : start + size], reduction=lambda values: values.sum(0).item(), PLL_metric=metric
        )
    return found


def measure(report: Report, name: str, hub: RobertaHub, texts: list[str], rounds: int) -> None:
    """Add the tables of a model."""
    from minicons import scorer

    transformers = import_transformers()
    model = scorer.MaskedLMScorer(masked_lm_of(transformers, hub), "cpu", tokenizer=tokenizer_of(transformers, hub))
    part = texts[: max(BATCH_SIZES)]
    tried = {size: seconds_of(lambda size=size: by_minicons(model, part, "original", size)) for size in BATCH_SIZES}  # type: ignore[misc]
    size = min(tried, key=tried.__getitem__)
    said = ", ".join(f"{each}: {value:.1f} s" for each, value in tried.items())
    report.text(f"{name}: {len(part)} sentences by minicons' batch size: {said}.")
    for method in METRICS:
        compare(report, f"{name}, {method}", hub, model, texts, method, size, rounds)


def compare(
    report: Report, title: str, hub: RobertaHub, model: Any, texts: list[str], method: Any, size: int, rounds: int
) -> None:
    """Add the table of a method."""
    found: dict[str, list[float]] = {}
    theirs = f"minicons, batches of {size}"
    sides: dict[str, Callable[[], None]] = {
        "ours": lambda: found.update(ours=[each.score for each in hub.score(texts, method)]),
        theirs: lambda: found.update(theirs=by_minicons(model, texts, METRICS[method], size)),
    }
    report.table(title, in_turn(sides, rounds), baseline=theirs, amount=len(texts), unit="sentences")
    apart = np.abs(np.array(found["ours"]) - np.array(found["theirs"])).max()
    report.text(f"Largest difference of the scores of a sentence: {apart:.1g} nats.")


def main() -> None:
    """Measure, print and, on demand, write the report."""
    parser = options(__doc__)
    parser.add_argument("--blimp", type=Path, default=SHARED_DATA / "grammar", help="folder of BLiMP's files")
    parser.add_argument("--sentences", type=int, nargs=2, default=(256, 64), help="for the small model, and for base")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    hardware = f"{machine()}, minicons {version('minicons')}; {torch.get_num_threads()} threads of torch"
    report = Report("scoring_cpu1", "Scores of sentences beside minicons", __doc__, hardware)
    report.text(f"Seconds are CPU time of all threads. {load('start')}")
    data = SHARED_DATA / "gpt2_bpe"
    for (name, sizes), number in zip((("4 x 256", SMALL), ("base", {})), arguments.sentences, strict=True):
        hub = random_hub(data, size="base", heads={}, **sizes)
        measure(report, name, hub, sentences(arguments.blimp, number), arguments.rounds)
    report.text(load("end"))
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
