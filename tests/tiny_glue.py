"""Small files in GLUE's form, with a signal that a tiny model learns in seconds: good is right, bad is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from roberta_plugin.extensions.pronouns.benchmarks import WNLI
from roberta_plugin.extensions.texts.glue import FILES
from tests.real_data import unpack

FILLERS = ("a", "we", "is", "so", "to", "on", "it", "of")
NOUNS = ("dog", "cat", "man", "fox", "cow", "hen")


def write_task(folder: Path, task: str, *, train: int = 240, dev: int = 60, test: int = 20, seed: int = 0) -> Path:
    """Write train.tsv, dev.tsv and test.tsv of SST-2, STS-B, QNLI or WNLI below `folder`; return `folder`."""
    header, make_row = _KINDS[task]
    rng = np.random.default_rng(seed)
    (folder / task).mkdir(parents=True)
    for name, number in (("train", train), ("dev", dev), ("test", test)):
        columns = ("index", *header[:-1]) if name == "test" else header if task == "SST-2" else ("index", *header)
        lines = ["\t".join(columns)]
        for index, row in zip(range(number), make_row(rng), strict=False):
            values = (str(index), *row[:-1]) if name == "test" else row if task == "SST-2" else (str(index), *row)
            lines.append("\t".join(values))
        (folder / task / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def _words(rng, *, good=0, bad=0):
    words = [*rng.choice(FILLERS, rng.integers(2, 9)), *["good"] * good, *["bad"] * bad]
    return "so " + " ".join(rng.permutation(words))


def _sst2(rng):
    while True:
        label = int(rng.random() < 0.6)
        is_good = label if rng.random() < 0.95 else 1 - label  # so that no model is always right
        yield _words(rng, good=is_good, bad=1 - is_good), str(label)


def _stsb(rng):
    while True:
        good = int(rng.integers(6))
        yield _words(rng, good=good, bad=5 - good), _words(rng), f"{good:.3f}"


def _qnli(rng):
    number = 0
    while True:
        number += 1
        pair = [(_words(rng, good=1), "entailment"), (_words(rng, bad=1), "not_entailment")]
        for place in rng.permutation(2):
            yield f"is it {number} ?", *pair[place]


def _wnli(rng):
    while True:
        first, second = rng.choice(NOUNS, 2, replace=False)
        phrases = [f"the good {first}", f"the bad {second}"]
        text = "I saw {} and {}. It ran.".format(*(phrases[place] for place in rng.permutation(2)))
        for label in rng.permutation(2):
            yield text, f"{phrases[1 - label].capitalize()} ran.", str(label)


_KINDS = {
    "SST-2": (("sentence", "label"), _sst2),
    "STS-B": (("sentence1", "sentence2", "score"), _stsb),
    "QNLI": (("question", "sentence", "label"), _qnli),
    "WNLI": (("sentence1", "sentence2", "label"), _wnli),
}


# Headers of the official files: of train and dev, and of the test files.
_PARSES = "sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse"
_HEADERS = {
    "CoLA": ("source label mark sentence", "index sentence"),
    "SST-2": ("sentence label", "index sentence"),
    "MRPC": ("Quality #1_ID #2_ID #1_String #2_String", "index #1_ID #2_ID #1_String #2_String"),
    "STS-B": (
        "index genre filename year old_index source1 source2 sentence1 sentence2 score",
        "index genre filename year old_index source1 source2 sentence1 sentence2",
    ),
    "QQP": ("id qid1 qid2 question1 question2 is_duplicate", "id question1 question2"),
    "MNLI": (
        f"index promptID pairID genre {_PARSES} sentence1 sentence2 label1 gold_label",
        f"index promptID pairID genre {_PARSES} sentence1 sentence2",
    ),
    "QNLI": ("index question sentence label", "index question sentence"),
    "RTE": ("index sentence1 sentence2 label", "index sentence1 sentence2"),
    "WNLI": ("index sentence1 sentence2 label", "index sentence1 sentence2"),
}
_MNLI_FILES = ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched")


def write_official(folder: Path, *, train: int = 24, dev: int = 9, test: int = 6) -> Path:
    """All nine tasks with every file and column of GLUE's archive, the diagnostic set among them."""
    for task, (header, test_header) in _HEADERS.items():
        for name in _MNLI_FILES if task == "MNLI" else ("train", "dev", "test"):
            is_test = name.startswith("test")
            number = train if name == "train" else test if is_test else dev
            _write_official_file(folder / task / f"{name}.tsv", task, test_header if is_test else header, number)
    _write_official_file(folder / "diagnostic" / "diagnostic.tsv", "MNLI", "index sentence1 sentence2", test)
    return folder


def _write_official_file(path: Path, task: str, header: str, number: int) -> None:
    files, rng = {**FILES, "WNLI": WNLI}[task], np.random.default_rng(number)
    columns = [name.replace("_ID", " ID").replace("_String", " String") for name in header.split()]
    lines = [] if task == "CoLA" and "label" in columns else ["\t".join(columns)]
    pairs = _wnli(rng) if task == "WNLI" else None
    for index in range(number):
        *texts, label = next(pairs) if pairs else ("", "")
        if not pairs:
            texts = [_words(rng, good=1) for _ in files.sentences]
            label = files.labels[index % len(files.labels)] if files.labels else f"{index % 5}.250"
        values = {**dict.fromkeys(columns, "x"), "index": str(index), "id": str(index), files.label: label}
        values |= dict(zip(files.sentences, texts, strict=True))
        lines.append("\t".join(values[name] for name in columns))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(("\ufeff" if task == "MRPC" else "") + "\n".join(lines) + "\n", encoding="utf-8")


def unpack_glue(shared_data: Path, folder: Path) -> Path:
    """The real files, or a skip that says why."""
    return next(unpack(shared_data, "glue", folder).rglob("RTE")).parent
