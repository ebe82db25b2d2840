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
    """Documents of a prepared split.

    Attributes:
        ids: of the documents.
        sentences: of each.
        summaries: sentences of the summary of each; None where it is not known.
    """

    def __init__(self, split: PreparedSplit) -> None:
        self.split = split
        records = list(split.records())
        self.ids: list[str] = [record["id"] for record in records]
        self.sentences: list[Sequence[str]] = [record["sentences"] for record in records]
        self.summaries: list[Sequence[str] | None] = [record["summary"] for record in records]

    def __len__(self) -> int:
        return len(self.ids)

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
