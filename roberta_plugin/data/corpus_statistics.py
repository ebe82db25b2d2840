"""What a split of a data-bin holds, what each way of cutting it into blocks costs, and whether the files are sound.

Beside the flow in `roberta_plugin/data/__init__.py`; shown by `roberta inspect`. All functions read the files in
windows, so memory does not grow with the corpus, but for one number a document.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.blocks import BreakMode, make_blocks
from roberta_plugin.data.manifest import file_record, sha256_of_file
from roberta_plugin.data.mmap_tokens import MmapTokens, check_ids
from roberta_plugin.data.vocabulary import Vocabulary

BREAK_MODES: tuple[BreakMode, ...] = get_args(BreakMode)
_ITEMS_IN_WINDOW = 2**20
_TOKENS_IN_WINDOW = 2**22
_BLOCKS_IN_WINDOW = 2**20


@dataclass(frozen=True, kw_only=True)
class SplitStatistics:
    """Counts of one split.

    Attributes:
        num_items: lines of text, blank ones included.
        num_blank: blank lines, which separate documents.
        num_tokens: tokens, the </s> of each item included.
        num_unknown: tokens that are <unk>.
        num_symbols_used: symbols of the vocabulary that occur.
        item_lengths: number of items of each length in tokens (longest + 1,).
        document_lengths: tokens of each document (documents,).
    """

    num_items: int
    num_blank: int
    num_tokens: int
    num_unknown: int
    num_symbols_used: int
    item_lengths: NDArray[np.int64]
    document_lengths: NDArray[np.int64]

    @property
    def unknown_rate(self) -> float:
        """Share of <unk> among the tokens of the text, </s> not counted."""
        return self.num_unknown / max(1, self.num_tokens - self.num_items)


@dataclass(frozen=True, kw_only=True)
class BlockUse:
    """What one break mode makes of a split at one block length.

    Attributes:
        break_mode: --sample-break-mode.
        tokens_per_sample: --tokens-per-sample, the <s> of each block included.
        num_blocks: training sequences.
        mean_tokens: tokens of a block on average, <s> included.
        padding: share of padding if every block is filled up to tokens_per_sample.
        num_cut: items longer than a block, which are cut into several.
        lost_by_fairseq: share of tokens in such items, all of which fairseq's own task leaves out of training.
    """

    break_mode: BreakMode
    tokens_per_sample: int
    num_blocks: int
    mean_tokens: float
    padding: float
    num_cut: int
    lost_by_fairseq: float


def count_split(tokens: MmapTokens, vocabulary: Vocabulary) -> SplitStatistics:
    """Count what is in a split whose ids the vocabulary has."""
    id_counts = np.zeros(len(vocabulary), dtype=np.int64)
    for start in range(0, tokens.num_tokens, _TOKENS_IN_WINDOW):
        id_counts += np.bincount(tokens.tokens[start : start + _TOKENS_IN_WINDOW], minlength=len(vocabulary))
    item_lengths = np.zeros(1, dtype=np.int64)
    for sizes in _windows(tokens.sizes):
        found = np.bincount(sizes)
        item_lengths = _add(item_lengths, found)
    return SplitStatistics(
        num_items=tokens.num_items,
        num_blank=int(item_lengths[1]) if len(item_lengths) > 1 else 0,
        num_tokens=tokens.num_tokens,
        num_unknown=int(id_counts[vocabulary.unk_id]),
        num_symbols_used=int(np.count_nonzero(id_counts)),
        item_lengths=item_lengths,
        document_lengths=_document_lengths(tokens),
    )


def percentiles(length_counts: NDArray[np.int64], shares: Sequence[float]) -> list[int]:
    """The smallest length that at least each share of the items does not exceed; 0 where there are none."""
    so_far = np.cumsum(length_counts)
    wanted = np.ceil(np.asarray(shares) * so_far[-1])
    return (
        [int(length) for length in np.searchsorted(so_far, np.maximum(wanted, 1))] if so_far[-1] else [0] * len(shares)
    )


def block_use(tokens: MmapTokens, *, tokens_per_sample: int, break_mode: BreakMode) -> BlockUse | None:
    """What a break mode makes of a split; None for complete_doc where no blank line separates documents."""
    block_length = tokens_per_sample - 1  # <s> comes before each block
    if break_mode == "complete_doc" and not any((sizes == 1).any() for sizes in _windows(tokens.sizes)):
        return None
    blocks = make_blocks(tokens.sizes, block_length=block_length, break_mode=break_mode)
    in_blocks = 0
    for start in range(0, len(blocks), _BLOCKS_IN_WINDOW):
        indices = np.arange(start, min(start + _BLOCKS_IN_WINDOW, len(blocks)), dtype=np.int64)
        in_blocks += int(blocks.bounds(indices)[1].sum()) + len(indices)
    in_long_items = 0
    if break_mode != "none":
        in_long_items = sum(int(sizes[sizes > block_length].sum(dtype=np.int64)) for sizes in _windows(tokens.sizes))
    return BlockUse(
        break_mode=break_mode,
        tokens_per_sample=tokens_per_sample,
        num_blocks=len(blocks),
        mean_tokens=in_blocks / max(1, len(blocks)),
        padding=1 - in_blocks / max(1, len(blocks) * tokens_per_sample),
        num_cut=blocks.num_split,
        lost_by_fairseq=in_long_items / max(1, tokens.num_tokens),
    )


def find_faults(folder: Path, split: str, vocabulary: Vocabulary, manifest: dict[str, Any] | None) -> list[str]:
    """What is wrong with the files of a split; an empty list if they are sound.

    Checked: header and length of both files, that items lie one after the other and end with their only </s>, that the
    vocabulary has all ids, and, where there is a manifest, the hashes of .bin, .idx and dict.txt.
    """
    faults = _hash_faults(folder, split, manifest)
    try:
        tokens = MmapTokens(folder / split)
        check_ids(tokens, len(vocabulary))
    except (ValueError, FileNotFoundError) as error:
        return [*faults, str(error)]
    position = 0
    for first in range(0, tokens.num_items, _ITEMS_IN_WINDOW):
        sizes = tokens.sizes[first : first + _ITEMS_IN_WINDOW]
        ends = position + np.cumsum(sizes, dtype=np.int64)
        starts = tokens.starts[first : first + _ITEMS_IN_WINDOW]
        if (sizes < 1).any() or (starts != ends - sizes).any():
            item = first + int(np.argmax((sizes < 1) | (starts != ends - sizes)))
            return [*faults, f"{folder / split}.idx: item {item} does not begin where the item before it ends."]
        window = tokens.tokens[position : int(ends[-1])]
        is_end = window == vocabulary.eos_id
        if not is_end[ends - position - 1].all():
            item = first + int(np.argmin(is_end[ends - position - 1]))
            return [*faults, f"{folder / split}.bin: item {item} does not end with </s>."]
        if np.count_nonzero(is_end) != len(sizes):
            extra = np.count_nonzero(is_end) - len(sizes)
            return [*faults, f"{folder / split}.bin: {extra} </s> inside of items {first} to {first + len(sizes) - 1}."]
        position = int(ends[-1])
    return faults


def save_histogram(path: str | os.PathLike[str], statistics: dict[str, SplitStatistics]) -> None:
    """Draw the lengths of items and of documents of all splits, on logarithmic axes, into a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, title in zip(figure.subplots(1, 2), ("item (line)", "document"), strict=True):
        longest = max((_longest(counts, title) for counts in statistics.values()), default=1)
        edges = np.unique(np.round(np.geomspace(1, max(2, longest + 1), 60)).astype(np.int64))
        for split, counts in statistics.items():
            if title == "document":
                heights, _ = np.histogram(counts.document_lengths, edges)
            else:
                lengths = np.arange(len(counts.item_lengths))
                heights, _ = np.histogram(lengths, edges, weights=counts.item_lengths)
            axes.stairs(heights, edges, label=split)
        axes.set(xscale="log", yscale="log", xlabel=f"tokens of a {title}", ylabel="number")
        axes.legend()
    figure.savefig(path, dpi=120, format="png")


def _longest(counts: SplitStatistics, title: str) -> int:
    if title == "document":
        return int(counts.document_lengths.max(initial=1))
    return len(counts.item_lengths) - 1


def _hash_faults(folder: Path, split: str, manifest: dict[str, Any] | None) -> list[str]:
    made = manifest["splits"].get(split) if manifest else None
    if manifest is None or made is None:
        return []
    faults = []
    for name, record in made["outputs"].items():
        if (folder / name).is_file() and file_record(folder / name) != record:
            faults.append(f"{folder / name} was changed since it was made: its size or SHA-256 is not the manifest's.")
    if sha256_of_file(folder / "dict.txt") != manifest["dict_sha256"]:
        faults.append(f"{folder / 'dict.txt'} was changed since the data were made: its SHA-256 is not the manifest's.")
    return faults


def _document_lengths(tokens: MmapTokens) -> NDArray[np.int64]:
    """Tokens between blank lines, where there are any (documents,)."""
    starts, ends = [np.zeros(1, dtype=np.int64)], []
    position = 0
    for sizes in _windows(tokens.sizes):
        after = position + np.cumsum(sizes, dtype=np.int64)
        blanks = after[sizes == 1]
        ends.append(blanks - 1)
        starts.append(blanks)
        position = int(after[-1])
    ends.append(np.full(1, position, dtype=np.int64))
    lengths = np.concatenate(ends) - np.concatenate(starts)
    return lengths[lengths > 0]


def _windows(sizes: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    for first in range(0, len(sizes), _ITEMS_IN_WINDOW):
        yield sizes[first : first + _ITEMS_IN_WINDOW]


def _add(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of two arrays of counts, of which one may be longer."""
    total = np.zeros(max(len(first), len(second)), dtype=np.int64)
    total[: len(first)] += first
    total[: len(second)] += second
    return total
