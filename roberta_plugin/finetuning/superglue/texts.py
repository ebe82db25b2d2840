"""BoolQ, CB, RTE, WiC and MultiRC: entries -> texts or pairs to classify.

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

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from roberta_plugin.finetuning.superglue.entries import Entry

MARK = "*"
_TRUTH = (False, True)
# In the order of MNLI's labels (`glue/tasks.py`), so that a model that starts from MNLI keeps its head.
CB_LABELS = ("contradiction", "neutral", "entailment")


@dataclass(frozen=True, slots=True)
class TextRow:
    """A text or a pair with its label."""

    id: Any  # as prediction files name the row; of MultiRC, the numbers of paragraph, question and answer
    texts: tuple[str, ...]
    label: int | None  # None if it is not public


def read_boolq(entry: Entry, *, labelled: bool) -> Iterator[TextRow]:
    """A question that is answered by yes or no, and its passage."""
    yield TextRow(entry.number("idx"), boolq_texts(entry), entry.label("label", _TRUTH) if labelled else None)


def boolq_texts(entry: Entry) -> tuple[str, str]:
    """See `read_boolq`."""
    return entry.text("question").strip(), entry.text("passage").strip()


def read_cb(entry: Entry, *, labelled: bool) -> Iterator[TextRow]:
    """A text with a clause under a verb such as "think", and the clause: is the author committed to it?"""
    yield TextRow(entry.number("idx"), cb_texts(entry), entry.label("label", CB_LABELS) if labelled else None)


def cb_texts(entry: Entry) -> tuple[str, str]:
    """See `read_cb`."""
    return entry.text("premise").strip(), entry.text("hypothesis").strip()


def read_rte(entry: Entry, *, labelled: bool) -> Iterator[TextRow]:
    """Does the premise entail the hypothesis? Also rows of the diagnostic sets: AX-g has the same fields."""
    labels = ("not_entailment", "entailment")
    yield TextRow(entry.number("idx"), rte_texts(entry), entry.label("label", labels) if labelled else None)


def rte_texts(entry: Entry) -> tuple[str, str]:
    """See `read_rte`; the fields of AX-b are called sentence1 and sentence2."""
    if "sentence1" in entry.content:
        return entry.text("sentence1").strip(), entry.text("sentence2").strip()
    return cb_texts(entry)


def read_wic(entry: Entry, *, labelled: bool) -> Iterator[TextRow]:
    """Two sentences with a word: does it mean the same in both?"""
    yield TextRow(entry.number("idx"), wic_texts(entry), entry.label("label", _TRUTH) if labelled else None)


def wic_texts(entry: Entry) -> tuple[str, str]:
    """The sentences of WiC with their marked words.

    Example: {"sentence1": "Room and board.", "start1": 9, "end1": 14, ...} -> ("Room and * board *.", ...).

    Raises:
        ValueError: naming the place, if a field is not as it should be or an index lies outside of its sentence.
    """
    return _marked(entry, "1"), _marked(entry, "2")


def _marked(entry: Entry, which: str) -> str:
    sentence, start, end = entry.text(f"sentence{which}"), entry.number(f"start{which}"), entry.number(f"end{which}")
    if not start < end <= len(sentence):
        raise ValueError(
            f"{entry.where}: start{which} {start} and end{which} {end} mark no word of sentence{which}, which has "
            f"{len(sentence)} characters. Correct them."
        )
    return f"{sentence[:start]}{MARK} {sentence[start:end]} {MARK}{sentence[end:]}".strip()


def read_multirc(entry: Entry, *, labelled: bool) -> Iterator[TextRow]:
    """Each answer to each question about a paragraph: is it right? Several answers of a question may be."""
    passage = entry.entry("passage")
    paragraph = passage.text("text").strip()
    for question in passage.entries("questions"):
        for answer in question.entries("answers"):
            asked = f"{question.text('question').strip()} {answer.text('text', may_be_empty=True).strip()}".strip()
            yield TextRow(
                [entry.number("idx"), question.number("idx"), answer.number("idx")],
                (paragraph, asked),
                answer.label("label", (0, 1)) if labelled else None,
            )


def multirc_texts(entry: Entry) -> tuple[str, str]:
    """Of a record with one `paragraph`, `question` and `answer`."""
    paragraph, question, answer = (entry.text(name).strip() for name in ("paragraph", "question", "answer"))
    return paragraph, f"{question} {answer}"


# task -> the texts of a record, for predictions
TEXTS: dict[str, Callable[[Entry], tuple[str, str]]] = {
    "BoolQ": boolq_texts,
    "CB": cb_texts,
    "SuperRTE": rte_texts,
    "WiC": wic_texts,
    "MultiRC": multirc_texts,
}
