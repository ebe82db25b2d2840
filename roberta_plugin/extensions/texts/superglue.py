"""The tasks of SuperGLUE (Wang et al. 2019, arXiv 1905.00537) that are classifications.

    BoolQ     question </s></s> passage
    CB, RTE   premise </s></s> hypothesis
    WiC       sentence 1 </s></s> sentence 2, with the word between asterisks in both
    MultiRC   paragraph </s></s> question and answer, one row per answer

SuperGLUE's baseline classifies WiC by the features of the word, with a head of its own. Marking the word in the text by
punctuation needs neither that head nor new symbols in the vocabulary, and does as well or better for relations between
marked words (Zhou & Chen 2022, arXiv 2102.01373, "entity marker (punct)"). With a space on either side of the word, the
tokenizer gives it the tokens that it has in running text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from roberta_plugin.data.white_space import strip
from roberta_plugin.finetuning.benchmarks.base import Benchmark
from roberta_plugin.finetuning.benchmarks.json_files import FILES, Texts, json_task, predictions, readme
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.tables import Row

MARK = "*"
task = partial(json_task, kind="classification", leaderboard="superglue")


def _columns(*names: str) -> Texts:
    return lambda row: tuple(strip(row.text(name)) for name in names)


_PREMISE = _columns("premise", "hypothesis")


def _rte(row: Row) -> tuple[str, ...]:
    """Premise and hypothesis; in AX-b, a diagnostic set, the columns are called sentence1 and sentence2."""
    return (_columns("sentence1", "sentence2") if "sentence1" in row.values else _PREMISE)(row)


def _wic(row: Row) -> tuple[str, ...]:
    """The sentences of WiC with their marked words.

    Example: {"sentence1": "Room and board.", "start1": 9, "end1": 14, ...} -> ("Room and * board *.", ...).

    Raises:
        ValueError: naming the place, if a field is not as it should be or an index lies outside of its sentence.
    """
    return _mark_word(row, "1"), _mark_word(row, "2")


def _mark_word(row: Row, which: str) -> str:
    sentence, start, end = row.text(f"sentence{which}"), row.number(f"start{which}"), row.number(f"end{which}")
    if not start < end <= len(sentence):
        raise ValueError(
            f"{row.where}: start{which} {start} and end{which} {end} mark no word of sentence{which}, which has "
            f"{len(sentence)} characters. Correct them."
        )
    return strip(f"{sentence[:start]}{MARK} {sentence[start:end]} {MARK}{sentence[end:]}")


def _read_multirc(row: Row, *, labelled: bool) -> Iterator[Example]:
    """Each answer to each question about a paragraph, with its label. A question may have several right answers."""
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


_TRUTH = ("false", "true")
_ROWS = (
    task(
        "BoolQ",
        test_rows={"test": 3245},
        on_hub=("aps/super_glue", "boolq"),
        texts_of=_columns("question", "passage"),
        labels=_TRUTH,
        spelt=(False, True),
        paper=readme("valid", accuracy=86.9),
    ),
    task(
        "CB",
        test_rows={"test": 250},
        on_hub=("aps/super_glue", "cb"),
        texts_of=_PREMISE,
        labels=("contradiction", "neutral", "entailment"),  # the order of MNLI
        metrics=("accuracy", "macro_f1"),
        official="accuracy",
        starts_from="MNLI",
        paper=readme("valid", accuracy=98.2),
    ),
    task(
        "SuperRTE",  # GLUE's RTE has other files
        test_rows={"test": 3000, "ax_b": 1104, "ax_g": 356},
        on_hub=("aps/super_glue", "rte"),
        texts_of=_rte,
        labels=("not_entailment", "entailment"),
        folder="RTE",
        predictions=predictions("SuperRTE", official={"test": "RTE", "ax_b": "AX-b", "ax_g": "AX-g"}),
        names={**FILES, "ax_b": ("../AX-b/AX-b.jsonl", "AX-b.jsonl"), "ax_g": ("../AX-g/AX-g.jsonl", "AX-g.jsonl")},
        starts_from="MNLI",
        paper=readme("valid", accuracy=89.5),
    ),
    task(
        "WiC",
        test_rows={"test": 1400},
        on_hub=("aps/super_glue", "wic"),
        texts_of=_wic,
        labels=_TRUTH,
        spelt=(False, True),
        paper=readme("valid", accuracy=75.6),
    ),
    task(
        "MultiRC",
        test_rows={"test": 166},
        on_hub=("aps/super_glue", "multirc"),
        reader=_read_multirc,
        texts_of=_multirc,
        labels=("0", "1"),
        metrics=("f1", "exact_match"),  # of label 1 over all answers, F1a in the paper; of the answers of a question
        selection="f1",
        predictions=predictions("MultiRC", _paragraphs),
        paper=readme("valid", f1=85.7),
    ),
)
TASKS: dict[str, Benchmark] = {row.name: row for row in _ROWS}
