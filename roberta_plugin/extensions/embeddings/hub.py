"""Vectors of texts, as a method of `RobertaHub`.

Shapes: N texts, D model dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from roberta_plugin.extensions.embeddings.prompts import find_prompt, num_skipped
from roberta_plugin.finetuning.layouts.texts import TextLayout
from roberta_plugin.models.heads import Pooling

if TYPE_CHECKING:
    from roberta_plugin.hub.interface import RobertaHub
    from roberta_plugin.hub.texts import Text


def embed(
    hub: RobertaHub,
    texts: Text | Sequence[Text],
    pooling: Pooling | None = None,
    *,
    normalize: bool = False,
    prompt_name: str | None = None,
    max_length: int | None = None,
    max_tokens: int | None = None,
) -> Tensor:
    """Texts or pairs -> one vector each (N, D), in fp32 on the CPU.

    Args:
        texts: one text, or a list. They are read as in training and by `roberta predict`: without white space at the
            ends, and with `<mask>` as any other text. Texts that are too long are cut, with a warning.
        pooling: "mean" of the last layer over all tokens of the sequence, <s> and </s> included; "first", the
            last layer at <s>; "max", the largest values over all tokens; None: as in training, or the mean.
        normalize: give vectors the length 1, also if they had another length in training.
        prompt_name: which of the model's prompts to put in front of each text, or of the first one of a pair; None: the
            model's own default, or none. Some models leave its tokens out of the vector.
        max_length: most tokens of a text that are read; None: as many as in training.
        max_tokens: most positions of a batch, padding included; None: a number that suits the device.

    Raises:
        ValueError: for another `pooling` or prompt, or a `max_length` that the model does not have.
    """
    layout = TextLayout(max_length=hub.length_of_texts(max_length))
    trained: Any = hub.trained_on.get("settings") or {}
    texts = [texts] if isinstance(texts, str) else texts
    if prompt := find_prompt(trained, prompt_name, option="prompt_name"):
        texts = [prompt + text if isinstance(text, str) else (prompt + text[0], *text[1:]) for text in texts]
    sequences = [sequence for (sequence,) in hub.as_trained(texts, "stripped", layout)]
    skipped = num_skipped(trained, prompt, hub.codec.encoder, max_length=layout.max_length)
    pooling = trained.get("pooling", "mean") if pooling is None else pooling
    normalize = normalize or bool(trained.get("normalize"))
    return hub.pooled(sequences, pooling, normalize=normalize, skipped=skipped, max_tokens=max_tokens)
