"""What official tasks know about the records of their models: columns, texts, options and limits of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from roberta_plugin.finetuning.glue.tasks import TASKS as GLUE
from roberta_plugin.finetuning.superglue.choices.rows import row_of
from roberta_plugin.finetuning.superglue.choices.tasks import TASKS as CHOICES
from roberta_plugin.finetuning.superglue.texts import TEXTS
from roberta_plugin.kinds.base import Official
from roberta_plugin.kinds.choices import Choices
from roberta_plugin.tables import IN_MEMORY, Row


def official(task: str) -> Official:
    """How a fine-tuning task reads records; for tables of your own, and models of an unknown task, by no rules."""
    if task in TEXTS:
        return Official(is_pair=True, texts=lambda record: TEXTS[task](Row(IN_MEMORY, 0, record)))
    if task in CHOICES:
        return Official(choices=partial(_choices, task), separators=CHOICES[task].separators)
    if task in GLUE:
        columns = GLUE[task].sentences
        limits = GLUE[task].limits if GLUE[task].kind == "regression" else None
        return Official(columns=columns, is_pair=len(columns) == 2, limits=limits)
    return Official()


def _choices(task: str, record: Mapping[str, Any]) -> Choices:
    row = row_of(task, record)
    return Choices(context=row.text, options=row.options, seconds=row.seconds)
