"""A small set in RACE's form, in which the right option is a good thing and the wrong ones are bad things."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

THINGS = ("egg", "pen", "hat", "cup", "map", "key")
QUESTIONS = ("What is it ?", "It is a  _  .")


def write_race(folder: Path, *, train: int = 60, dev: int = 20, questions: int = 2, seed: int = 0) -> Path:
    """Write `train` and `dev` passages, half of either level, with this number of questions each."""
    rng = np.random.default_rng(seed)
    for split, count in (("train", train), ("dev", dev)):
        for number in range(count):
            level = ("middle", "high")[number % 2]
            write_passage(folder / split / level / f"{number}.txt", passage(f"{level}{number}.txt", questions, rng))
    return folder


def passage(name: str, questions: int, rng: np.random.Generator) -> dict[str, Any]:
    """The content of one file."""
    text = " ".join(f"I saw a {rng.choice(THINGS)} ." for _ in range(rng.integers(1, 6)))
    content: dict[str, Any] = {"article": text, "questions": [], "options": [], "answers": [], "id": name}
    for _ in range(questions):
        right = int(rng.integers(4))
        options = [f"bad {thing}" for thing in rng.choice(THINGS, 4, replace=False)]
        options[right] = options[right].replace("bad", "good")
        content["questions"].append(str(rng.choice(QUESTIONS)))
        content["options"].append(options)
        content["answers"].append("ABCD"[right])
    return content


def write_passage(path: Path, content: Any) -> Path:
    """Write a file as RACE has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def write_lines(path: Path, entries: list[Any]) -> Path:
    """Write a file of JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path
