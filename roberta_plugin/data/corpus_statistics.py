"""Statistics of a split of a data-bin, and checks of its files.

Used by `roberta inspect`. All functions read the files in windows, so memory does not grow with the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.count_baselines import count_tokens
from roberta_plugin.data.manifest import NAME, file_record, sha256_of_file
from roberta_plugin.data.mmap_tokens import MmapTokens, check_ids
from roberta_plugin.data.vocabulary import Vocabulary

_ITEMS_IN_WINDOW = 2**20
_TOKENS_IN_WINDOW = 2**22


@dataclass(frozen=True, kw_only=True)
class SplitStatistics:
    """Counts of one split.

    Attributes:
        num_documents: runs of lines between blank ones.
        num_items: lines of text, blank ones included.
        num_blank: blank lines, which separate documents.
        num_tokens: tokens, the </s> of each item included.
        num_unknown: tokens that are <unk>.
        num_symbols_used: symbols of the vocabulary that occur.
    """

    num_documents: int
    num_items: int
    num_blank: int
    num_tokens: int
    num_unknown: int
    num_symbols_used: int

    @property
    def unknown_rate(self) -> float:
        """Share of <unk> among the tokens of the text, </s> not counted."""
        return self.num_unknown / max(1, self.num_tokens - self.num_items)


def count_split(tokens: MmapTokens, vocabulary: Vocabulary) -> SplitStatistics:
    """Count items, documents and tokens of a split; all its ids must be in the vocabulary."""
    id_counts = count_tokens(tokens, vocabulary)
    num_blank = num_documents = 0
    follows_text = False
    for sizes in _windows(tokens):
        is_text = sizes > 1
        num_blank += int(np.count_nonzero(~is_text))
        num_documents += int(np.count_nonzero(is_text[1:] & ~is_text[:-1])) + int(is_text[0] and not follows_text)
        follows_text = bool(is_text[-1])
    return SplitStatistics(
        num_documents=num_documents,
        num_items=tokens.num_items,
        num_blank=num_blank,
        num_tokens=tokens.num_tokens,
        num_unknown=int(id_counts[vocabulary.unk_id]),
        num_symbols_used=int(np.count_nonzero(id_counts)),
    )


def find_faults(folder: Path, split: str, vocabulary: Vocabulary, manifest: dict[str, Any] | None) -> list[str]:
    """The faults of a split's files; empty if there are none.

    Checks the header and length of both files, that items follow each other without gaps and end with their only </s>,
    that all ids are in the vocabulary, and, if there is a manifest, the hashes of .bin, .idx and dict.txt.
    """
    faults = _hash_faults(folder, split, manifest)
    try:
        tokens = MmapTokens(folder / split)
        check_ids(tokens, len(vocabulary))
    except (ValueError, FileNotFoundError) as error:
        return [*faults, str(error)]
    first = position = 0
    while first < tokens.num_items:
        sizes = tokens.sizes_on_disk[first : first + _ITEMS_IN_WINDOW]
        sizes = sizes[: max(1, int(np.searchsorted(np.cumsum(sizes, dtype=np.int64), _TOKENS_IN_WINDOW)))]
        ends = position + np.cumsum(sizes, dtype=np.int64)
        starts = tokens.read_starts(first, first + len(sizes))
        if (sizes < 1).any() or (starts != ends - sizes).any():
            item = first + int(np.argmax((sizes < 1) | (starts != ends - sizes)))
            return [*faults, f"{folder / split}.idx: item {item} does not begin where the item before it ends."]
        if ends[-1] > tokens.num_tokens:
            return [*faults, f"{folder / split}.idx: item {first + len(sizes) - 1} ends behind the end of the .bin."]
        window = tokens.tokens_on_disk[position : int(ends[-1])]
        is_end = window == vocabulary.eos_id
        if not is_end[ends - position - 1].all():
            item = first + int(np.argmin(is_end[ends - position - 1]))
            return [*faults, f"{folder / split}.bin: item {item} does not end with </s>."]
        if np.count_nonzero(is_end) != len(sizes):
            extra = np.count_nonzero(is_end) - len(sizes)
            return [*faults, f"{folder / split}.bin: {extra} </s> inside of items {first} to {first + len(sizes) - 1}."]
        first, position = first + len(sizes), int(ends[-1])
    return faults


def _hash_faults(folder: Path, split: str, manifest: dict[str, Any] | None) -> list[str]:
    entry = manifest["splits"].get(split) if manifest else None
    if manifest is None or entry is None:
        return []
    faults = []
    for name, record in entry["outputs"].items():
        if (folder / name).is_file() and file_record(folder / name) != record:
            faults.append(
                f"{folder / name} was changed after it was made: its size or SHA-256 is not that in {folder / NAME}."
            )
    if sha256_of_file(folder / "dict.txt") != manifest["dict_sha256"]:
        faults.append(
            f"{folder / 'dict.txt'} was changed after the data were made: its SHA-256 is not that in {folder / NAME}."
        )
    return faults


def _windows(tokens: MmapTokens) -> Iterator[NDArray[np.int32]]:
    """The sizes of all items, in windows."""
    for first in range(0, tokens.num_items, _ITEMS_IN_WINDOW):
        yield tokens.sizes_on_disk[first : first + _ITEMS_IN_WINDOW]
