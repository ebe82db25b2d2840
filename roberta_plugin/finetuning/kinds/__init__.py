"""The kinds of tasks: what a head answers, one class each, from a record to the answer.

A kind is a file here and a line of `KINDS`; with a head of its own also a class of `models/heads.py`, and with a loss
of its own a function of `criterions/losses.py`.

    masked_lm           a text with <mask>         -> the most probable tokens; a text -> how acceptable it is
    classification      a text or a pair           -> a label, perhaps by a threshold; how sure probabilities are
    multi_label         a text or a pair           -> any number of labels
    regression          a text or a pair           -> a number; the pairs of a question -> which is right (QNLI)
    phrase_ranking      a sentence with [it]       -> the phrase that the pronoun stands for; noun phrases
    multiple_choice     context, question, options -> the best option
    question_answering  question, context          -> a span of the context
    tagging             a text or its words        -> a tag for each word, and entities
    summary             a text                     -> the sentences that sum it up
    embedding           a text                     -> a vector, near those of texts that mean the same

What the classes are made of:

    base                what every kind offers
    tables              what a kind offers for tables of your own
    outputs             a model's raw outputs for a split, thresholds and temperatures -> entries, metrics, tables
    metrics             counts, or numbers         -> accuracy, F1, Matthews, correlations, thresholds; those of SQuAD
    scripts             text without spaces        -> characters and words, which F1 compares
    similarity          vectors                    -> cosines, ranks; TF-IDF, and labels by it, the baselines
    answers             right answers as data sets write them -> texts and places
    usage               the code of model cards that gives a kind's answers by transformers
    foreign_rows        rows as other programs export them, read or refused with the row as it should be
    questions           questions about passages   -> a split of windows; raw outputs -> the best answers
    tagged_files        files of tagged words      -> words and tags of sentences
    tag_notations       tags as files write them   -> those that entities reads, or plain ones
    entities            tags <-> entities <-> labels; raw outputs -> labels of words; entity F1
    documents           a split of documents       -> texts and labels; the choice of sentences, ROUGE
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from roberta_plugin.finetuning.kinds.base import Kind
    from roberta_plugin.finetuning.kinds.tables import TableKind


ScoreMethod = Literal["pll", "pll-word-l2r", "unmasked"]
"""How a masked LM scores a text (`roberta_plugin/hub/scoring.py`)."""

SCHEMES = ("iob1", "iob2", "ioe1", "ioe2", "iobes", "bmes", "bilou", "io", "plain")
"""How files of tagged words mark entities (`tag_notations`)."""


class Entry(NamedTuple):
    """A kind, as far as help texts and choices of options need it: in whose file its class stands."""

    class_name: str
    fields: str
    """Fields of a record."""
    task_kind: str = ""
    """What `roberta predict --task-kind` calls it; empty: its name."""
    options: tuple[str, ...] = ()
    """Options of `roberta predict` that only this kind has."""
    is_own: bool = False
    """Whether tables of your own can be of this kind (`roberta prepare custom --kind`)."""
    own_options: tuple[str, ...] = ()
    """Options of `roberta prepare custom` that some kinds have."""
    module: str = ""
    """Empty: called like the kind."""


KINDS: dict[str, Entry] = {
    "fill_mask": Entry("FillMask", "text", options=("top_k",), module="masked_lm"),
    "score": Entry("TextScore", "text", options=("score", "per_token"), module="masked_lm"),
    "classification": Entry(
        "Classification",
        "text [text_pair]",
        options=("threshold", "temperature"),
        is_own=True,
        own_options=("labels", "label_names", "class_weights", "long_texts"),
    ),
    "multi_label": Entry(
        "MultiLabel",
        "text [text_pair]",
        options=("threshold",),
        is_own=True,
        own_options=("labels", "label_names", "class_weights", "long_texts"),
    ),
    "regression": Entry("Regression", "text [text_pair]", is_own=True, own_options=("long_texts",)),
    "pair_ranking": Entry("PairRanking", "text [text_pair]", task_kind="regression", module="regression"),
    "phrase_ranking": Entry("PhraseRanking", "text [candidates]", task_kind="pronoun"),
    "multiple_choice": Entry("MultipleChoice", "context question options", is_own=True, own_options=("labels",)),
    "question_answering": Entry(
        "QuestionAnswering", "question context", options=("null_threshold", "top_k"), is_own=True
    ),
    "tagging": Entry(
        "Tagging", "text or words", options=("valid_sequences",), is_own=True, own_options=("labels", "label_names")
    ),
    "summary": Entry("Summary", "text", options=("num_sentences", "length_share", "no_trigram_blocking")),
    "embedding": Entry("Embedding", "text [text_pair]", options=("pooling", "normalize"), is_own=True),
}
OWN = tuple(name for name, entry in KINDS.items() if entry.is_own)
TASK_KINDS = {entry.task_kind or name: name for name, entry in KINDS.items() if entry.task_kind not in KINDS}
"""Values of --task-kind -> the kinds that answer."""


def kind_class(name: str) -> type[Kind]:
    """The class of a kind; its file is imported by this call."""
    if name not in KINDS:
        raise ValueError(f"There is no kind of task {name!r}; there are {', '.join(KINDS)}.")
    entry = KINDS[name]
    kind: type[Kind] = getattr(importlib.import_module(f"{__name__}.{entry.module or name}"), entry.class_name)
    return kind


def table_kind(settings: Mapping[str, Any]) -> TableKind:
    """The kind of tables of your own that settings name."""
    name = str(settings.get("kind"))
    if name not in OWN:
        raise ValueError(f"There is no kind {name!r} of own data, as prepared.json has it; there are {', '.join(OWN)}.")
    made: Any = kind_class(name)(settings)
    return made  # type: ignore[no-any-return]
