"""COPA, ReCoRD and CommonsenseQA: rows -> a text, and what follows it for each option.

    COPA            premise </s></s> "What was the CAUSE of this?" and alternative; or "What happened as a RESULT?"
    ReCoRD          passage </s></s> query with an entity in the place of @placeholder
    CommonsenseQA   Q: question </s> A: answer

COPA's questions are those of its authors (Roemmele et al. 2011). CommonsenseQA's form, with one </s> between the two
texts, is that of fairseq's examples/roberta/commonsense_qa.

ReCoRD's entities are offered once each; several may be right. In training, each right one competes with the wrong ones
alone; elsewhere all entities compete, and the label is the first right one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from roberta_plugin.kinds.choices import NO_ANSWER
from roberta_plugin.tables import IN_MEMORY, Row, check_text

PLACEHOLDER = "@placeholder"
_QUESTIONS = {"cause": "What was the CAUSE of this?", "effect": "What happened as a RESULT?"}
_HIGHLIGHT = re.compile(r"\s*@highlight\s*")  # in front of each line of the summary that ends a passage of ReCoRD


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A text, and what follows it for each option."""

    id: Any  # as prediction files name the row
    text: str
    seconds: tuple[str, ...]  # what follows the text
    options: tuple[str, ...]  # the options as the file has them
    label: int = NO_ANSWER  # the right option, counted from 0; NO_ANSWER if that is not public
    right: tuple[str, ...] = ()  # of ReCoRD, all right answers


def read_copa(row: Row, *, is_training: bool, labelled: bool) -> Iterator[ChoiceExample]:
    """A premise, and two alternatives for its cause or effect."""
    asked = list(_QUESTIONS)[row.label("question", tuple(_QUESTIONS))]
    options = tuple(row.text(name).strip() for name in ("choice1", "choice2"))
    yield ChoiceExample(
        id=row.number("idx"),
        text=row.text("premise").strip(),
        seconds=tuple(f"{_QUESTIONS[asked]} {option}" for option in options),
        options=options,
        label=row.label("label", (0, 1)) if labelled else NO_ANSWER,
    )


def read_commonsense_qa(row: Row, *, is_training: bool, labelled: bool) -> Iterator[ChoiceExample]:
    """A question and its answers, five in the official files."""
    question = row.object_of("question")
    choices = question.objects_of("choices")
    letters = tuple(choice.text("label") for choice in choices)
    options = tuple(choice.text("text").strip() for choice in choices)
    if len(options) < 2 or len(set(letters)) < len(letters):
        raise ValueError(f"{question.where}: choices must be two or more with different labels, found {letters}.")
    yield ChoiceExample(
        id=row.text("id"),
        text=f"Q: {question.text('stem').strip()}",
        seconds=tuple(f"A: {option}" for option in options),
        options=options,
        label=row.label("answerKey", letters) if labelled else NO_ANSWER,
    )


def read_record(row: Row, *, is_training: bool, labelled: bool) -> Iterator[ChoiceExample]:
    """Each query about a passage, and the entities of the passage.

    Raises:
        ValueError: naming the place, if a field is not as it should be, a query has no placeholder, or none of its
            answers is among the entities.
    """
    passage = row.object_of("passage")
    whole = passage.text("text")
    names = tuple(dict.fromkeys(_entity(whole, span) for span in passage.objects_of("entities")))
    text = _as_sentences(whole)
    for query in row.objects_of("qas"):
        asked = query.text("query").strip()
        if PLACEHOLDER not in asked:
            raise ValueError(f"{query.where}: the query has no {PLACEHOLDER}. Correct or remove it.")
        number = query.number("idx")
        answers = tuple(answer.text("text") for answer in query.objects_of("answers")) if labelled else ()
        right = tuple(name for name in names if name in answers)
        if labelled and not right:
            raise ValueError(
                f"{query.where}: none of the answers {', '.join(map(repr, answers))} is among the entities. Correct or "
                "remove the query."
            )
        if not is_training:
            label = names.index(right[0]) if right else NO_ANSWER
            yield ChoiceExample(number, text, _filled(asked, names), names, label, tuple(dict.fromkeys(answers)))
            continue
        wrong = tuple(name for name in names if name not in right)
        for place, name in enumerate(right if wrong else ()):
            offered = (name, *wrong)
            yield ChoiceExample((number, place), text, _filled(asked, offered), offered, label=0, right=(name,))


def _filled(query: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(query.replace(PLACEHOLDER, name) for name in names)


def _entity(text: str, span: Row) -> str:
    """The text of an entity, whose `end` is its last character."""
    start, end = span.number("start"), span.number("end")
    if not start <= end < len(text):
        raise ValueError(
            f"{span.where}: start {start} and end {end} mark nothing in a passage of {len(text)} characters. Correct "
            "them."
        )
    return text[start : end + 1]


def _as_sentences(text: str) -> str:
    """A passage in which the lines of its summary are sentences.

    Example: "It rained\\n@highlight\\nRain in Rome." -> "It rained. Rain in Rome."
    """
    parts = [part for part in _HIGHLIGHT.split(text.strip()) if part]
    ended = [part if part.endswith((".", "!", "?", '"', "'")) else f"{part}." for part in parts[:-1]]
    return " ".join([*ended, *parts[-1:]])


def copa_record(content: Mapping[str, Any]) -> ChoiceExample:
    """The example of a record with the official fields."""
    return next(read_copa(Row(IN_MEMORY, 0, {"idx": 0, **content}), is_training=False, labelled=False))


def commonsense_qa_record(content: Mapping[str, Any]) -> ChoiceExample:
    """See `copa_record`."""
    return next(read_commonsense_qa(Row(IN_MEMORY, 0, {"id": "0", **content}), is_training=False, labelled=False))


def record_record(content: Mapping[str, Any]) -> ChoiceExample:
    """See `copa_record`; the fields are `passage`, `query` and the texts of the `entities`."""
    row = Row(IN_MEMORY, 0, content)
    query, names = row.text("query"), row.value("entities")
    if PLACEHOLDER not in query or not isinstance(names, list) or len(names) < 2:
        raise ValueError(f"the record: query needs {PLACEHOLDER}, and entities two texts or more. Correct them.")
    options = tuple(check_text(name, "entities", row.where) for name in names)
    return ChoiceExample(0, _as_sentences(row.text("passage")), _filled(query.strip(), options), options)
