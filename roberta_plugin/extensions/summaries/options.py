"""Options of the preparation and the scoring of documents and their summaries."""

from __future__ import annotations

from dataclasses import dataclass

from roberta_plugin.finetuning.options import FileOptions, option
from roberta_plugin.settings import Checked, setting


@dataclass(frozen=True, kw_only=True)
class SummariesOptions(FileOptions):
    """Options of summaries and cnn_dailymail."""

    sentence_length: int | None = option("tokens of a sentence; longer ones are cut", default_text=200, smallest=1)
    doc_stride: int | None = option(
        "tokens between the starts of two windows of a document that does not fit into one",
        default_text="half of --max-length",
        smallest=1,
    )
    oracle_sentences: int | None = option(
        "most sentences of a document that are labelled as its summary", default_text=3, smallest=1
    )
    id_field: str | None = option(
        "column of the id (id; without one, the number of the line)", metavar="FIELD", tasks=("summaries",)
    )
    text_field: str | None = option(
        "column of the text, or of a list of its sentences (text)", metavar="FIELD", tasks=("summaries",)
    )
    summary_field: str | None = option(
        "column of the summary, or of a list of its sentences (summary)", metavar="FIELD", tasks=("summaries",)
    )
    train: str | None = option(
        "table in --raw to train on, if its name differs from the usual ones", metavar="FILE", tasks=("summaries",)
    )
    valid: str | None = option("file of the development set", metavar="FILE", tasks=("summaries",))
    test: str | None = option("file of the test set", metavar="FILE", tasks=("summaries",))
    num_sentences: int | None = option("sentences of a summary", default_text=3, stage="score", smallest=1)
    length_share: float | None = option(
        "instead of a number of sentences: the share of the document's words that a summary has at least",
        stage="score",
        excludes=("num_sentences",),
        smallest=0.0,
        largest=1.0,
        metavar="SHARE",
    )
    min_probability: float | None = option(
        "instead of a number of sentences: choose sentences with at least this probability",
        stage="score",
        excludes=("num_sentences", "length_share"),
        smallest=0.0,
        largest=1.0,
        metavar="P",
    )
    no_trigram_blocking: bool = option(
        "also choose sentences that share three words in a row with a chosen one", stage="score", default=False
    )


@dataclass(frozen=True, kw_only=True)
class SummaryPredictOptions(Checked):
    """Options of `roberta predict`."""

    num_sentences: int | None = setting(None, "sentences of a summary", default_text=3, smallest=1)
    length_share: float | None = setting(
        None,
        "instead of --num-sentences: least share of a text's words in its summary",
        excludes=("num_sentences",),
        metavar="SHARE",
        smallest=0,
        largest=1,
    )
    no_trigram_blocking: bool = setting(False, "let sentences of a summary share three words in a row")
