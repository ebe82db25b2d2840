"""Small files of tagged words: a run of "good" is an entity FINE, a run of "bad" an entity POOR.

Easier ones, which a tiny model learns in seconds: "good", and the run of "bad" behind it, is an entity FINE.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roberta_plugin.extensions.tagging.entities import Entity, tags_of
from roberta_plugin.finetuning.prepared import Prepared
from tests.tiny_benchmarks import prepared_of

SIZES = {"train": 60, "valid": 20, "test": 12}
Tagged = tuple[list[str], list[str]]


def sentence(rng: np.random.Generator, *, scheme: str = "iob2", is_easy: bool = False) -> Tagged:
    """Words and tags of a sentence of 1 to 20 words."""
    words: list[str] = []
    num_words = int(rng.integers(1, 14))
    entities = []
    while len(words) < num_words:
        words += ["".join(rng.choice(list("xyzqk"), rng.integers(1, 5))) for _ in range(rng.integers(0, 4))]
        if rng.random() < 0.6:
            word, type_ = (("good", "FINE"), ("bad", "POOR"))[int(rng.integers(2))]
            length = int(rng.integers(1, 4))
            if is_easy:
                entities.append(Entity("FINE", len(words), len(words) + length))
                words += ["good", *["bad"] * (length - 1)]
            elif words[-1:] != [word]:
                entities.append(Entity(type_, len(words), len(words) + length))
                words += [word] * length
    return words, tags_of(entities, len(words), scheme)


def write_columns(path: Path, sentences: Sequence[Tagged], *, separator: str = " ", end: str = "\n") -> Path:
    """A file of words, a column that does not matter, and tags."""
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = (
        "".join(f"{word}{separator}NN{separator}{tag}{end}" for word, tag in zip(words, tags, strict=True))
        for words, tags in sentences
    )
    path.write_text(end.join(blocks), encoding="utf-8", newline="")
    return path


def write_raw(folder: Path, *, sizes: dict[str, int] | None = None, seed: int = 0, **options: Any) -> Path:
    """train.txt, valid.txt and test.txt; `options` are those of `sentence`."""
    rng = np.random.default_rng(seed)
    for name, size in (sizes or SIZES).items():
        write_columns(folder / f"{name}.txt", [sentence(rng, **options) for _ in range(size)])
    return folder


def write_prepared(
    folder: Path, *, task: str = "tagging", raw: Path | None = None, max_length: int = 24, **options: Any
) -> Prepared:
    """The same, prepared with windows of 24 tokens, which many sentences do not fit into."""
    raw = raw or write_raw(folder / "raw")
    return prepared_of(task, raw, folder / "prepared", max_length=max_length, **{"doc_stride": 8, **options})
