"""SuperGLUE, WinoGrande and CommonsenseQA: classification, competing phrases, and options of one sequence each.

    BoolQ     question </s></s> passage
    CB, RTE   premise </s></s> hypothesis
    WiC       sentence 1 </s></s> sentence 2, with the word between asterisks in both
    MultiRC   paragraph </s></s> question and answer, one row per answer
    COPA            premise </s></s> "What was the CAUSE of this?" and alternative; or "What happened as a RESULT?"
    ReCoRD          passage </s></s> query with an entity in the place of @placeholder
    CommonsenseQA   Q: question </s> A: answer

SuperGLUE's baseline classifies WiC by the features of the word, with a head of its own. Marking the word in the text by
punctuation needs neither that head nor new symbols in the vocabulary, and does as well or better for relations between
marked words (Zhou & Chen 2022, arXiv 2102.01373, "entity marker (punct)"). With a space on either side of the word, the
tokenizer gives it the tokens that it has in running text.

Where fairseq's READMEs give settings, they are the grid; the others have the paper's for GLUE (`base.Training`).
The numbers beside ours are those of fairseq's examples/roberta: the paper has none.

The options of the last three compete as in RACE (section 5.3). COPA's questions are those of its authors (Roemmele et
al. 2011). CommonsenseQA's form, with one </s> between the two texts, is that of fairseq's
examples/roberta/commonsense_qa.

ReCoRD's entities are offered once each; several may be right. In training, each right one competes with the wrong ones
alone; elsewhere all entities compete, and the label is the first right one.

Each example has a record of its `id`, its `options` as the file has them, and all `right` answers of ReCoRD. The models
are trained by `--task race`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from roberta_plugin.data.white_space import strip
from roberta_plugin.finetuning.benchmarks.base import (
    LABELLED,
    Benchmark,
    Entries,
    Files,
    Numbers,
    Training,
    all_files,
    as_json,
    by_split,
    find_files,
    read_rows,
)
from roberta_plugin.finetuning.benchmarks.pronouns import (
    answer_list,
    read_winogrande,
    read_wsc,
    training_rows,
    with_listed_answers,
)
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds.base import Official
from roberta_plugin.finetuning.kinds.phrase_ranking import SchemaExample
from roberta_plugin.finetuning.options import SuperGlueOptions
from roberta_plugin.progress import terminal_bar
from roberta_plugin.tables import IN_MEMORY, Row, check_text, with_unique_ids

logger = logging.getLogger(__name__)

Texts = Callable[[Row], tuple[str, ...]]
"""A row, or a record that is to be predicted -> its texts."""

MARK = "*"
SIZES = ("xs", "s", "m", "l", "xl")  # of WinoGrande's training set
FILES = {"train": ("train.jsonl",), "valid": ("val.jsonl",), "test": ("test.jsonl",)}
_OFFICIAL = {("SuperRTE", "test"): "RTE", ("SuperRTE", "ax_b"): "AX-b", ("SuperRTE", "ax_g"): "AX-g"}


def _columns(*names: str) -> Texts:
    return lambda row: tuple(strip(row.text(name)) for name in names)


_PREMISE = _columns("premise", "hypothesis")


def _rte(row: Row) -> tuple[str, ...]:
    """AX-b, a diagnostic set, calls the two sentence1 and sentence2."""
    return (_columns("sentence1", "sentence2") if "sentence1" in row.values else _PREMISE)(row)


def _wic(row: Row) -> tuple[str, ...]:
    """The sentences of WiC with their marked words.

    Example: {"sentence1": "Room and board.", "start1": 9, "end1": 14, ...} -> ("Room and * board *.", ...).

    Raises:
        ValueError: naming the place, if a field is not as it should be or an index lies outside of its sentence.
    """
    return _marked(row, "1"), _marked(row, "2")


def _marked(row: Row, which: str) -> str:
    sentence, start, end = row.text(f"sentence{which}"), row.number(f"start{which}"), row.number(f"end{which}")
    if not start < end <= len(sentence):
        raise ValueError(
            f"{row.where}: start{which} {start} and end{which} {end} mark no word of sentence{which}, which has "
            f"{len(sentence)} characters. Correct them."
        )
    return strip(f"{sentence[:start]}{MARK} {sentence[start:end]} {MARK}{sentence[end:]}")


def _read_multirc(row: Row, *, labelled: bool) -> Iterator[Example]:
    """Each answer to each question about a paragraph: is it right? Several answers of a question may be."""
    passage = row.object_of("passage")
    paragraph = strip(passage.text("text"))
    for question in passage.objects_of("questions"):
        for answer in question.objects_of("answers"):
            asked = strip(f"{strip(question.text('question'))} {strip(answer.text('text', may_be_empty=True))}")
            ids = [row.number("idx"), question.number("idx"), answer.number("idx")]
            target = str(answer.label("label", (0, 1))) if labelled else None
            yield Example(row.path, row.line, ids, (paragraph, asked), target, question=tuple(ids[:2]))


def _multirc(row: Row) -> tuple[str, ...]:
    """The texts of a record with one `paragraph`, `question` and `answer`."""
    paragraph, question, answer = _columns("paragraph", "question", "answer")(row)
    return paragraph, f"{question} {answer}"


def task(
    name: str,
    *,
    labels: Sequence[str],
    texts_of: Texts | None = None,
    spelt: Sequence[Any] = (),
    reader: Callable[..., Iterator[Any]] | None = None,
    kind: str = "classification",
    folder: str = "",
    names: Mapping[str, Sequence[str]] = FILES,
    **row: Any,
) -> Benchmark:
    """A row of the table.

    Args:
        texts_of: the texts of a row, or of a record that is to be predicted.
        spelt: the labels in the official files, if they spell them otherwise.
        reader: what makes the examples of a row; None: it is one, with `texts_of` and a label.
        folder: of the official files; empty: called like the task.
        names: split -> names of its official file; the first that exists is read. `{size}` is the option --size.
        row: further fields.
    """
    read = reader or partial(_example, texts_of=texts_of, labels=labels, spelt=spelt or labels)
    has_options = name == "WinoGrande"  # which compete; answers may be in a list beside the file

    def files(raw: Path, options: SuperGlueOptions) -> dict[str, list[Path]]:
        size = options.size or SIZES[-1]
        official = {split: [each.format(size=size) for each in several] for split, several in names.items()}
        return {split: [path] for split, path in find_files(folder or name, raw, official).items()}

    def source_files(files: Files) -> list[Path]:
        paths = all_files(files)
        return paths + [listed for path in paths if has_options and (listed := answer_list(path)) is not None]

    def settings(*, max_length: int, options: SuperGlueOptions) -> dict[str, Any]:
        size = {"size": options.size or SIZES[-1]} if has_options else {}
        return {"kind": kind, "labels": list(labels), "max_length": max_length, **size}

    def examples(split: str, paths: list[Path], options: SuperGlueOptions) -> Sequence[Any]:
        (path,) = paths
        rows = with_listed_answers(path, read_rows(path)) if has_options else read_rows(path)
        made = ((row.where, example) for row in rows for example in read(row, labelled=split in LABELLED))
        unique: list[Any] = list(with_unique_ids(made, id_of=lambda example: example.id))
        logger.info(f"{name}, {split}: {len(unique):,} rows")
        if kind != "phrase_ranking" or split != "train":
            return unique
        learned = training_rows(unique, are_rivals_options=has_options)
        logger.info(f"{name}, {split}: {len(learned):,} of {len(unique):,} rows are learned from")
        return [SchemaExample("", schema, 1) for schema in learned]

    rules = Official()
    if texts_of is not None:
        rules = Official(is_pair=True, texts=lambda record: texts_of(Row(IN_MEMORY, 0, record)))
    fields: dict[str, Any] = {"metrics": ("accuracy",), "predictions": predictions(name), **row}
    return Benchmark(
        name=name,
        kind=kind,
        files=files,
        source_files=source_files,
        settings=settings,
        records=by_split(examples),
        rules=rules,
        **fields,
    )


def _example(
    row: Row, *, labelled: bool, texts_of: Any, labels: Sequence[str], spelt: Sequence[Any]
) -> Iterator[Example]:
    target = labels[row.label("label", spelt)] if labelled else None
    yield Example(row.path, row.line, row.number("idx"), texts_of(row), target)


def _objects(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One JSON object per row: {"idx": 0, "label": "true"}."""
    yield from as_json({"idx": entry["id"], "label": entry["prediction"]} for entry in entries)


def _paragraphs(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of MultiRC, one per paragraph: {"idx": 0, "passage": {"questions": [{"idx": 0, "answers": [...]}]}},
    where an answer is {"idx": 0, "label": 1}."""
    nested: dict[int, dict[int, list[dict[str, int]]]] = {}
    for entry in entries:
        paragraph, question, answer = entry["id"]
        answers = nested.setdefault(paragraph, {}).setdefault(question, [])
        answers.append({"idx": answer, "label": int(entry["prediction"])})
    for paragraph, questions in nested.items():
        listed = [{"idx": question, "answers": answers} for question, answers in questions.items()]
        yield json.dumps({"idx": paragraph, "passage": {"questions": listed}})


def _plain(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of WinoGrande, one per row: 1 or 2."""
    return (entry["prediction"] for entry in entries)


def predictions(
    task: str,
    lines: Callable[[Iterable[Mapping[str, Any]]], Iterable[str]] = _objects,
    *,
    ending: str = "jsonl",
) -> Callable[[str, Entries], dict[str, Iterable[str]]]:
    """`Benchmark.predictions`: the leaderboard's name, such as BoolQ.jsonl, or TASK.SPLIT.jsonl.

    Labels are spelt as SuperGLUE's baseline writes them (jiant, `evaluate.py`).
    """

    def prediction_files(split: str, entries: Entries) -> dict[str, Iterable[str]]:
        name = _OFFICIAL.get((task, split), task if split == "test" else f"{task}.{split}")
        return {f"{name}.{ending}": lines(entries())}

    return prediction_files


def readme(split: str, **numbers: float) -> Numbers:
    """Numbers of roberta.large in fairseq's READMEs."""
    return {split: {"RoBERTa large, fairseq's README": numbers}}


# fairseq's examples/roberta/wsc/README.md: {1,2,3}e-5, batches of 16, 32 or 64 rows, 2,000 updates, 250 of warm-up, and
# cross-entropy over the phrases instead of the margin. Its batches count rows with label 0, which have no loss; ours
# have the others only, 259 of 554 in the official set: half as many.
_WSC = Training(
    batches=(8, 16, 32),
    updates=2000,
    warm_up=250 / 2000,
    weight_decay="0.01",
    options={"phrase-cross-entropy": "true"},
)
# The same README: 1e-5, 32, 23,750 updates with 2,375 of warm-up, which are 19 epochs of the largest size; alpha 5 and
# beta 0.4, the criterion's defaults.
_WINOGRANDE = Training(lrs=("1e-5",), batches=(32,), epochs=19, warm_up=0.1, weight_decay="0.01")

_TRUTH = ("false", "true")
_ROWS = (
    task(
        "WSC",
        on_hub=("aps/super_glue", "wsc"),
        reader=read_wsc,
        kind="phrase_ranking",
        labels=("False", "True"),
        training=_WSC,
        paper=readme("valid", accuracy=91.3),
    ),
    task(
        "WinoGrande",
        on_hub=("allenai/winogrande", None),
        reader=read_winogrande,
        kind="phrase_ranking",
        labels=("2", "1"),  # label 1: the first option is right
        names={
            "train": ("train_{size}.jsonl", "train.jsonl"),
            "valid": ("dev.jsonl", "val.jsonl"),
            "test": ("test.jsonl",),
        },
        predictions=predictions("WinoGrande", _plain, ending="lst"),
        training=_WINOGRANDE,
        paper=readme("test", accuracy=78.1),
    ),
    task(
        "BoolQ",
        on_hub=("aps/super_glue", "boolq"),
        texts_of=_columns("question", "passage"),
        labels=_TRUTH,
        spelt=(False, True),
        paper=readme("valid", accuracy=86.9),
    ),
    task(
        "CB",
        on_hub=("aps/super_glue", "cb"),
        texts_of=_PREMISE,
        labels=("contradiction", "neutral", "entailment"),  # in MNLI's order
        metrics=("accuracy", "macro_f1"),
        official="accuracy",
        starts_from="MNLI",
        paper=readme("valid", accuracy=98.2),
    ),
    task(
        "SuperRTE",  # GLUE's RTE has other files
        on_hub=("aps/super_glue", "rte"),
        texts_of=_rte,
        labels=("not_entailment", "entailment"),
        folder="RTE",
        names={**FILES, "ax_b": ("../AX-b/AX-b.jsonl", "AX-b.jsonl"), "ax_g": ("../AX-g/AX-g.jsonl", "AX-g.jsonl")},
        starts_from="MNLI",
        paper=readme("valid", accuracy=89.5),
    ),
    task(
        "WiC",
        on_hub=("aps/super_glue", "wic"),
        texts_of=_wic,
        labels=_TRUTH,
        spelt=(False, True),
        paper=readme("valid", accuracy=75.6),
    ),
    task(
        "MultiRC",
        on_hub=("aps/super_glue", "multirc"),
        reader=_read_multirc,
        texts_of=_multirc,
        labels=("0", "1"),
        metrics=("f1a", "exact_match"),
        official="f1a",
        selection="f1",  # F1a is the F1 of label 1 over all answers
        predictions=predictions("MultiRC", _paragraphs),
        paper=readme("valid", f1a=85.7),
    ),
)
TASKS: dict[str, Benchmark] = {row.name: row for row in _ROWS}


NO_ANSWER = -1
SLOT = "@placeholder"
_QUESTIONS = {"cause": "What was the CAUSE of this?", "effect": "What happened as a RESULT?"}
_HIGHLIGHT = re.compile(r"\s*@highlight\s*")  # in front of each line of the summary that ends a passage of ReCoRD
Reader = Callable[[Row, str], Iterator[Example]]
"""A row, and the split whose file it is of -> one or more examples; labels of a test set are not read."""


def _choice_example(
    row: Row, id_: Any, texts: tuple[str, str], options: tuple[str, ...], label: int, right: tuple[str, ...] = ()
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


def record_asked(content: Mapping[str, Any]) -> Example:
    """What a record asks in a prediction: the fields are `passage`, `query` and the texts of the `entities`."""
    row = Row(IN_MEMORY, 0, content)
    query, names = row.text("query"), row.value("entities")
    if SLOT not in query or not isinstance(names, list) or len(names) < 2:
        raise ValueError(f"the record: query needs {SLOT}, and entities two texts or more. Correct them.")
    options = tuple(check_text(name, "entities", row.where) for name in names)
    return _choice_example(row, 0, (_as_sentences(row.text("passage")), strip(query)), options, NO_ANSWER)


def asked_by(reader: Reader) -> Callable[[Mapping[str, Any]], Example]:
    """What a record with the fields of an official row asks in a prediction."""
    return lambda content: next(reader(Row(IN_MEMORY, 0, {"idx": 0, "id": "0", **content}), "test"))


def examples(reader: Reader, name: str, split: str, paths: list[Path]) -> Iterator[Example]:
    """The examples of a file.

    Raises:
        ValueError: naming the file, the line and what is wrong with it; or if there is no example.
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
        rules=Official(choices=asked or asked_by(reader), slot=SLOT, separators=separators, white_space="stripped"),
        predictions=predictions(name, lambda entries: as_json(map(line, entries))),
        **more,
    )


# fairseq's examples/roberta/commonsense_qa/README.md: {1,2,3}e-5, batches of 8 or 16, 3,000 updates, 150 of warm-up.
_COMMONSENSE_QA = Training(batches=(8, 16), updates=3000, warm_up=150 / 3000)
# The paper's for RACE (Table 10), whose passages are as long.
_RECORD = Training(lrs=("1e-5",), batches=(16,), epochs=4)

TASKS |= {
    task.name: task
    for task in (
        _row(  # {"idx": 0, "label": 1}
            "COPA",
            read_copa,
            lambda entry: {"idx": entry["id"], "label": entry["prediction"]},
            on_hub=("aps/super_glue", "copa"),
            paper=readme("valid", accuracy=94.0),
        ),
        _row(  # {"idx": 0, "label": "Rome"}; the checkpoint is chosen by the accuracy of the first right answer
            "ReCoRD",
            read_record,
            lambda entry: {"idx": entry["id"], "label": entry["option"]},
            on_hub=("aps/super_glue", "record"),
            asked=record_asked,
            training=_RECORD,
            metrics=("f1", "exact_match"),
            official="f1",
        ),
        _row(  # {"id": "1afa02df", "answerKey": "A"}, the names of its data
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
