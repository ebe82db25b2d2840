"""Tokenizers: text <-> tokenizer ids, three kinds with one signature (`base.Tokenizer`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from roberta_plugin.data.tokenizers import byte_level_bpe, character_bpe, sentencepiece
from roberta_plugin.data.tokenizers.base import Tokenizer

# files of a kind, and how to read them
KINDS: tuple[tuple[tuple[str, ...], Callable[[Path], Tokenizer]], ...] = (
    (byte_level_bpe.FILES, byte_level_bpe.ByteLevelBpe.load),
    (sentencepiece.FILES, sentencepiece.SentencePiece.load),
    (character_bpe.FILES, character_bpe.CharacterBpe.load),
)


def load_tokenizer(folder: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer whose files lie in a folder.

    Raises:
        FileNotFoundError: if there is none; the message lists what was looked for.
        ValueError: if there are two, so that nobody knows which of them dict.txt belongs to, or its files are broken.
    """
    folder = Path(folder)
    found = [(files, load) for files, load in KINDS if all((folder / name).is_file() for name in files)]
    if len(found) > 1:
        names = "; and ".join(" and ".join(files) for files, _ in found)
        raise ValueError(
            f"{folder} holds two tokenizers: {names}. Delete the files of the one that dict.txt does not belong to."
        )
    for _, load in found:
        return load(folder)
    wanted = "; or ".join(" and ".join(files) for files, _ in KINDS)
    raise FileNotFoundError(
        f"No tokenizer in {folder}: looked for {wanted}. Name the folder that holds these files, or make them with "
        "`roberta vocabulary train`."
    )
