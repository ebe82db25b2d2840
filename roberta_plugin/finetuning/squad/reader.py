"""Official SQuAD files, version 1.1 or 2.0 -> passages and questions, checked.

    {"version": "v2.0", "data": [{"title": ..., "paragraphs": [{"context": "...", "qas": [
        {"id": "...", "question": "...", "is_impossible": false, "answers": [{"text": "...", "answer_start": 17}]}]}]}]}

Version 1.1 has no `is_impossible`. A test file may omit `answers`. If an answer is not at its `answer_start`, its
nearest occurrence in the passage is taken; without any, its start is `NO_PLACE`. Both kinds are listed in `misplaced`.

Example: the answer {"text": "Paris", "answer_start": 3} of "In Paris." -> SquadAnswer("Paris", 3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roberta_plugin.json_files import parse_json
from roberta_plugin.kinds.passages import NO_PLACE, SquadAnswer, SquadFile, SquadQuestion, locate
from roberta_plugin.tables import check_id, check_keys, check_list, check_text

_FILES = {
    "squad1": {"train": "train-v1.1.json", "valid": "dev-v1.1.json", "test": "test-v1.1.json"},
    "squad2": {"train": "train-v2.0.json", "valid": "dev-v2.0.json", "test": "test-v2.0.json"},
}
SPLITS = ("train", "valid", "test")


def find_files(task: str, raw: Path, named: Mapping[str, str] | None = None) -> dict[str, Path]:
    """The file of each split in the folder `raw`: the official files, or only those that `named` gives by split.

    Raises:
        FileNotFoundError: if there is none, saying what was looked for; or if a named file does not exist.
    """
    files = {split: raw / named[split] for split in SPLITS if split in named} if named else {}
    for split, path in files.items():
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist: --{split} must name a file in {raw}.")
    if files:
        return files
    found = {split: raw / name for split, name in _FILES[task].items() if (raw / name).is_file()}
    if task == "squad1":  # XQuAD (Artetxe et al. 2020): the questions of 240 passages in other languages
        found |= {f"test_{path.name.split('.')[1]}": path for path in sorted(raw.glob("xquad.*.json"))}
    if not found:
        raise FileNotFoundError(
            f"{raw} holds no data for {task}: looked for {', '.join(_FILES[task].values())}. Name the folder that has "
            "them; or name SQuAD-like files in it: --train FILE.json --valid FILE.json."
        )
    return found


def read_file(task: str, path: Path, *, needs_answers: bool, strict: bool = False) -> SquadFile:
    """Read and check a file.

    With `strict`, answers that are not at their `answer_start` are refused.
    """
    result = SquadFile(path)
    passages: dict[str, int] = {}
    ids: set[str] = set()
    for where, paragraph in _paragraphs(path):
        context = _text(paragraph, "context", where)
        number = passages.setdefault(context, len(passages))
        for place, entry in enumerate(_list(paragraph, "qas", where), start=1):
            here = f"{where}, question {place}"
            id_ = check_id(_value(entry, "id", here), here)
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
                        f"{_whereabouts(found['found_at'])}. Correct answer_start, or leave --strict out: its "
                        "place is then looked for, or the answer left out of training."
                    )
            result.questions.append(SquadQuestion(id_, text, number, answers))
    result.passages = list(passages)
    if not result.questions:
        raise ValueError(f"{path} holds no question. Give a file in the format of SQuAD.")
    return result


def _paragraphs(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        content = parse_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON in UTF-8 ({error}): unpack or download it again.") from None
    for number, article in enumerate(_list(content, "data", str(path)), start=1):
        where = f"{path}, article {number}"
        for place, paragraph in enumerate(_list(article, "paragraphs", where), start=1):
            yield f"{where}, paragraph {place}", paragraph


def _answers(task: str, entry: dict[str, Any], context: str, where: str) -> Iterator[SquadAnswer]:
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
        yield SquadAnswer(
            text, start if context.startswith(text, start) and start >= 0 else locate(context, text, start)
        )


def _misplaced(id_: str, entry: dict[str, Any], answer: SquadAnswer) -> dict[str, Any] | None:
    if entry["answer_start"] == answer.start:
        return None
    return {"id": id_, "answer": answer.text, "answer_start": entry["answer_start"], "found_at": answer.start}


def _whereabouts(place: int) -> str:
    return "nor anywhere in the passage" if place == NO_PLACE else f"but at {place}"


def _list(content: Any, key: str, where: str) -> list[Any]:
    return check_list(_value(content, key, where), key, where)


def _text(content: Any, key: str, where: str, *, may_be_empty: bool = False) -> str:
    return check_text(_value(content, key, where), key, where, may_be_empty=may_be_empty)


def _value(content: Any, key: str, where: str) -> Any:
    return check_keys(content, (key,), where)[key]
