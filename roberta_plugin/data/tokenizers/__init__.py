"""Tokenizers: text <-> tokenizer ids, all kinds with one interface; `registry.TOKENIZERS` has those of extensions too.

base               the interface; tokens -> the characters that they cover
byte_level_bpe     as in RoBERTa and GPT-2, with a fast engine
sentencepiece      as in XLM-R
whitespace         the symbols of dict.txt themselves, as in fairseq without a BPE
additions          any of these with added tokens, as Hugging Face has them
huggingface        Hugging Face's files               -> such a tokenizer, and the symbols of its ids
huggingface_fields what becomes of each field of these files
figures            a tokenizer, text -> tokens and bytes per word, words that stay whole
training           text files -> a sample of them -> a tokenizer
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from roberta_plugin.data.tokenizers import additions, huggingface, sentencepiece, whitespace
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.registry import TOKENIZERS

WORDS_ALONE = (
    "If the symbols of dict.txt are the words of the text themselves, as fairseq-preprocess has them without a BPE, "
    "give --tokenizer whitespace, and where no model is named, that dict.txt as --dict."
)


def file_names() -> tuple[str, ...]:
    """Names of the files of all kinds."""
    return (*(name for entry in TOKENIZERS.values() for name in entry.files), additions.FILE)


def has_own_files(folder: Path) -> bool:
    """True if a folder has all files of a kind of ours."""
    return bool(_kinds_in(folder))


def _kinds_in(folder: Path) -> list[str]:
    """The kinds whose files a folder has."""
    return [kind for kind, entry in TOKENIZERS.items() if all((folder / name).is_file() for name in entry.files)]


def _files_of(kind: str) -> str:
    return " and ".join(TOKENIZERS[kind].files)


def is_of_hugging_face(folder: Path) -> bool:
    """True if a folder's tokenizer is read from Hugging Face's files: it has them, and none of ours.

    XLM-R's folders there have sentencepiece.bpe.model too, and no dict.txt, by which ours is known.
    """
    kinds = _kinds_in(folder)
    is_own = kinds and (kinds != [sentencepiece.SentencePiece.name] or (folder / "dict.txt").is_file())
    return huggingface.is_in(folder) and not is_own


def has_tokenizer(folder: Path) -> bool:
    """True if a folder has the files of a tokenizer, which may be damaged."""
    return bool(_kinds_in(folder)) or huggingface.is_in(folder)


def load_tokenizer(folder: str | os.PathLike[str], *, symbols: Sequence[str] | None = None) -> Tokenizer:
    """Load the tokenizer in a folder; for the word `whitespace`, make one of the model's `symbols`.

    Raises:
        FileNotFoundError: if there is no tokenizer; the message lists the files of each kind.
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
        names = "; and ".join(map(_files_of, kinds))
        raise ValueError(
            f"{folder} holds two tokenizers: {names}. Delete the files of the one that dict.txt does not belong to."
        )
    for kind in kinds:
        tokenizer: Tokenizer = TOKENIZERS.load(kind, "tokenizer").load(folder)
        if huggingface.is_in(folder) and huggingface.merges_of(folder) != getattr(tokenizer, "merges", None):
            raise ValueError(
                f"{folder} holds two tokenizers: {_files_of(kind)}; and another one in Hugging Face's files "
                f"({huggingface.TOKENIZER}, {huggingface.VOCABULARY}, {huggingface.MERGES}). Delete the files of one."
            )
        return additions.load_additions(tokenizer, folder)
    words_alone = f" {WORDS_ALONE}" if (folder / "dict.txt").is_file() else ""
    theirs = (huggingface.TOKENIZER, f"{huggingface.VOCABULARY} and {huggingface.MERGES}")
    needed = "; or ".join((*map(_files_of, TOKENIZERS), *theirs))
    raise FileNotFoundError(
        f"No tokenizer in {folder}{'' if folder.exists() else ', which does not exist'}: looked for {needed}. Name the "
        f"folder that holds these files, or make them with `roberta tokenizer train`.{words_alone}"
    )
