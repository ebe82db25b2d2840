"""Raw multiple-choice sets -> passages with their questions.

Two formats are read. RACE's own: FOLDER/{train,dev,test}/{middle,high}/NAME.txt, each file a JSON object with
`article`, `questions`, `options`, `answers` (letters from A) and `id`. And JSON Lines for all other sets (SWAG, COPA,
CommonsenseQA, ...): FOLDER/{train,valid,test}.jsonl with one question per line,

    {"id": "17", "context": "She opens the hood.", "question": "Then, she", "options": ["...", "..."], "answer": 0}

with two or more options, whose number may differ between lines. `question` may be empty, `answer` counts from 0, and
only the test split may omit it. Everything is checked here, so that later stages need not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roberta_plugin.finetuning.raw_files import read_text
from roberta_plugin.json_files import parse_json
from roberta_plugin.kinds.choices import LEVELS, NO_ANSWER, NO_LEVEL
from roberta_plugin.tables import check_id, check_keys, check_list, check_text, read_table, with_unique_ids

_RACE_SPLITS = {"train": "train", "dev": "valid", "test": "test"}  # folder -> split of the prepared folder
_PLAIN_SPLITS = ("train", "valid", "test")
_RACE_KEYS = ("article", "questions", "options", "answers", "id")
_PLAIN_KEYS = ("id", "context", "question", "options")


class ChoiceQuestion(NamedTuple):
    """A question, its options, and the index of the right one; `NO_ANSWER` if it is not known."""

    text: str
    options: tuple[str, ...]
    answer: int


class Passage(NamedTuple):
    """A text and the questions about it; `level` is an index into `LEVELS`, or `NO_LEVEL`."""

    id: str
    level: int
    text: str
    questions: tuple[ChoiceQuestion, ...]


def find_splits(task: str, raw: Path) -> dict[str, list[Path]]:
    """The raw files of each split that `raw` has, in the order in which they are read.

    Raises:
        FileNotFoundError: if it has none, saying what was looked for.
    """
    if task == "race":
        wanted = "train, dev or test with middle/*.txt and high/*.txt in them"
        found = {split: _race_files(raw / folder) for folder, split in _RACE_SPLITS.items()}
    else:
        wanted = " or ".join(f"{split}.jsonl" for split in _PLAIN_SPLITS)
        found = {split: [raw / f"{split}.jsonl"] for split in _PLAIN_SPLITS if (raw / f"{split}.jsonl").is_file()}
    found = {split: files for split, files in found.items() if files}
    if not found:
        raise FileNotFoundError(f"{raw} holds no data for {task}: looked for {wanted}. Name the folder that has them.")
    return found


def _race_files(folder: Path) -> list[Path]:
    """Files of both levels in numeric order, which is the same on every machine."""
    return [path for level in LEVELS for path in sorted((folder / level).glob("*.txt"), key=_by_number)]


def _by_number(path: Path) -> tuple[int, str]:
    return (int(path.stem) if path.stem.isdigit() else -1, path.stem)


def read_split(task: str, split: str, files: list[Path]) -> Iterator[Passage]:
    """The passages of one split."""
    made = (passage for path in files for passage in _passages(task, split, path))
    return with_unique_ids(made, id_of=lambda passage: passage.id)


def _passages(task: str, split: str, path: Path) -> Iterator[tuple[str, Passage]]:
    """The passages of a file, with their locations."""
    for location, content in _objects(path, one_per_line=task != "race"):
        where = f"{location}, id {content['id']!r}" if isinstance(content, Mapping) and "id" in content else location
        if task == "race":
            yield where, _race_passage(content, where, LEVELS.index(path.parent.name))
        else:
            yield where, _plain_passage(content, where, split)


def _objects(path: Path, *, one_per_line: bool) -> Iterator[tuple[str, Any]]:
    """Every JSON value of a file, with its location for messages."""
    if one_per_line:
        yield from ((row.where, row.values) for row in read_table(path))
        return
    try:
        yield str(path), parse_json(read_text(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not valid JSON ({error}): unpack or write the file again.") from None


def _race_passage(content: Any, where: str, level: int) -> Passage:
    check_keys(content, _RACE_KEYS, where)
    texts, options, answers = (check_list(content[key], key, where) for key in ("questions", "options", "answers"))
    if not len(texts) == len(options) == len(answers):
        raise ValueError(
            f"{where}: {len(texts)} questions, {len(options)} lists of options and {len(answers)} answers. Every "
            "question needs one of each: complete the file, or leave it out."
        )
    return Passage(
        id=check_text(content["id"], "id", where),
        level=level,
        text=check_text(content["article"], "article", where),
        questions=tuple(
            _race_question(text, choice, letter, f"{where}, question {number}")
            for number, (text, choice, letter) in enumerate(zip(texts, options, answers, strict=True), start=1)
        ),
    )


def _race_question(text: Any, options: Any, letter: Any, where: str) -> ChoiceQuestion:
    choices = _options(options, where)
    letters = [chr(ord("A") + number) for number in range(len(choices))]
    if letter not in letters:
        raise ValueError(f"{where}: the answer {letter!r} is none of {', '.join(letters)}. Correct it or the options.")
    return ChoiceQuestion(check_text(text, "question", where, may_be_empty=True), choices, letters.index(letter))


def _plain_passage(content: Any, where: str, split: str) -> Passage:
    check_keys(content, (*_PLAIN_KEYS, *(["answer"] if split != "test" else [])), where)
    options = _options(content["options"], where)
    answer = content.get("answer", NO_ANSWER)
    if "answer" in content and (type(answer) is not int or not 0 <= answer < len(options)):
        raise ValueError(
            f"{where}: the answer {answer!r} is none of the options 0 to {len(options) - 1}. It must be the index of "
            "the right option, counted from 0."
        )
    question = ChoiceQuestion(check_text(content["question"], "question", where, may_be_empty=True), options, answer)
    text = check_text(content["context"], "context", where)
    return Passage(check_id(content["id"], where), NO_LEVEL, text, (question,))


def _options(value: Any, where: str) -> tuple[str, ...]:
    options = check_list(value, "options", where)
    if len(options) < 2:
        raise ValueError(
            f"{where}: {'no options' if not options else 'only one option'}, so there is nothing to choose. Give two "
            "or more, or leave the question out."
        )
    return tuple(check_text(option, f"option {number}", where) for number, option in enumerate(options, start=1))
