"""The inference loop of everything that uses a model without training it: hub, evaluations and the demo.

    sequences of any lengths --map_batches--> batches of similar length -> the model's results, in the sequences' order
    batches of a dataset     --run_batches--> the model's results, in the order of the batches

Each row of a batch costs as much as its longest sequence, so sequences are first sorted by length. Once a batch is
large enough to be computed at full speed, it ends before a sequence that would mostly be padding.

Our models compute only the needed positions in the last layer; fairseq's `roberta` computes all positions.

Shapes: N sequences in all, B sequences in a batch, T positions of the longest, D model dimension, V vocabulary, C
classes, M positions in all, Q most positions of a sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from roberta_plugin.data.batches import cut_by_length

Given = TypeVar("Given")
Result = TypeVar("Result")
# Positions of a batch, padding included: the most, and the number that is enough for full speed. On 2 cores of a CPU,
# base took as long for a position with 512 as with 2,048, and longer with 128 and with 4,096. In lower precisions,
# smaller batches lose as much as they save in padding: 100 sentences of 5 to 60 words took a busy core with VNNI,
# without AMX, 3.16 s of CPU time in int8 with 512, 256 or 192, and 3.22 s with 128; in bf16 4.91, 4.74, 4.82 and
# 4.80 s. The numbers for GPUs are estimates.
TOKENS_ON_CPU, TOKENS_ON_GPU = 2048, 32768
ENOUGH_ON_CPU, ENOUGH_ON_GPU = 512, 4096
POSITIONS_AT_ONCE = 512  # positions whose scores of the vocabulary are in memory; all may need gigabytes


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
        """True if any row is shorter than T, without a synchronization of the device."""
        return min(self.lengths) < self.tokens.size(1)


def usable_device(name: str | torch.device | None) -> str:
    """The device of this name, or a GPU if there is one, or the CPU."""
    device = str(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0][:120]
        raise ValueError(f"--device {device} cannot be used here ({reason}). Give cpu, or leave it out.") from error
    return device


def limits_of(device: torch.device) -> tuple[int, int]:
    """Positions of a batch on this device: the most, and the number that is enough for full speed."""
    return (TOKENS_ON_CPU, ENOUGH_ON_CPU) if device.type == "cpu" else (TOKENS_ON_GPU, ENOUGH_ON_GPU)


def pad(sequences: Sequence[NDArray[Any]], *, pad_id: int) -> Tensor:
    """Sequences (tokens,) each -> ids (B, T), padded on the right.

    Example:
        pad([[0, 7, 2], [0, 2]], pad_id=1)  ->  [[0, 7, 2], [0, 2, 1]]
    """
    tokens = np.full((len(sequences), max(map(len, sequences))), pad_id, dtype=np.int64)
    for row, sequence in enumerate(sequences):
        tokens[row, : len(sequence)] = sequence
    return torch.from_numpy(tokens)


def run_batches(model: nn.Module, batches: Iterable[Given], run: Callable[[Given], Result]) -> list[Result]:
    """Run a function of a batch on all batches, without dropout and gradients; return its results."""
    with inference(model):
        return [run(batch) for batch in batches]


def map_batches(
    model: nn.Module,
    sequences: Sequence[NDArray[Any]],
    run: Callable[[Batch], Sequence[Result]],
    *,
    pad_id: int,
    device: torch.device,
    max_tokens: int | None = None,
) -> list[Result]:
    """Run a function on batches of sequences of similar length; return its results in the order of the sequences.

    Raises:
        ValueError: if `max_tokens` is not positive.
    """
    most, enough = limits_of(device)
    max_tokens = most if max_tokens is None else max_tokens
    if not isinstance(max_tokens, int | np.integer) or max_tokens < 1:
        raise ValueError(f"max_tokens must be 1 or more, got {max_tokens}.")
    results: dict[int, Result] = {}

    def run_rows(rows: list[int]) -> None:
        chosen = [sequences[row] for row in rows]
        tokens = pad(chosen, pad_id=pad_id).to(device, non_blocking=True)
        batch = Batch(tokens, [len(sequence) for sequence in chosen], rows)
        results.update(zip(rows, run(batch), strict=True))

    lengths = [len(sequence) for sequence in sequences]
    run_batches(model, cut_by_length(lengths, max_tokens=max_tokens, enough=enough), run_rows)
    return [results[row] for row in range(len(sequences))]


@contextmanager
def inference(model: nn.Module) -> Iterator[None]:
    """A context without dropout and gradients; afterwards the model is in its former mode."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


def hidden_states(model: Any, batch: Batch) -> list[Tensor]:
    """The embeddings and the output of each layer, (B, T, D) each."""
    _, extra = model(batch.tokens, features_only=True, return_all_hiddens=True)
    return [states.transpose(0, 1) for states in extra["inner_states"]]  # (T, B, D) -> (B, T, D)


def features(model: Any, batch: Batch) -> Tensor:
    """Features of the last layer (B, T, D)."""
    last_layer: Tensor = model(batch.tokens, features_only=True, has_padding=batch.has_padding)[0]
    return last_layer


def position_features(model: Any, batch: Batch, positions: Tensor) -> Tensor:
    """Features (B, Q, D) at `positions` (B, Q) of each row."""
    if hasattr(model, "position_features"):
        vectors: Tensor = model.position_features(batch.tokens, positions, has_padding=batch.has_padding)
        return vectors
    vectors = features(model, batch)
    return vectors.gather(1, positions[..., None].expand(-1, -1, vectors.size(-1)))  # (B, T, D) -> (B, Q, D)


def first_features(model: Any, batch: Batch) -> Tensor:
    """Features of each sequence's <s> (B, D)."""
    return position_features(model, batch, batch.tokens.new_zeros(len(batch.tokens), 1))[:, 0]  # (B, 1, D) -> (B, D)


def head_outputs(model: Any, batch: Batch, head: str, **others: Any) -> Any:
    """The output of a head: logits (B, C) of classes or (B, T, C) of tokens, or `SpanLogits`.

    `others` are arguments of `FastRobertaModel.forward`; a sentence head needs `predicted`.
    """
    options = {"features_only": True, "classification_head_name": head}  # fairseq's words, which our models know, too
    return model(batch.tokens, has_padding=batch.has_padding, **options, **others)[0]


def position_logits(model: Any, batch: Batch, positions: Sequence[Sequence[int]]) -> Iterator[Tensor]:
    """Scores of the vocabulary at some positions of each row, row by row, from left to right.

    They come in parts (M', V) of at most `POSITIONS_AT_ONCE`. The positions of a row ascend, M in all. A row may have
    no positions.
    """
    if hasattr(model, "position_logits"):  # a graph, which has no features
        yield from model.position_logits(batch.tokens, positions)
        return
    device, counts = batch.tokens.device, [len(row) for row in positions]
    places = torch.zeros(len(counts), max(1, *counts), dtype=torch.int64)  # (B, Q)
    is_wanted = torch.zeros_like(places, dtype=torch.bool)
    for number, row in enumerate(positions):
        places[number, : len(row)] = torch.tensor(row, dtype=torch.int64)
        is_wanted[number, : len(row)] = True
    vectors = position_features(model, batch, places.to(device))
    for part in vectors[is_wanted.to(device)].split(POSITIONS_AT_ONCE):  # (B, Q, D) -> (M, D)
        yield model.encoder.lm_head(part)
