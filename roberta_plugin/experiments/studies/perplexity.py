"""A pretrained checkpoint -> its perplexity on held-out text: the same blocks with the same masks for every model.

The split is cut into whole sentences (FULL-SENTENCES of section 4.2) whatever the model was trained on; a block's mask
is a function of the seed here, the pass and the block (`data/dynamic_masking.py`), so it does not depend on the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from roberta_plugin.data.block_tables import open_blocks
from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.data.masked_lm_dataset import MaskedLMDataset, SplitFile
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.models.checkpoints.building import build_model
from roberta_plugin.models.checkpoints.loading import load_state
from roberta_plugin.tasks.block_task import load_vocabulary

MASK_SEED = 20190726
_TOKENS_IN_BATCH = 8192
_LARGEST_EXPONENT = 709.0  # of exp in float64


class HeldOut(NamedTuple):
    """Blocks of a split, their masks, and what the model is asked there."""

    vocabulary: Vocabulary
    dictionary: Any
    """fairseq's, with <mask>."""
    dataset: MaskedLMDataset
    batches: list[tuple[int, np.ndarray[Any, np.dtype[np.int64]]]]
    """Pass (from 1) and blocks (B,) of each batch."""

    @property
    def num_tokens(self) -> int:
        """Tokens that a model reads, every pass counted."""
        return sum(int(self.dataset.lengths(blocks).sum()) for _, blocks in self.batches)


class Perplexity(NamedTuple):
    """How well a model predicts the masked tokens of a split."""

    perplexity: float
    """Infinite, if the model has diverged."""
    accuracy: float
    """Percent of the predicted tokens whose most probable token is right."""
    num_predicted: int


def held_out(
    folder: Path, split: str, *, tokens_per_sample: int, mask_prob: float, passes: int, max_tokens: int | None
) -> HeldOut:
    """The blocks and masks of a split.

    Args:
        folder: binarized text with dict.txt.
        split: name of the split.
        tokens_per_sample: most tokens of a block, <s> included.
        mask_prob: share of the tokens that are predicted.
        passes: masks of each block.
        max_tokens: about how many tokens are used, in blocks evenly spread over the split; None: all.

    Raises:
        ValueError: if the split has no block.
    """
    dictionary, vocabulary = load_vocabulary(folder)
    tokens = MmapTokens(folder / split)
    dataset = MaskedLMDataset(
        [SplitFile(tokens, open_blocks(tokens, block_length=tokens_per_sample - 1, break_mode="complete"))],
        Masker.of(vocabulary, MaskingRecipe(mask_prob=mask_prob)),
        bos_id=vocabulary.bos_id,
        pad_id=vocabulary.pad_id,
        vocab_size=len(vocabulary),
        seed=MASK_SEED,
    )
    if not len(dataset):
        raise ValueError(f"{folder / split}.bin holds no text: name another split for the perplexity.")
    share = 1.0 if max_tokens is None else min(1.0, max_tokens / (tokens.num_tokens + len(dataset)))
    blocks = np.unique(np.linspace(0, len(dataset) - 1, max(1, round(share * len(dataset)))).astype(np.int64))
    size = max(1, _TOKENS_IN_BATCH // tokens_per_sample)
    parts = [blocks[start : start + size] for start in range(0, len(blocks), size)]
    return HeldOut(vocabulary, dictionary, dataset, [(number + 1, part) for number in range(passes) for part in parts])


@torch.no_grad()
def perplexity_of(
    checkpoint: Path, text: HeldOut, *, device: str, look: Callable[[], None] = lambda: None
) -> Perplexity:
    """The perplexity of a checkpoint, in fp32.

    Args:
        checkpoint: a pretrained model, ours or fairseq's roberta.
        text: what is predicted.
        device: where to compute.
        look: called after every batch.

    Raises:
        FileNotFoundError: if the checkpoint does not exist.
        ValueError: if it cannot be loaded safely, or nothing could be masked.
    """
    model: Any = build_model(load_state(checkpoint), checkpoint, dictionary=text.dictionary).to(device).eval()
    log_prob, num_correct, num_predicted = 0.0, 0, 0
    for number, blocks in text.batches:
        batch = text.dataset.make_batch(np.full(len(blocks), number), blocks)
        tokens = torch.from_numpy(batch["net_input"]["src_tokens"].astype(np.int64)).to(device)  # (B, T)
        targets = torch.from_numpy(batch["target"].astype(np.int64)).to(device)  # (B, T)
        is_predicted = targets.ne(text.vocabulary.pad_id)
        labels = targets[is_predicted]  # (B, T) -> (M,)
        scores = model(tokens, masked_tokens=is_predicted)[0].float().log_softmax(dim=-1)  # (M, V)
        log_prob += float(scores.gather(1, labels[:, None]).double().sum())
        num_correct += int(scores.argmax(dim=-1).eq(labels).sum())
        num_predicted += len(labels)
        look()
    if not num_predicted:
        raise ValueError("No token of the held-out text could be masked: take a longer split.")
    loss = -log_prob / num_predicted
    perplexity = math.exp(loss) if loss < _LARGEST_EXPONENT else math.inf  # also for nan
    return Perplexity(perplexity, 100.0 * num_correct / num_predicted, num_predicted)
