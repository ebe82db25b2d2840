"""The kinds of tasks, one class each, from a record to the answer.

Extensions register them (`registry.KINDS`); a kind with a loss of its own has a `KindTraining`
(`finetuning/training.py`).

Base classes and common parts:

    base                every kind
    answering           a record                   -> the answer of an open model
    scored              the scores of a kind
    tables              kinds for tables of your own
    texts               kinds of texts and pairs, which may be too long
    lm_head             the masked-LM head of a pretrained model, in exports
    outputs             a model's raw outputs for a split, thresholds and temperatures -> entries, metrics, tables
    metrics             counts, or numbers         -> accuracy, F1, Matthews, correlations, thresholds
    score_names         one name for one score, in logs, results and reports
    scripts             text without spaces        -> characters and words, which F1 compares
    answer_scores       answers that are texts     -> exact match and F1, by the scripts of SQuAD
    bag_of_words        texts of a split           -> TF-IDF, and labels from it, a baseline
    usage               the code of model cards that gives a kind's answers by transformers
    foreign_rows        rows as other programs export them: read, or refused with an example of a correct row
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from roberta_plugin.registry import KINDS as KINDS
from roberta_plugin.registry import problems

if TYPE_CHECKING:
    from roberta_plugin.finetuning.kinds.base import Kind
    from roberta_plugin.finetuning.kinds.tables import TableKind


ScoreMethod = Literal["pll", "pll-word-l2r", "unmasked"]
"""How a masked LM scores a text (`roberta_plugin/hub/scoring.py`)."""


def own_kinds() -> tuple[str, ...]:
    """The kinds for tables of your own."""
    return tuple(name for name, entry in KINDS.items() if entry.is_own)


def option_words(option: str) -> dict[str, str]:
    """Kind, as --kind names it -> what an option is for it, if its help says so (`KindEntry.option_words`)."""
    entries = ((name.replace("_", "-"), entry.option_words.get(option)) for name, entry in KINDS.items())
    return {name: words for name, words in entries if words}


def deciding_numbers() -> tuple[str, ...]:
    """Names of the thresholds and temperatures of all kinds, as in the metrics of a development set."""
    return tuple(dict.fromkeys(name for entry in KINDS.values() for name in entry.numbers))


def error_metrics() -> set[str]:
    """The metrics that are better if they are smaller; all others are better if they are larger."""
    return {"loss", *(name for entry in KINDS.values() for name in entry.errors)}


def task_kinds() -> dict[str, str]:
    """Values of `roberta predict --task-kind` -> kinds."""
    return {entry.task_kind or name: name for name, entry in KINDS.items() if entry.task_kind not in KINDS}


def kind_class(name: str) -> type[Kind]:
    """The class of a kind; its file is imported by this call."""
    kind: type[Kind] = KINDS.load(name, "kind")
    return kind


def table_kind(settings: Mapping[str, Any]) -> TableKind:
    """The kind of tables of your own that settings name."""
    name = str(settings.get("kind"))
    if name not in own_kinds():
        known = ", ".join(own_kinds())
        sentence = f"prepared.json has the kind {name!r}, which is not a kind for own data; there are {known}."
        raise ValueError(" ".join([sentence, *problems]))
    made: Any = kind_class(name)(settings)
    return made  # type: ignore[no-any-return]
