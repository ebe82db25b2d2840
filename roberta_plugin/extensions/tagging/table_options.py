"""Options of tables of tagged words."""

from __future__ import annotations

from dataclasses import dataclass

from roberta_plugin.finetuning.kinds import SCHEMES
from roberta_plugin.finetuning.options import TaskOptions, of_kinds, option


@dataclass(frozen=True, kw_only=True)
class TaggingTableOptions(TaskOptions):
    """Options of `roberta prepare custom`."""

    scheme: str | None = option(
        "tagging: how the tables mark entities; io: by types without letters; plain: the tags are no entities, such as "
        "parts of speech",
        default_text="found out",
        goes_with=of_kinds("tagging"),
        choices=SCHEMES,
    )
