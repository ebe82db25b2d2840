"""Tokenizers: text <-> tokenizer ids, four kinds with one interface.

base               the interface; tokens -> the characters that they cover
byte_level_bpe     as in RoBERTa and GPT-2, with a fast engine
sentencepiece      as in XLM-R
character_bpe      on words, as in BERT
whitespace         the symbols of dict.txt as they stand, as in fairseq without a BPE
additions          any of these with added tokens, as Hugging Face has them
huggingface        Hugging Face's files               -> such a tokenizer, and the symbols of its ids
huggingface_fields what becomes of each field of these files
figures            a tokenizer, text -> tokens and bytes per word, words that stay whole
training           text files -> a sample of them -> a tokenizer
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from roberta_plugin.data.tokenizers import (
    additions,
    byte_level_bpe,
    character_bpe,
    huggingface,
    sentencepiece,
    whitespace,
)
from roberta_plugin.data.tokenizers.base import Tokenizer

# files of each kind, and the function that reads them
KINDS: tuple[tuple[tuple[str, ...], Callable[[Path], Tokenizer]], ...] = (
    (byte_level_bpe.FILES, byte_level_bpe.ByteLevelBpe.load),
    (sentencepiece.FILES, sentencepiece.SentencePiece.load),
    (character_bpe.FILES, character_bpe.CharacterBpe.load),
    (whitespace.FILES, whitespace.Whitespace.load),
)
FILES = (*(name for files, _ in KINDS for name in files), additions.FILE)
"""Names of the files of all kinds."""
WORDS_ALONE = (
    "If the symbols of dict.txt are the words of the text themselves, as fairseq-preprocess has them without a BPE, "
    "give --tokenizer whitespace, and where no model is named, that dict.txt as --dict."
)


def _kinds_in(folder: Path) -> list[tuple[tuple[str, ...], Callable[[Path], Tokenizer]]]:
    return [(files, load) for files, load in KINDS if all((folder / name).is_file() for name in files)]


def is_of_hugging_face(folder: Path) -> bool:
    """True if a folder's tokenizer is read from Hugging Face's files: it has them, and none of ours.

    XLM-R's folders there have sentencepiece.bpe.model too, and no dict.txt, by which ours is known.
    """
    kinds = [files for files, _ in _kinds_in(folder)]
    is_own = kinds and (kinds != [sentencepiece.FILES] or (folder / "dict.txt").is_file())
    return huggingface.is_in(folder) and not is_own


def has_tokenizer(folder: Path) -> bool:
    """True if a folder has the files of a tokenizer, which may be damaged."""
    return bool(_kinds_in(folder)) or huggingface.is_in(folder)


def load_tokenizer(folder: str | os.PathLike[str], *, symbols: Sequence[str] | None = None) -> Tokenizer:
    """Load the tokenizer in a folder; of the word `whitespace`, that of `symbols`, which are the model's.

    Raises:
        FileNotFoundError: if there is none; the message lists the files of each kind.
        ValueError: if there are two, so the one of dict.txt is unknown, or if its files are damaged.
    """
    if whitespace.is_meant(folder):
        if symbols is None:
            raise ValueError(
                "The tokenizer `whitespace` takes its words from a dict.txt, and none is given: `roberta tokenizer "
                "train --kind whitespace --dict DICT.TXT --output-dir FOLDER` makes a tokenizer; then give FOLDER."
            )
        return whitespace.Whitespace.of_symbols(symbols)
    folder = Path(folder)
    if is_of_hugging_face(folder):
        return huggingface.load(folder)
    kinds = _kinds_in(folder)
    if len(kinds) > 1:
        names = "; and ".join(" and ".join(files) for files, _ in kinds)
        raise ValueError(
            f"{folder} holds two tokenizers: {names}. Delete the files of the one that dict.txt does not belong to."
        )
    for files, load in kinds:
        tokenizer = load(folder)
        if huggingface.is_in(folder) and huggingface.merges_of(folder) != getattr(tokenizer, "merges", None):
            raise ValueError(
                f"{folder} holds two tokenizers: {' and '.join(files)}; and another one in Hugging Face's files "
                f"({huggingface.TOKENIZER}, {huggingface.VOCABULARY}, {huggingface.MERGES}). Delete the files of one."
            )
        return additions.load_additions(tokenizer, folder)
    words_alone = f" {WORDS_ALONE}" if (folder / "dict.txt").is_file() else ""
    theirs = ((huggingface.TOKENIZER,), (huggingface.VOCABULARY, huggingface.MERGES))
    needed = "; or ".join(" and ".join(files) for files in (*(files for files, _ in KINDS), *theirs))
    raise FileNotFoundError(
        f"No tokenizer in {folder}{'' if folder.exists() else ', which does not exist'}: looked for {needed}. Name the "
        f"folder that holds these files, or make them with `roberta tokenizer train`.{words_alone}"
    )
