"""Options of the preparation and the scoring of questions about passages."""

from __future__ import annotations

from dataclasses import dataclass

from roberta_plugin.finetuning.options import FileOptions, option
from roberta_plugin.settings import Checked, setting


@dataclass(frozen=True, kw_only=True)
class SquadOptions(FileOptions):
    """Options of squad1 and squad2."""

    question_length: int | None = option("tokens of a question; longer ones are cut", default_text=64, smallest=1)
    doc_stride: int | None = option(
        "tokens of the passage between the starts of two windows",
        default_text="128, or half the room for the passage",
        smallest=1,
    )
    strict: bool = option(
        "refuse answers that are not at their answer_start, instead of looking for them", default=False
    )
    n_best: int | None = option(
        "candidate answers written for each question", default_text=20, stage="score", smallest=1
    )
    max_answer_length: int | None = option("most tokens of an answer", default_text=30, stage="score", smallest=1)
    null_threshold: float | None = option(
        "probability of no answer above which a question is left unanswered",
        default_text="the threshold with the best F1 on the development set",
        stage="score",
        smallest=0.0,
        largest=1.0,
        metavar="P",
        tasks=("squad2",),
    )


@dataclass(frozen=True, kw_only=True)
class SpanPredictOptions(Checked):
    """Options of `roberta predict`."""

    null_threshold: float | None = setting(
        None,
        "question_answering: predict no answer if its probability is above this",
        default_text="the threshold that `roberta finetune` found, else 0.5",
        metavar="P",
        smallest=0,
        largest=1,
    )
