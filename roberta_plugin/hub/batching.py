"""Sequences of any lengths -> batches of similar length, and results in the order of the sequences.

A batch costs what its longest sequence costs in every row, so sequences are sorted by length first.

Shapes: N sequences in all, B sequences in a batch, T positions of the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Result = TypeVar("Result")
TOKENS_ON_CPU, TOKENS_ON_GPU = 4096, 32768  # positions of a batch, padding included


class Batch(NamedTuple):
    """Sequences padded to one length."""

    tokens: Tensor
    """Ids (B, T) on the model's device."""
    lengths: list[int]
    """Tokens of each row, without padding."""
    rows: list[int]
    """The number of each sequence among all sequences."""

    @property
    def has_padding(self) -> bool:
        """Whether any row is shorter than T; known without asking the device."""
        return min(self.lengths) < self.tokens.size(1)


def cut_by_length(lengths: Sequence[int], *, max_tokens: int) -> Iterator[list[int]]:
    """Numbers of the sequences of each batch: the longest first, at most `max_tokens` positions with padding.

    A sequence that is longer than `max_tokens` has a batch of its own. The longest come first, so that a lack of memory
    shows at once.

    Example:
        list(cut_by_length([3, 9, 2, 8], max_tokens=18))  ->  [[1, 3], [0, 2]]
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable").tolist()
    batch: list[int] = []
    for number in order:
        if batch and (len(batch) + 1) * lengths[batch[0]] > max_tokens:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def pad(sequences: Sequence[NDArray[Any]], *, pad_id: int) -> Tensor:
    """Sequences (tokens,) each -> ids (B, T), padded on the right.

    Example:
        pad([[0, 7, 2], [0, 2]], pad_id=1)  ->  [[0, 7, 2], [0, 2, 1]]
    """
    tokens = np.full((len(sequences), max(map(len, sequences))), pad_id, dtype=np.int64)
    for row, sequence in enumerate(sequences):
        tokens[row, : len(sequence)] = sequence
    return torch.from_numpy(tokens)


def map_batches(
    sequences: Sequence[NDArray[Any]],
    run: Callable[[Batch], Sequence[Result]],
    *,
    pad_id: int,
    device: torch.device,
    max_tokens: int | None = None,
) -> list[Result]:
    """Run a function on batches of sequences of similar length; return its results in the order of the sequences.

    Args:
        sequences: ids of each, without padding.
        run: a batch -> a result for each of its rows.
        pad_id: id of <pad>.
        device: where the batches go.
        max_tokens: most positions of a batch, padding included; None: what suits the device.

    Raises:
        ValueError: if `max_tokens` is not positive.
    """
    if max_tokens is None:
        max_tokens = TOKENS_ON_CPU if device.type == "cpu" else TOKENS_ON_GPU
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be 1 or more, got {max_tokens}.")
    results: dict[int, Result] = {}
    for rows in cut_by_length([len(sequence) for sequence in sequences], max_tokens=max_tokens):
        chosen = [sequences[row] for row in rows]
        tokens = pad(chosen, pad_id=pad_id).to(device, non_blocking=True)
        batch = Batch(tokens, [len(sequence) for sequence in chosen], rows)
        results.update(zip(rows, run(batch), strict=True))
    return [results[row] for row in range(len(sequences))]
