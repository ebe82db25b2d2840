"""Rows as other programs export them: some are read, others are refused with an example of a correct row.

    "label": ["a"], "label": {"choices": ["a"]}         doccano, Label Studio: the label a
    "choices": {"text": [...], "label": ["A", "B"]}     ARC, OpenBookQA, CommonsenseQA: options and their names
    "choices": [{"label": "A", "text": ...}]            the same, a list of objects

Refused are spans of characters, whole tasks of Label Studio, and a question with its options in it. For articles of
SQuAD and passages of MRQA, the message names the task that reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from roberta_plugin.finetuning.layouts.words import split_words, word_spans
from roberta_plugin.finetuning.records import parse_cell
from roberta_plugin.tables import Row

_MOST_WORDS = 12  # of a text in a message
_LABELS = ("label", "labels", "entities", "spans")  # columns of spans


def named_options(row: Row, column: str) -> tuple[list[Any], list[str]] | None:
    """The options in a cell and their names, which may be empty; None: the cell has neither of the two layouts.

    Examples: {"text": ["red", "blue"], "label": ["A", "B"]}                          -> ["red", "blue"], ["A", "B"]
              [{"label": "A", "text": "red"}, {"label": "B", "text": "blue"}]         -> the same
              {"text": ["red", "blue"]}, and any with another number of names         -> ["red", "blue"], []
    """
    value = row.values.get(column)
    value = parse_cell(value, f"{row.where}, the column {column!r}") if isinstance(value, str) else value
    if isinstance(value, list) and value and all(isinstance(each, dict) and "text" in each for each in value):
        value = {name: [each[name] for each in value if name in each] for name in ("text", "label")}
    if not isinstance(value, dict) or not isinstance(value.get("text"), list):
        return None
    texts, names = value["text"], value.get("label") or []
    has_names = isinstance(names, list) and len(names) == len(texts)
    return texts, [str(name) for name in names] if has_names else []


def check_layout(row: Row, *, text_column: str, label_columns: Sequence[str]) -> None:
    """Refuse a row in a layout of another program; the message has the same row in our layout.

    Raises:
        ValueError: naming the place, if there is no text in the column of the text, or spans in a column of the label.
    """
    values, text = row.values, row.values.get("text")
    has_text = isinstance(values.get(text_column), str | list)
    if isinstance(values.get("qas"), list) or (not has_text and "paragraphs" in values):
        raise ValueError(
            f"{row.where}: the row is in the layout of SQuAD's or MRQA's own files, with questions within passages. "
            "The tasks squad1 and, if a question may have no answer, squad2 read such files: --raw FOLDER --train "
            f"{row.path.name}."
        )
    for column in label_columns if has_text else (*label_columns, *_LABELS):
        spans = _spans(values.get(column))
        if spans and isinstance(text, str):
            what = f"one with spans of characters, in {column!r}. For --kind tagging, which reads words and their tags,"
            raise _refusal(row, f"{what} write rows", _tagged(text, spans))
    if has_text:
        return
    question = values.get("question")
    if "data" in values and isinstance(values.get("annotations"), list):
        text = next((value for value in _dict(values["data"]).values() if isinstance(value, str)), "...")
        line = {"text": _cut(text), "label": _choice(values["annotations"])}
        raise _refusal(row, "a task of Label Studio. Export JSON-MIN or CSV there, or write rows", line)
    if isinstance(question, dict) and "stem" in question:
        key = {"answerKey": values["answerKey"]} if "answerKey" in values else {}
        line = {"question": _cut(str(question["stem"])), "choices": question.get("choices"), **key}
        options = "--text-column question --choices-columns choices --label-column answerKey"
        raise _refusal(row, f"a question with its options in it. Write rows for {options}", line)


def _refusal(row: Row, what: str, line: Mapping[str, Any]) -> ValueError:
    return ValueError(f"{row.where}: the row is {what} such as {json.dumps(line, ensure_ascii=False)}")


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _choice(annotations: list[Any]) -> Any:
    """The first choice of the first annotation."""
    for annotation in annotations:
        for result in _dict(annotation).get("result") or []:
            choices = _dict(_dict(result).get("value")).get("choices")
            if choices:
                return choices[0] if len(choices) == 1 else choices
    return "..."


def _spans(value: object) -> list[tuple[int, int, str]]:
    """Start, end and label of each span of doccano, spaCy or Label Studio; empty if the cell holds anything else."""
    found = []
    for each in value if isinstance(value, list) else []:
        if isinstance(each, dict):
            label = each.get("label") or next(iter(each.get("labels") or ()), None)
            each = [each.get("start_offset", each.get("start")), each.get("end_offset", each.get("end")), label]
        if not (isinstance(each, list) and len(each) == 3 and list(map(type, each)) == [int, int, str]):
            return []
        found.append((each[0], each[1], each[2]))
    return found


def _tagged(text: str, spans: list[tuple[int, int, str]]) -> dict[str, list[str]]:
    """The first words of a text with their tags, for a message."""
    words = split_words(text)
    tags = []
    for start, end in word_spans(text, words):
        span = next((each for each in spans if each[0] < end and start < each[1]), None)
        begins = span is not None and start <= span[0]
        tags.append("O" if span is None else f"{'B' if begins else 'I'}-{span[2]}")
    return {"tokens": words[:_MOST_WORDS], "tags": tags[:_MOST_WORDS]}


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."
