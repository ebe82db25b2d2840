"""WNLI, WSC and WinoGrande: which phrase does a pronoun or a gap mean? (paper section 5.1)

WNLI is read as the Winograd schemas from which it was made. A row is a text with a pronoun, and a part of the text in
which a phrase replaces the pronoun. The label is 1 if the pronoun means this phrase:

    The drain is clogged with hair. It has to be cleaned.      The hair has to be cleaned.      0

`align` finds the pronoun and the phrase. A hypothesis repeats a part of its text with one pronoun replaced, but not
always literally: words are inflected ("they were" -> "Yakutsk was"), dropped, prepended or misspelt. So we use the
alignment with the fewest edits, found by dynamic programming on both sides of every pronoun.

Then the phrase competes with the text's other noun phrases: each replaces the pronoun and is masked, the masked-LM head
scores it, and the label is 1 if the phrase wins. This is the formulation of Kocijan et al. 2019 (arXiv 1905.06290) as
in fairseq's examples/roberta/wsc, with two differences. The paper's noun phrases are from spaCy, whose English models
are not on the Python package index; ours are from `noun_phrases`. And in training, phrases with label 0 that other rows
give for the same pronoun compete too, whereas the paper does not use those rows.

WSC and WinoGrande are solved likewise, by the rules of fairseq's examples/roberta/wsc.

WSC (Levesque et al. 2011, in SuperGLUE's form) marks a pronoun and a phrase of the text, and the label is true if the
pronoun means the phrase. The phrase competes with the other noun phrases of the text. The text is in tokens with spaces
("Mr. Singer 's heels"), which Moses' detokenizer puts together, as in fairseq. Four things differ:

- an input begins with <s>, as in pretraining; fairseq's recipe for WSC leaves it out;
- noun phrases come from `noun_phrases`;
- punctuation that the file attaches to the pronoun ("him.") stays in the text; fairseq loses it (3 of 658 rows);
- a phrase with a line end is read as one line; fairseq leaves the row out (2 of 658 rows).

WinoGrande (Sakaguchi et al. 2019, arXiv 1907.10641) has a gap `_` and two options. Answers are in the file itself, or
in a list beside it, such as dev-labels.lst.

Shapes: P words of the text, H words of the hypothesis.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.white_space import strip
from roberta_plugin.extensions.pronouns.kind import (
    DETERMINERS,
    POSSESSIVE,
    PRONOUNS,
    WORD,
    Schema,
    SchemaExample,
    contains,
    noun_phrases,
    plain_words,
    rivals_of,
    without_determiners,
)
from roberta_plugin.finetuning.benchmarks.base import read_rows
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.progress import terminal_bar
from roberta_plugin.tables import Row

# Cost of an edit: inserting, deleting or replacing a word; replacing it by one with as many equal first letters.
_EDIT, _VARIANT, _SAME_BEGINNING = 1.0, 0.5, 4
# Cost of a phrase that the text does not contain literally: per word, per word that is not in the text, per pronoun.
_LOOSE_WORD, _NEW_WORD, _PRONOUN_WITHIN = 0.25, 0.4, 1.5
# Cost if the hypothesis ends with the phrase although the clause continues after the pronoun.
_CUT_OFF = 0.5
_GOES_ON = re.compile(r"\s*\w")


@dataclass(frozen=True, slots=True)
class Alignment:
    """The pronoun's position in the text, and the phrase that replaces it in the hypothesis."""

    start: int  # in characters of the text
    end: int
    phrase: str  # as written in the hypothesis
    cost: float  # 0 for a literal match


def align(text: str, hypothesis: str) -> Alignment | None:
    """Find pronoun and phrase; None if the hypothesis does not match the words around any pronoun.

    Example: the texts at the top of this file -> Alignment(start=32, end=34, phrase="The hair", cost=0.0).
    """
    in_text, in_hypothesis = list(WORD.finditer(text)), list(WORD.finditer(hypothesis))
    words, others = plain_words(in_text), plain_words(in_hypothesis)
    left = _edits(others, words)  # [a, p]: others[:a] against words that end before p
    right = _edits(others[::-1], words[::-1])[::-1, ::-1]  # [b, p]: others[b:] against the words from p on
    best: tuple[float, int, int, int] | None = None  # cost, length of the phrase, where it begins, the pronoun
    for pronoun, word in enumerate(words):
        if word not in PRONOUNS:
            continue
        cut_off = _CUT_OFF if _GOES_ON.match(text, in_text[pronoun].end()) else 0.0
        for begin in range(len(others)):
            for end in range(begin + 1, len(others) + 1):
                around = begin + len(others) - end
                edits = left[begin, pronoun] + right[end, pronoun + 1]
                phrase = others[begin:end]
                if edits < around and phrase != [word]:
                    cost = float(edits) + _phrase_cost(phrase, words) + (cut_off if end == len(others) else 0.0)
                    best = min(best or (np.inf, 0, 0, 0), (cost, end - begin, begin, pronoun))
    if best is None or best[0] == np.inf:
        return None
    cost, length, begin, pronoun = best
    span = in_hypothesis[begin].start(), in_hypothesis[begin + length - 1].end()
    return Alignment(in_text[pronoun].start(), in_text[pronoun].end(), hypothesis[slice(*span)], cost)


def _edits(others: Sequence[str], words: Sequence[str]) -> NDArray[np.float64]:
    """Edit cost (H + 1, P + 1) from others[:a] to the best-fitting part of `words` that ends before p."""
    table = np.zeros((len(others) + 1, len(words) + 1))
    table[:, 0] = np.arange(len(others) + 1) * _EDIT
    for a, other in enumerate(others):
        for p, word in enumerate(words):
            is_variant = other[:_SAME_BEGINNING] == word[:_SAME_BEGINNING]
            change = 0.0 if other == word else _VARIANT if is_variant else _EDIT
            table[a + 1, p + 1] = min(table[a, p] + change, table[a, p + 1] + _EDIT, table[a + 1, p] + _EDIT)
    return table


def _phrase_cost(phrase: list[str], words: list[str]) -> float:
    content = without_determiners(phrase)
    if not content or all(word in PRONOUNS for word in content):
        return np.inf
    if contains(words, content):
        return 0.0
    return sum(
        _LOOSE_WORD + _NEW_WORD * (word not in words) + _PRONOUN_WITHIN * (word in PRONOUNS)
        for word in content
        if word not in POSSESSIVE
    )


def schema_examples(rows: Sequence[Example], *, is_training: bool) -> list[SchemaExample]:
    """Rows of WNLI as schemas; in the training set, only the schemas to learn from."""
    if is_training:
        return [SchemaExample("", schema, 1) for schema in training_schemas(rows)]
    return [
        SchemaExample(row.id, find_schema(row), None if row.target is None else int(row.target), row.texts[0])
        for row in terminal_bar(rows, "noun phrases", unit="row")
    ]


def find_schema(row: Example, *, others: Sequence[str] = ()) -> Schema | None:
    """The schema of a row; None if pronoun and phrase are not found.

    `others` are further rivals in addition to the noun phrases of the text. A rival must not be part of the phrase, nor
    the phrase part of it. All are written in the same way (capital, possessive), so that only the meaning differs.
    """
    text, hypothesis = row.texts
    alignment = align(text, hypothesis)
    if alignment is None:
        return None
    rivals = dict.fromkeys(
        _instead_of_pronoun(rival, text, alignment)
        for rival in rivals_of(alignment.phrase, (*noun_phrases(text), *others))
    )
    return Schema(
        before=text[: alignment.start],
        after=text[alignment.end :],
        phrase=_instead_of_pronoun(alignment.phrase, text, alignment),
        rivals=tuple(rivals),
    )


def training_schemas(rows: Sequence[Example]) -> list[Schema]:
    """Schemas of the training set, from rows with label 1, whose phrase is right, if it has rivals."""
    wrong: dict[tuple[str, int], list[str]] = {}
    for row in rows:
        alignment = align(*row.texts)
        if alignment is not None and row.target == "0":
            wrong.setdefault((row.texts[0], alignment.start), []).append(alignment.phrase)
    schemas = []
    for row in rows:
        alignment = align(*row.texts) if row.target == "1" else None
        if alignment is not None:
            schemas.append(find_schema(row, others=wrong.get((row.texts[0], alignment.start), ())))
    return [schema for schema in schemas if schema is not None and schema.rivals]


def _instead_of_pronoun(phrase: str, text: str, alignment: Alignment) -> str:
    """A phrase as it is written instead of the pronoun: with or without a capital, with 's for a possessive pronoun."""
    first, space, rest = phrase.partition(" ")
    if first.lower() in DETERMINERS:
        phrase = first.lower() + space + rest
    if text[alignment.start].isupper():
        phrase = phrase[0].upper() + phrase[1:]
    owns = alignment.phrase.endswith(("'s", "\u2019s", "'", "\u2019"))
    if not owns or phrase.endswith(("'s", "\u2019s", "'", "\u2019")):
        return phrase
    return phrase + ("'" if phrase.endswith("s") else "'s")


GAP = "_"
_AT_END = '.,"'  # characters that do not belong to a pronoun


def read_wsc(row: Row, *, labelled: bool) -> Iterator[SchemaExample]:
    """The example of a row of WSC.

    Example: "The cup did not fit , it was big.", span1_text "The cup", span2_index 6 -> before "The cup did not fit, ",
    after " was big.", phrase "The cup".

    Raises:
        ValueError: naming the place, if a field is wrong or the pronoun is not at the marked place.
    """
    target = row.object_of("target")
    words = row.text("text").split(" ")
    index, pronoun = _pronoun(words, target)
    start = len(_detokenize(words[:index])) + (index > 0)
    text = _detokenize(words)
    if text[start : start + len(pronoun)] != pronoun:
        raise ValueError(
            f"{row.where}: the words before {pronoun!r} change when the text is put together, so its place is unknown. "
            "Remove unusual spaces or quotes in front of it."
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
    """The example of a row of WinoGrande: `option1` is the phrase, and the label is 1 if it is right."""
    sentence, first, second = (strip(row.text(name)) for name in ("sentence", "option1", "option2"))
    if GAP not in sentence:
        raise ValueError(f"{row.where}: the sentence has no gap {GAP!r} for the options. Correct or remove the line.")
    if first == second:
        raise ValueError(f"{row.where}: both options are {first!r}, so there is nothing to choose. Correct one.")
    before, _, after = sentence.partition(GAP)
    label = 1 - row.label("answer", ("1", "2")) if labelled else None
    row_id = row.text("qID") if "qID" in row.values else row.where
    yield SchemaExample(row_id, Schema(before, after, first, (second,)), label)


def answer_list(path: Path) -> Path | None:
    """The list of answers beside a file of WinoGrande without answers; None if there is no such list."""
    listed = path.with_name(f"{path.stem}-labels.lst")
    if not listed.is_file() or "answer" in next(iter(read_rows(path))).values:
        return None
    return listed


def add_listed_answers(path: Path, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of a file of WinoGrande, with the answers of the list beside it if the file has no answers.

    Raises:
        ValueError: naming the list, if it does not have a 1 or 2 for each row.
    """
    listed = answer_list(path)
    if listed is None:
        yield from rows
        return
    answers = listed.read_text(encoding="utf-8", errors="replace").split()
    rows = list(rows)
    if len(answers) != len(rows):
        raise ValueError(
            f"{listed} has {len(answers):,} answers, and {path.name} has {len(rows):,} rows: both must come from the "
            "same archive. Fetch them again."
        )
    for number, (row, answer) in enumerate(zip(rows, answers, strict=True), start=1):
        path, line = (row.path, row.line) if answer in ("1", "2") else (listed, number)
        yield Row(path, line, {**row.values, "answer": answer})


def training_rows(rows: Sequence[SchemaExample], *, are_rivals_options: bool) -> list[Schema]:
    """The schemas to learn from, whose phrase is right and has rivals (Kocijan et al. 2019, section 3).

    With `are_rivals_options`, a wrong phrase has one rival, which is right. Then the two change places.
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
    """The index of the pronoun among the words, and the pronoun without punctuation at its end.

    In one official row the index is one too small.
    """
    index, pronoun = target.number("span2_index"), target.text("span2_text").strip().rstrip(_AT_END)
    for place in (index, index + 1):
        if pronoun and words[place : place + 1] and words[place].rstrip(_AT_END) == pronoun:
            return place, pronoun
    word = words[index] if index < len(words) else "missing"
    raise ValueError(
        f"{target.where}: span2_text is {target.text('span2_text')!r}, and word {index} of the text, counted from 0, "
        f"is {word!r}. Correct span2_index, or remove the line."
    )


def _detokenize(words: Sequence[str]) -> str:
    """Put words together: `Mr. Singer 's heels` -> `Mr. Singer's heels`."""
    text: str = _detokenizer().detokenize(list(words), return_str=True)
    return text


@cache
def _detokenizer() -> Any:
    from sacremoses import MosesDetokenizer

    return MosesDetokenizer(lang="en")
