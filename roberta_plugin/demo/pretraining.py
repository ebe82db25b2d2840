"""The demo's text, and its pretraining with the real `fairseq-train`, which resumes from its last checkpoint.

The text is the docstrings of Python's standard library. Source files are parsed, never imported, so no foreign code
runs. A source file, and a topic of the language reference (`pydoc_data.topics`), is a document. Of its docstrings,
paragraphs are kept that read as prose, each once. The files have one paragraph per line and a blank line between
documents. Whole documents are held out, chosen by the hash of their name, so the split is the same in every run;
without paragraphs that share a sentence with the training text.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import os
import re
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import roberta_plugin
from roberta_plugin.data.blocks import BreakMode
from roberta_plugin.files import write_text
from roberta_plugin.machine import num_cores
from roberta_plugin.progress import progress_bar
from roberta_plugin.training.log import parse_line, show_on
from roberta_plugin.training.process import lines_of, train_program

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
            found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, _DOCUMENTED))
            yield name.as_posix(), [docstring for docstring in found if docstring]


def prose_paragraphs(docstring: str) -> Iterator[str]:
    """The paragraphs that read as prose, each on one line, without the examples of code."""
    for block in re.split(r"\n\s*\n", docstring):
        words = block.replace("::", ":").split()
        num_words = sum(_WORD.fullmatch(word) is not None for word in words)
        if num_words >= max(_MIN_WORDS, _MIN_WORD_SHARE * len(words)) and words[0] not in (">>>", "$"):
            yield " ".join(words)


def choose_split(name: str) -> str:
    """The split of a document, which depends only on its name."""
    share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
    return next((split for split, end in _HELD_OUT.items() if share < end), "train")


def plain_sentences(paragraph: str) -> set[str]:
    """The letters of its sentences of at least `_MIN_WORDS` words, and of the whole paragraph, in lower case."""
    sentences = (" ".join(re.findall("[a-z]+", part)) for part in re.split(r"(?<=[.!?:;])\s+", paragraph.lower()))
    return {text for text in sentences if text.count(" ") + 1 >= _MIN_WORDS} | {paragraph.lower()}


def write_corpus(folder: Path, found: Iterable[tuple[str, list[str]]]) -> None:
    """Write the three files; a sentence that training has is in no other split."""
    splits: dict[str, list[str]] = {split: [] for split in SPLITS}
    seen: set[str] = set()
    for name, docstrings in sorted(found, key=lambda document: SPLITS.index(choose_split(document[0]))):
        kept = [text for docstring in docstrings for text in prose_paragraphs(docstring)]
        split = choose_split(name)
        kept = [
            text
            for text in dict.fromkeys(kept)
            if seen.isdisjoint({text.lower()} if split == "train" else plain_sentences(text))
        ]
        seen.update(*map(plain_sentences, kept))
        if kept:
            splits[split].append("\n".join(kept))
    for split in reversed(SPLITS):  # train.txt last: where it stands, all do
        if not splits[split]:
            raise ValueError(f"The standard library of this Python has no docstrings for {split}.txt.")
        write_text(folder / f"{split}.txt", "\n\n".join(splits[split]) + "\n")


# Chosen for minutes of training on two cores. Blocks and batches are small and the learning rate is high, because early
# in training more updates help more than more tokens. More than the paper's 15 % of the tokens are predicted, so each
# block teaches more (Wettig et al. 2023, "Should You Mask 15% in Masked Language Modeling?").
TOKENS_PER_SAMPLE = 32
BREAK_MODE: BreakMode = "none"
OPTIONS = {
    "--task": "roberta_masked_lm",
    "--criterion": "roberta_masked_lm",
    "--arch": "fast_roberta_tiny",
    "--encoder-embed-dim": "192",
    "--encoder-ffn-embed-dim": "768",
    "--encoder-attention-heads": "6",
    "--dropout": "0.0",
    "--attention-dropout": "0.0",
    "--init-std": "width",
    "--init-attention": "neighbors",
    "--sample-break-mode": BREAK_MODE,
    "--tokens-per-sample": str(TOKENS_PER_SAMPLE),
    "--batch-size": "16",
    "--batch-size-valid": "128",
    "--mask-prob": "0.4",
    "--optimizer": "roberta_adamw",
    "--lr": "1.5e-3",
    "--lr-scheduler": "polynomial_decay",
    "--num-workers": "0",
    "--distributed-world-size": "1",
    "--log-format": "json",
    "--log-interval": "20",
    "--save-interval": "1000000",  # save by updates, never by epochs
    "--validate-interval": "1000000",
    "--keep-interval-updates": "1",
}
SWITCHES = ("--encoder-normalize-before", "--zero-init-residual")
WARMUP_SHARE = 0.06
NUM_VALIDATIONS = 8  # each also saves a checkpoint, from which a killed run resumes
MAX_THREADS = 8  # the model is too small to use more
# Threads that spin while they wait make a busy machine ten times slower; a short spin costs an idle machine nothing.
SPIN_COUNT = "1000"


def train_command(data_bin: Path, save_dir: Path, *, updates: int, seed: int) -> list[str]:
    """The command line of `fairseq-train`; the learning rate reaches zero with the last update."""
    options = {
        "--user-dir": str(Path(roberta_plugin.__file__).parent),
        **OPTIONS,
        "--warmup-updates": str(max(1, round(WARMUP_SHARE * updates))),
        "--total-num-update": str(updates),
        "--max-update": str(updates),
        "--save-interval-updates": str(max(1, updates // NUM_VALIDATIONS)),
        "--seed": str(seed),
        "--save-dir": str(save_dir),
    }
    return [*train_program(), str(data_bin), *SWITCHES, *itertools.chain.from_iterable(options.items())]


def pretrain(command: list[str], *, log: Path, updates: int, lock: int) -> None:
    """Train to the end, from the last checkpoint if there is one; `lock` is inherited by the training."""
    threads = os.environ.get("OMP_NUM_THREADS") or str(min(MAX_THREADS, num_cores()))
    bar = progress_bar("training", total=updates, unit="update")
    with closing(lines_of(command, log=log, lock=lock, environment={"OMP_NUM_THREADS": threads})) as lines, bar:
        for line in lines:
            record = parse_line(line)
            if record and "num_updates" in record.values:
                show_on(bar, record)
