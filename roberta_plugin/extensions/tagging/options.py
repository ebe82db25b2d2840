"""Options of the preparation and the scoring of tagged words."""

from __future__ import annotations

from dataclasses import dataclass

from roberta_plugin.finetuning.options import FileOptions, option

SCHEMES = ("iob1", "iob2", "ioe1", "ioe2", "iobes", "bmes", "bilou", "io", "plain")
"""How files of tagged words mark entities (`notations`)."""


@dataclass(frozen=True, kw_only=True)
class TaggingOptions(FileOptions):
    """Options of conll2003, wnut17 and tagging."""

    doc_stride: int | None = option(
        "tokens between the starts of two windows of a text that does not fit into one", default_text=128, smallest=1
    )
    label_pieces: str | None = option(
        "tokens of a word that learn its tag (first); the prediction is always the first token's",
        choices=("first", "all"),
    )
    context: str | None = option(
        "text that the model reads at once: each sentence alone (sentence), or a whole document in windows",
        choices=("sentence", "document"),
    )
    tokens_column: str | None = option(
        "column of the words: its number from 1 on (1), its name in the first line or in CoNLL-U (FORM), or a field of "
        "JSON Lines (tokens)",
        metavar="COLUMN",
    )
    tags_column: str | None = option(
        "the same for the tags (the last column; in CoNLL-U UPOS, or a feature such as Case; the field tags or "
        "ner_tags)",
        metavar="COLUMN",
    )
    scheme: str | None = option(
        "how the files mark entities (default: detected); io: by types without letters; plain: the tags are not "
        "entities, but perhaps parts of speech",
        choices=SCHEMES,
    )
    types: str | None = option(
        "types of the entities, separated by commas (default: all in the files)", metavar="TYPES", tasks=("tagging",)
    )
    label_names: tuple[str, ...] | None = option(
        "names of the tags 0, 1, ..., if a file has numbers without their names",
        metavar="TAG",
        nargs="+",
        tasks=("tagging",),
    )
    strict: bool = option(
        "refuse tags that are not valid in their scheme, instead of reading them as conlleval does", default=False
    )
    valid_sequences: bool = option(
        "choose the most probable sequence of tags among those that are valid", stage="score", default=False
    )
