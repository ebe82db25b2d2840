"""Batches of documents with their sentences.

Shapes: B documents of a batch, S their windows, T positions, V sentences.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.extensions.summaries.documents import Documents
from roberta_plugin.extensions.summaries.layout import by_document, packed_layout, padded_layout, segments_of
from roberta_plugin.finetuning.examples_dataset import WindowsDataset


class DocumentsDataset(WindowsDataset):
    """Batches of `ExamplesDataset` with "sentences" and, in net_input, "segments" (S, T).

    "sentences" has the entries that the `SentenceHead` of `head.py` reads (`layout`), and "labels" (V,), in the order
    of the documents and of their text.
    """

    @cached_property
    def documents(self) -> Documents:
        """Texts, labels and numbers of the sentences."""
        return Documents(self.split)

    @cached_property
    def _of_sentences(self) -> dict[str, NDArray[Any]]:
        return {name: self.split.array(name) for name in ("label", "window", "position")}

    @override
    def make_batch(self, passes: NDArray[np.int64], indices: NDArray[np.int64]) -> dict[str, Any]:
        batch = super().make_batch(passes, indices)
        inputs, first = batch["net_input"], self.documents.first
        counts = first[indices + 1] - first[indices]  # (B,)
        places = by_document(counts)
        chosen = np.repeat(first[indices], counts) + places["place"]  # (V,), numbers in the split
        labels, window, position = (
            values[chosen].astype(np.int64)  # copies parts of memory-mapped files
            for values in self._of_sentences.values()
        )
        row = batch["offsets"][places["document"]] + window
        lengths, tokens = inputs["src_lengths"], inputs["src_tokens"]
        starts = None
        if self.pack:
            starts = np.cumsum(lengths) - lengths
            num_sequences = len(inputs["packing"]["cu_seqlens"]) - 1
            layout = packed_layout(row, position, lengths=lengths, num_sequences=num_sequences)
        else:
            layout = padded_layout(row, position, num_rows=len(lengths))
        inputs["segments"] = segments_of(tokens, bos_id=int(tokens[0, 0]), starts=starts)  # a row begins with <s>
        batch["sentences"] = {**layout, **places, "labels": labels}
        return batch
