"""BoolQ, CB, RTE, WiC and MultiRC: rows -> texts or pairs to classify.

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

from collections.abc import Iterator

from roberta_plugin.kinds.examples import Example
from roberta_plugin.tables import Row

MARK = "*"
# In the order of MNLI's labels (`glue/tasks.py`), so that a model that starts from MNLI keeps its head.
CB_LABELS = ("contradiction", "neutral", "entailment")


def boolq_texts(row: Row) -> tuple[str, str]:
    """A question that is answered by yes or no, and its passage."""
    return row.text("question").strip(), row.text("passage").strip()


def cb_texts(row: Row) -> tuple[str, str]:
    """A text with a clause under a verb such as "think", and the clause: is the author committed to it?"""
    return row.text("premise").strip(), row.text("hypothesis").strip()


def rte_texts(row: Row) -> tuple[str, str]:
    """Does the premise entail the hypothesis? AX-b, a diagnostic set, calls them sentence1 and sentence2."""
    if "sentence1" in row.values:
        return row.text("sentence1").strip(), row.text("sentence2").strip()
    return cb_texts(row)


def wic_texts(row: Row) -> tuple[str, str]:
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
    return f"{sentence[:start]}{MARK} {sentence[start:end]} {MARK}{sentence[end:]}".strip()


def read_multirc(row: Row, *, labelled: bool) -> Iterator[Example]:
    """Each answer to each question about a paragraph: is it right? Several answers of a question may be."""
    passage = row.object_of("passage")
    paragraph = passage.text("text").strip()
    for question in passage.objects_of("questions"):
        for answer in question.objects_of("answers"):
            asked = f"{question.text('question').strip()} {answer.text('text', may_be_empty=True).strip()}".strip()
            ids = [row.number("idx"), question.number("idx"), answer.number("idx")]
            target = str(answer.label("label", (0, 1))) if labelled else None
            yield Example(row.path, row.line, ids, (paragraph, asked), target, question=tuple(ids[:2]))


def multirc_texts(row: Row) -> tuple[str, str]:
    """The texts of a record with one `paragraph`, `question` and `answer`."""
    paragraph, question, answer = (row.text(name).strip() for name in ("paragraph", "question", "answer"))
    return paragraph, f"{question} {answer}"
