"""A trained model with another vocabulary: old symbols keep their rows, new ones begin with the mean of their pieces.

A row of a new symbol, in the embeddings and in the LM head's bias, is the mean of the rows of the pieces into which the
old tokenizer splits its text: Fast Vocabulary Transfer (Gee et al. 2022, section 3). If the old tokenizer knows no
piece of a symbol, the symbol gets the mean of all rows of text.

Shapes: V symbols before, W after, D model dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from roberta_plugin import __version__
from roberta_plugin.conversion.convert import check_output, imported, output_folder
from roberta_plugin.conversion.fairseq_format import write_ours
from roberta_plugin.conversion.named_models import local_path
from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.conversion.pretrained import read_any
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.additions import additions_of, base_of, pieces_of
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.data.tokenizers.sentencepiece import WORD_START, SentencePiece
from roberta_plugin.data.tokenizers.whitespace import Whitespace
from roberta_plugin.data.vocabulary import MASK, SPECIALS, Vocabulary
from roberta_plugin.extensions.vocabulary_change.new_words import extended
from roberta_plugin.extensions.vocabulary_change.settings import ExtendSettings
from roberta_plugin.finetuning import identity
from roberta_plugin.models.state_dicts import TOKENS

_REPLACEMENT = "\ufffd"  # decoded from bytes that are not text, such as a part of a character


@dataclass(frozen=True, kw_only=True)
class Change:
    """The origin of the symbols' rows, in numbers."""

    folder: Path
    num_symbols: int
    num_kept: int
    num_from_pieces: int
    num_unknown: int
    stays_here: tuple[str, ...] = ()
    """Added tokens whose ids come before new pieces, which the files of transformers cannot express."""
    found_anywhere: tuple[str, ...] = ()
    """New words that became added tokens."""


def extend_vocabulary(settings: ExtendSettings) -> Change:
    """Write model.pt, dict.txt and the tokenizer of the model with another vocabulary.

    Raises:
        ValueError: if not exactly one way to a new vocabulary is given, or a word cannot be added.
    """
    words = [*settings.add, *(_lines(settings.words) if settings.words else ())]
    if bool(words) == (settings.tokenizer is not None):
        raise ValueError("Give either new words (--add WORD ... or --words FILE) or a new --tokenizer FOLDER.")
    check_output(settings.output_dir)  # before anything is downloaded
    source = local_path(settings.checkpoint)
    if settings.tokenizer is not None:
        settings = replace(settings, tokenizer=imported(settings.tokenizer))
    check_output(settings.output_dir, sources=(source, settings.data, settings.tokenizer))
    model = read_any(source, data=settings.data)
    if settings.tokenizer is not None:
        tokenizer, vocabulary = load_tokenizer(settings.tokenizer), Vocabulary.from_tokenizer(settings.tokenizer)
    else:
        tokenizer = extended(model.tokenizer, words)
        old_symbols = set(model.tokenizer.symbols)
        vocabulary = model.vocabulary.extended(symbol for symbol in tokenizer.symbols if symbol not in old_symbols)
    changed, change = with_vocabulary(model, tokenizer, vocabulary)
    record = {"source": str(model.path), "to": "roberta_plugin", "head": model.head.name, "version": __version__}
    with output_folder(settings.output_dir, record) as folder:
        write_ours(changed, folder)
    before, after = ([token for token in additions_of(each)[0]] for each in (model.tokenizer, tokenizer))
    new = () if settings.tokenizer else tuple(token.content for token in after[len(before) :])
    has_new_pieces = len(new) < len(words) and isinstance(base_of(tokenizer), SentencePiece)
    stays_here = tuple(token.content for token in before if has_new_pieces and not token.is_piece)
    return replace(change, folder=settings.output_dir, stays_here=stays_here, found_anywhere=new)


def change_start(checkpoint: Path, data: Path, folder: Path) -> str:
    """Write a model with the vocabulary of the data, to start a pretraining from; return a clause on its rows."""
    change = extend_vocabulary(ExtendSettings(checkpoint=checkpoint, tokenizer=data, output_dir=folder))
    return f"{change.num_kept:,} of them with their own rows, the others with the mean of their pieces"


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise FileNotFoundError(f"--words {path} cannot be read ({error.strerror}): give a file of words.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"--words {path} is not UTF-8 text: save it as UTF-8.") from error


def with_vocabulary(model: PortableModel, tokenizer: Tokenizer, vocabulary: Vocabulary) -> tuple[PortableModel, Change]:
    """The model for another tokenizer and its vocabulary, and the origin of its rows."""
    sources, kept = row_sources(model, tokenizer, vocabulary)
    text = [row for row, never in enumerate(model.vocabulary.never_masked()) if not never]
    tied: dict[int, Tensor] = {}  # embeddings and LM head may share one matrix, and then share the new one
    parameters = dict(model.parameters)
    for name in (TOKENS, "encoder.lm_head.weight", "encoder.lm_head.bias"):
        if name in parameters:
            old = parameters[name]  # (V, D) or (V,)
            if old.data_ptr() not in tied:
                mean = old[text].float().mean(dim=0)
                rows = [old[source].float().mean(dim=0) if source else mean for source in sources]
                tied[old.data_ptr()] = torch.stack(rows).to(old.dtype)  # (V, D) -> (W, D)
            parameters[name] = tied[old.data_ptr()]
    task_state = dict(model.state.get("task_state") or {})
    task_state[identity.KEY] = {
        **(task_state.get(identity.KEY) or {}),
        "tokenizer": tokenizer.description(),
        "vocabulary": vocabulary.sha256,
    }
    state = {**model.state, "model": parameters, "task_state": task_state}
    change = Change(
        folder=model.path,
        num_symbols=len(vocabulary),
        num_kept=len(kept),
        num_from_pieces=len(sources) - len(kept) - sources.count([]),
        num_unknown=sources.count([]),
    )
    return replace(model, state=state, tokenizer=tokenizer, vocabulary=vocabulary), change


def row_sources(
    model: PortableModel, tokenizer: Tokenizer, vocabulary: Vocabulary
) -> tuple[list[list[int]], list[list[int]]]:
    """For each row (W) of the new vocabulary, the old rows that it is the mean of (none: an unknown symbol); and the
    entries of symbols that keep their rows."""
    old, words = model.tokenizer, model.vocabulary
    to_model, text_after = words.tokenizer_to_model(old).tolist(), text_of(tokenizer)
    same_kind = old.name == tokenizer.name
    new_pieces, back = pieces_of(tokenizer), vocabulary.model_to_tokenizer(tokenizer)
    # Symbols of byte-level BPE are only numbers, and a piece may be a part of a character, which is not text.
    names = pieces_of(old) if same_kind else map(text_of(old), range(len(old.symbols)))
    old_rows = {name: number for name, number in zip(names, to_model, strict=True) if number != words.unk_id}
    sources: list[list[int]] = []
    kept: list[list[int]] = []
    for symbol, index in zip(vocabulary.symbols, back.tolist(), strict=True):
        if index < 0:  # a special symbol, or a madeupword
            row = words.index(symbol)
            sources.append([row] if row != words.unk_id or symbol in (*SPECIALS, MASK) else [])
            kept += sources[-1:] if sources[-1] else []
            continue
        name = new_pieces[index] if same_kind else text_after(index)
        if name in old_rows:
            sources.append([old_rows[name]])
            kept.append(sources[-1])
        elif _REPLACEMENT in text_after(index):  # bytes
            sources.append([old_rows[piece] for piece in name if piece in old_rows])
        else:
            ids = old.encode(text_after(index))
            sources.append([to_model[each] for each in ids if to_model[each] != words.unk_id])
    return sources, kept


def text_of(tokenizer: Tokenizer) -> Callable[[int], str]:
    """A function from tokenizer ids to their texts, with a space in front if the token begins a word."""
    if isinstance(base_of(tokenizer), ByteLevelBpe):
        return lambda index: tokenizer.decode([index])
    if isinstance(base_of(tokenizer), Whitespace):
        return lambda index: f" {tokenizer.symbols[index]}"
    return lambda index: tokenizer.symbols[index].replace(WORD_START, " ")
