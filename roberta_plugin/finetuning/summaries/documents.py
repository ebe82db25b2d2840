"""A prepared split as documents: their sentences, summaries and labels.

Shapes: N documents of a split, U sentences of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.finetuning.prepared_files import REMEDY


class Documents:
    """Documents of a prepared split; the texts are read when they are first asked for, which training never does."""

    def __init__(self, split: PreparedSplit) -> None:
        self.split = split

    def __len__(self) -> int:
        return len(self.split)

    @cached_property
    def ids(self) -> list[str]:
        """Ids of the documents."""
        return [record["id"] for record in self._records]

    @cached_property
    def sentences(self) -> list[Sequence[str]]:
        """Sentences of each document."""
        return [record["sentences"] for record in self._records]

    @cached_property
    def summaries(self) -> list[Sequence[str] | None]:
        """Sentences of the summary of each; None where it is not known."""
        return [record["summary"] for record in self._records]

    @cached_property
    def _records(self) -> list[dict[str, Any]]:
        return list(self.split.records())

    @property
    def is_labelled(self) -> bool:
        """Whether the summaries of all documents are known."""
        return bool(self.split.columns["is_labelled"].all())

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """Document i has the sentences first[i] to first[i + 1] of the split (N + 1,)."""
        first = self.split.array("first_sentence")
        if first.shape != (len(self.split) + 1,) or not np.array_equal(np.diff(first), self.split.columns["sentences"]):
            path = self.split.folder / f"{self.split.name}.first_sentence.npy"
            raise ValueError(f"{path} does not divide the sentences among the documents: it is damaged, {REMEDY}.")
        return first

    @cached_property
    def labels(self) -> NDArray[Any]:
        """1 for the sentences to choose, 0 for the others (U,)."""
        return self.column("label")

    def column(self, name: str) -> NDArray[Any]:
        """A number for each sentence of the split (U,).

        Raises:
            ValueError: if the file does not hold so many.
        """
        values = self.split.array(name)
        if values.shape != (self.first[-1],):
            path = self.split.folder / f"{self.split.name}.{name}.npy"
            raise ValueError(f"{path} has the shape {values.shape} instead of ({self.first[-1]},): {REMEDY}.")
        return values
