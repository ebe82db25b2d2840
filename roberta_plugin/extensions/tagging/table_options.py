"""Options of tables of tagged words, and of predictions."""

from __future__ import annotations

from dataclasses import dataclass

from roberta_plugin.extensions.tagging.options import SCHEMES
from roberta_plugin.finetuning.options import TaskOptions, of_kinds, option
from roberta_plugin.settings import Checked, setting


@dataclass(frozen=True, kw_only=True)
class TaggingTableOptions(TaskOptions):
    """Options of `roberta prepare custom`."""

    scheme: str | None = option(
        "tagging: how the tables mark entities; io: by types without letters; plain: the tags are not entities, but "
        "perhaps parts of speech",
        default_text="detected",
        goes_with=of_kinds("tagging"),
        choices=SCHEMES,
    )


@dataclass(frozen=True, kw_only=True)
class TaggingPredictOptions(Checked):
    """Options of `roberta predict`."""

    valid_sequences: bool = setting(False, "tags: the most probable sequence among those that are valid")
