"""Tokenizers trained on little text."""

import os

from roberta_plugin.data.tokenizers import training
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe


def train_tokenizer(kind, files, *, vocab_size, folder, **settings):
    """Train a tokenizer on all of the files, over an earlier one in the folder."""
    what = {"input": tuple(map(os.fspath, files)), "vocab_size": vocab_size, "output_dir": folder}
    more = {"sample_megabytes": 0, "no_progress": True, "overwrite": True, **settings}
    return training.train_tokenizer(training.TokenizerSettings(kind=kind, **what, **more))


def byte_level_bpe(merges=(), *, use_fast_engine=True):
    """Byte-level BPE that knows every byte and what is merged, without a training."""
    pieces = [*BYTE_CHARACTERS, *(first + second for first, second in merges)]
    return ByteLevelBpe(pieces, list(merges), use_fast_engine=use_fast_engine)
