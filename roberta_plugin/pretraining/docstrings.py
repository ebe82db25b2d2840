"""The docstrings of Python's standard library -> train.txt, valid.txt and test.txt.

Source files are parsed, never imported, so no foreign code runs. A source file, and a topic of the language reference
(`pydoc_data.topics`), is a document. Of its docstrings, paragraphs are kept that read as prose, each once. The files
have one paragraph per line and a blank line between documents. Whole documents are held out, chosen by the hash of
their name, so the split is the same in every run. They lose paragraphs that share a sentence with the training text.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from roberta_plugin.files import write_text

SPLITS = ("train", "valid", "test")
_HELD_OUT = {"valid": 0.04, "test": 0.12}  # upper ends of the hashes: 4 % for the curve, 8 % for the scores
_SKIPPED = {"site-packages", "__pycache__", "test", "tests", "idle_test", "lib2to3"}  # almost no prose
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_WORD = re.compile(r"[(\"'*`]*[A-Za-z]+(?:['-][A-Za-z]+)*[)\"'*`]*[.,;:!?]*[)\"']*")
_MIN_WORDS, _MIN_WORD_SHARE = 6, 0.75  # of a paragraph of prose; shorter sentences are not specific to a document


def documents() -> Iterator[tuple[str, list[str]]]:
    """Name and docstrings of each document of this Python, in an order that depends only on the names."""
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        name = path.relative_to(library)
        if _SKIPPED.intersection(name.parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):  # installations contain templates and deliberately broken files
            continue
        if name.name == "topics.py":
            (topics,) = (ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))
            yield from ((f"topics/{topic}", [text]) for topic, text in sorted(topics.items()))
        else:
            docstrings = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, _DOCUMENTED))
            yield name.as_posix(), [docstring for docstring in docstrings if docstring]


def paragraphs_of(docstring: str) -> Iterator[str]:
    """The paragraphs that read as prose, each on one line, without the examples of code."""
    for block in re.split(r"\n\s*\n", docstring):
        words = block.replace("::", ":").split()
        num_words = sum(_WORD.fullmatch(word) is not None for word in words)
        if num_words >= max(_MIN_WORDS, _MIN_WORD_SHARE * len(words)) and words[0] not in (">>>", "$"):
            yield " ".join(words)


def split_of(name: str) -> str:
    """The split of a document, which depends only on its name."""
    share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
    return next((split for split, end in _HELD_OUT.items() if share < end), "train")


def sentences_of(paragraph: str) -> set[str]:
    """The letters of its sentences of at least `_MIN_WORDS` words, and of the whole paragraph, in lower case."""
    sentences = (" ".join(re.findall("[a-z]+", part)) for part in re.split(r"(?<=[.!?:;])\s+", paragraph.lower()))
    return {text for text in sentences if text.count(" ") + 1 >= _MIN_WORDS} | {paragraph.lower()}


def write_corpus(folder: Path, sources: Iterable[tuple[str, list[str]]]) -> None:
    """Write the three files; a sentence that training has is in no other split."""
    splits: dict[str, list[str]] = {split: [] for split in SPLITS}
    seen: set[str] = set()
    for name, docstrings in sorted(sources, key=lambda document: SPLITS.index(split_of(document[0]))):
        kept = [text for docstring in docstrings for text in paragraphs_of(docstring)]
        split = split_of(name)
        kept = [
            text
            for text in dict.fromkeys(kept)
            if seen.isdisjoint({text.lower()} if split == "train" else sentences_of(text))
        ]
        seen.update(*map(sentences_of, kept))
        if kept:
            splits[split].append("\n".join(kept))
    for split in reversed(SPLITS):  # train.txt last: where it exists, all do
        if not splits[split]:
            raise ValueError(f"The standard library of this Python has no docstrings for {split}.txt.")
        write_text(folder / f"{split}.txt", "\n\n".join(splits[split]) + "\n")
