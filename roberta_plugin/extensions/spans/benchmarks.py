"""SQuAD 1.1 (`squad1`) and 2.0 (`squad2`), where a question may have no answer (paper section 5.2).

    {"version": "v2.0", "data": [{"title": ..., "paragraphs": [{"context": "...", "qas": [
        {"id": "...", "question": "...", "is_impossible": false, "answers": [{"text": "...", "answer_start": 17}]}]}]}]}

Version 1.1 has no `is_impossible`. A test file may omit `answers`. If an answer is not at its `answer_start`, its
nearest occurrence in the passage is used; if it does not occur there, its start is `NO_PLACE`.

Two further formats are read: one row per question, as on the hub and for run_qa.py of transformers ({"id", "context",
"question", "answers": {"text": [...], "answer_start": [...]}}), in `data`, in an array or as JSON Lines; and MRQA's
JSON Lines.

The paper's settings (Table 10): 1.5e-5 after a warm-up of 6 %, linear decay, 2 epochs of batches of 48 windows. The
checkpoint is chosen by F1, with SQuAD 2.0 at the best threshold.

The files of predictions are predictions.json (id -> text, "" for no answer), nbest_predictions.json (id -> candidates,
the best first; in SQuAD 2.0, "no answer" is one of them) and, for squad2, null_odds.json (id -> probability of no
answer, which the official script reads by --na-prob-file).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from roberta_plugin.extensions.spans.answers import NO_PLACE, START, SquadAnswer, parse_answers, place_answer
from roberta_plugin.extensions.spans.options import SquadOptions
from roberta_plugin.finetuning.benchmarks.base import (
    Benchmark,
    Entries,
    Numbers,
    Training,
    by_split,
    known_files,
    named_files,
)
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.layouts.windows import WindowLayout
from roberta_plugin.json_files import parse_json
from roberta_plugin.tables import (
    Row,
    check_id,
    check_keys,
    check_list,
    check_text,
    scan_table,
    text_lines,
    without_compression,
)

_FILES = {
    "squad1": {"train": "train-v1.1.json", "valid": "dev-v1.1.json", "test": "test-v1.1.json"},
    "squad2": {"train": "train-v2.0.json", "valid": "dev-v2.0.json", "test": "test-v2.0.json"},
}


def files(task: str, raw: Path, options: SquadOptions) -> dict[str, list[Path]]:
    """The file of each split in the folder `raw`: the official files, or only those that the options name."""
    if chosen := named_files(raw, options):
        return chosen
    paths = {split: [raw / name] for split, name in _FILES[task].items() if (raw / name).is_file()}
    if task == "squad1":  # XQuAD (Artetxe et al. 2020): the questions of 240 passages in other languages
        paths |= {f"test_{path.name.split('.')[1]}": [path] for path in sorted(raw.glob("xquad.*.json"))}
    remedy = "Name the folder that has them; or name SQuAD-like files in it: --train FILE.json --valid FILE.json."
    return known_files(paths, task, raw, wanted=", ".join(_FILES[task].values()), remedy=remedy)


def examples(task: str, split: str, paths: list[Path], options: SquadOptions) -> Iterator[Example]:
    """The questions of a file with their passages, checked; only a test file may lack `answers`.

    With `options.strict`, answers that are not at their `answer_start` are refused.
    """
    (path,) = paths
    ids: set[str] = set()
    for where, paragraph in _paragraphs(path):
        context = _text(paragraph, "context", where)
        for place, entry in enumerate(_list(paragraph, "qas", where), start=1):
            here = f"{where}, question {place}"
            id_ = check_id(_value(entry, "id", here), here)
            here = f"{path}, question {id_!r}"
            if id_ in ids:
                raise ValueError(f"{here} is there twice. Ids must differ: remove one of the two, or rename it.")
            ids.add(id_)
            text = _text(entry, "question", here, may_be_empty=True)
            answers = None
            if split != "test" or "answers" in entry:
                answers = tuple(_answers(task, entry, context, here))
            for answer in answers or () if options.strict else ():
                if answer.start != answer.answer_start:
                    actual = "nor anywhere in the passage" if answer.start == NO_PLACE else f"but at {answer.start}"
                    raise ValueError(
                        f"{here}: the answer {answer.text!r} is not at its answer_start {answer.answer_start}, "
                        f"{actual}. Correct answer_start, or leave --strict out: then the nearest occurrence is used, "
                        "and an answer that does not occur is left out of training."
                    )
            yield Example(path, 1, id_, (context, text), answers)
    if not ids:
        raise ValueError(f"{path} holds no question. Give a file in the format of SQuAD.")


def _paragraphs(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The paragraphs of a file, each with its place; see the head of this file."""
    for where, entry in _entries(path):
        if not isinstance(entry, dict) or "paragraphs" in entry or not {"context", "qas", "question"} & entry.keys():
            for place, paragraph in enumerate(_list(entry, "paragraphs", where), start=1):
                yield f"{where}, paragraph {place}", paragraph
        elif "qas" in entry:  # MRQA's
            yield where, {**entry, "qas": [_convert_mrqa(each) for each in _list(entry, "qas", where)]}
        else:  # a row for each question, as the hub and run_qa.py of transformers have them
            yield where, {"context": _value(entry, "context", where), "qas": [_complete(entry)]}


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    """The articles of a file or, if it has none, its paragraphs or rows."""
    try:
        text = "".join(text_lines(path)) if without_compression(path) != path.name.lower() else path.read_bytes()
        content = parse_json(text)
    except ValueError as error:
        if not _is_json_lines(path):
            raise ValueError(f"{path} is not valid JSON in UTF-8 ({error}): unpack or download it again.") from None
        rows = (row for row in _rows(path) if "header" not in row.values)  # MRQA's first line
        yield from ((row.where, dict(row.values)) for row in rows)
        return
    if isinstance(content, dict) and "context" in content and "data" not in content:
        content = [content]  # JSON Lines of one line
    entries = content if isinstance(content, list) and content else _list(content, "data", str(path))
    yield from ((f"{path}, article {number}", entry) for number, entry in enumerate(entries, start=1))


def _rows(path: Path) -> Iterator[Row]:
    for row in scan_table(path, format="jsonl"):
        if not isinstance(row, Row):
            raise row
        yield row


def _is_json_lines(path: Path) -> bool:
    """True if the first line is a whole object."""
    try:
        return isinstance(parse_json(next(text_lines(path))), dict)
    except (ValueError, StopIteration):
        return False


def _convert_mrqa(entry: object) -> Any:
    """A question of MRQA in SQuAD's form. Each answer is at the first of its `char_spans`, which end with its last
    character."""
    if not isinstance(entry, dict) or "detected_answers" not in entry:
        return entry
    answers = [
        {"text": answer["text"], START: answer["char_spans"][0][0]}
        for answer in entry["detected_answers"]
        if isinstance(answer, dict) and answer.get("text") and answer.get("char_spans")
    ]
    return {"id": entry.get("qid", entry.get("id")), "question": entry.get("question"), "answers": answers}


def _complete(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row with `is_impossible`, as in SQuAD 2.0, which is true if there is no answer."""
    answers = entry.get("answers")
    none = not (answers.get("text") if isinstance(answers, dict) else answers)
    return {"is_impossible": none, **entry} if "answers" in entry else entry


def _answers(task: str, entry: dict[str, Any], context: str, where: str) -> Iterator[SquadAnswer]:
    value = _value(entry, "answers", where)
    for each in [value] if isinstance(value, dict) else check_list(value, "answers", where):
        check_keys(each, ("text",), f"{where}, answers")
    answers = parse_answers(value, "answers", where)
    if task == "squad1" and entry.get("is_impossible"):
        raise ValueError(f"{where} has is_impossible true, which only SQuAD 2.0 has: use the task squad2.")
    if task == "squad2" and not isinstance(entry.get("is_impossible"), bool):
        raise ValueError(
            f"{where} has no is_impossible, true or false, which all questions of SQuAD 2.0 have. For a file of SQuAD "
            "1.1, use the task squad1."
        )
    is_impossible = task == "squad2" and entry["is_impossible"]
    if is_impossible != (not answers):
        has = f"has {len(answers)} answers and is_impossible {str(is_impossible).lower()}" if answers else "no answers"
        remedy = (
            "Only questions of SQuAD 2.0 with is_impossible true have no answer: add the answer, or remove the "
            "question."
        )
        raise ValueError(f"{where}: {has}. {remedy}")
    for text, start in answers:
        if type(start) is not int:
            raise ValueError(
                f"{where}: answer_start must be the whole number of the answer's first character in the context, "
                f"counted from 0, got {start!r}."
            )
        yield place_answer(context, text, start)


def _list(content: object, key: str, where: str) -> list[Any]:
    return check_list(_value(content, key, where), key, where)


def _text(content: object, key: str, where: str, *, may_be_empty: bool = False) -> str:
    return check_text(_value(content, key, where), key, where, may_be_empty=may_be_empty)


def _value(content: object, key: str, where: str) -> Any:
    return check_keys(content, (key,), where)[key]


def settings(*, max_length: int, options: SquadOptions) -> dict[str, Any]:
    """`Benchmark.settings`: the layout of the windows."""
    return asdict(
        WindowLayout.with_defaults(max_length, question_length=options.question_length, doc_stride=options.doc_stride)
    )


def predictions(task: str, split: str, entries: Entries) -> Mapping[str, Iterable[str]]:
    """`Benchmark.predictions`: see the head of this file."""
    best, n_best, null = {}, {}, {}
    for entry in entries():
        best[entry["id"]], null[entry["id"]] = entry["prediction"], entry["no_answer_probability"]
        none = [{"text": "", "probability": entry["no_answer_probability"]}] if task == "squad2" else []
        n_best[entry["id"]] = sorted([*entry["candidates"], *none], key=lambda each: -each["probability"])
    contents = {"predictions": best, "nbest_predictions": n_best, **({"null_odds": null} if task == "squad2" else {})}
    return {f"{split}/{name}.json": [json.dumps(each, indent=1, ensure_ascii=False)] for name, each in contents.items()}


def _row(name: str, on_hub: str, selection: str, paper: Numbers) -> Benchmark:
    return Benchmark(
        name=name,
        on_hub=(on_hub, None),
        kind="question_answering",
        files=partial(files, name),
        records=by_split(partial(examples, name)),
        settings=settings,
        training=Training(lrs=("1.5e-5",), batches=(48,), epochs=2, weight_decay="0.01"),
        selection=selection,
        predictions=partial(predictions, name),
        paper=paper,
    )


TASKS = {  # on the dev set; the numbers of large are in Table 6, the numbers of base in Table 2, DOC-SENTENCES
    "squad1": _row(
        "squad1",
        "rajpurkar/squad",
        "f1",
        {"valid": {"RoBERTa large": {"exact_match": 88.9, "f1": 94.6}, "RoBERTa base, 16 GB of text": {"f1": 90.6}}},
    ),
    "squad2": _row(
        "squad2",
        "rajpurkar/squad_v2",
        "tuned_f1",
        {
            "valid": {
                "RoBERTa large": {"tuned_exact_match": 86.5, "tuned_f1": 89.4},
                "RoBERTa base, 16 GB of text": {"tuned_f1": 79.7},
            }
        },
    ),
}
