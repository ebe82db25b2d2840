"""Hugging Face's tokenizers, read: their files -> a tokenizer, and the symbols of a model with it.

    byte-level BPE   tokenizer.json, or vocab.json and merges.txt
    SentencePiece    tokenizer.json, or sentencepiece.bpe.model
    whitespace       tokenizer.json (WordLevel)
    all              tokenizer_config.json  special_tokens_map.json  added_tokens.json, where they are there

Texts get the ids of transformers 5, whose classes build the steps of tokenizer.json themselves; `tokenizers` follows
the file. Steps that RoBERTa's tokenizers do not have are refused; what becomes of each field is in the tables of
`huggingface_fields`. Added tokens, other than the special symbols, and add_prefix_space become a
`TokenizerWithAdditions`. How these files are written is in `conversion/huggingface_tokenizers`.

Except for CamemBERT's, ids are the same on both sides: 0 <s>, 1 <pad>, 2 </s>, 3 <unk>, then the lines of dict.txt.
CamemBERT was trained with <s> and </s> as ordinary lines of dict.txt, so that 0 and 5, and 2 and 6, change places:

    Hugging Face   0 <s>NOTUSED  1 <pad>  2 </s>NOTUSED  3 <unk>  4 <unk>NOTUSED  5 <s>         6 </s>         7 ...
    ours           0 <s>         1 <pad>  2 </s>         3 <unk>  4 <unk>NOTUSED  5 <s>NOTUSED  6 </s>NOTUSED  7 ...

Shapes: V symbols of the vocabulary.
"""

from __future__ import annotations

import base64
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers.additions import (
    AddedToken,
    additions_of,
    base_of,
    pieces_of,
    special_ids_of,
    symbol_of,
    with_additions,
)
from roberta_plugin.data.tokenizers.base import MADE_UP, MASK, SPECIALS, Tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from roberta_plugin.data.tokenizers.huggingface_fields import (
    COPY,
    SHORTEST,
    check_tokenizer,
    composes_texts,
    has_names_of_bert,
    kind_of_pieces,
    read_file,
    well_formed,
)
from roberta_plugin.data.tokenizers.sentencepiece import CONTROLS, SentencePiece, messages
from roberta_plugin.data.tokenizers.sentencepiece import FILES as SENTENCEPIECE_FILES
from roberta_plugin.data.tokenizers.whitespace import Whitespace, is_word

logger = logging.getLogger(__name__)

TOKENIZER, VOCABULARY, MERGES = "tokenizer.json", "vocab.json", "merges.txt"
ADDED_TOKENS = "added_tokens.json"
TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP = "tokenizer_config.json", "special_tokens_map.json"
NOT_USED = "NOTUSED"
SPECIAL_TOKENS = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
}
SPECIAL_SYMBOLS = {*SPECIALS, MASK}
_UNKNOWN_ID = 3
_BYTES = frozenset(BYTE_CHARACTERS)
_REMEDY = (
    f"train it with special_tokens={[*SPECIALS, MASK]}; or rename {VOCABULARY} and {MERGES} to encoder.json and "
    "vocab.bpe, and dict.txt is made of your text"
)


class ForeignTokenizer(NamedTuple):
    """The tokenizer that a folder's files describe."""

    tokenizer: Tokenizer
    symbols: list[str]
    """Symbols of a model with it in the order of our ids (V,), the special ones included."""
    notes: tuple[str, ...] = ()
    mask_keeps_space: bool = False
    """True if the space before <mask> is a separate token, because <mask> has no lstrip."""
    max_length: int | None = None
    """Most tokens of a sequence, by the settings of the tokenizer."""


def changed_places(symbols: Sequence[str]) -> NDArray[np.int64] | None:
    """The id on the other side of each id (V,), in either direction; None where all are the same.

    Example: CamemBERT's symbols, ours or theirs -> [5, 1, 6, 3, 4, 0, 2, 7, ...].
    """
    ids = {symbol: number for number, symbol in enumerate(symbols)}
    order = np.arange(len(symbols))
    for special in ("<s>", "</s>"):
        if special in ids and f"{special}{NOT_USED}" in ids:
            one, other = ids[special], ids[f"{special}{NOT_USED}"]
            order[one], order[other] = other, one
    return order if (order != np.arange(len(symbols))).any() else None


def their_ids(tokenizer: Tokenizer, symbols: Sequence[str]) -> NDArray[np.int64] | None:
    """Hugging Face's id of each of our ids (V,), from the tokenizer and our symbols; None where all are the same."""
    if places := special_ids_of(tokenizer):
        return _first(places, len(symbols))
    return changed_places(symbols)


def _first(places: Sequence[int], size: int) -> NDArray[np.int64]:
    """All ids (V,), where those at `places` have changed places with the first ones.

    Example: [5, 4], 6 -> [5, 4, 2, 3, 1, 0].
    """
    order = np.arange(size)
    for number, wanted in enumerate(places):
        place = int(np.flatnonzero(order == wanted)[0])
        order[[number, place]] = order[[place, number]]
    return order


def on_the_other_side(symbols: Sequence[str]) -> list[str]:
    """The symbols in the order of their ids on the other side (V,), in either direction."""
    order = changed_places(symbols)
    return [symbols[number] for number in (range(len(symbols)) if order is None else order)]


def is_in(folder: Path) -> bool:
    """True if the folder has a tokenizer in Hugging Face's files; sentencepiece.bpe.model alone may be ours."""
    has = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    is_sentencepiece = SENTENCEPIECE_FILES[0] in has and has & {ADDED_TOKENS, TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP}
    return TOKENIZER in has or {VOCABULARY, MERGES} <= has or bool(is_sentencepiece)


def merges_of(folder: Path) -> list[tuple[str, str]] | None:
    """The merges of a folder's tokenizer; None if it is not a BPE."""
    content = read_file(folder / TOKENIZER)
    if content:
        with well_formed(folder / TOKENIZER):
            return [_pair(merge) for merge in content["model"]["merges"]] if kind_of_pieces(content) == "BPE" else None
    path = folder / MERGES
    if not path.is_file():
        return None
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        return [_pair(line) for line in lines if line and not line.startswith("#version")]
    except ValueError as error:  # UnicodeDecodeError is one
        raise ValueError(f"{path}: {error}: {COPY}.") from error


def load(folder: Path) -> Tokenizer:
    """The tokenizer in a folder; a warning names each field of its files that is not followed.

    Raises:
        ValueError: if a dict.txt beside it has other symbols, or as `read_tokenizer`.
    """
    foreign = read_tokenizer(folder)
    for note in foreign.notes:
        logger.warning(note)
    dictionary = folder / "dict.txt"
    if dictionary.is_file():
        lines = dictionary.read_text(encoding="utf-8", errors="replace").split("\n")
        listed = [*SPECIALS, *(line.rpartition(" ")[0] for line in lines if line)]
        if _with_mask(listed) != _with_mask(foreign.symbols):
            raise ValueError(
                f"{dictionary} does not have the symbols of the tokenizer beside it in the order of its ids: remove it "
                "(then it is made of the tokenizer); or, if it is fairseq's with bpe=hf_byte_bpe, copy "
                f"{VOCABULARY} to encoder.json and {MERGES} to vocab.bpe."
            )
    return foreign.tokenizer


def _with_mask(symbols: list[str]) -> list[str]:
    return symbols if MASK in symbols else [*symbols, MASK]


_OTHERS = {  # files of tokenizers of other kinds -> whose they are
    ("vocab.txt", "bpe.codes"): "fastBPE's for words that were cut before, as of PhoBERT and BERTweet",
    ("vocab.txt",): "BERT's WordPiece",
    ("spiece.model",): "SentencePiece's under the name of ALBERT and T5",
}


def read_tokenizer(folder: Path, *, num_symbols: int | None = None) -> ForeignTokenizer:
    """The tokenizer in a folder, for a model with embeddings of `num_symbols` symbols (V); None: for a new model.

    Raises:
        ValueError: if its files describe a tokenizer that is not RoBERTa's, XLM-R's or CamemBERT's.
    """
    notes = tuple(check_tokenizer(folder))
    length = read_file(folder / TOKENIZER_CONFIG).get("model_max_length")
    max_length = int(length) if isinstance(length, int | float) and SHORTEST <= length < 1 << 20 else None
    names = ((TOKENIZER,), (VOCABULARY, MERGES), SENTENCEPIECE_FILES)
    path = next((folder / files[0] for files in names if all((folder / name).is_file() for name in files)), None)
    if path is None:
        for others, whose in _OTHERS.items():
            if all((folder / name).is_file() for name in others):
                raise ValueError(
                    f"{folder} has the tokenizer {' and '.join(others)}, {whose}, which is not read here: use the "
                    "model with transformers, or start from another."
                )
        raise FileNotFoundError(
            f"No tokenizer in {folder}: looked for {TOKENIZER}; for {VOCABULARY} and {MERGES}; and for "
            f"{SENTENCEPIECE_FILES[0]}. Copy them from where the weights come from."
        )
    try:
        foreign = _read(path, num_symbols)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{path} is not a complete tokenizer ({type(error).__name__}: {error}): copy it again."
        ) from error
    except ValueError as error:
        if str(error).startswith(str(folder)):  # it names the file itself
            raise
        raise ValueError(f"{path}: {error}.".replace("..", ".")) from error
    return foreign._replace(notes=notes, max_length=max_length)


def _read(path: Path, num_symbols: int | None) -> ForeignTokenizer:
    folder = path.parent
    if path.name == SENTENCEPIECE_FILES[0]:
        return _sentencepiece_alone(SentencePiece.load(folder), folder, num_symbols)
    content = read_file(folder / TOKENIZER)
    if kind_of_pieces(content) == "Unigram":
        return _unigram(content, folder, num_symbols)
    if kind_of_pieces(content) == "WordLevel":
        return _word_level(content["model"]["vocab"], folder, num_symbols)
    merges = merges_of(folder)
    if merges is None:
        raise ValueError(
            f"its model is {kind_of_pieces(content)!r}, and those read here are BPE, Unigram and WordLevel"
        )
    pieces = content["model"]["vocab"] if content else read_file(path)
    is_of_bert = has_names_of_bert(folder)
    foreign = _byte_level_bpe(pieces, merges, _read_added(folder, pieces), num_symbols, may_be_anywhere=is_of_bert)
    tokens, _ = additions_of(foreign.tokenizer)
    step = content.get("pre_tokenizer") or {}  # over which the settings of transformers prevail, as there
    space = bool(read_file(folder / TOKENIZER_CONFIG).get("add_prefix_space", step.get("add_prefix_space")))
    further = {"special_ids": special_ids_of(foreign.tokenizer), "composes": composes_texts(content)}
    tokenizer = with_additions(base_of(foreign.tokenizer), tokens, add_prefix_space=space, **further)
    return foreign._replace(tokenizer=tokenizer)


def _byte_level_bpe(
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    added: Mapping[int, AddedToken],
    num_symbols: int | None,
    *,
    may_be_anywhere: bool,
) -> ForeignTokenizer:
    """Pieces are numbered as in GPT-2's encoder.json: bytes, results of merges, others.

    Example: from the released roberta-base this makes GPT-2's own two files, and fairseq's dict.txt without its counts.
    """
    all_ids = {**{token.content: number for number, token in added.items()}, **vocabulary}
    unknown = all_ids.get("<unk>", _UNKNOWN_ID)
    numbers = [number for number in vocabulary.values() if number != unknown]
    if len(set(numbers)) < len(numbers) or not set(map(type, numbers)) <= {int}:
        counts = Counter(numbers)
        twice = next(number for number in numbers if type(number) is not int or counts[number] > 1)
        raise ValueError(f"the id {twice!r} is not a whole number of one piece alone: {COPY}")
    ids = {**vocabulary, **{token.content: number for number, token in added.items() if _is_special(token.content)}}
    for character in BYTE_CHARACTERS:
        if character not in ids:
            raise ValueError(
                f"the byte character {character!r} has no id, and RoBERTa's BPE knows all 256: train it with "
                "initial_alphabet=ByteLevel.alphabet(), if it is of bytes"
            )
    for number, (first, second) in enumerate(merges, start=1):
        if first + second not in ids:
            raise ValueError(
                f"merge {number}, '{first} {second}': {first + second!r} has no id: pieces and merges belong to "
                "different tokenizers, so copy them again"
            )
    # In GPT-2's order: printable bytes, the others, results of merges.
    in_order = sorted(enumerate(BYTE_CHARACTERS), key=lambda each: chr(each[0]) != each[1])
    bpe_pieces = list(dict.fromkeys([*(byte for _, byte in in_order), *(first + second for first, second in merges)]))
    others = sorted((set(ids) - set(bpe_pieces) - SPECIAL_SYMBOLS), key=lambda piece: (ids[piece], piece))
    # A piece with a character that represents no byte is only a symbol: only an added token can find it.
    listed = [piece for piece in others if not piece.startswith(MADE_UP) and _BYTES.issuperset(piece)]
    pieces = [*bpe_pieces, *listed]
    symbol_by_id = {ids[symbol]: symbol for symbol in SPECIAL_SYMBOLS if symbol in ids}
    symbol_by_id |= {ids[symbol]: symbol if symbol.startswith(MADE_UP) else symbol_of(symbol) for symbol in others}
    symbol_by_id |= {ids[piece]: str(number) for number, piece in enumerate(pieces) if ids[piece] != unknown}
    return _with_added(ByteLevelBpe(pieces, merges), symbol_by_id, added, num_symbols, may_be_anywhere=may_be_anywhere)


def _with_added(
    tokenizer: Tokenizer,
    symbol_by_id: Mapping[int, str],
    added: Mapping[int, AddedToken],
    num_symbols: int | None,
    *,
    may_be_anywhere: bool = False,
) -> ForeignTokenizer:
    """The tokenizer with the added tokens, and the symbol of each id (V), theirs included."""
    pieces = set(pieces_of(tokenizer))
    by_id, tokens = dict(symbol_by_id), []
    masks = [token.lstrip for token in added.values() if token.content == MASK]
    # Without flags, transformers gives <mask> lstrip in the classes of SentencePiece alone.
    keeps_space = not masks[-1] if masks else not isinstance(tokenizer, SentencePiece)
    keeps_space = keeps_space and not isinstance(tokenizer, Whitespace)  # to which no space is a token
    for number, token in added.items():
        if token.content == MASK and (token.rstrip or token.single_word):
            raise ValueError(f"{MASK} has the flag rstrip or single_word, and RoBERTa's has neither")
        if _is_special(token.content):
            by_id[number] = token.content
            continue
        tokens.append(replace(token, is_piece=token.content in pieces))
        by_id.setdefault(number, symbol_of(token.content))
    theirs = with_gaps_filled(by_id, num_symbols)
    places = [theirs.index(symbol) for symbol in SPECIALS if symbol in theirs] if may_be_anywhere else []
    symbols = [theirs[number] for number in _first(places, len(theirs))] if places else on_the_other_side(theirs)
    if tuple(symbols[: len(SPECIALS)]) != SPECIALS:
        ids = ", ".join(str(symbols.index(symbol)) if symbol in symbols else "none" for symbol in SPECIALS)
        raise ValueError(f"{', '.join(SPECIALS)} must have the ids 0, 1, 2, 3, and they have {ids}: {_REMEDY}")
    tokenizer = with_additions(tokenizer, tokens, special_ids=places)
    return ForeignTokenizer(tokenizer, symbols, mask_keeps_space=keeps_space)


def _is_special(content: str) -> bool:
    """True if a text is one of the model's special symbols, which our tokenizers do not look for in texts."""
    return content.removesuffix(NOT_USED) in SPECIAL_SYMBOLS


def _word_level(vocabulary: Mapping[str, int], folder: Path, num_symbols: int | None) -> ForeignTokenizer:
    """Words between white space; an entry with white space in it is found in no text."""
    by_id: dict[int, str] = {}
    for word, number in vocabulary.items():
        if type(number) is not int or number in by_id:
            raise ValueError(f"the id {number!r} of {word!r} is not a whole number of one word alone: {COPY}")
        by_id[number] = word if is_word(word) or _is_special(word) else symbol_of(word)
    added = _read_added(folder, vocabulary)
    tokenizer = Whitespace.of_symbols(by_id[number] for number in sorted(by_id) if is_word(by_id[number]))
    return _with_added(tokenizer, by_id, added, num_symbols, may_be_anywhere=has_names_of_bert(folder))


def _unigram(content: Mapping[str, Any], folder: Path, num_symbols: int | None) -> ForeignTokenizer:
    pieces = [(str(piece), float(score)) for piece, score in content["model"]["vocab"]]
    piece_by_id = {number: piece for number, (piece, _) in enumerate(pieces)}
    unknown = content["model"].get("unk_id")
    if piece_by_id.get(unknown) != "<unk>":
        raise ValueError(f"its model has unk_id {unknown}, which is {piece_by_id.get(unknown)!r} and not <unk>")
    added = _read_added(folder, {piece: number for number, piece in piece_by_id.items()})
    if (folder / SENTENCEPIECE_FILES[0]).is_file():
        tokenizer = SentencePiece.load(folder)
        if others := set(tokenizer.symbols[len(CONTROLS) :]) - set(piece_by_id.values()):
            raise ValueError(
                f"it has no {min(others)!r}, which is a piece of {SENTENCEPIECE_FILES[0]} beside it: they are of "
                "different tokenizers, so copy them again"
            )
    else:
        tokenizer = SentencePiece(_sentencepiece_model(pieces, _charsmap(content)))
    return _with_added(tokenizer, piece_by_id, added, num_symbols)


def _sentencepiece_alone(tokenizer: SentencePiece, folder: Path, num_symbols: int | None) -> ForeignTokenizer:
    """A tokenizer as XLM-R's: pieces follow the special symbols; between them and <mask> there may be unused ids."""
    symbol_by_id = dict(enumerate([*SPECIALS, *tokenizer.symbols[len(CONTROLS) :]]))
    mask_id = len(symbol_by_id) if num_symbols is None or (folder / ADDED_TOKENS).is_file() else num_symbols - 1
    added = _read_added(folder, {**{piece: number for number, piece in symbol_by_id.items()}, MASK: mask_id})
    if not any(token.content == MASK for token in added.values()):
        symbol_by_id[mask_id] = MASK
    return _with_added(tokenizer, symbol_by_id, added, num_symbols)


def _sentencepiece_model(pieces: Sequence[tuple[str, float]], charsmap: bytes) -> bytes:
    """The SentencePiece model that tokenizer.json was made from: its pieces, scores and normalization."""
    pb2 = messages()
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
        is_text = piece not in SPECIAL_SYMBOLS and not piece.endswith(NOT_USED) and MADE_UP not in piece
        if is_text:
            proto.pieces.add(piece=piece, score=score, type=kinds.NORMAL)
    return bytes(proto.SerializeToString())


def _charsmap(content: Mapping[str, Any]) -> bytes:
    normalizer = content.get("normalizer") or {}
    for step in normalizer.get("normalizers", [normalizer]):
        if step.get("type") == "Precompiled":
            return base64.b64decode(step["precompiled_charsmap"])
    return b""


def _read_added(folder: Path, ids: Mapping[str, int]) -> dict[int, AddedToken]:
    """The added tokens of a folder by their ids, from all files that can name them.

    Args:
        ids: the id of each piece of the tokenizer itself.
    """
    config = read_file(folder / TOKENIZER_CONFIG)
    special_tokens = [*_special_tokens(read_file(folder / SPECIAL_TOKENS_MAP)), *_special_tokens(config)]
    special = {token["content"] if isinstance(token, dict) else token: token for token in special_tokens}
    # Later files win, in the order in which transformers reads them.
    by_content: dict[str, tuple[int, AddedToken]] = {}
    for content, number in read_file(folder / ADDED_TOKENS).items():
        by_content[content] = int(number), _added_token(content, special=content in special)
    for token in read_file(folder / TOKENIZER).get("added_tokens") or ():
        by_content[str(token["content"])] = int(token["id"]), _added_token(token)
    for number, token in (config.get("added_tokens_decoder") or {}).items():
        by_content[str(token["content"])] = int(number), _added_token(token)
    whole = (number for number in ids.values() if type(number) is int)  # others are refused with the pieces
    # Special tokens without an id get the next ones, as transformers gives them.
    last = max([*whole, *(number for number, _ in by_content.values())], default=-1)
    for content, token in special.items():
        if isinstance(token, dict) and content not in by_content and content in ids:
            by_content[content] = ids[content], _added_token(token, special=True)
        elif content not in by_content and (content not in ids or not _is_special(content)):
            by_content[content] = ids.get(content, last + 1), _added_token(token, special=True)
            last = max(last, by_content[content][0])
    return dict(sorted((number, token) for number, token in by_content.values()))


def _special_tokens(content: Mapping[str, Any]) -> Iterator[Any]:
    """The special tokens that a file names, texts or objects.

    Examples of values: "<s>"; {"content": "<s>", "lstrip": false}; a list of these; {"image_token": "<image>"}
    """
    for key, value in content.items():
        if key not in {*SPECIAL_TOKENS, "mask_token", "additional_special_tokens", "extra_special_tokens"}:
            continue
        if isinstance(value, dict) and "content" not in value:
            value = list(value.values())
        yield from filter(None, value if isinstance(value, list) else [value])


def _added_token(token: object, *, special: bool = False) -> AddedToken:
    """An added token from its entry in a file; as a mere text, it has the flags that transformers gives it."""
    if not isinstance(token, dict):
        return AddedToken(str(token), special=special, normalized=not special)
    names = ("lstrip", "rstrip", "single_word", "normalized", "special")
    flags = {name: bool(token[name]) for name in names if name in token}
    return AddedToken(str(token["content"]), **{"special": special, **flags})


def _pair(merge: Any) -> tuple[str, str]:
    parts = merge.split(" ") if isinstance(merge, str) else merge
    if len(parts) != 2:
        raise ValueError(f"the merge {merge!r} is not a pair of pieces")
    first, second = parts
    return str(first), str(second)


def with_gaps_filled(symbols: Mapping[int, str], size: int | None) -> list[str]:
    """Symbols by their ids -> all `size` symbols (None: up to the last id); ids without one get fairseq's madeupwords.

    Example: {0: "a", 2: "b"}, 3 -> ["a", "madeupword0001", "b"].
    """
    last = max(symbols, default=-1)
    if size is not None and last >= size:
        raise ValueError(
            f"the tokenizer gives {symbols[last]!r} the id {last}, and the model has embeddings of "
            f"{size:,} symbols: resize them with transformers (resize_token_embeddings), or remove the token"
        )
    if symbols and min(symbols) < 0:
        raise ValueError(f"the tokenizer gives {symbols[min(symbols)]!r} the id {min(symbols)}, which is below 0")
    if size is None and last >= 2 * len(symbols):
        raise ValueError(
            f"the tokenizer gives {symbols[last]!r} the id {last}, and has only {len(symbols):,} symbols: copy the "
            "file again, or number them without so many gaps"
        )
    return [symbols.get(number, f"{MADE_UP}{number:04}") for number in range(last + 1 if size is None else size)]
