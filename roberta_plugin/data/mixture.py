"""Several corpora in one training: the number of blocks that an epoch takes from each.

Stage of the flow in `roberta_plugin/data/__init__.py`. Shares are shares of blocks, exact to within one block;
`block_order` draws the blocks themselves without replacement.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from roberta_plugin.data.corpora import smoothed_shares


class Corpus(NamedTuple):
    """A data-bin folder and its weight; None if the command line gave none."""

    folder: str
    weight: float | None


def parse_turns(data: str) -> list[list[Corpus]]:
    """Read `A:B`: the epochs alternate between A and B. `parse_corpora` reads each of them.

    A path that exists as a folder is that folder, even if it contains `:`.

    Example: `books@3,news@1:code` -> [[Corpus(books, 3), Corpus(news, 1)], [Corpus(code, None)]].
    """
    return [parse_corpora(turn) for turn in ([data] if os.path.isdir(data) else data.split(os.pathsep))]


def data_folders(data: str) -> list[Path]:
    """All folders of all turns in order, each once."""
    return [Path(folder) for folder in dict.fromkeys(c.folder for turn in parse_turns(data) for c in turn)]


def whole_paths(data: str, *, seen_from: str = "") -> str:
    """The data option with the whole paths of its folders, seen from a folder (default: the current one).

    Example, in /corpora: `books@3,../news@1` -> `/corpora/books@3,/news@1`.
    """

    def whole(path: str) -> str:
        return os.path.abspath(os.path.join(seen_from, path))

    if os.path.isdir(whole(data)):
        return whole(data)
    return re.sub(r"(?<![^,:])[^,:@]+", lambda match: whole(match[0].strip()), data)


def parse_corpora(data: str) -> list[Corpus]:
    """Read `books-bin@3,news-bin@1` (weights) or `books-bin,news-bin` (no weights); one folder alone is one corpus.

    A path that exists as a folder is that folder, even if it contains `,` or `@`.

    Raises:
        ValueError: for an empty or repeated folder, a weight that is not a positive number, or weights on some only.
    """
    corpora = []
    for entry in [data] if os.path.isdir(data) else data.split(","):
        corpora.append(_corpus(entry.strip(), data))
    folders = [os.path.realpath(corpus.folder) for corpus in corpora]
    if len(set(folders)) < len(folders):
        raise ValueError(f"The data option {data!r} names a folder twice: give it once, with a larger weight.")
    if len({corpus.weight is None for corpus in corpora}) > 1:
        raise ValueError(f"The data option {data!r} gives weights to some folders only: give one to each, or to none.")
    return corpora


def _corpus(entry: str, data: str) -> Corpus:
    folder, at, weight = entry.rpartition("@")
    if os.path.isdir(entry) or not at:
        folder, at = entry, ""
    if not folder:
        raise ValueError(f"The data option {data!r} names an empty folder: write FOLDER@WEIGHT,FOLDER@WEIGHT,...")
    return Corpus(folder, _weight(weight, entry) if at else None)


def _weight(text: str, entry: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight > 0):
        raise ValueError(
            f"The data option names {entry!r}, which is neither a folder that exists nor FOLDER@WEIGHT with a positive "
            f"number: correct the path or the weight {text!r}."
        )
    return weight


def blocks_to_take(
    num_blocks: Sequence[int], *, weights: Sequence[float] | None = None, alpha: float = 1.0
) -> list[int]:
    """Blocks of each corpus in one epoch; an epoch has as many blocks as all corpora together.

    Shares are the `weights`, normalised; without weights, they are `smoothed_shares`: alpha 1 is by size, and smaller
    values favour small corpora. Rounding is by largest remainder, so the counts add up exactly; a corpus whose share is
    below one block gets one, so that no corpus is left out.

    Example: corpora of 90 and 10 blocks -> [90, 10]; with weights 1 and 1 -> [50, 50]; with alpha 0.5, the shares are
    sqrt(90) : sqrt(10) = 3 : 1 -> [75, 25].

    Raises:
        ValueError: for a corpus without blocks.
    """
    if min(num_blocks) < 1:
        raise ValueError(f"Corpus {int(np.argmin(num_blocks)) + 1} of {len(num_blocks)} has no blocks: leave it out.")
    if weights is None and alpha == 1.0:
        return list(num_blocks)
    counts = share_out(sum(num_blocks), smoothed_shares(num_blocks, alpha) if weights is None else weights)
    for _ in range(counts.count(0)):
        counts[int(np.argmax(counts))] -= 1
    return [max(count, 1) for count in counts]


def times_read(data: str, num_tokens: Mapping[Path, int], *, alpha: float = 1.0) -> dict[Path, float]:
    """How often a training reads the text of each folder in the time in which it reads as much as all have, once each.

    Turns are of equal weight, as epochs are.

    Example: `A@3,B@1` of 50 tokens each -> {A: 1.5, B: 0.5}; `A,B` and `A:B` -> {A: 1.0, B: 1.0}.
    """
    times = dict.fromkeys(data_folders(data), 0.0)
    for turn in parse_turns(data):
        folders = [Path(corpus.folder) for corpus in turn]
        sizes = [max(1, num_tokens[folder]) for folder in folders]
        weights = [corpus.weight for corpus in turn if corpus.weight is not None]
        taken = blocks_to_take(sizes, weights=weights or None, alpha=alpha)
        for folder, size, number in zip(folders, sizes, taken, strict=True):
            times[folder] += number / size
    return times


def share_out(total: int, weights: Sequence[float]) -> list[int]:
    """Split `total` into whole numbers in proportion to the `weights` (largest remainder).

    Example: share_out(10, [1, 1, 1]) -> [4, 3, 3].
    """
    raw = np.asarray(weights, dtype=np.float64)
    exact = raw / raw.sum() * total
    counts = np.floor(exact).astype(np.int64)
    missing = total - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return [int(count) for count in counts]
