"""A batch of ids -> features, features of <s>, or scores of masked positions.

Our models compute only the needed positions in the last layer and the LM head; fairseq's `roberta` computes all.

Shapes: B sequences in a batch, T positions, D model dimension, V vocabulary, C classes, M positions in all, Q most of
them in a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from roberta_plugin.hub.batching import Batch
from roberta_plugin.models.roberta import FastRobertaModel

POSITIONS_AT_ONCE = 512


@contextmanager
def inference(model: nn.Module) -> Iterator[None]:
    """While entered: no dropout, no gradients; afterwards the model is in its former mode."""
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
    known = {"has_padding": batch.has_padding} if isinstance(model, FastRobertaModel) else {}
    found: Tensor = model(batch.tokens, features_only=True, **known)[0]
    return found


def first_features(model: Any, batch: Batch) -> Tensor:
    """Features of each sequence's <s> (B, D)."""
    if isinstance(model, FastRobertaModel):
        found: Tensor = model.encoder.first_features(batch.tokens, has_padding=batch.has_padding, packing=None)
        return found[:, 0]  # (B, 1, D) -> (B, D)
    return features(model, batch)[:, 0]


def head_outputs(model: Any, batch: Batch, head: str, **others: Any) -> Any:
    """The output of a head: logits (B, C) of classes or (B, T, C) of tokens, or `SpanLogits`.

    Args:
        model: ours, or fairseq's with a classification head.
        batch: the sequences.
        head: its name.
        others: other arguments of `FastRobertaModel.forward`; a sentence head needs `predicted`.
    """
    if isinstance(model, FastRobertaModel):
        return model(batch.tokens, head=head, has_padding=batch.has_padding, **others)[0]
    return model.classification_heads[head](features(model, batch))


def position_logits(model: Any, batch: Batch, positions: Sequence[Sequence[int]]) -> Iterator[Tensor]:
    """Scores of the vocabulary at some positions of each row, row by row, each row's from left to right.

    Our models give parts (M', V) of at most `POSITIONS_AT_ONCE`, because the scores of all M may need gigabytes.

    Args:
        model: with an LM head.
        batch: the sequences.
        positions: ascending positions of each row, M in all; a row may have none.
    """
    device, counts = batch.tokens.device, [len(row) for row in positions]
    if not isinstance(model, FastRobertaModel):
        is_wanted = torch.zeros_like(batch.tokens, dtype=torch.bool)
        for number, row in enumerate(positions):
            is_wanted[number, list(row)] = True
        yield model(batch.tokens, masked_tokens=is_wanted)[0]
        return
    places = torch.zeros(len(counts), max(1, *counts), dtype=torch.int64)  # (B, Q)
    is_wanted = torch.zeros_like(places, dtype=torch.bool)
    for number, row in enumerate(positions):
        places[number, : len(row)] = torch.tensor(row, dtype=torch.int64)
        is_wanted[number, : len(row)] = True
    found, _ = model.encoder.sentence_encoder(
        batch.tokens, has_padding=batch.has_padding, predicted={"positions": places.to(device)}
    )  # (B, Q, D)
    for part in found[is_wanted.to(device)].split(POSITIONS_AT_ONCE):  # (B, Q, D) -> (M, D)
        yield model.encoder.lm_head(part)
