"""RACE (`race`), and other sets of multiple choice in JSON Lines (`multiple_choice`; paper section 5.3).

Two formats are read. RACE has files FOLDER/{train,dev,test}/{middle,high}/NAME.txt, each a JSON object with `article`,
`questions`, `options`, `answers` (letters from A) and `id`. All other sets (SWAG, COPA, CommonsenseQA, ...) are JSON
Lines, FOLDER/{train,valid,test}.jsonl, with one question per line,

    {"id": "17", "context": "She opens the hood.", "question": "Then, she", "options": ["...", "..."], "answer": 0}

with two or more options, whose number may differ between lines. `question` may be empty. `answer` counts from 0, and
only the test split may omit it. Everything is checked here, so that later stages need not check it.

Each example has a record: `id` of the passage, `question`, its index among the passage's questions, and the texts of
its `options`.

The paper's settings (Table 10): 1e-5 after a warm-up of 6 %, linear decay, 4 epochs of batches of 16. A batch of 16
questions is 64 sequences of up to 512 tokens; if they do not fit into the GPU, `roberta finetune` accumulates smaller
batches with `--set batch-size=4`.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from roberta_plugin.extensions.choices.kind import LEVELS, NO_ANSWER, ChoiceLayout
from roberta_plugin.extensions.choices.options import RaceOptions
from roberta_plugin.finetuning.benchmarks.base import (
    Benchmark,
    Entries,
    Training,
    as_json,
    by_split,
    known_files,
    read_rows,
    read_text,
)
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.json_files import parse_json
from roberta_plugin.tables import Row, check_id, check_keys, check_list, check_text, with_unique_ids

logger = logging.getLogger(__name__)

RACE_SPLITS = {"train": "train", "valid": "dev", "test": "test"}  # split of the prepared folder -> folder
_RACE_KEYS = ("article", "questions", "options", "answers", "id")
_LINE_KEYS = ("id", "context", "question", "options")


def race_files(raw: Path, options: RaceOptions) -> dict[str, list[Path]]:
    """The files of each split that `raw` has, of both levels in numeric order, which is the same on every machine."""

    def by_number(path: Path) -> tuple[int, str]:
        return (int(path.stem) if path.stem.isdigit() else -1, path.stem)

    paths = {
        split: [path for level in LEVELS for path in sorted((raw / folder / level).glob("*.txt"), key=by_number)]
        for split, folder in RACE_SPLITS.items()
    }
    return known_files(paths, "race", raw, wanted="train, dev or test with middle/*.txt and high/*.txt in them")


def line_files(raw: Path, options: RaceOptions) -> dict[str, list[Path]]:
    """The JSON Lines of each split that `raw` has."""
    paths = {split: [path] for split in RACE_SPLITS if (path := raw / f"{split}.jsonl").is_file()}
    return known_files(paths, "multiple_choice", raw, wanted="train.jsonl or valid.jsonl or test.jsonl")


def read_race(split: str, files: list[Path], options: RaceOptions) -> Iterator[Example]:
    """The questions of a split of RACE."""

    def passages() -> Iterator[tuple[str, tuple[str, list[Example]]]]:
        for path in files:
            try:
                content = parse_json(read_text(path))
            except json.JSONDecodeError as error:
                raise ValueError(f"{path} is not valid JSON ({error}): unpack or write the file again.") from None
            where = _place(str(path), content)
            yield where, _race_passage(content, where, path)

    num_questions = num_bare = 0
    for _, questions in with_unique_ids(passages(), id_of=lambda passage: passage[0]):
        num_questions, num_bare = num_questions + len(questions), num_bare + (not questions)
        yield from questions
    if not num_questions:
        raise ValueError(f"The split {split} holds no question: check its files, or leave the split out.")
    if num_bare:
        logger.warning(f"{split}: {num_bare:,} passages have no question and were left out")


def read_lines(split: str, files: list[Path], options: RaceOptions) -> Iterator[Example]:
    """The questions of a split in JSON Lines."""
    rows = ((_place(row.where, row.values), row) for row in read_rows(*files))
    return with_unique_ids(((where, _line(row, where, split)) for where, row in rows), id_of=lambda each: each.id)


def _place(where: str, content: object) -> str:
    return f"{where}, id {content['id']!r}" if isinstance(content, Mapping) and "id" in content else where


def _race_passage(content: Any, where: str, path: Path) -> tuple[str, list[Example]]:
    """The id of a passage, and its questions."""
    check_keys(content, _RACE_KEYS, where)
    questions, options, answers = (check_list(content[key], key, where) for key in ("questions", "options", "answers"))
    if not len(questions) == len(options) == len(answers):
        raise ValueError(
            f"{where}: {len(questions)} questions, {len(options)} lists of options and {len(answers)} answers. Every "
            "question needs one of each: complete the file, or leave it out."
        )
    id_, article = check_text(content["id"], "id", where), check_text(content["article"], "article", where)
    examples = []
    for number, (text, choice, letter) in enumerate(zip(questions, options, answers, strict=True)):
        here = f"{where}, question {number + 1}"
        texts = _options(choice, here)
        letters = list(ascii_uppercase[: len(texts)])
        if letter not in letters:
            raise ValueError(
                f"{here}: the answer {letter!r} is none of {', '.join(letters)}. Correct it or the options."
            )
        question = check_text(text, "question", here, may_be_empty=True)
        columns, record = {"level": LEVELS.index(path.parent.name)}, {"question": number, "options": texts}
        target = letters.index(letter)
        examples.append(
            Example(path, 1, id_, (article, question), target, choices=texts, columns=columns, record=record)
        )
    return id_, examples


def _line(row: Row, where: str, split: str) -> Example:
    check_keys(row.values, (*_LINE_KEYS, *(["answer"] if split != "test" else [])), where)
    options = _options(row.values["options"], where)
    answer = row.values.get("answer", NO_ANSWER)
    if "answer" in row.values and (type(answer) is not int or not 0 <= answer < len(options)):
        raise ValueError(
            f"{where}: the answer {answer!r} is none of the options 0 to {len(options) - 1}. It must be the index of "
            "the right option, counted from 0."
        )
    question = check_text(row.values["question"], "question", where, may_be_empty=True)
    texts, id_ = (check_text(row.values["context"], "context", where), question), check_id(row.values["id"], where)
    record = {"question": 0, "options": options}
    return Example(row.path, row.line, id_, texts, target=answer, choices=options, record=record)


def _options(value: object, where: str) -> tuple[str, ...]:
    options = check_list(value, "options", where)
    if len(options) < 2:
        raise ValueError(
            f"{where}: {'no options' if not options else 'only one option'}, so there is nothing to choose. Give two "
            "or more, or leave the question out."
        )
    return tuple(check_text(option, f"option {number}", where) for number, option in enumerate(options, start=1))


def settings(*, max_length: int, options: RaceOptions) -> dict[str, Any]:
    """`Benchmark.settings`: the layout."""
    return asdict(ChoiceLayout.with_defaults(max_length, question_length=options.question_length, order=options.order))


def predictions(split: str, entries: Entries, *, names: Sequence[Any]) -> Mapping[str, Iterable[str]]:
    """`Benchmark.predictions`: `id`, `question`, `answer` by its name, and `probabilities` of each example."""
    lines = (
        {
            "id": entry["id"],
            "question": entry["question"],
            "answer": names[entry["prediction"]],
            "probabilities": entry["probabilities"],
        }
        for entry in entries()
    )
    return {f"{split}.predictions.jsonl": as_json(lines)}


_TRAINING = Training(lrs=("1e-5",), batches=(16,), epochs=4)
TASKS = {
    "race": Benchmark(
        name="race",
        on_hub=("ehovy/race", None),
        kind="multiple_choice",
        files=race_files,
        records=by_split(read_race),
        settings=settings,
        predictions=partial(predictions, names=ascii_uppercase),
        training=_TRAINING,
        paper={
            "test": {"RoBERTa large": {"accuracy": 83.2, "accuracy_middle": 86.5, "accuracy_high": 81.3}},  # Table 7
            "valid": {"RoBERTa base, 16 GB of text": {"accuracy": 65.6}},  # Table 2, DOC-SENTENCES
        },
    ),
    "multiple_choice": Benchmark(
        name="multiple_choice",
        kind="multiple_choice",
        same_head="race",
        files=line_files,
        records=by_split(read_lines),
        settings=settings,
        predictions=partial(predictions, names=range(sys.maxsize)),
        training=_TRAINING,
    ),
}
