"""Small files of tokens, and what masks them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.data.mmap_tokens import MmapTokens, MmapTokensWriter

PAD = 1


def write_items(prefix: Path, items: Iterable[Sequence[int]], dtype: Any = np.uint16) -> MmapTokens:
    """A .bin and an .idx with these items."""
    prefix.parent.mkdir(exist_ok=True)
    with MmapTokensWriter(prefix, dtype) as writer:
        for item in items:
            writer.write(np.array(item, dtype=np.int64), np.array([len(item)]))
    return MmapTokens(prefix)


def masker_of(vocab_size: int, *, word_starts: np.ndarray | None = None, **recipe: Any) -> Masker:
    """A masker of a vocabulary without a file, whose last symbol is <mask>."""
    special = np.isin(np.arange(vocab_size), [0, 1, 2, 3, vocab_size - 1])
    ids = {"mask_id": vocab_size - 1, "pad_id": PAD, "never_masked": special, "never_drawn": special}
    return Masker(MaskingRecipe(**recipe), **ids, word_starts=word_starts)


def original(batch: dict[str, Any]) -> torch.Tensor:
    """The tokens of a batch before masking."""
    return torch.where(batch["target"].ne(PAD), batch["target"], batch["net_input"]["src_tokens"])
