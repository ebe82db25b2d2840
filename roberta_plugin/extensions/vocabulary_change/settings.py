"""Settings of `roberta tokenizer extend`; this module imports nothing that is slow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from roberta_plugin.settings import REQUIRED, setting


@dataclass(frozen=True, kw_only=True)
class ExtendSettings:
    """Settings of `change.extend_vocabulary`."""

    checkpoint: Path = setting(
        REQUIRED, "the model: a checkpoint, its folder, one of `roberta import`, or its name (org/name)"
    )
    output_dir: Path = setting(REQUIRED, "a new or empty folder, or an earlier result")
    add: tuple[str, ...] = setting((), "new words, each of which becomes one token", nargs="+", metavar="WORD")
    words: Path | None = setting(None, "a text file with a new word a line", metavar="FILE")
    tokenizer: Path | None = setting(
        None, "instead of new words: the folder of a new tokenizer, from `roberta tokenizer train`"
    )
    data: Path | None = setting(None, "folder with dict.txt and the tokenizer, if the model has none beside it")
