"""Small models with next-sentence prediction, and batches of pairs for them."""

import numpy as np
import torch

from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.extensions.bert_pairs.head import NextSentenceHead
from roberta_plugin.extensions.bert_pairs.pair_chunks import Targets, open_chunks
from roberta_plugin.extensions.bert_pairs.pair_dataset import PairDataset
from roberta_plugin.extensions.bert_pairs.pairs import NUM_SPECIALS, PairSource
from roberta_plugin.models.roberta import FastRobertaModel
from tests.tiny_corpus import NUM_SYMBOLS, write_data_bin
from tests.tiny_models import MAX_POSITIONS, TinyTask, options, spread

VOCAB, PAD = NUM_SYMBOLS + 5, 1


class PairTask(TinyTask):
    """What a model with next-sentence prediction asks of a task."""

    num_segments = 2
    sequence_heads = {"next_sentence_head": NextSentenceHead}

    def __init__(self) -> None:
        super().__init__(num_symbols=NUM_SYMBOLS)


def pair_model(task=None, *, seed: int = 0, **changes) -> FastRobertaModel:
    torch.manual_seed(seed)
    return spread(FastRobertaModel.build_model(options(**changes), task or PairTask()))


def pair_dataset(folder, *, pair_format="segment-pair", **changes) -> PairDataset:
    tokens = MmapTokens(write_data_bin(folder) / "train")
    source = PairSource(tokens, open_chunks(tokens, pair_format=pair_format, targets=Targets(36, 0.0)))
    special = np.isin(np.arange(VOCAB), [0, 1, 2, 3, VOCAB - 1])
    masker = Masker(MaskingRecipe(), mask_id=VOCAB - 1, pad_id=PAD, never_masked=special, never_drawn=special)
    settings = {"with_segments": True, "with_next_sentence": True, "max_length": MAX_POSITIONS, **changes}
    assert source.longest == 36 + NUM_SPECIALS == MAX_POSITIONS
    return PairDataset([source], masker, eos_id=2, bos_id=0, pad_id=PAD, vocab_size=VOCAB, seed=7, **settings)


def some_addresses(dataset, *, num_pairs=6, number=1):
    """Pairs of both kinds and of several lengths."""
    return [(number, index) for index in np.linspace(0, len(dataset) - 1, num_pairs).astype(int).tolist()]
