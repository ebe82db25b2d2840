"""Small files in the official layouts of SuperGLUE, WinoGrande and CommonsenseQA: good is right, bad is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NOUNS = ("dog", "cat", "man", "fox", "cow", "hen")
FILES = {"train": "train.jsonl", "valid": "val.jsonl", "test": "test.jsonl"}
OTHER_FILES = {
    "WinoGrande": {"train": "train_xl.jsonl", "valid": "dev.jsonl", "test": "test.jsonl"},
    "CommonsenseQA": {
        "train": "train_rand_split.jsonl",
        "valid": "dev_rand_split.jsonl",
        "test": "test_rand_split_no_answers.jsonl",
    },
}


FOLDERS = {"SuperRTE": "RTE"}  # where they are not called like the task


def write_task(folder: Path, task: str, *, train: int = 24, dev: int = 8, test: int = 6, seed: int = 0) -> Path:
    """Write the three files of a task below `folder`; return `folder`."""
    rng = np.random.default_rng(seed)
    for split, number in (("train", train), ("valid", dev), ("test", test)):
        rows = [_MAKE[task](rng, index) for index in range(number)]
        if split == "test":
            rows = [_without_labels(row) for row in rows]
        write_lines(folder / FOLDERS.get(task, task) / OTHER_FILES.get(task, FILES)[split], rows)
    if task == "SuperRTE":
        pairs = [_without_labels(_rte(rng, index)) for index in range(test)]
        write_lines(folder / "AX-g" / "AX-g.jsonl", pairs)
        names = {"premise": "sentence1", "hypothesis": "sentence2", "idx": "idx"}
        write_lines(folder / "AX-b" / "AX-b.jsonl", [{names[key]: row[key] for key in names} for row in pairs])
    return folder


def write_lines(path: Path, rows: list[Any]) -> Path:
    """Write a file of JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _without_labels(value: Any) -> Any:
    """The same without labels and answers, as in the official test sets."""
    if isinstance(value, list):
        return [_without_labels(each) for each in value]
    if not isinstance(value, dict):
        return value
    names = ("label", "answerKey", "answer") if "choices" not in value else ()
    names = () if "text" in value and len(value) == 2 else names  # a choice of CommonsenseQA has a label, too
    kept = {name: _without_labels(each) for name, each in value.items() if name not in names}
    return kept | ({"answers": []} if "query" in kept else {})


def _two(rng: np.random.Generator) -> tuple[list[str], int]:
    """A good thing and a bad one, and which is the good one."""
    nouns, right = rng.choice(NOUNS, 2, replace=False), int(rng.integers(2))
    return [f"{('bad', 'good')[place == right]} {noun}" for place, noun in enumerate(nouns)], right


def _wsc(rng: np.random.Generator, index: int) -> dict[str, Any]:
    things, right = _two(rng)
    asked = int(rng.integers(2))
    words = f"I saw the {things[0]} and the {things[1]} . It ran.".split(" ")
    target = {"span1_index": words.index(things[asked].split()[1]) - 2, "span1_text": f"the {things[asked]}"}
    target |= {"span2_index": words.index("It"), "span2_text": "It"}
    return {"text": " ".join(words), "target": target, "idx": index, "label": asked == right}


def _winogrande(rng: np.random.Generator, index: int) -> dict[str, Any]:
    things, right = _two(rng)
    sentence = f"I saw the {things[0]} and the {things[1]} , so the _ ran."
    options = {"option1": things[0], "option2": things[1]}
    return {"qID": f"Q{index}-1", "sentence": sentence, **options, "answer": str(right + 1)}


def _boolq(rng: np.random.Generator, index: int) -> dict[str, Any]:
    is_good = bool(rng.integers(2))
    passage = f"So it is {('bad', 'good')[is_good]} to see a {rng.choice(NOUNS)}."
    return {"question": "is it so", "passage": passage, "idx": index, "label": is_good}


def _cb(rng: np.random.Generator, index: int) -> dict[str, Any]:
    label = index % 3
    words = ("so so", "bad bad", "good good")[label]
    texts = {"premise": f"I say it is {words}.", "hypothesis": f"the {rng.choice(NOUNS)} ran"}
    return {**texts, "label": ("neutral", "contradiction", "entailment")[label], "idx": index}


def _rte(rng: np.random.Generator, index: int) -> dict[str, Any]:
    row = _cb(rng, 1 + index % 2)
    return {**row, "label": "entailment" if row["label"] == "entailment" else "not_entailment", "idx": index}


def _wic(rng: np.random.Generator, index: int) -> dict[str, Any]:
    is_good, noun = bool(rng.integers(2)), str(rng.choice(NOUNS))
    texts = [f"A {noun} ran.", f"It is a {('bad', 'good')[is_good]} {noun}."]
    row: dict[str, Any] = {"word": noun, "idx": index, "label": is_good}
    for which, text in zip("12", texts, strict=True):
        start = text.index(noun)
        row |= {f"sentence{which}": text, f"start{which}": start, f"end{which}": start + len(noun)}
    return row


def _multirc(rng: np.random.Generator, index: int) -> dict[str, Any]:
    questions: list[dict[str, Any]] = []
    for number in range(2):
        answers = [
            {
                "text": f"a {('bad', 'good')[label]} {rng.choice(NOUNS)}",
                "idx": 4 * index + 2 * number + place,
                "label": label,
            }
            for place, label in enumerate(rng.permutation(2).tolist())
        ]
        questions.append({"question": "Who ran?", "answers": answers, "idx": 2 * index + number})
    return {"idx": index, "version": 1.1, "passage": {"text": "Sent 1: They ran.", "questions": questions}}


def _copa(rng: np.random.Generator, index: int) -> dict[str, Any]:
    things, right = _two(rng)
    options = {"choice1": f"I saw a {things[0]}.", "choice2": f"I saw a {things[1]}."}
    return {"premise": "I ran.", **options, "question": ("cause", "effect")[index % 2], "idx": index, "label": right}


def _record(rng: np.random.Generator, index: int) -> dict[str, Any]:
    things, right = _two(rng)
    text = f"I saw {things[0]} and {things[1]}\n@highlight\nIt ran to {things[right]}"
    spans = [(start, start + len(thing) - 1) for thing in (*things, things[right]) for start in (text.rindex(thing),)]
    entities = [{"start": start, "end": end} for start, end in spans]
    answers = [{**entities[right], "text": things[right]}]
    qas = [{"query": "I say @placeholder ran", "answers": answers, "idx": index}]
    return {"source": "Daily", "passage": {"text": text, "entities": entities}, "qas": qas, "idx": index}


def _commonsense_qa(rng: np.random.Generator, index: int) -> dict[str, Any]:
    right = int(rng.integers(5))
    nouns = rng.choice(NOUNS, 5, replace=False)
    choices = [
        {"label": "ABCDE"[place], "text": f"{('bad', 'good')[place == right]} {noun}"}
        for place, noun in enumerate(nouns)
    ]
    question = {"question_concept": "run", "choices": choices, "stem": "Who ran?"}
    return {"answerKey": "ABCDE"[right], "id": f"{index:032x}", "question": question}


_MAKE: dict[str, Callable[[np.random.Generator, int], dict[str, Any]]] = {
    "WSC": _wsc,
    "WinoGrande": _winogrande,
    "BoolQ": _boolq,
    "CB": _cb,
    "SuperRTE": _rte,
    "WiC": _wic,
    "MultiRC": _multirc,
    "COPA": _copa,
    "ReCoRD": _record,
    "CommonsenseQA": _commonsense_qa,
}
TASKS = tuple(_MAKE)
