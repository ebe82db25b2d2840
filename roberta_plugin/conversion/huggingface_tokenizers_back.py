"""The files of a Hugging Face tokenizer -> our tokenizer and the vocabulary of the model.

tokenizer.json is read first; without it vocab.json and merges.txt, or sentencepiece.bpe.model. They are data:
pieces, merges, scores, a table of characters. Steps that RoBERTa's tokenizers do not have are refused.

Shapes: V symbols of the vocabulary.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roberta_plugin.conversion.huggingface_folder import read_object
from roberta_plugin.conversion.huggingface_tokenizers import MERGES, TOKENIZER, VOCABULARY
from roberta_plugin.conversion.huggingface_vocabulary import changed_places, vocabulary_of, with_gaps_filled
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from roberta_plugin.data.tokenizers.sentencepiece import CONTROLS, SentencePiece
from roberta_plugin.data.tokenizers.sentencepiece import FILES as SENTENCEPIECE_FILES
from roberta_plugin.data.vocabulary import MASK, SPECIALS, Vocabulary

_SPECIAL_SYMBOLS = {*SPECIALS, MASK}
_UNKNOWN_ID = 3


class FoundTokenizer(NamedTuple):
    """The tokenizer that a folder's files describe."""

    tokenizer: Tokenizer
    vocabulary: Vocabulary
    notes: tuple[str, ...]
    mask_keeps_space: bool = False
    """Whether the space before <mask> is a separate token, because <mask> has no lstrip."""


def read_tokenizer(folder: Path, *, num_symbols: int) -> FoundTokenizer:
    """The tokenizer in a folder, for a model with embeddings of `num_symbols` symbols (V).

    Raises:
        FileNotFoundError: if the folder has none of the files.
        ValueError: if they describe a tokenizer that is not RoBERTa's, XLM-R's or CamemBERT's.
    """
    path = folder / TOKENIZER
    try:
        if path.is_file():
            content = read_object(path)
            kind = (content.get("model") or {}).get("type")
            if kind == "BPE":
                _check_byte_level(content)
                pieces, merges = content["model"]["vocab"], [_pair(merge) for merge in content["model"]["merges"]]
                found = _byte_level_bpe({**pieces, **_added_ids(content)}, merges, num_symbols, _prefix_note(content))
                return found._replace(mask_keeps_space=_mask_keeps_space(content))
            if kind == "Unigram":
                return _unigram(content, folder, num_symbols)._replace(mask_keeps_space=_mask_keeps_space(content))
            raise ValueError(f"its model is {kind!r}, and RoBERTa's are BPE and Unigram")
        if (folder / VOCABULARY).is_file() and (folder / MERGES).is_file():
            path = folder / VOCABULARY
            lines = (folder / MERGES).read_text(encoding="utf-8").split("\n")
            merges = [_pair(line) for line in lines if line and not line.startswith("#version")]
            return _byte_level_bpe(read_object(path), merges, num_symbols, ())
        if (folder / SENTENCEPIECE_FILES[0]).is_file():
            path = folder / SENTENCEPIECE_FILES[0]
            return _sentencepiece_alone(SentencePiece.load(folder), num_symbols)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{path} is not a complete tokenizer ({type(error).__name__}: {error}): copy it again."
        ) from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}.".replace("..", ".")) from error
    raise FileNotFoundError(
        f"No tokenizer in {folder}: looked for {TOKENIZER}; for {VOCABULARY} and {MERGES}; and for "
        f"{SENTENCEPIECE_FILES[0]}. Copy them from where the weights come from."
    )


def _byte_level_bpe(
    ids: Mapping[str, int], merges: Sequence[tuple[str, str]], num_symbols: int, notes: tuple[str, ...]
) -> FoundTokenizer:
    """Pieces are numbered as in GPT-2's encoder.json: bytes, results of merges, others.

    Example: of the released roberta-base this makes GPT-2's own two files, and fairseq's dict.txt without its counts.
    """
    known = [piece for piece in _in_order_of_gpt2(merges) if piece in ids]
    others = sorted((set(ids) - set(known) - _SPECIAL_SYMBOLS), key=lambda piece: (ids[piece], piece))
    listed = [piece for piece in others if not piece.startswith("madeupword")]
    pieces = [*known, *listed]
    tokenizer = ByteLevelBpe(pieces, merges)
    found = {ids[symbol]: symbol for symbol in (*others, *_SPECIAL_SYMBOLS) if symbol in ids}
    found |= {ids[piece]: str(number) for number, piece in enumerate(pieces) if ids[piece] != _UNKNOWN_ID}
    return FoundTokenizer(tokenizer, vocabulary_of(with_gaps_filled(found, num_symbols)), notes)


def _in_order_of_gpt2(merges: Sequence[tuple[str, str]]) -> Iterator[str]:
    printable = [character for number, character in enumerate(BYTE_CHARACTERS) if chr(number) == character]
    yield from printable
    yield from (character for character in BYTE_CHARACTERS if character not in set(printable))
    seen: set[str] = set(BYTE_CHARACTERS)
    for first, second in merges:
        if first + second not in seen:
            seen.add(first + second)
            yield first + second


def _unigram(content: Mapping[str, Any], folder: Path, num_symbols: int) -> FoundTokenizer:
    pieces = [(str(piece), float(score)) for piece, score in content["model"]["vocab"]]
    found = {number: piece for number, (piece, _) in enumerate(pieces)}
    found |= {number: piece for piece, number in _added_ids(content).items()}
    symbols = with_gaps_filled(found, num_symbols)
    vocabulary = _our_vocabulary(symbols)
    path = folder / SENTENCEPIECE_FILES[0]
    if path.is_file():
        tokenizer = SentencePiece.load(folder)
    else:
        tokenizer = SentencePiece(_sentencepiece_model(pieces, _charsmap(content)))
    return FoundTokenizer(tokenizer, vocabulary, ())


def _our_vocabulary(symbols: Sequence[str]) -> Vocabulary:
    order = changed_places(symbols)
    return vocabulary_of([symbols[number] for number in (range(len(symbols)) if order is None else order)])


def _sentencepiece_alone(tokenizer: SentencePiece, num_symbols: int) -> FoundTokenizer:
    """As XLM-R: pieces follow the special symbols; between them and <mask> there may be unused ids."""
    found = dict(enumerate([*SPECIALS, *tokenizer.symbols[len(CONTROLS) :]]))
    found[num_symbols - 1] = MASK
    return FoundTokenizer(tokenizer, vocabulary_of(with_gaps_filled(found, num_symbols)), ())


def _sentencepiece_model(pieces: Sequence[tuple[str, float]], charsmap: bytes) -> bytes:
    """The SentencePiece model that tokenizer.json was made from: its pieces, scores and normalization."""
    from sentencepiece import sentencepiece_model_pb2 as pb2

    kinds = pb2.ModelProto.SentencePiece
    proto = pb2.ModelProto()
    proto.trainer_spec.model_type = pb2.TrainerSpec.UNIGRAM
    proto.normalizer_spec.precompiled_charsmap = charsmap
    proto.normalizer_spec.add_dummy_prefix = True
    proto.normalizer_spec.remove_extra_whitespaces = True
    proto.normalizer_spec.escape_whitespaces = True
    for control in CONTROLS:
        kind = kinds.UNKNOWN if control == "<unk>" else kinds.CONTROL
        proto.pieces.add(piece=control, score=0.0, type=kind)
    for piece, score in pieces:
        is_text = piece not in _SPECIAL_SYMBOLS and not piece.endswith("NOTUSED") and "madeupword" not in piece
        if is_text:
            proto.pieces.add(piece=piece, score=score, type=kinds.NORMAL)
    return bytes(proto.SerializeToString())


def _charsmap(content: Mapping[str, Any]) -> bytes:
    normalizer = content.get("normalizer") or {}
    for step in normalizer.get("normalizers", [normalizer]):
        if step.get("type") == "Precompiled":
            return base64.b64decode(step["precompiled_charsmap"])
        if step.get("type") not in (None, "Replace"):
            raise ValueError(f"its normalizer has the step {step['type']}, which SentencePiece has not")
    return b""


def _check_byte_level(content: Mapping[str, Any]) -> None:
    """Refuse a BPE that is not on bytes, or normalizes text."""
    before = content.get("pre_tokenizer") or {}
    if before.get("type") != "ByteLevel" or content.get("normalizer"):
        raise ValueError(
            f"its text is prepared by {before.get('type')} and {(content.get('normalizer') or {}).get('type')}, and "
            "RoBERTa's by ByteLevel alone"
        )


def _prefix_note(content: Mapping[str, Any]) -> tuple[str, ...]:
    if not (content.get("pre_tokenizer") or {}).get("add_prefix_space"):
        return ()
    return ("Its tokenizer puts a space in front of every text (add_prefix_space); ours does not: write it yourself.",)


def _added_ids(content: Mapping[str, Any]) -> dict[str, int]:
    return {str(token["content"]): int(token["id"]) for token in content.get("added_tokens") or ()}


def _mask_keeps_space(content: Mapping[str, Any]) -> bool:
    return any(token["content"] == MASK and not token["lstrip"] for token in content.get("added_tokens") or ())


def _pair(merge: Any) -> tuple[str, str]:
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return str(first), str(second)
