"""What a user can change about the preparation and the scoring of summaries; see `finetuning/options.py`."""

from __future__ import annotations

from dataclasses import dataclass

from roberta_plugin.finetuning.option_fields import FileOptions
from roberta_plugin.settings import setting as option


@dataclass(frozen=True, kw_only=True)
class SummariesOptions(FileOptions):
    """Options of summaries and cnn_dailymail."""

    sentence_length: int | None = option(
        None, "tokens of a sentence; longer ones are cut (200)", stage="prepare", smallest=1
    )
    doc_stride: int | None = option(
        None,
        "tokens between the starts of two windows of a document that does not fit into one (half of --max-length)",
        stage="prepare",
        smallest=1,
    )
    oracle_sentences: int | None = option(
        None, "most sentences of a document that are labelled as its summary (3)", stage="prepare", smallest=1
    )
    id_field: str | None = option(
        None,
        "column of the id (id; without one, the number of the line)",
        stage="prepare",
        metavar="FIELD",
        tasks=("summaries",),
    )
    text_field: str | None = option(
        None,
        "column of the text, or of a list of its sentences (text)",
        stage="prepare",
        metavar="FIELD",
        tasks=("summaries",),
    )
    summary_field: str | None = option(
        None,
        "column of the summary, or of a list of its sentences (summary)",
        stage="prepare",
        metavar="FIELD",
        tasks=("summaries",),
    )
    train: str | None = option(
        None,
        "table in --raw to train on, if its name differs from the usual ones",
        stage="prepare",
        metavar="FILE",
        tasks=("summaries",),
    )
    valid: str | None = option(
        None, "file of the development set", stage="prepare", metavar="FILE", tasks=("summaries",)
    )
    test: str | None = option(None, "file of the test set", stage="prepare", metavar="FILE", tasks=("summaries",))
    num_sentences: int | None = option(None, "sentences of a summary (3)", stage="score", smallest=1)
    length_share: float | None = option(
        None,
        "instead of a number of sentences: the share of the document's words, from 0 to 1, that a summary has at least",
        stage="score",
        smallest=0.0,
        largest=1.0,
        metavar="SHARE",
    )
    min_probability: float | None = option(
        None,
        "instead of a number of sentences: choose those with this probability or more, from 0 to 1",
        stage="score",
        smallest=0.0,
        largest=1.0,
        metavar="P",
    )
    no_trigram_blocking: bool = option(
        False, "also choose sentences that share three words in a row with one chosen before", stage="score"
    )

    def __post_init__(self) -> None:
        """Check the values, and that at most one option says how many sentences are chosen."""
        super().__post_init__()
        given = [
            name for name in ("num_sentences", "length_share", "min_probability") if getattr(self, name) is not None
        ]
        if len(given) > 1:
            flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ValueError(f"{flags} both say how many sentences are chosen: give one of them.")
