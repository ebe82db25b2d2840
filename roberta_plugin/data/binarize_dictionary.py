"""A dict.txt of the training text, as fairseq-preprocess makes one without --srcdict. Used by `roberta binarize`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from roberta_plugin.data.binarize_parts import Reading, plan_tasks
from roberta_plugin.data.binarize_workers import start_workers
from roberta_plugin.data.text_inputs import FAIRSEQ_RULES, LineRules
from roberta_plugin.data.text_inputs_files import TextFormat, find_inputs
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import MADE_UP, SPECIALS, Row, Vocabulary
from roberta_plugin.machine import num_cores

_PART_BYTES = 2**24


def build_vocabulary(
    inputs: Sequence[str | os.PathLike[str]],
    *,
    tokenizer: Tokenizer,
    threshold: int = -1,
    nwords: int = -1,
    padding_factor: int = 8,
    workers: int | None = None,
    progress: bool = True,
    rules: LineRules = FAIRSEQ_RULES,
    text_format: TextFormat = "auto",
) -> Vocabulary:
    """Count the tokens of a text and list those that occur, the most frequent first.

    Args:
        inputs: text files or patterns, as `binarize` takes them.
        tokenizer: text -> tokenizer ids.
        threshold: leave out symbols that occur less often, as fairseq's --thresholdsrc.
        nwords: keep so many symbols at most, <s> <pad> </s> <unk> included, as --nwordssrc; -1 for all.
        padding_factor: fill up to a multiple of it with madeupwordNNNN, as --padding-factor.
        workers: processes; by default as many as this process may use processors.
        progress: show how far it is.
        rules: what a line is.
        text_format: "text" or "jsonl" for all inputs; "auto" finds out.

    Raises:
        ValueError: if an input is a pipe, which cannot be read a second time, or holds no text.
    """
    sources = find_inputs(inputs, text_format=text_format)
    if pipes := [source.name for source in sources if source.is_stream]:
        raise ValueError(
            f"{pipes[0]} is a pipe, and to make a dict.txt the text must be read twice: write it to a file, or give "
            "--dict."
        )
    reading = Reading(tokenizer=tokenizer, rules=rules, blank_line_after_files=False, part_bytes=_PART_BYTES)
    sizes = [os.path.getsize(source.path) for source in sources]
    tasks = plan_tasks(sources, sizes, _PART_BYTES)
    workers = workers if workers is not None else num_cores()
    with start_workers(reading, tasks, workers=workers, progress=progress) as pool:
        counts = pool.count_ids(tasks, num_bytes=sum(sizes))
    listed = {
        symbol: int(count)
        for symbol, count in zip(tokenizer.symbols, counts, strict=True)
        if count and symbol not in SPECIALS
    }
    if not listed:
        raise ValueError("The text to make a dict.txt of is empty: give text with --train, or a dict.txt with --dict.")
    # fairseq: equally frequent ones in the order of their names
    frequent = sorted(listed, key=lambda symbol: (-listed[symbol], symbol))
    if nwords > 0:
        frequent = frequent[: max(0, nwords - len(SPECIALS))]
    rows = [Row(symbol, listed[symbol]) for symbol in frequent if listed[symbol] >= threshold]
    num_made_up = -(len(rows) + len(SPECIALS)) % padding_factor if padding_factor > 1 else 0
    return Vocabulary([*rows, *(Row(f"{MADE_UP}{number:04d}", 0) for number in range(num_made_up))])
