"""Training text -> dict.txt, as fairseq-preprocess does without --srcdict. Used by `roberta binarize`.

Example: "bbbb aa c" in a tokenizer of single letters -> the lines "b 4", "a 2", "c 1", then madeupword0000 0 for a
total of 8 with the four special symbols.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from roberta_plugin.data.binarize.parts import Reading, plan_tasks
from roberta_plugin.data.binarize.workers import start_workers
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
    """Count the tokens of a text and list those that occur, most frequent first.

    Args:
        inputs: text files or patterns, as `binarize` takes them.
        tokenizer: text -> tokenizer ids.
        threshold: drop symbols that occur less often, like fairseq's --thresholdsrc.
        nwords: keep at most this many symbols, <s> <pad> </s> <unk> included, like --nwordssrc; -1 for all.
        padding_factor: pad to a multiple of it with madeupwordNNNN, like --padding-factor.
        workers: number of processes; by default the number of usable cores.
        progress: show a progress bar.
        rules: of lines.
        text_format: "text" or "jsonl" for all inputs; "auto" detects it.

    Raises:
        ValueError: if an input is a pipe, which cannot be read twice, or there is no text.
    """
    sources = find_inputs(inputs, text_format=text_format)
    if pipes := [source.name for source in sources if source.is_stream]:
        raise ValueError(
            f"{pipes[0]} is a pipe, but making a dict.txt needs to read the text twice: write it to a file, or give "
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
        raise ValueError("There is no text to make a dict.txt from: give text with --train, or a dict.txt with --dict.")
    # as in fairseq: ties in the order of their names
    frequent = sorted(listed, key=lambda symbol: (-listed[symbol], symbol))
    if nwords > 0:
        frequent = frequent[: max(0, nwords - len(SPECIALS))]
    rows = [Row(symbol, listed[symbol]) for symbol in frequent if listed[symbol] >= threshold]
    num_made_up = -(len(rows) + len(SPECIALS)) % padding_factor if padding_factor > 1 else 0
    return Vocabulary([*rows, *(Row(f"{MADE_UP}{number:04d}", 0) for number in range(num_made_up))])
