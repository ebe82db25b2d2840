"""Options of the preparation of RACE and other sets of multiple choice."""

from __future__ import annotations

from dataclasses import dataclass

from roberta_plugin.finetuning.options import TaskOptions, option


@dataclass(frozen=True, kw_only=True)
class RaceOptions(TaskOptions):
    """Options of race and multiple_choice."""

    question_length: int | None = option(
        "tokens of question and option together; longer ones are cut", default_text=128, smallest=1
    )
    order: str | None = option(
        "the text that comes first in the model's input (passage); checkpoints of fairseq's sentence_ranking need "
        "question",
        choices=("passage", "question"),
    )
