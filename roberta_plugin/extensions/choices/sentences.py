"""COPA and ReCoRD of SuperGLUE, and CommonsenseQA: one sequence for each option.

    COPA            premise </s></s> "What was the CAUSE of this?" and alternative; or "What happened as a RESULT?"
    ReCoRD          passage </s></s> query with an entity in the place of @placeholder
    CommonsenseQA   Q: question </s> A: answer

The options compete as in RACE (section 5.3). COPA's questions are from its authors (Roemmele et al. 2011).
CommonsenseQA's form, with one </s> between the two texts, is from fairseq's examples/roberta/commonsense_qa.

Each entity of a passage of ReCoRD is an option, and several may be right. In training, each right entity competes only
with the wrong ones. In other splits all entities compete, and the label is the first right one.

Each example has a record of its `id`, its `options` as the file has them, and all `right` answers of ReCoRD. The models
are trained by `--task race`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from roberta_plugin.data.white_space import strip
from roberta_plugin.extensions.choices.kind import NO_ANSWER
from roberta_plugin.finetuning.benchmarks.base import (
    LABELLED,
    Benchmark,
    Training,
    as_json,
    by_split,
    find_files,
    read_rows,
)
from roberta_plugin.finetuning.benchmarks.json_files import FILES, predictions, readme
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds.answering import Official
from roberta_plugin.progress import terminal_bar
from roberta_plugin.tables import IN_MEMORY, Row, check_text, with_unique_ids

SLOT = "@placeholder"
_QUESTIONS = {"cause": "What was the CAUSE of this?", "effect": "What happened as a RESULT?"}
_HIGHLIGHT = re.compile(r"\s*@highlight\s*")  # it precedes each line of the summary that ends a passage of ReCoRD
Reader = Callable[[Row, str], Iterator[Example]]
"""A row, and the split to which its file belongs -> one or more examples. Labels of a test set are not read."""


def _choice_example(
    row: Row, id_: object, texts: tuple[str, str], options: tuple[str, ...], label: int, right: tuple[str, ...] = ()
) -> Example:
    record = {"options": options, "right": right}
    return Example(row.path, row.line, id_, texts, target=label, choices=options, record=record)


def read_copa(row: Row, split: str) -> Iterator[Example]:
    """A premise, and two alternatives for its cause or effect."""
    asked = list(_QUESTIONS.values())[row.label("question", tuple(_QUESTIONS))]
    options = tuple(strip(row.text(name)) for name in ("choice1", "choice2"))
    label = row.label("label", (0, 1)) if split in LABELLED else NO_ANSWER
    yield _choice_example(row, row.number("idx"), (strip(row.text("premise")), f"{asked} {SLOT}"), options, label)


def read_commonsense_qa(row: Row, split: str) -> Iterator[Example]:
    """A question and its answers, five in the official files."""
    question = row.object_of("question")
    choices = question.objects_of("choices")
    letters = tuple(choice.text("label") for choice in choices)
    options = tuple(strip(choice.text("text")) for choice in choices)
    if len(options) < 2 or len(set(letters)) < len(letters):
        raise ValueError(f"{question.where}: choices must be two or more with different labels, found {letters}.")
    label = row.label("answerKey", letters) if split in LABELLED else NO_ANSWER
    yield _choice_example(row, row.text("id"), (f"Q: {strip(question.text('stem'))}", f"A: {SLOT}"), options, label)


def read_record(row: Row, split: str) -> Iterator[Example]:
    """Each query about a passage, and the entities of the passage.

    Raises:
        ValueError: naming the place, if a field is not as it should be, a query has no placeholder, or none of its
            answers is among the entities.
    """
    passage = row.object_of("passage")
    whole = passage.text("text")
    names = tuple(dict.fromkeys(_entity(whole, span) for span in passage.objects_of("entities")))
    for query in row.objects_of("qas"):
        texts = (_as_sentences(whole), strip(query.text("query")))
        if SLOT not in texts[1]:
            raise ValueError(f"{query.where}: the query has no {SLOT}. Correct or remove it.")
        number = query.number("idx")
        answers = tuple(answer.text("text") for answer in query.objects_of("answers")) if split in LABELLED else ()
        right = tuple(name for name in names if name in answers)
        if split in LABELLED and not right:
            raise ValueError(
                f"{query.where}: none of the answers {', '.join(map(repr, answers))} is among the entities. Correct or "
                "remove the query."
            )
        if split != "train":
            label = names.index(right[0]) if right else NO_ANSWER
            yield _choice_example(row, number, texts, names, label, tuple(dict.fromkeys(answers)))
            continue
        wrong = tuple(name for name in names if name not in right)
        for place, name in enumerate(right if wrong else ()):
            yield _choice_example(row, (number, place), texts, (name, *wrong), 0, (name,))


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
    parts = [part for part in _HIGHLIGHT.split(strip(text)) if part]
    ended = [part if part.endswith((".", "!", "?", '"', "'")) else f"{part}." for part in parts[:-1]]
    return " ".join([*ended, *parts[-1:]])


def ask_record(content: Mapping[str, Any]) -> Example:
    """The question of a record to predict, with the fields `passage`, `query` and the texts of the `entities`."""
    row = Row(IN_MEMORY, 0, content)
    query, names = row.text("query"), row.value("entities")
    if SLOT not in query or not isinstance(names, list) or len(names) < 2:
        raise ValueError(f"the record: query needs {SLOT}, and entities two texts or more. Correct them.")
    options = tuple(check_text(name, "entities", row.where) for name in names)
    return _choice_example(row, 0, (_as_sentences(row.text("passage")), strip(query)), options, NO_ANSWER)


def ask_by(reader: Reader) -> Callable[[Mapping[str, Any]], Example]:
    """The function that makes the question of a record to predict, which has the fields of an official row."""
    return lambda content: next(reader(Row(IN_MEMORY, 0, {"idx": 0, "id": "0", **content}), "test"))


def examples(reader: Reader, name: str, split: str, paths: list[Path]) -> Iterator[Example]:
    """The examples of a file.

    Raises:
        ValueError: naming the file, the line and the fault; also if there is no example.
    """
    rows = terminal_bar(read_rows(paths[0]), f"{name} {split}", unit=" rows")
    example = None
    for example in with_unique_ids(
        ((row.where, each) for row in rows for each in reader(row, split)), id_of=lambda each: each.id
    ):
        yield example
    if example is None:
        raise ValueError(f"{paths[0]}: no row has wrong options beside a right one, so there is nothing to learn.")


def _row(
    name: str,
    reader: Reader,
    line: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    *,
    files: Mapping[str, Sequence[str]] = FILES,
    asked: Callable[[Mapping[str, Any]], Example] | None = None,
    separators: int = 2,
    **more: Any,
) -> Benchmark:
    """A row of the table; `line` makes a line of the prediction file from an entry, and `files` are names by split."""
    return Benchmark(
        name=name,
        kind="multiple_choice",
        files=lambda raw, options: {split: [path] for split, path in find_files(name, raw, files).items()},
        records=by_split(lambda split, paths, options: examples(reader, name, split, paths)),
        rules=Official(choices=asked or ask_by(reader), slot=SLOT, separators=separators, white_space="stripped"),
        predictions=predictions(name, lambda entries: as_json(map(line, entries))),
        **more,
    )


# fairseq's examples/roberta/commonsense_qa/README.md: {1,2,3}e-5, batches of 8 or 16, 3,000 updates, 150 of warm-up.
_COMMONSENSE_QA = Training(batches=(8, 16), updates=3000, warm_up=150 / 3000)
# The paper's settings for RACE (Table 10), whose passages are as long.
_RECORD = Training(lrs=("1e-5",), batches=(16,), epochs=4)

TASKS: dict[str, Benchmark] = {
    task.name: task
    for task in (
        _row(  # {"idx": 0, "label": 1}
            "COPA",
            read_copa,
            lambda entry: {"idx": entry["id"], "label": entry["prediction"]},
            on_hub=("aps/super_glue", "copa"),
            leaderboard="superglue",
            test_rows={"test": 500},
            paper=readme("valid", accuracy=94.0),
        ),
        _row(  # {"idx": 0, "label": "Rome"}; the checkpoint is chosen by the accuracy of the first right answer
            "ReCoRD",
            read_record,
            lambda entry: {"idx": entry["id"], "label": entry["option"]},
            on_hub=("aps/super_glue", "record"),
            leaderboard="superglue",
            test_rows={"test": 10000},
            asked=ask_record,
            training=_RECORD,
            metrics=("f1", "exact_match"),
            official="f1",
        ),
        _row(  # {"id": "1afa02df", "answerKey": "A"}, with the names of its data
            "CommonsenseQA",
            read_commonsense_qa,
            lambda entry: {"id": entry["id"], "answerKey": ascii_uppercase[entry["prediction"]]},
            on_hub=("tau/commonsense_qa", None),
            files={
                "train": ("train_rand_split.jsonl", "train.jsonl"),
                "valid": ("dev_rand_split.jsonl", "valid.jsonl"),
                "test": ("test_rand_split_no_answers.jsonl", "test.jsonl"),
            },
            separators=1,
            training=_COMMONSENSE_QA,
            paper={**readme("valid", accuracy=78.5), **readme("test", accuracy=72.1)},
        ),
    )
}
