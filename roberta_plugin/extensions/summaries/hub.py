"""Answers of sentence heads, as methods of `RobertaHub`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from roberta_plugin.data.batches import cut_by_length
from roberta_plugin.extensions.summaries.layout import Windows, by_document, padded_layout, segments_of
from roberta_plugin.hub import running
from roberta_plugin.hub.running import Batch

if TYPE_CHECKING:
    from roberta_plugin.hub.interface import RobertaHub


def predict(_hub: RobertaHub, head: str, _tokens: Any, **_options: Any) -> NoReturn:
    """Refuse `RobertaHub.predict`, which reads single texts."""
    raise ValueError(f"{head} scores the sentences of whole documents: use `roberta predict`.")


def sentence_logits(
    hub: RobertaHub, texts: Sequence[Windows], head: str, *, max_tokens: int | None = None
) -> list[NDArray[np.float32]]:
    """A sentence head's logits for the sentences of each text, which are read in windows."""
    sizes = [sum(map(len, windows.sequences)) for windows in texts]
    most = max_tokens or running.limits_of(hub.device)[0]
    by_text: dict[int, NDArray[np.float32]] = {}

    def run(numbers: list[int]) -> None:
        chosen = [texts[number] for number in numbers]
        by_text.update(zip(numbers, _sentence_logits(hub, chosen, head), strict=True))

    running.run_batches(hub.model, cut_by_length(sizes, max_tokens=most, enough=most), run)
    return [by_text[number] for number in range(len(texts))]


def _sentence_logits(hub: RobertaHub, texts: Sequence[Windows], head: str) -> list[NDArray[np.float32]]:
    """A sentence head's logits for the sentences of each text. The texts are one batch."""
    sequences = [sequence for windows in texts for sequence in windows.sequences]
    counts = np.array([len(windows.window) for windows in texts])
    before = np.cumsum([0, *(len(windows.sequences) for windows in texts)])[:-1]  # windows of the texts before
    row = np.concatenate([windows.window for windows in texts]) + np.repeat(before, counts)
    position = np.concatenate([windows.position for windows in texts]).astype(np.int64)
    tokens = running.pad(sequences, pad_id=hub.vocabulary.pad_id)
    layout = {**padded_layout(row, position, num_rows=len(sequences)), **by_document(counts)}
    segments = segments_of(tokens.numpy(), bos_id=hub.vocabulary.bos_id)
    device = hub.device
    predicted = {
        name: torch.from_numpy(value).to(device) if isinstance(value, np.ndarray) else value
        for name, value in layout.items()
    }
    lengths = [len(sequence) for sequence in sequences]
    batch = Batch(tokens.to(device), lengths, list(range(len(sequences))))
    logits = running.head_outputs(
        hub.model, batch, head, predicted=predicted, segments=torch.from_numpy(segments).to(device)
    )
    return np.split(logits.float().cpu().numpy(), np.cumsum(counts)[:-1])
