"""Tokenizers trained on little text."""

import os

from roberta_plugin.data.tokenizers import training


def train_tokenizer(kind, files, *, vocab_size, folder, **settings):
    """Train a tokenizer on all of the files, over an earlier one in the folder."""
    what = {"input": tuple(map(os.fspath, files)), "vocab_size": vocab_size, "output_dir": folder}
    more = {"sample_megabytes": 0, "no_progress": True, "overwrite": True, **settings}
    return training.train_tokenizer(training.TokenizerSettings(kind=kind, **what, **more))
