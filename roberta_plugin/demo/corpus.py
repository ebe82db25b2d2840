"""Documents -> train.txt, valid.txt and test.txt: one paragraph per line, a blank line between documents.

Stage of `roberta_plugin/demo/__init__.py`. Whole documents are held out, chosen by the hash of their name, so the
split is the same in every run and grows with the corpus. Documentation repeats itself: each paragraph is kept once, and
a held-out paragraph that shares a sentence with the training text is dropped, so no held-out text was seen in training.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from roberta_plugin.demo.prose import paragraphs_of
from roberta_plugin.demo.source_documents import Document
from roberta_plugin.files import atomic_write

SPLITS = ("train", "valid", "test")
VALID_SHARE, TEST_SHARE = 0.02, 0.04  # fractions of documents: the first for the loss curve, the second for the report
MIN_SHARED_WORDS = 6  # shorter sentences ("Returns None.") are not specific to a document

_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+")
_NOT_LETTERS = re.compile(r"[^a-z]+")


class Text(NamedTuple):
    """A document's name and its paragraphs."""

    name: str
    paragraphs: list[str]


def split_of(name: str) -> str:
    """The split of a document, which depends only on its name."""
    share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
    if share < VALID_SHARE:
        return "valid"
    return "test" if share < VALID_SHARE + TEST_SHARE else "train"


def make_splits(documents: Iterable[Document], *, max_bytes: float = float("inf")) -> dict[str, list[Text]]:
    """Assign documents to splits without repeated paragraphs, up to `max_bytes` of text."""
    splits: dict[str, list[Text]] = {split: [] for split in SPLITS}
    seen: set[str] = set()
    num_bytes = 0
    for document in documents:
        text = Text(document.name, list(new_paragraphs(document, seen)))
        if text.paragraphs:
            splits[split_of(text.name)].append(text)
            num_bytes += sum(len(paragraph.encode()) for paragraph in text.paragraphs)
        if num_bytes >= max_bytes:
            break
    known = {sentence for text in splits["train"] for sentence in sentences_of(text)}
    for split in ("valid", "test"):
        splits[split] = [text for text in (without_known(text, known) for text in splits[split]) if text.paragraphs]
        known.update(sentence for text in splits[split] for sentence in sentences_of(text))
    return splits


def new_paragraphs(document: Document, seen: set[str]) -> Iterator[str]:
    """The paragraphs that are not in `seen`, ignoring case, digits and punctuation; they are added to it."""
    for docstring in document.docstrings:
        for paragraph in paragraphs_of(docstring):
            key = letters_of(paragraph)
            if key not in seen:
                seen.add(key)
                yield paragraph


def without_known(text: Text, known: set[str]) -> Text:
    """The document without the paragraphs that share a sentence with `known`."""
    kept = [paragraph for paragraph in text.paragraphs if known.isdisjoint(sentences_of(Text(text.name, [paragraph])))]
    return Text(text.name, kept)


def sentences_of(text: Text) -> Iterator[str]:
    """The sentences of a document with at least `MIN_SHARED_WORDS` words, reduced to letters."""
    for paragraph in text.paragraphs:
        for sentence in _SENTENCE_END.split(paragraph):
            letters = letters_of(sentence)
            if letters.count(" ") + 1 >= MIN_SHARED_WORDS:
                yield letters


def letters_of(text: str) -> str:
    """Reduce a text to lower-case letters and single spaces.

    Example: "Returns 2 items." -> "returns items".
    """
    return _NOT_LETTERS.sub(" ", text.lower()).strip()


def write_corpus(folder: Path, documents: Iterable[Document], *, max_bytes: float = float("inf")) -> dict[str, int]:
    """Write the three files; return their numbers of documents, paragraphs and bytes.

    Raises:
        ValueError: if a split is empty.
    """
    splits = make_splits(documents, max_bytes=max_bytes)
    counts: dict[str, int] = {}
    for split, texts in splits.items():
        if not texts:
            raise ValueError(
                f"The {split} split is empty: {max_bytes / 1e6:g} MB of text are too little. Raise --max-megabytes, "
                "or check with `roberta doctor` that numpy and torch are installed."
            )
        content = "\n\n".join("\n".join(text.paragraphs) for text in texts) + "\n"
        with atomic_write(folder / f"{split}.txt", "w") as file:
            file.write(content)
        counts[f"{split}_documents"] = len(texts)
        counts[f"{split}_paragraphs"] = sum(len(text.paragraphs) for text in texts)
        counts[f"{split}_bytes"] = len(content.encode())
    return counts
