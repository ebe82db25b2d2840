"""Folders in the layout of BLiMP and Zorro with a few pairs, and the numbers that come with them."""

from __future__ import annotations

import json
from pathlib import Path

from roberta_plugin.experiments.minimal_pairs.benchmarks import BENCHMARKS

PAIRS = [
    ("The dogs see it.", "The dogs sees it."),
    ("A good dog sleeps.", "A good dog sleep."),
    ("It is bad.", "It bad."),
]


def write_blimp(folder: Path, pairs=PAIRS) -> Path:
    """A file of each paradigm in FOLDER/blimp, and the summary of the published models beside it."""
    (folder / "blimp").mkdir(parents=True)
    names = BENCHMARKS["blimp"].categories
    for name in names:
        rows = [{"sentence_good": good, "sentence_bad": bad, "UID": name} for good, bad in pairs]
        write_lines(folder / "blimp" / f"{name}.jsonl", map(json.dumps, rows))
    numbers = [{"UID": name, "ngram": 0.6, "lstm": 0.7, "txl": 0.7, "gpt2": i % 2} for i, name in enumerate(names)]
    write_lines(folder / "blimp_models_summary.jsonl", map(json.dumps, [*numbers, {"UID": "overall", "gpt2": 0.1}]))
    return folder / "blimp"


def write_zorro(folder: Path, pairs=PAIRS) -> Path:
    """A file of each paradigm in FOLDER/zorro, and published cross-entropies beside it: right, wrong, equal."""
    scores = [(0.5, 0.7), (0.9, 0.7), (0.5, 0.5)]
    for place in ("zorro", "zorro_roberta_base"):
        (folder / place).mkdir(parents=True)
        for name in BENCHMARKS["zorro"].categories:
            lines = []
            for (good, bad), (of_good, of_bad) in zip(pairs, scores, strict=True):
                both = [(bad, of_bad), (good, of_good)]
                lines += [f"{text} {score:.4f}" if place != "zorro" else text for text, score in both]
            write_lines(folder / place / f"{name}.txt", lines)
    return folder / "zorro"


def write_lines(path: Path, lines) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
