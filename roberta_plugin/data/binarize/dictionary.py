"""Training text -> dict.txt, as fairseq-preprocess does without --srcdict. Used by `roberta binarize`.

Example: "bbbb aa c" in a tokenizer of single letters -> the lines "b 4", "a 2", "c 1", then madeupword0000 0 for a
total of 8 with the four special symbols.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from roberta_plugin.data.binarize.parts import Reading, plan_tasks
from roberta_plugin.data.binarize.workers import start_workers
from roberta_plugin.data.text_inputs import InputSettings
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import MADE_UP, SPECIALS, Row, Vocabulary
from roberta_plugin.machine import num_cores
from roberta_plugin.settings import Checked, setting

_PART_BYTES = 2**24
_PADDING_FACTOR = 8


@dataclass(frozen=True, kw_only=True)
class DictionarySettings(Checked):
    """How to make a dict.txt; the fields are options of `roberta binarize`, and one that is given makes a new file."""

    threshold: int | None = setting(
        None, "make dict.txt from --train without symbols that occur less often than this", smallest=0
    )
    nwords: int | None = setting(
        None, "make dict.txt from --train with this many symbols, <s> <pad> </s> <unk> included"
    )
    padding_factor: int | None = setting(
        None,
        "make dict.txt from --train and pad its size to a multiple of this with madeupwordNNNN",
        default_text=_PADDING_FACTOR,
        smallest=1,
    )


def build_vocabulary(
    inputs: Sequence[str | os.PathLike[str]],
    *,
    tokenizer: Tokenizer,
    settings: DictionarySettings,
    reading: InputSettings,
    workers: int | None = None,
    progress: bool = True,
) -> Vocabulary:
    """Count the tokens of a text and list those that occur, most frequent first.

    The settings are as fairseq-preprocess's --thresholdsrc, --nwordssrc and --padding-factor.

    Raises:
        ValueError: if an input is a pipe, which cannot be read twice, or there is no text.
    """
    sources = reading.sources(inputs)
    if pipes := [source.name for source in sources if source.is_stream]:
        raise ValueError(
            f"{pipes[0]} is a pipe, but making a dict.txt needs to read the text twice: write it to a file, or give "
            "--dict."
        )
    job = Reading(tokenizer=tokenizer, rules=reading.rules, blank_line_after_files=False, part_bytes=_PART_BYTES)
    sizes = [source.size for source in sources]
    tasks = plan_tasks(sources, sizes, _PART_BYTES)
    with start_workers(job, tasks, workers=workers or num_cores(), progress=progress) as pool:
        counts = pool.count_ids(tasks, num_bytes=sum(sizes))
    listed = {
        symbol: int(count)
        for symbol, count in zip(tokenizer.symbols, counts, strict=True)
        if count and symbol not in SPECIALS
    }
    if not listed:
        raise ValueError("There is no text to make a dict.txt from: give text with --train, or a dict.txt with --dict.")
    # as in fairseq: ties in the order of their names
    frequent = sorted(listed, key=lambda symbol: (-listed[symbol], symbol))
    if settings.nwords is not None and settings.nwords > 0:
        frequent = frequent[: max(0, settings.nwords - len(SPECIALS))]
    rows = [Row(symbol, listed[symbol]) for symbol in frequent if listed[symbol] >= (settings.threshold or 0)]
    factor = _PADDING_FACTOR if settings.padding_factor is None else settings.padding_factor
    num_made_up = -(len(rows) + len(SPECIALS)) % factor if factor > 1 else 0
    return Vocabulary([*rows, *(Row(f"{MADE_UP}{number:04d}", 0) for number in range(num_made_up))])
