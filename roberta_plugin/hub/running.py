"""A batch of ids -> what is read of it, and nothing else: features, those of <s>, or scores of masked positions.

Our models leave out of the last layer and of the LM head what nobody reads; fairseq's `roberta` computes all features.

Shapes: B sequences in a batch, T positions, D model dimension, V vocabulary, C classes, M positions in all, Q most of
them in a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from roberta_plugin.hub.batching import Batch
from roberta_plugin.models.heads import SpanLogits
from roberta_plugin.models.roberta import FastRobertaModel

POSITIONS_AT_ONCE = 512


@contextmanager
def inference(model: nn.Module) -> Iterator[None]:
    """Without dropout and without a record for gradients; afterwards the model is in the mode it was in."""
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
    found: Tensor = model(batch.tokens, features_only=True, **_known(model, batch))[0]
    return found


def first_features(model: Any, batch: Batch) -> Tensor:
    """Features of each sequence's <s> (B, D)."""
    if isinstance(model, FastRobertaModel):
        found: Tensor = model.encoder.first_features(batch.tokens, has_padding=batch.has_padding, packing=None)
        return found[:, 0]  # (B, 1, D) -> (B, D)
    return features(model, batch)[:, 0]


def head_logits(model: Any, batch: Batch, head: str) -> Tensor:
    """Logits of a classification head (B, C)."""
    if isinstance(model, FastRobertaModel):
        logits: Tensor = model(batch.tokens, classification_head_name=head, has_padding=batch.has_padding)[0]
        return logits
    logits = model.classification_heads[head](features(model, batch))
    return logits


def span_logits(model: Any, batch: Batch, head: str) -> SpanLogits:
    """Logits of a span head: two (B, T) and one (B,)."""
    found: SpanLogits = model(batch.tokens, span_head_name=head, **_known(model, batch))[0]
    return found


def token_logits(model: Any, batch: Batch, head: str) -> Tensor:
    """Logits of a token head (B, T, C)."""
    found: Tensor = model(batch.tokens, token_head_name=head, **_known(model, batch))[0]
    return found


def sentence_logits(
    model: Any, batch: Batch, head: str, sentences: Mapping[str, Any], *, segments: Tensor | None = None
) -> Tensor:
    """Logits of a sentence head (V,) for the V `sentences` of a batch, as `FastRobertaModel.forward` takes them."""
    found: Tensor = model(
        batch.tokens, sentence_head_name=head, sentences=sentences, segments=segments, **_known(model, batch)
    )[0]
    return found


def position_logits(model: Any, batch: Batch, positions: Sequence[Sequence[int]]) -> Iterator[Tensor]:
    """Scores of the vocabulary at some positions of each row, row by row, each row's from left to right.

    Of our models in parts (M', V) of at most `POSITIONS_AT_ONCE`, because the scores of all M may need gigabytes.

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


def _known(model: Any, batch: Batch) -> dict[str, Any]:
    """What only our models ask for."""
    return {"has_padding": batch.has_padding} if isinstance(model, FastRobertaModel) else {}
