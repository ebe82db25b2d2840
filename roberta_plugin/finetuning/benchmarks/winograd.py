"""WSC and WinoGrande: which phrase does a gap stand for? Rows -> texts with competing phrases in the gap.

Both are solved as WNLI is (`glue/wnli.py`): each phrase is put into the gap and masked, the masked-LM head scores it,
and the best one wins. The rules are those of fairseq's examples/roberta/wsc (Liu et al. 2019, after Kocijan et al.
2019, arXiv 1905.06290).

WSC (Levesque et al. 2011, in SuperGLUE's form) marks a pronoun and a phrase of the text, and the label says whether the
pronoun stands for the phrase. The phrase competes with the other noun phrases of the text. Its tokens are separated by
spaces ("Mr. Singer 's heels"), which are put together by Moses' detokenizer, as fairseq does. Four things differ:

- an input begins with <s>, as in pretraining; fairseq's recipe for WSC leaves it out;
- noun phrases come from `glue/noun_phrases.py`, in the place of spaCy, whose models are not on the package index;
- punctuation that the file attaches to the pronoun ("him.") stays in the text; fairseq loses it (3 of 658 rows);
- a phrase with a line end is read as one line; fairseq leaves the row out (2 of 658 rows).

WinoGrande (Sakaguchi et al. 2019, arXiv 1907.10641) has a gap `_` and two options. Answers are in the file itself, or
in a list beside it, such as dev-labels.lst.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from roberta_plugin.finetuning.benchmarks.raw_files import read_rows
from roberta_plugin.finetuning.kinds.noun_phrases import noun_phrases, rivals_of
from roberta_plugin.finetuning.kinds.phrase_ranking import Schema, SchemaExample
from roberta_plugin.tables import Row

GAP = "_"
_AT_END = '.,"'  # characters that do not belong to a pronoun


def read_wsc(row: Row, *, labelled: bool) -> Iterator[SchemaExample]:
    """The example of a row of WSC.

    Example: "The cup did not fit , it was big.", span1_text "The cup", span2_index 6 -> before "The cup did not fit, ",
    after " was big.", phrase "The cup".

    Raises:
        ValueError: naming the place, if a field is not as it should be or the pronoun is not where it is marked.
    """
    target = row.object_of("target")
    words = row.text("text").split(" ")
    index, pronoun = _pronoun(words, target)
    start = len(_detokenized(words[:index])) + (index > 0)
    text = _detokenized(words)
    if text[start : start + len(pronoun)] != pronoun:
        raise ValueError(
            f"{row.where}: the words before {pronoun!r} are written otherwise once the text is put together, so its "
            "place is unknown. Remove unusual spaces or quotes in front of it."
        )
    phrase = " ".join(target.text("span1_text").split()).rstrip(".,")
    schema = Schema(
        before=text[:start],
        after=text[start + len(pronoun) :],
        phrase=phrase,
        rivals=tuple(rivals_of(phrase, noun_phrases(text))),
    )
    yield SchemaExample(row.number("idx"), schema, row.label("label", (False, True)) if labelled else None)


def read_winogrande(row: Row, *, labelled: bool) -> Iterator[SchemaExample]:
    """The example of a row of WinoGrande: `option1` is the phrase, and the label says whether it is right."""
    sentence, first, second = (row.text(name).strip() for name in ("sentence", "option1", "option2"))
    if GAP not in sentence:
        raise ValueError(f"{row.where}: the sentence has no gap {GAP!r} for the options. Correct or remove the line.")
    if first == second:
        raise ValueError(f"{row.where}: both options are {first!r}, so there is nothing to choose. Correct one.")
    before, _, after = sentence.partition(GAP)
    label = 1 - row.label("answer", ("1", "2")) if labelled else None
    row_id = row.text("qID") if "qID" in row.values else row.where
    yield SchemaExample(row_id, Schema(before, after, first, (second,)), label)


def answer_list(path: Path) -> Path | None:
    """The list of answers beside a file of WinoGrande that has none itself; None if there is no such list."""
    listed = path.with_name(f"{path.stem}-labels.lst")
    if not listed.is_file() or "answer" in next(iter(read_rows(path))).values:
        return None
    return listed


def with_listed_answers(path: Path, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of a file of WinoGrande, with the answers of the list beside it if they have none.

    Raises:
        ValueError: naming the list, if it does not have a 1 or 2 for each row.
    """
    listed = answer_list(path)
    if listed is None:
        yield from rows
        return
    answers = listed.read_text(encoding="utf-8", errors="replace").split()
    known = list(rows)
    if len(answers) != len(known):
        raise ValueError(
            f"{listed} has {len(answers):,} answers, and {path.name} has {len(known):,} rows: both must come from the "
            "same archive. Fetch them again."
        )
    for number, (row, answer) in enumerate(zip(known, answers, strict=True), start=1):
        path, line = (row.path, row.line) if answer in ("1", "2") else (listed, number)
        yield Row(path, line, {**row.values, "answer": answer})


def training_rows(rows: Sequence[SchemaExample], *, are_rivals_options: bool) -> list[Schema]:
    """The schemas to learn from: those whose phrase is right and has rivals (Kocijan et al. 2019, section 3).

    With `are_rivals_options`, a wrong phrase has one rival, which is right: then the two change places.
    """
    schemas = []
    for row in rows:
        schema = row.schema
        assert schema is not None, "every pronoun is found, or its row refused"
        if row.label == 0 and are_rivals_options:
            (right,) = schema.rivals
            schema = Schema(schema.before, schema.after, right, (schema.phrase,))
        if schema.rivals and (row.label == 1 or are_rivals_options):
            schemas.append(schema)
    return schemas


def _pronoun(words: Sequence[str], target: Row) -> tuple[int, str]:
    """Where the pronoun is among the words, and the pronoun without punctuation at its end.

    In one official row the index is that of the word before.
    """
    index, pronoun = target.number("span2_index"), target.text("span2_text").strip().rstrip(_AT_END)
    for place in (index, index + 1):
        if pronoun and words[place : place + 1] and words[place].rstrip(_AT_END) == pronoun:
            return place, pronoun
    found = words[index] if index < len(words) else "missing"
    raise ValueError(
        f"{target.where}: span2_text is {target.text('span2_text')!r}, and word {index} of the text, counted from 0, "
        f"is {found!r}. Correct span2_index, or remove the line."
    )


def _detokenized(words: Sequence[str]) -> str:
    """Words as a text: `Mr. Singer 's heels` -> `Mr. Singer's heels`."""
    text: str = _detokenizer().detokenize(list(words), return_str=True)
    return text


@cache
def _detokenizer() -> Any:
    from sacremoses import MosesDetokenizer

    return MosesDetokenizer(lang="en")
