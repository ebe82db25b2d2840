"""Several corpora in one training: how many blocks of each an epoch takes.

Stage of the flow in `roberta_plugin/data/__init__.py`. Shares are exact up to one block, and the blocks themselves
are drawn without replacement by `block_order`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Corpus(NamedTuple):
    """A data-bin folder and its weight; None where the command line gave none."""

    folder: str
    weight: float | None


def parse_turns(data: str) -> list[list[Corpus]]:
    """Read `A:B`, data that take turns, one an epoch; each of them is what `parse_corpora` reads."""
    return [parse_corpora(turn) for turn in data.split(os.pathsep)]


def parse_corpora(data: str) -> list[Corpus]:
    """Read `books-bin@3,news-bin@1` (weights) or `books-bin,news-bin` (no weights); one folder alone is one corpus.

    Raises:
        ValueError: for an empty or repeated folder, a weight that is no positive number, or weights on some only.
    """
    corpora = []
    for entry in data.split(","):
        folder, at, weight = entry.strip().rpartition("@")
        folder, weight = (folder, weight) if at else (weight, "")
        if not folder:
            raise ValueError(f"The data option {data!r} names an empty folder: write FOLDER@WEIGHT,FOLDER@WEIGHT,...")
        corpora.append(Corpus(folder, _weight(weight, data) if at else None))
    folders = [corpus.folder for corpus in corpora]
    if len(set(folders)) < len(folders):
        raise ValueError(f"The data option {data!r} names a folder twice: give it once, with a larger weight.")
    if len({corpus.weight is None for corpus in corpora}) > 1:
        raise ValueError(f"The data option {data!r} gives weights to some folders only: give one to each, or to none.")
    return corpora


def _weight(text: str, data: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight > 0):
        raise ValueError(f"The data option {data!r} holds the weight {text!r}: a weight is a positive number.")
    return weight


def blocks_to_take(
    num_blocks: Sequence[int], *, weights: Sequence[float] | None = None, alpha: float = 1.0
) -> list[int]:
    """Blocks of each corpus in one epoch; an epoch has as many blocks as all corpora together.

    Shares are the `weights`, normalised; without weights, share i = n_i^alpha / sum_j n_j^alpha for corpora of n_i
    blocks: alpha 1 is by size, and smaller values favour small corpora (XLM, Lample & Conneau 2019, section 3.1;
    XLM-R uses 0.3). Rounding is by largest remainder, so the counts add up exactly.

    Raises:
        ValueError: for an `alpha` outside 0 to 1, or a corpus without blocks.
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"--corpus-alpha must lie between 0 and 1, got {alpha}.")
    if min(num_blocks) < 1:
        raise ValueError(f"Corpus {int(np.argmin(num_blocks)) + 1} of {len(num_blocks)} has no blocks: leave it out.")
    if weights is None and alpha == 1.0:
        return list(num_blocks)
    raw = np.asarray(num_blocks, dtype=np.float64) ** alpha if weights is None else np.asarray(weights, np.float64)
    return share_out(sum(num_blocks), raw.tolist())


def share_out(total: int, weights: Sequence[float]) -> list[int]:
    """`total` divided in proportion to the `weights`, in whole numbers that add up to it (by largest remainder)."""
    raw = np.asarray(weights, dtype=np.float64)
    exact = raw / raw.sum() * total
    counts = np.floor(exact).astype(np.int64)
    missing = total - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return [int(count) for count in counts]
