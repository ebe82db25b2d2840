"""A trained model with another vocabulary: old symbols keep their rows, new ones begin with the mean of their pieces.

A row of a new symbol, in the embeddings and in the LM head's bias, is the mean of the rows of the pieces into which the
old tokenizer splits its text: Fast Vocabulary Transfer (Gee et al. 2022, section 3). A symbol of which the old
tokenizer knows nothing gets the mean of all rows of text.

New words (`extended`) become one token each, and ids of the old tokens stay. BPE gets merges of
the word's pieces, from left to right and after all others, so that the joins on the way become tokens too;
sentencepiece gets the word as a piece that is a little likelier than its parts. Other text keeps its tokens, except
where the first pieces of a new word stand side by side. A marker, such as [E1], <user> or @USER, and a word that is
several by the tokenizer's rules become added tokens instead, which are found in a text before those rules apply.

Example: "tokenizer" in the pieces token|iz|er: the merges token+iz and tokeniz+er, and the tokens tokeniz, tokenizer.

Shapes: V symbols before, W after, D model dimension.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from roberta_plugin import __version__
from roberta_plugin.conversion.convert import check_output, imported, output_folder
from roberta_plugin.conversion.fairseq_format import write_ours
from roberta_plugin.conversion.named_models import local_path
from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.conversion.pretrained import read_any
from roberta_plugin.conversion.settings import ExtendSettings
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.additions import (
    AddedToken,
    additions_of,
    base_of,
    composes,
    pieces_of,
    special_ids_of,
    with_additions,
)
from roberta_plugin.data.tokenizers.base import UNKNOWN, Tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.data.tokenizers.sentencepiece import WORD_START, SentencePiece
from roberta_plugin.data.tokenizers.whitespace import Whitespace
from roberta_plugin.data.vocabulary import MASK, SPECIALS, Vocabulary
from roberta_plugin.data.white_space import is_blank, one_line, strip
from roberta_plugin.finetuning import identity
from roberta_plugin.models.checkpoints import TOKENS
from roberta_plugin.registry import TOKENIZERS

_REPLACEMENT = "\ufffd"  # what is no text, such as a part of a character


@dataclass(frozen=True, kw_only=True)
class Change:
    """How many symbols came from where."""

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


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise FileNotFoundError(f"--words {path} cannot be read ({error.strerror}): give a file of words.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"--words {path} is not UTF-8 text: save it as UTF-8.") from error


def with_vocabulary(model: PortableModel, tokenizer: Tokenizer, vocabulary: Vocabulary) -> tuple[PortableModel, Change]:
    """The model for another tokenizer and its vocabulary, and how many of its symbols came from where."""
    sources, kept = row_sources(model, tokenizer, vocabulary)
    text = [row for row, never in enumerate(model.vocabulary.never_masked()) if not never]
    tied: dict[int, Tensor] = {}  # the LM head's matrix stays that of the embeddings
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
    """The old rows whose mean each row (W) of the new vocabulary is, none for an unknown symbol; those that stay."""
    old, words = model.tokenizer, model.vocabulary
    to_model, text_after = words.tokenizer_to_model(old).tolist(), text_of(tokenizer)
    same_kind = old.name == tokenizer.name
    new_pieces, back = pieces_of(tokenizer), vocabulary.model_to_tokenizer(tokenizer)
    # Of byte-level BPE, symbols are only numbers, and a piece may be a part of a character, which is no text.
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


_LONGEST = 1000  # characters of a word; the time for its merges grows with the square
_LIKELIER = 0.01  # nats a character; a new piece wins over its parts, also over a shorter new one and the rest


def extended(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """The tokenizer with tokens for these words, as they follow a space; of byte_level_bpe also without the space.

    Markers, and words that are several by the tokenizer's rules, become added tokens.

    Raises:
        ValueError: if a word is too long, is given twice, is one token already, has white space in it, or has
            characters that the tokenizer does not know.
    """
    for word, count in Counter(words).items():
        if is_blank(word) or word != strip(word):
            raise ValueError(f"The new word {word!r} is empty, or has white space around it: correct or remove it.")
        if " " in one_line(word):
            raise ValueError(
                f"The new word {word!r} is several words, by its white space: give each of them by itself."
            )
        if len(word) > _LONGEST:
            raise ValueError(
                f"The new word {word[:20]!r}... has {len(word):,} characters, and at most {_LONGEST:,} are allowed: "
                "correct or remove it."
            )
        if count > 1:
            raise ValueError(f"The new word {word!r} is given {count} times: give it once.")
        if word in (*SPECIALS, MASK):
            raise ValueError(f"The new word {word!r} is a special symbol of every model: leave it out.")
    tokens, add_prefix_space = additions_of(tokenizer)
    for word in words:
        if any(token.content == word for token in tokens):
            refuse_token(word, [word])
    base = base_of(tokenizer)
    added = [_added_token(base, word) for word in words if _is_added(base, word)]
    contents = {token.content for token in added}
    extend = _EXTENDED[base.name] if base.name in _EXTENDED else _rules_of(base).add_words
    longer = extend(base, [word for word in words if word not in contents])
    further = {"special_ids": special_ids_of(tokenizer), "composes": composes(tokenizer)}
    return with_additions(longer, [*tokens, *added], add_prefix_space=add_prefix_space, **further)


def _is_added(tokenizer: Tokenizer, word: str) -> bool:
    """Whether a new word becomes an added token: it is several words by the tokenizer's rules.

    SentencePiece has no such rules. Its pieces would find a marker only where a space is before it.
    """
    if isinstance(tokenizer, ByteLevelBpe):
        return any(tokenizer.begins_word(_ids(tokenizer, form)).sum() != 1 for form in (f" {word}", word))
    if isinstance(tokenizer, Whitespace):
        return False
    if not isinstance(tokenizer, SentencePiece):
        return bool(_rules_of(tokenizer).is_several_words(tokenizer, word))
    return WORD_START in word or _is_punctuation(word[0]) or _is_punctuation(word[-1])


def _rules_of(tokenizer: Tokenizer) -> Any:
    """What an extension says of new words for its tokenizer."""
    if not TOKENIZERS[tokenizer.name].new_words:
        raise ValueError(f"A tokenizer of the kind {tokenizer.name} takes no new words: give a new one by --tokenizer.")
    return TOKENIZERS.load(tokenizer.name, "new_words")


def _added_token(tokenizer: Tokenizer, word: str) -> AddedToken:
    """As transformers adds it, except that what looks like a word is not found within a longer one."""
    parts = [tokenizer.symbols[index] for index in tokenizer.encode(word)]
    if word in pieces_of(tokenizer) or UNKNOWN not in parts:
        refuse_token(word, [word] if word in pieces_of(tokenizer) else parts)
    return AddedToken(word, single_word=word[0].isalnum() and word[-1].isalnum())


def _is_punctuation(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] == "P" or category in ("Sm", "Sc", "Sk")


def _byte_level_bpe(tokenizer: ByteLevelBpe, words: Sequence[str]) -> ByteLevelBpe:
    merges = Merges(tokenizer.pieces, tokenizer.merges)
    for word in words:
        for form in (f" {word}", word):
            parts = [tokenizer.pieces[index] for index in tokenizer.encode(form)]
            if form != word:
                refuse_token(word, parts)
            merges.join(parts)
    return ByteLevelBpe(list(merges.pieces), list(merges.ranks))


def _ids(tokenizer: Tokenizer, text: str) -> Any:
    return tokenizer.encode_lines([text])[0]


class Merges:
    """Pieces, and merges with their ranks, that grow by those of new words."""

    def __init__(self, pieces: Sequence[str], merges: Sequence[tuple[str, str]]) -> None:
        self.pieces = dict.fromkeys(pieces)
        self.ranks = {merge: rank for rank, merge in enumerate(merges)}

    def join(self, parts: list[str]) -> None:
        """Make one token of a word that the old merges leave in these parts.

        Merges of words before it may join some of them; each new merge is after all others, so those words stay whole.
        """
        while len(parts) > 1:
            merged_pairs = [pair for pair in itertools.pairwise(parts) if pair in self.ranks]
            pair = min(merged_pairs, key=self.ranks.__getitem__) if merged_pairs else (parts[0], parts[1])
            self.ranks.setdefault(pair, len(self.ranks))
            self.pieces.setdefault("".join(pair))
            joined: list[str] = []
            for part in parts:  # all occurrences, from left to right
                if joined and (joined[-1], part) == pair:
                    joined[-1] += part
                else:
                    joined.append(part)
            parts = joined


def _sentencepiece(tokenizer: SentencePiece, words: Sequence[str]) -> SentencePiece:
    proto = tokenizer.proto()
    pieces_so_far = set(tokenizer.symbols)
    for word in words:
        parts = tokenizer.encode(word)
        refuse_token(word, parts)
        if 0 in parts:
            raise unknown_word(word)
        piece = "".join(tokenizer.symbols[index] for index in parts)  # normalized, as the text will be
        if piece in pieces_so_far:
            raise ValueError(f"The new word {word!r} is {piece!r} to the tokenizer, as another one is: leave it out.")
        pieces_so_far.add(piece)
        score = sum(proto.pieces[index].score for index in parts) + _LIKELIER * len(piece)
        proto.pieces.add(piece=piece, score=score)
    return SentencePiece(proto.SerializeToString())


def _whitespace(tokenizer: Whitespace, words: Sequence[str]) -> Whitespace:
    for word in words:
        if word in tokenizer.words:
            refuse_token(word, [word])
    return Whitespace([*tokenizer.words, *words])


_EXTENDED: dict[str, Callable[[Any, Sequence[str]], Tokenizer]] = {
    ByteLevelBpe.name: _byte_level_bpe,
    SentencePiece.name: _sentencepiece,
    Whitespace.name: _whitespace,
}


def refuse_token(word: str, parts: Sequence[Any]) -> None:
    """Refuse a word that is one token."""
    if len(parts) == 1:
        raise ValueError(f"The new word {word!r} is one token of the tokenizer already: leave it out.")


def unknown_word(word: str) -> ValueError:
    """The error about a word of unknown characters."""
    return ValueError(
        f"The new word {word!r} has characters that the tokenizer does not know: it needs a new tokenizer."
    )


def text_of(tokenizer: Tokenizer) -> Callable[[int], str]:
    """The text that a tokenizer id stands for, with a space in front where it begins a word."""
    if isinstance(base_of(tokenizer), ByteLevelBpe):
        return lambda index: tokenizer.decode([index])
    if isinstance(base_of(tokenizer), Whitespace):
        return lambda index: f" {tokenizer.symbols[index]}"
    return lambda index: tokenizer.symbols[index].replace(WORD_START, " ")
