"""Part files -> the .bin and .idx, by all workers at once. Used by `pipeline`.

The counts of the parts give the position of each part's items, so workers can write them in any order. SHA-256 must
read a file in order: the parent process computes it over the parts while the workers still encode.

Example: parts of (2 items, 30 tokens) and (1 item, 9 tokens) -> the second one is written at item 2, token 30.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roberta_plugin.data.binarize.part_files import Counts, Task, finished_parts, read_counts, read_ids, read_part
from roberta_plugin.data.mmap_tokens_parts import SharedFiles

_SECONDS_AT_A_TIME = 0.5


@dataclass(frozen=True)
class Placement:
    """A part file and the position of its items."""

    path: Path
    first_item: int
    first_token: int


class PartsInOrder:
    """Follows the parts in order, as they are finished.

    Attributes:
        placements: position of the items of each part seen so far.
        counts: sum of their counts.
    """

    def __init__(self, folder: Path, tasks: Sequence[Task], dtype: np.dtype[Any]) -> None:
        self.placements: list[Placement] = []
        self.counts = Counts()
        self._dtype = dtype
        self._counting = finished_parts(folder, tasks)
        self._num_hashed = 0
        self._digest = hashlib.sha256()

    def count(self) -> bool:
        """Add the parts that are finished by now; return whether these are all."""
        for path in self._counting:
            if path is None:
                return False
            self.placements.append(Placement(path, self.counts.items, self.counts.tokens))
            self.counts += read_counts(path)
        return True

    def hash_some(self) -> bool:
        """Hash ids for a moment; return whether all added parts are hashed."""
        until = time.monotonic() + _SECONDS_AT_A_TIME
        while self._num_hashed < len(self.placements) and time.monotonic() < until:
            self._digest.update(read_ids(self.placements[self._num_hashed].path, self._dtype).data)
            self._num_hashed += 1
        return self._num_hashed == len(self.placements)

    def count_and_hash(self) -> None:
        """Count and hash for a moment."""
        self.count()
        self.hash_some()

    def sha256(self) -> str:
        """SHA-256 of the .bin."""
        while not self.hash_some():
            pass
        return self._digest.hexdigest()


def place_part(files: SharedFiles, placement: Placement) -> int:
    """Write the items of a part at their position; return the bytes written."""
    sizes, ids = read_part(placement.path, files.dtype)
    files.write(ids, sizes, first_item=placement.first_item, first_token=placement.first_token)
    return 12 * len(sizes) + ids.nbytes
