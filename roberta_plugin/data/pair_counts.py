"""How often tokens of a text follow each other, at a distance of one or more.

Shapes: V ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roberta_plugin.data.mmap_tokens import MmapTokens, bad_id_error
from roberta_plugin.data.vocabulary import Vocabulary

WINDOW = 2**21
"""Tokens that are read at once."""
_PARTS = 64  # of a large text, at least
_FEWEST = 2**20  # tokens of a corpus of a large mixture


class Window(NamedTuple):
    """Positions [start, stop) of a file."""

    tokens: MmapTokens
    start: int
    stop: int


def spread_windows(files: Iterable[MmapTokens], most: int) -> list[Window]:
    """Windows of all tokens; of more than `most`, evenly spread windows with about that many."""
    size = min(WINDOW, max(1, most // _PARTS))
    windows = [
        Window(tokens, start, min(start + size, tokens.num_tokens))
        for tokens in files
        for start in range(0, tokens.num_tokens, size)
    ]
    if sum(stop - start for _, start, stop in windows) > most:
        chosen = np.unique(np.linspace(0, len(windows) - 1, max(1, most // size)).astype(np.int64))
        windows = [windows[place] for place in chosen]
    return windows


def spread_mixture(
    corpora: Sequence[tuple[Sequence[MmapTokens], float]], most: int
) -> list[tuple[list[Window], float]]:
    """Windows of each corpus of a mixture, about `most` tokens in all, and what to multiply its counts by.

    Args:
        corpora: files, and how often a training reads them in the time in which it reads one text of all once.
        most: tokens that are counted.

    Multiplied and added, the counts are as of a text that has the corpora's shares of the training, and as many tokens
    as are counted. Multiplied by 1 is what is counted whole, where no corpus has a weight.
    """
    read = [times * sum(file.num_tokens for file in files) for files, times in corpora]
    total = max(sum(read), 1.0)
    chosen = [
        spread_windows(files, max(_FEWEST, int(most * tokens / total)))
        for (files, _), tokens in zip(corpora, read, strict=True)
    ]
    counted = [sum(stop - start for _, start, stop in windows) for windows in chosen]
    unit = total / max(sum(counted), 1)
    return [
        (windows, tokens / max(number, 1) / unit) for windows, tokens, number in zip(chosen, read, counted, strict=True)
    ]


def count_mixture(parts: Iterable[tuple[Sequence[Window], float]], vocabulary: Vocabulary, *, distance: int) -> Any:
    """`count_pairs` of the windows of each corpus, multiplied by its number, added."""
    counts = [count_pairs(windows, vocabulary, distance=distance) * factor for windows, factor in parts]
    return sum(counts[1:], start=counts[0])


def count_pairs(windows: Iterable[Window], vocabulary: Vocabulary, *, distance: int = 1) -> Any:
    """How often the second id is `distance` tokens behind the first (V, V), sparse by rows, in all windows.

    At a distance of 1 each token of the windows is once the second.
    """
    size = len(vocabulary)
    sums: list[tuple[int, Any]] = [(0, sparse.csr_matrix((size, size), dtype=np.int32))]
    for window in windows:
        ids = window_ids(window, vocabulary)[:-1]
        keys = ids[:-distance] * size + ids[distance:]
        keys.sort()
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        rows, columns = np.divmod(keys[first], size)
        numbers = np.diff(first, append=len(keys)).astype(np.int32)
        begins = np.searchsorted(rows, np.arange(size + 1))
        level, pairs = 1, sparse.csr_matrix((numbers, columns, begins), shape=(size, size))
        while sums[-1][0] == level:  # matrices of as many windows: each is added a few times instead of to all others
            pairs, level = pairs + sums.pop()[1], level + 1
        sums.append((level, pairs))
    return sum((pairs for _, pairs in sums[1:]), start=sums[0][1])


def window_ids(window: Window, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """The ids of a window, the id before, and the id after: </s> at the ends of a file."""
    tokens, start, stop = window
    ids = tokens.tokens_on_disk[max(0, start - 1) : stop + 1].astype(np.int64)
    is_bad = (ids < 0) | (ids >= len(vocabulary))
    if is_bad.any():
        raise bad_id_error(tokens, max(0, start - 1) + int(np.argmax(is_bad)), len(vocabulary))
    end = [vocabulary.eos_id]
    return np.concatenate([end if start == 0 else [], ids, end if stop == tokens.num_tokens else []]).astype(np.int64)
