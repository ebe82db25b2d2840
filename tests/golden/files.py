"""Tokenizers and data-bins: .bin, .idx, dict.txt and the tokenizer's files, by one worker and by two; other readers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.entries import of_folder, of_state, of_text
from tests.golden.finetuning import HEADS
from tests.golden.steps import Work, load_checkpoint

TEXT = """the a old small red house river stone letter sister window morning garden winter teacher number city answer
runs sees writes knows opens carries finds leaves takes near under behind without before slowly never often
\u00e9t\u00e9 stra\u00dfe \u6771\u4eac \u0441\u043b\u043e\u0432\u043e na\u00efve co-operate don't 1,024 3.5 (so) \U0001f642"""
WORDS = TEXT.split()
KINDS = ("byte_level_bpe", "character_bpe", "sentencepiece")


def write_text(path: Path, *, documents: int = 120, seed: int = 0) -> Path:
    """Documents of some lines of sentences of made-up order, with a blank line between documents."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(documents):
        for _ in range(int(rng.integers(1, 7))):
            sentences = [
                " ".join(rng.choice(WORDS, rng.integers(3, 15))).capitalize() for _ in range(rng.integers(1, 4))
            ]
            lines.append(". ".join(sentences) + ".")
        lines.append("")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def trained(work: Work, kind: str) -> Path:
    """A tokenizer of this kind."""
    text, folder = write_text(work.folder / "text.txt"), work.folder / "tokenizer"
    words = ("--kind", kind, "--input", text, "--vocab-size", "320", "--no-progress", "--output-dir", folder)
    work.roberta("tokenizer", "train", *words)
    return folder


def binarized(work: Work, name: str, *words: object) -> dict[str, Any]:
    """The files of `roberta binarize`, and what `roberta inspect` says of them."""
    folder = work.folder / name
    work.roberta("binarize", *words, "--no-progress", "--output-dir", folder)
    return of_folder(folder, work.clean, skip=(r"^\.", "encoder.json", "vocab.bpe", "character_bpe.json", r"\.model$"))


def record_kind(work: Work, kind: str) -> dict[str, Any]:
    """Training, showing, and binarizing by one and two workers in small parts."""
    tokenizer = trained(work, kind)
    valid = write_text(work.folder / "valid.txt", documents=20, seed=1)
    words = ("--tokenizer", tokenizer, "--train", work.folder / "text.txt", "--valid", valid, "--part-bytes", "9000")
    shown = work.roberta(
        "tokenizer", "show", tokenizer, "Don't open the old house in \u6771\u4eac, sister!  \u00e9t\u00e9"
    )
    found = {"tokenizer": of_folder(tokenizer, work.clean), "show": of_text(work.clean(shown))}
    for workers in (1, 2):
        found[f"{workers} workers"] = binarized(work, f"bin-{workers}", *words, "--workers", workers)
    return {**found, "inspect": of_text(work.clean(work.roberta("inspect", work.folder / "bin-1")))}


def record_options(work: Work) -> dict[str, Any]:
    """Dictionaries from the text, spaces, sentences, JSON Lines, compression and folders of corpora."""
    tokenizer, text = trained(work, "byte_level_bpe"), work.folder / "text.txt"
    more = write_text(work.folder / "more.txt", documents=10, seed=4)
    words = ("--tokenizer", tokenizer, "--workers", "1")
    lines = [line for line in text.read_text().splitlines() if line]
    records = work.folder / "records.jsonl.gz"
    records.write_bytes(
        gzip.compress("".join(json.dumps({"body": f"{line} "}) + "\n" for line in lines).encode(), mtime=0)
    )
    for name, seed in (("one", 2), ("two", 3)):
        (work.folder / "corpora" / name).mkdir(parents=True)
        write_text(work.folder / "corpora" / name / "train.txt", documents=10, seed=seed)
    shape = ("--threshold", "3", "--nwords", "100", "--padding-factor", "16", "--max-unknown", "1")
    return {
        "own dictionary": binarized(work, "own", *words, "--train", text, *shape),
        "spaces": binarized(work, "spaces", *words, "--train", text, "--keep-spaces"),
        "sentences": binarized(work, "sentences", *words, "--train", text, "--split-sentences"),
        "json": binarized(work, "json", *words, "--train", records, "--json-field", "body"),
        "two files": binarized(work, "two", *words, "--train", text, more, "--blank-line-after-files"),
        "corpora": binarized(work, "many", *words, "--corpora", work.folder / "corpora"),
    }


def record_extended(work: Work) -> dict[str, Any]:
    """`roberta tokenizer extend`: new words, and another tokenizer."""
    from tests.tiny_conversions import write_checkpoint

    model, other = write_checkpoint(work.folder / "model"), trained(work, "byte_level_bpe")
    found = {}
    for name, how in (("words", ("--add", "goodness", "badly")), ("tokenizer", ("--tokenizer", other))):
        folder = work.folder / "extended" / name
        work.roberta("tokenizer", "extend", "--checkpoint", model / "model.pt", *how, "--output-dir", folder)
        state = load_checkpoint(folder / "model.pt")
        found[name] = {
            "model": of_state(state["model"], listed=HEADS),
            "files": of_folder(folder, work.clean, skip=(r"\.pt$",)),
        }
    return found


SUBJECTS: dict[str, Callable[[Work], dict[str, Any]]] = {
    **{kind: lambda work, kind=kind: record_kind(work, kind) for kind in KINDS},
    "options of binarize": record_options,
    "tokenizer extend": record_extended,
}


def record(name: str, folder: Path) -> dict[str, Any]:
    """The entries of a subject."""
    return SUBJECTS[name](Work(folder))
