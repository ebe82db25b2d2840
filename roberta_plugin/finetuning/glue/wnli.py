"""WNLI as the Winograd schema that it was made of: which phrase does a pronoun stand for? (paper section 5.1)

A row of WNLI is a text with a pronoun, and a part of the text in which a phrase replaces the pronoun. The label says
whether the pronoun stands for this phrase:

    The drain is clogged with hair. It has to be cleaned.      The hair has to be cleaned.      0

`alignment` finds the pronoun and the phrase. Then the phrase competes with the text's other noun phrases: each replaces
the pronoun and is masked, the masked-LM head scores it, and the label is 1 if the phrase wins. This is the formulation
of Kocijan et al. 2019 (arXiv 1905.06290) as in fairseq's examples/roberta/wsc, with two differences. The paper takes
noun phrases from spaCy, whose English models are not on the Python package index; ours come from `noun_phrases`. And in
training, phrases with label 0 that other rows give for the same pronoun compete too, whereas the paper does not use
those rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from roberta_plugin.finetuning.glue.alignment import Alignment, align
from roberta_plugin.finetuning.text_examples import TextExample
from roberta_plugin.kinds.noun_phrases import DETERMINERS, noun_phrases, rivals_of
from roberta_plugin.kinds.phrases import Schema


def find_schema(row: TextExample, *, others: Sequence[str] = ()) -> Schema | None:
    """The schema of a row; None if pronoun and phrase are not found.

    `others` are further rivals in addition to the noun phrases of the text. A rival must not be part of the phrase, nor
    the phrase part of it. All are written in the same way (capital, possessive), so that only the meaning differs.
    """
    text, hypothesis = row.texts
    found = align(text, hypothesis)
    if found is None:
        return None
    rivals = dict.fromkeys(
        _instead_of_pronoun(rival, text, found) for rival in rivals_of(found.phrase, (*noun_phrases(text), *others))
    )
    return Schema(
        before=text[: found.start],
        after=text[found.end :],
        phrase=_instead_of_pronoun(found.phrase, text, found),
        rivals=tuple(rivals),
    )


def training_schemas(rows: Sequence[TextExample]) -> list[Schema]:
    """Schemas of the training set: of the rows with label 1, whose phrase is right, if there are rivals."""
    wrong: dict[tuple[str, int], list[str]] = {}
    for row in rows:
        found = align(*row.texts)
        if found is not None and row.label == 0:
            wrong.setdefault((row.texts[0], found.start), []).append(found.phrase)
    schemas = []
    for row in rows:
        found = align(*row.texts) if row.label == 1 else None
        if found is not None:
            schemas.append(find_schema(row, others=wrong.get((row.texts[0], found.start), ())))
    return [schema for schema in schemas if schema is not None and schema.rivals]


def _instead_of_pronoun(phrase: str, text: str, found: Alignment) -> str:
    """A phrase as it is written instead of the pronoun: with or without a capital, with 's if it is possessive."""
    first, space, rest = phrase.partition(" ")
    if first.lower() in DETERMINERS:
        phrase = first.lower() + space + rest
    if text[found.start].isupper():
        phrase = phrase[0].upper() + phrase[1:]
    owns = found.phrase.endswith(("'s", "\u2019s", "'", "\u2019"))
    if not owns or phrase.endswith(("'s", "\u2019s", "'", "\u2019")):
        return phrase
    return phrase + ("'" if phrase.endswith("s") else "'s")
