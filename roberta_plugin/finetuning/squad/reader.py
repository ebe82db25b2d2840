"""Official SQuAD files, version 1.1 or 2.0 -> passages and questions; each thing that is wrong is named or mended.

    {"version": "v2.0", "data": [{"title": ..., "paragraphs": [{"context": "...", "qas": [
        {"id": "...", "question": "...", "is_impossible": false, "answers": [{"text": "...", "answer_start": 17}]}]}]}]}

Version 1.1 has no `is_impossible`. A test file may leave `answers` out. Where an answer is not at its `answer_start`,
the nearest place that holds it is taken; where none does, it has no place. Both kinds are listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

_FILES = {
    "squad1": {"train": "train-v1.1.json", "valid": "dev-v1.1.json", "test": "test-v1.1.json"},
    "squad2": {"train": "train-v2.0.json", "valid": "dev-v2.0.json", "test": "test-v2.0.json"},
}
SPLITS = ("train", "valid", "test")
NO_PLACE = -1


class Answer(NamedTuple):
    """A right answer, and its first character in the passage; `NO_PLACE` where the passage does not hold it."""

    text: str
    start: int


class Question(NamedTuple):
    """A question about the passage with this number; `answers` is None where they are not told."""

    id: str
    text: str
    passage: int
    answers: tuple[Answer, ...] | None


@dataclass
class SquadFile:
    """What a file holds."""

    path: Path
    """The file."""
    passages: list[str] = field(default_factory=list)
    """Texts, each different from the others."""
    questions: list[Question] = field(default_factory=list)
    """In the order of the file."""
    misplaced: list[dict[str, Any]] = field(default_factory=list)
    """Answers that are not at their `answer_start`: id, answer, answer_start and found_at, which may be `NO_PLACE`."""


def find_files(task: str, raw: Path, options: Mapping[str, str] | None = None) -> dict[str, Path]:
    """The file of each split that the folder `raw` has: the official ones, or those that `options` name by split.

    Raises:
        FileNotFoundError: if it has none, saying what was looked for; or if one that is named is not there.
    """
    named = {split: raw / options[split] for split in SPLITS if split in options} if options else {}
    for split, path in named.items():
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist: the option {split} must name a file in {raw}.")
    if named:
        return named
    found = {split: raw / name for split, name in _FILES[task].items() if (raw / name).is_file()}
    if not found:
        raise FileNotFoundError(
            f"{raw} holds no data for {task}: looked for {', '.join(_FILES[task].values())}. Name the folder that has "
            "them; or name SQuAD-like files in it, as --option train=FILE.json --option valid=FILE.json."
        )
    return found


def read_file(task: str, path: Path, *, needs_answers: bool, strict: bool = False) -> SquadFile:
    """Read and check a file.

    Args:
        task: "squad1" or "squad2": whether a question may have no answer.
        path: the file.
        needs_answers: whether `answers` must be there, as in all but test files.
        strict: refuse answers that are not at their `answer_start`.

    Raises:
        ValueError: naming the file, the question or the paragraph, the bad value and what would be right.
    """
    result = SquadFile(path)
    passages: dict[str, int] = {}
    ids: set[str] = set()
    for where, paragraph in _paragraphs(path):
        context = _text(paragraph, "context", where)
        number = passages.setdefault(context, len(passages))
        for place, entry in enumerate(_list(paragraph, "qas", where), start=1):
            here = f"{where}, question {place}"
            id_ = _id(entry, here)
            here = f"{path}, question {id_!r}"
            if id_ in ids:
                raise ValueError(f"{here} is there twice. Ids must differ: remove one of the two, or rename it.")
            ids.add(id_)
            text = _text(entry, "question", here, may_be_empty=True)
            answers = None
            if needs_answers or "answers" in entry:
                answers = tuple(_answers(task, entry, context, here))
                misplaced = [_misplaced(id_, entry["answers"][at], answer) for at, answer in enumerate(answers)]
                result.misplaced += [found for found in misplaced if found]
                if strict and any(misplaced):
                    found = next(found for found in misplaced if found)
                    raise ValueError(
                        f"{here}: the answer {found['answer']!r} is not at its answer_start {found['answer_start']}, "
                        f"{_whereabouts(found['found_at'])}. Correct answer_start, or leave strict out to have it "
                        "mended or, where the passage does not hold it, left out of training."
                    )
            result.questions.append(Question(id_, text, number, answers))
    result.passages = list(passages)
    if not result.questions:
        raise ValueError(f"{path} holds no question: is it a SQuAD file?")
    return result


def locate(context: str, text: str, start: int) -> int:
    """The place of `text` in `context` that is nearest to `start`, the earlier one of two; `NO_PLACE` if there is none.

    Example: "a cat, a dog", "a", 5 -> 7.
    """
    before = context.rfind(text, 0, max(start, 0) + len(text))
    after = context.find(text, max(start, 0))
    if before < 0 or after < 0:
        return max(before, after, NO_PLACE)
    return before if start - before <= after - start else after


def _paragraphs(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is no JSON in UTF-8 ({error}): unpack or load it again.") from None
    for number, article in enumerate(_list(content, "data", str(path)), start=1):
        where = f"{path}, article {number}"
        for place, paragraph in enumerate(_list(article, "paragraphs", where), start=1):
            yield f"{where}, paragraph {place}", paragraph


def _answers(task: str, entry: dict[str, Any], context: str, where: str) -> Iterator[Answer]:
    answers = _list(entry, "answers", where)
    if task == "squad1" and entry.get("is_impossible"):
        raise ValueError(f"{where} is impossible to answer, as only SQuAD 2.0 has it: use the task squad2.")
    if task == "squad2" and not isinstance(entry.get("is_impossible"), bool):
        raise ValueError(
            f"{where} lacks is_impossible, true or false, which all questions of SQuAD 2.0 have. If the file is of "
            "SQuAD 1.1, use the task squad1."
        )
    is_impossible = task == "squad2" and entry["is_impossible"]
    if is_impossible != (not answers):
        has = f"has {len(answers)} answers and is_impossible {str(is_impossible).lower()}" if answers else "no answers"
        remedy = (
            "Only a question of SQuAD 2.0 with is_impossible true has none: add the answer, or remove the question."
        )
        raise ValueError(f"{where}: {has}. {remedy}")
    for answer in answers:
        text = _text(answer, "text", f"{where}, answers")
        start = answer.get("answer_start")
        if type(start) is not int:
            raise ValueError(
                f"{where}: answer_start must be the whole number of the answer's first character in the context, "
                f"counted from 0, got {start!r}."
            )
        yield Answer(text, start if context.startswith(text, start) and start >= 0 else locate(context, text, start))


def _misplaced(id_: str, told: dict[str, Any], answer: Answer) -> dict[str, Any] | None:
    if told["answer_start"] == answer.start:
        return None
    return {"id": id_, "answer": answer.text, "answer_start": told["answer_start"], "found_at": answer.start}


def _whereabouts(place: int) -> str:
    return "nor anywhere in the passage" if place == NO_PLACE else f"but at {place}"


def _list(content: Any, key: str, where: str) -> list[Any]:
    value = _value(content, key, where)
    if not isinstance(value, list):
        raise ValueError(f"{where}: {key} must be a list, found {_short(value)}.")
    return value


def _text(content: Any, key: str, where: str, *, may_be_empty: bool = False) -> str:
    value = _value(content, key, where)
    if not isinstance(value, str):
        raise ValueError(f"{where}: {key} must be a text, found {_short(value)}.")
    if not value.strip() and not may_be_empty:
        raise ValueError(f"{where}: {key} is empty. Fill it in, or leave the entry out.")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{where}: {key} holds half of a surrogate pair at character {error.start}, which is no character. "
                "Write the whole character."
            ) from None
    return value


def _id(content: Any, where: str) -> str:
    """An id: a text, or a whole number as some sets have it."""
    value = _value(content, "id", where)
    return str(value) if type(value) is int else _text(content, "id", where)


def _value(content: Any, key: str, where: str) -> Any:
    if not isinstance(content, dict):
        raise ValueError(f"{where}: expected a JSON object with {key}, found {_short(content)}.")
    if key not in content:
        raise ValueError(f"{where} lacks {key}: is it a SQuAD file, as its authors hand it out? Add what is missing.")
    return content[key]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
