"""Tokenizers and vocabularies <-> their files in Hugging Face's form, which transformers reads without our code.

    byte-level BPE   tokenizer.json  vocab.json  merges.txt             RobertaTokenizer
    SentencePiece    tokenizer.json  sentencepiece.bpe.model            XLMRobertaTokenizer, CamembertTokenizer
    all              tokenizer_config.json  special_tokens_map.json

Written are all files of a kind. Read is tokenizer.json, or the other files where it is missing: pieces, merges, scores,
a table of characters. Steps that RoBERTa's tokenizers do not have are refused. Character BPE has no such form: Moses'
rules, which cut text into words, are a program with lists of abbreviations.

Texts get the same ids as here, except that transformers reads the strings <s>, <pad>, </s> and <unk> of a text as
special symbols, unless it is called with split_special_tokens=True. With SentencePiece there are two more exceptions:
of two equally probable ways to cut a word tokenizers may choose another one, and it loses marks where a letter has
several.

A fine-tuned head reads no white space at the ends of a text (`kinds/records.py`), and neither does its exported
byte-level BPE, by a normalizer in tokenizer.json; its class is then PreTrainedTokenizerFast, for RobertaTokenizer
leaves normalizers out. SentencePiece has this rule itself.

Added tokens, other than the special symbols, and add_prefix_space become a `TokenizerWithAdditions`. Its ids are those
of transformers 5, whose classes make the steps of tokenizer.json anew; `tokenizers` alone may follow others. What
becomes of each field of the files is in the tables of `fields`.

`<mask>` takes the space before it along (lstrip), as in pretraining and in our hub: "end <mask>" is `end`, `<mask>`,
not `end`, a space, `<mask>`. A model that was imported with a tokenizer without lstrip keeps that.

Except for CamemBERT's, ids are the same on both sides: 0 <s>, 1 <pad>, 2 </s>, 3 <unk>, then the lines of dict.txt.
CamemBERT was trained with <s> and </s> as ordinary lines of dict.txt, so that 0 and 5, and 2 and 6, change places:

    Hugging Face   0 <s>NOTUSED  1 <pad>  2 </s>NOTUSED  3 <unk>  4 <unk>NOTUSED  5 <s>         6 </s>         7 ...
    ours           0 <s>         1 <pad>  2 </s>         3 <unk>  4 <unk>NOTUSED  5 <s>NOTUSED  6 </s>NOTUSED  7 ...

Shapes: V symbols of the vocabulary.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.conversion.fields import SHORTEST, check_tokenizer, kind_of_pieces
from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.data.tokenizers.additions import (
    AddedToken,
    additions_of,
    base_of,
    pieces_of,
    symbol_of,
    with_additions,
)
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from roberta_plugin.data.tokenizers.sentencepiece import CONTROLS, SentencePiece, messages
from roberta_plugin.data.tokenizers.sentencepiece import FILES as SENTENCEPIECE_FILES
from roberta_plugin.data.vocabulary import MADE_UP, MASK, SPECIALS, Row, Vocabulary
from roberta_plugin.files import atomic_write, write_text
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.kinds.records import WhiteSpace

TOKENIZER, VOCABULARY, MERGES = "tokenizer.json", "vocab.json", "merges.txt"
ADDED_TOKENS = "added_tokens.json"
TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP = "tokenizer_config.json", "special_tokens_map.json"
CLASSES = {"roberta": "RobertaTokenizer", "xlm-roberta": "XLMRobertaTokenizer", "camembert": "CamembertTokenizer"}
_WITH_NORMALIZER = "PreTrainedTokenizerFast"
NOT_USED = "NOTUSED"
_SPECIAL_TOKENS = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
}
_SPECIAL_SYMBOLS = {*SPECIALS, MASK}
_UNKNOWN_ID = 3
_BYTES = frozenset(BYTE_CHARACTERS)
_WORD_START = "\u2581"


class FoundTokenizer(NamedTuple):
    """The tokenizer that a folder's files describe."""

    tokenizer: Tokenizer
    vocabulary: Vocabulary
    notes: tuple[str, ...] = ()
    mask_keeps_space: bool = False
    """Whether the space before <mask> is a separate token, because <mask> has no lstrip."""
    max_length: int | None = None
    """Most tokens of a sequence, by the settings of the tokenizer."""


def model_type_of(model: PortableModel) -> str:
    """The model_type of Hugging Face that goes with the tokenizer.

    Raises:
        ValueError: for character BPE, which transformers has no form for.
    """
    tokenizer = base_of(model.tokenizer)
    if isinstance(tokenizer, ByteLevelBpe):
        return "roberta"
    if isinstance(tokenizer, SentencePiece):
        return "camembert" if f"<s>{NOT_USED}" in model.vocabulary.symbols else "xlm-roberta"
    raise ValueError(
        f"The tokenizer of {model.path} is a {model.tokenizer.name}: it cuts words by Moses' rules, which the files of "
        "transformers cannot express. Models with byte_level_bpe or sentencepiece can be exported; `--to fairseq` "
        "takes this one, too."
    )


def write_tokenizer(
    model: PortableModel, folder: Path, *, model_type: str, max_length: int, white_space: WhiteSpace | None = None
) -> None:
    """Write all files of the tokenizer into a folder; `white_space` is what the model reads of it (None: its head).

    Raises:
        ValueError: if transformers cannot give the same ids.
    """
    tokenizer = base_of(model.tokenizer)
    _, add_prefix_space = additions_of(model.tokenizer)
    added = {number: _added(symbol, model) for symbol, number in special_ids(model.vocabulary).items()}
    added |= {number: _flags(token) for number, token in _ids_of_added(model).items()}
    added = dict(sorted(added.items()))
    if isinstance(tokenizer, ByteLevelBpe):
        built = _write_byte_level_bpe(model, tokenizer, added, folder, add_prefix_space=add_prefix_space)
        if leaves_out_space(model.tokenizer):
            built.normalizer = _normalizer(white_space or model.white_space)
    else:
        assert isinstance(tokenizer, SentencePiece)
        built = _write_sentencepiece(tokenizer, model.vocabulary, added, folder)
    _save(built, added, folder)
    special_tokens = {**_SPECIAL_TOKENS, "mask_token": {"__type": "AddedToken", **_added(MASK, model)}}
    config = {
        "tokenizer_class": (
            _WITH_NORMALIZER if model_type == "roberta" and built.normalizer is not None else CLASSES[model_type]
        ),
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": max_length,
        "add_prefix_space": add_prefix_space or model_type != "roberta",
        "clean_up_tokenization_spaces": False,
        **special_tokens,
        **({"errors": "replace", "trim_offsets": True} if model_type == "roberta" else {}),
        "added_tokens_decoder": {str(number): token for number, token in added.items()},
    }
    if model_type == "camembert":
        config["additional_special_tokens"] = [f"{symbol}{NOT_USED}" for symbol in ("<s>", "</s>", "<unk>")]
    for name, content in {TOKENIZER_CONFIG: config, SPECIAL_TOKENS_MAP: special_tokens}.items():
        write_json(folder / name, content, ensure_ascii=False)


def write_pieces(ids: Mapping[str, int], merges: Sequence[tuple[str, str]], folder: Path) -> None:
    """Write vocab.json and merges.txt: the id of each piece, and the merges in their order."""
    with atomic_write(folder / VOCABULARY, "w") as file:
        json.dump(ids, file, ensure_ascii=False)
    with atomic_write(folder / MERGES, "w") as file:
        file.write("#version: 0.2\n" + "".join(f"{first} {second}\n" for first, second in merges))


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


def on_the_other_side(symbols: Sequence[str]) -> list[str]:
    """The symbols in the order of their ids on the other side (V,), in either direction."""
    order = changed_places(symbols)
    return [symbols[number] for number in (range(len(symbols)) if order is None else order)]


def special_ids(vocabulary: Vocabulary) -> dict[str, int]:
    """Ids on Hugging Face's side of the five special symbols."""
    order = changed_places(vocabulary.symbols)
    ids = {symbol: number for number, symbol in enumerate(SPECIALS)} | {MASK: vocabulary.mask_id}
    return ids if order is None else {symbol: int(order[number]) for symbol, number in ids.items()}


def _added(symbol: str, model: PortableModel) -> dict[str, Any]:
    takes_space = symbol == MASK and not model.mask_keeps_space
    flags = {"lstrip": takes_space, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {"content": symbol, **flags}


def _ids_of_added(model: PortableModel) -> dict[int, AddedToken]:
    """The id on Hugging Face's side of each added token."""
    tokens, _ = additions_of(model.tokenizer)
    pieces, to_model = pieces_of(model.tokenizer), model.vocabulary.tokenizer_to_model(model.tokenizer).tolist()
    numbers = dict(zip(pieces, to_model, strict=True))
    order = changed_places(model.vocabulary.symbols)
    found = {token.content: numbers[token.content] for token in tokens}
    lost = [content for content, number in found.items() if number == model.vocabulary.unk_id]
    if lost:
        raise ValueError(_missing(lost, "tokenizer"))
    return {found[token.content] if order is None else int(order[found[token.content]]): token for token in tokens}


def _flags(token: AddedToken) -> dict[str, Any]:
    return {name: value for name, value in asdict(token).items() if name != "is_piece"}


def _write_byte_level_bpe(
    model: PortableModel,
    tokenizer: ByteLevelBpe,
    added: Mapping[int, Mapping[str, Any]],
    folder: Path,
    *,
    add_prefix_space: bool,
) -> Any:
    """Write vocab.json and merges.txt; return the tokenizer of `tokenizers`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    vocabulary = model.vocabulary
    back = vocabulary.model_to_tokenizer(tokenizer)
    ids: dict[str, int] = {}
    for number, symbol in enumerate(vocabulary.symbols):
        is_overwritten = number >= len(SPECIALS) and vocabulary.index(symbol) != number
        name = added[number]["content"] if number in added else symbol
        piece = tokenizer.pieces[back[number]] if back[number] >= 0 and not is_overwritten else name
        ids[f"{piece}_{number}" if piece in ids else piece] = number
    missing = [piece for piece in tokenizer.pieces if piece not in ids]
    if missing:
        raise ValueError(_missing(missing, "tokenizer"))
    built = Tokenizer(
        models.BPE(ids, tokenizer.merges, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False)
    )
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    built.decoder = decoders.ByteLevel()
    built.post_processor = processors.RobertaProcessing(
        ("</s>", vocabulary.eos_id), ("<s>", vocabulary.bos_id), trim_offsets=True, add_prefix_space=add_prefix_space
    )
    write_pieces(ids, tokenizer.merges, folder)
    return built


def leaves_out_space(tokenizer: Tokenizer) -> bool:
    """Whether an exported tokenizer can read white space as a head does.

    SentencePiece does so itself. Byte-level BPE needs a normalizer, which sees only the parts of a text between added
    tokens.
    """
    tokens, _ = additions_of(tokenizer)
    return isinstance(base_of(tokenizer), SentencePiece) or not tokens


def _normalizer(white_space: WhiteSpace) -> Any:
    """What byte-level BPE of `tokenizers` does to a text before; None for nothing."""
    from tokenizers import Regex, normalizers

    if white_space == "kept":
        return None
    if white_space == "spaces":
        return normalizers.Replace(Regex(r"[\r\n]"), " ")
    steps = [normalizers.Replace(Regex(r"\s+"), " ")] if white_space == "one_line" else []
    return normalizers.Sequence([*steps, normalizers.Strip()])


def _write_sentencepiece(
    tokenizer: SentencePiece, vocabulary: Vocabulary, added: Mapping[int, Mapping[str, Any]], folder: Path
) -> Any:
    """Write the SentencePiece model; return the tokenizer of `tokenizers`.

    Added tokens are no pieces of it, or Unigram would find them within words, too: they take the ids after the pieces.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    proto = tokenizer.proto()
    scores = {piece.piece: piece.score for piece in proto.pieces[len(SPECIALS) - 1 :]}
    symbols = on_the_other_side(vocabulary.symbols)
    own = {number for number, token in added.items() if token["content"] not in {*scores, *_SPECIAL_SYMBOLS}}
    while own and len(symbols) - 1 in {*own, vocabulary.mask_id}:
        own.discard(len(symbols) - 1)
        symbols.pop()
    if own:
        named = ", ".join(repr(added[number]["content"]) for number in sorted(own))
        raise ValueError(
            f"The added tokens {named} have ids before pieces of the SentencePiece model, which the files of "
            "transformers cannot express: extend the vocabulary before tokens are added."
        )
    missing = sorted(scores.keys() - set(symbols))
    if missing:
        raise ValueError(_missing(missing, "SentencePiece model"))
    lowest = min(scores.values())
    pieces = [(symbol, 0.0 if symbol in _SPECIAL_SYMBOLS else scores.get(symbol, lowest)) for symbol in symbols]
    built = Tokenizer(models.Unigram(pieces, unk_id=vocabulary.unk_id, byte_fallback=False))
    steps: list[Any] = [normalizers.Replace(Regex(" {2,}"), " ")]
    if proto.normalizer_spec.precompiled_charsmap:
        steps.insert(0, normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap))
    built.normalizer = normalizers.Sequence(steps)
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(_WORD_START, prepend_scheme="always")]
    )
    built.decoder = decoders.Metaspace(_WORD_START, prepend_scheme="always")
    ids = special_ids(vocabulary)
    built.post_processor = processors.TemplateProcessing(
        single=["<s>", "$A", "</s>"],
        pair=["<s>", "$A", "</s>", "</s>", "$B", "</s>"],
        special_tokens=[(symbol, ids[symbol]) for symbol in ("<s>", "</s>")],
    )
    with atomic_write(folder / SENTENCEPIECE_FILES[0]) as file:
        file.write(tokenizer.model)
    return built


def _missing(pieces: Sequence[str], what: str) -> str:
    return (
        f"{len(pieces):,} pieces of the {what}, such as {pieces[0]!r}, are not in dict.txt and so are <unk> here, "
        "which the files of transformers cannot express: only models whose dict.txt has them all, as "
        "`roberta tokenizer train` writes it, can be exported. `--to fairseq` takes this one, too."
    )


def _save(built: Any, added: Mapping[int, Mapping[str, Any]], folder: Path) -> None:
    import tokenizers

    for number, token in added.items():
        (built.add_special_tokens if token["special"] else built.add_tokens)([tokenizers.AddedToken(**token)])
        assert built.token_to_id(token["content"]) == number
    write_text(folder / TOKENIZER, built.to_str(pretty=True))


def read_tokenizer(folder: Path, *, num_symbols: int) -> FoundTokenizer:
    """The tokenizer in a folder, for a model with embeddings of `num_symbols` symbols (V).

    Raises:
        ValueError: if they describe a tokenizer that is not RoBERTa's, XLM-R's or CamemBERT's.
    """
    path = folder / TOKENIZER
    notes = tuple(check_tokenizer(folder))
    length = _object(folder / TOKENIZER_CONFIG).get("model_max_length")
    max_length = int(length) if isinstance(length, int | float) and SHORTEST <= length < 1 << 20 else None
    try:
        if path.is_file():
            content = _object(path)
            kind = kind_of_pieces(content)
            if kind == "BPE":
                pieces, merges = content["model"]["vocab"], [_pair(merge) for merge in content["model"]["merges"]]
                found = _byte_level_bpe(pieces, merges, _read_added(folder, pieces), num_symbols)
                return _with_prefix_space(found, _has_prefix_space(folder, content))._replace(
                    notes=notes, max_length=max_length
                )
            if kind == "Unigram":
                return _unigram(content, folder, num_symbols)._replace(notes=notes, max_length=max_length)
            raise ValueError(f"its model is {kind!r}, and RoBERTa's are BPE and Unigram")
        if (folder / VOCABULARY).is_file() and (folder / MERGES).is_file():
            path = folder / VOCABULARY
            lines = (folder / MERGES).read_text(encoding="utf-8").split("\n")
            merges = [_pair(line) for line in lines if line and not line.startswith("#version")]
            pieces = _object(path)
            found = _byte_level_bpe(pieces, merges, _read_added(folder, pieces), num_symbols)
            return _with_prefix_space(found, _has_prefix_space(folder, {}))._replace(notes=notes, max_length=max_length)
        if (folder / SENTENCEPIECE_FILES[0]).is_file():
            path = folder / SENTENCEPIECE_FILES[0]
            return _sentencepiece_alone(SentencePiece.load(folder), folder, num_symbols)._replace(
                notes=notes, max_length=max_length
            )
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
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], added: Mapping[int, AddedToken], num_symbols: int
) -> FoundTokenizer:
    """Pieces are numbered as in GPT-2's encoder.json: bytes, results of merges, others.

    Example: of the released roberta-base this makes GPT-2's own two files, and fairseq's dict.txt without its counts.
    """
    ids = {**vocabulary, **{token.content: number for number, token in added.items() if _is_special(token.content)}}
    known = [piece for piece in _in_order_of_gpt2(merges) if piece in ids]
    others = sorted((set(ids) - set(known) - _SPECIAL_SYMBOLS), key=lambda piece: (ids[piece], piece))
    # Those of other characters than bytes have, which only an added token can find, are symbols alone.
    listed = [piece for piece in others if not piece.startswith(MADE_UP) and _BYTES.issuperset(piece)]
    pieces = [*known, *listed]
    found = {ids[symbol]: symbol for symbol in _SPECIAL_SYMBOLS if symbol in ids}
    found |= {ids[symbol]: symbol if symbol.startswith(MADE_UP) else symbol_of(symbol) for symbol in others}
    found |= {ids[piece]: str(number) for number, piece in enumerate(pieces) if ids[piece] != _UNKNOWN_ID}
    return _with_added(ByteLevelBpe(pieces, merges), found, added, num_symbols)


def _with_added(
    tokenizer: Tokenizer, symbol_by_id: Mapping[int, str], added: Mapping[int, AddedToken], num_symbols: int
) -> FoundTokenizer:
    """The tokenizer with the added tokens, and the symbol of each id (V), theirs included."""
    pieces = set(pieces_of(tokenizer))
    found, tokens = dict(symbol_by_id), []
    masks = [token.lstrip for token in added.values() if token.content == MASK]
    # Without flags, transformers gives <mask> lstrip in the classes of SentencePiece alone.
    keeps_space = not masks[-1] if masks else not isinstance(tokenizer, SentencePiece)
    for number, token in added.items():
        if token.content == MASK and (token.rstrip or token.single_word):
            raise ValueError(f"{MASK} has the flag rstrip or single_word, and RoBERTa's has neither")
        if _is_special(token.content):
            found[number] = token.content
            continue
        tokens.append(replace(token, is_piece=token.content in pieces))
        found.setdefault(number, symbol_of(token.content))
    vocabulary = vocabulary_of(on_the_other_side(with_gaps_filled(found, num_symbols)))
    return FoundTokenizer(with_additions(tokenizer, tokens), vocabulary, mask_keeps_space=keeps_space)


def _with_prefix_space(found: FoundTokenizer, add_prefix_space: bool) -> FoundTokenizer:
    tokens, _ = additions_of(found.tokenizer)
    tokenizer = with_additions(base_of(found.tokenizer), tokens, add_prefix_space=add_prefix_space)
    return found._replace(tokenizer=tokenizer)


def _is_special(content: str) -> bool:
    """Whether a text is one of the model's special symbols, which our tokenizers do not look for in texts."""
    return content.removesuffix(NOT_USED) in _SPECIAL_SYMBOLS


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
    unknown = content["model"].get("unk_id")
    if found.get(unknown) != "<unk>":
        raise ValueError(f"its model has unk_id {unknown}, which is {found.get(unknown)!r} and not <unk>")
    added = _read_added(folder, {piece: number for number, piece in found.items()})
    if (folder / SENTENCEPIECE_FILES[0]).is_file():
        tokenizer = SentencePiece.load(folder)
    else:
        tokenizer = SentencePiece(_sentencepiece_model(pieces, _charsmap(content)))
    return _with_added(tokenizer, found, added, num_symbols)


def _sentencepiece_alone(tokenizer: SentencePiece, folder: Path, num_symbols: int) -> FoundTokenizer:
    """As XLM-R: pieces follow the special symbols; between them and <mask> there may be unused ids."""
    found = dict(enumerate([*SPECIALS, *tokenizer.symbols[len(CONTROLS) :]]))
    mask_id = len(found) if (folder / ADDED_TOKENS).is_file() else num_symbols - 1
    added = _read_added(folder, {**{piece: number for number, piece in found.items()}, MASK: mask_id})
    if not any(token.content == MASK for token in added.values()):
        found[mask_id] = MASK
    return _with_added(tokenizer, found, added, num_symbols)


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
        is_text = piece not in _SPECIAL_SYMBOLS and not piece.endswith(NOT_USED) and MADE_UP not in piece
        if is_text:
            proto.pieces.add(piece=piece, score=score, type=kinds.NORMAL)
    return bytes(proto.SerializeToString())


def _charsmap(content: Mapping[str, Any]) -> bytes:
    normalizer = content.get("normalizer") or {}
    for step in normalizer.get("normalizers", [normalizer]):
        if step.get("type") == "Precompiled":
            return base64.b64decode(step["precompiled_charsmap"])
    return b""


def _has_prefix_space(folder: Path, content: Mapping[str, Any]) -> bool:
    """Whether texts get a space in front; the settings of transformers prevail over tokenizer.json, as there."""
    step = content.get("pre_tokenizer") or {}
    return bool(_object(folder / TOKENIZER_CONFIG).get("add_prefix_space", step.get("add_prefix_space")))


def _read_added(folder: Path, ids: Mapping[str, int]) -> dict[int, AddedToken]:
    """The added tokens of a folder by their ids, from all files that can name them.

    Args:
        ids: the id of each piece of the tokenizer itself.
    """
    config = _object(folder / TOKENIZER_CONFIG)
    special_map = _object(folder / SPECIAL_TOKENS_MAP)
    named = [
        token
        for source in (special_map, config)
        for key, value in source.items()
        if key in {*_SPECIAL_TOKENS, "mask_token", "additional_special_tokens", "extra_special_tokens"}
        for token in (value if isinstance(value, list) else value.values() if _is_table(value) else [value])
        if token
    ]
    special = {token["content"] if isinstance(token, dict) else token: token for token in named}
    found: dict[str, tuple[int, AddedToken]] = {}
    for content, number in _object(folder / ADDED_TOKENS).items():
        found[content] = int(number), _added_token(content, special=content in special)
    for token in _object(folder / TOKENIZER).get("added_tokens") or ():
        found[str(token["content"])] = int(token["id"]), _added_token(token)
    for number, token in (config.get("added_tokens_decoder") or {}).items():
        found[str(token["content"])] = int(number), _added_token(token)
    for content, token in special.items():
        if isinstance(token, dict) and content not in found and content in ids:
            found[content] = ids[content], _added_token(token, special=True)
        elif content not in found and (content not in ids or not _is_special(content)):
            after = max([*ids.values(), *(number for number, _ in found.values())], default=-1) + 1
            found[content] = ids.get(content, after), _added_token(token, special=True)
    return dict(sorted((number, token) for number, token in found.values()))


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and "content" not in value


def _added_token(token: Any, *, special: bool = False) -> AddedToken:
    """An added token from its entry in a file; as a mere text, it has the flags that transformers gives it."""
    if not isinstance(token, dict):
        return AddedToken(str(token), special=special, normalized=not special)
    names = ("lstrip", "rstrip", "single_word", "normalized", "special")
    flags = {name: bool(token[name]) for name in names if name in token}
    return AddedToken(str(token["content"]), **{"special": special, **flags})


def _object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no file."""
    return read_json(path, keys=(), remedy="copy the file again") or {}


def _pair(merge: Any) -> tuple[str, str]:
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return str(first), str(second)


def vocabulary_of(symbols: Sequence[str]) -> Vocabulary:
    """The vocabulary with these symbols in this order (V,), special ones included."""
    if tuple(symbols[: len(SPECIALS)]) != SPECIALS:
        raise ValueError(
            f"A vocabulary must begin with {' '.join(SPECIALS)}, and this one begins with "
            f"{' '.join(symbols[: len(SPECIALS)])}: it is not RoBERTa's."
        )
    listed = list(symbols[len(SPECIALS) :])
    if listed and listed[-1] == MASK:
        listed.pop()  # every vocabulary has it at its end
    return Vocabulary(Row(symbol, 1) for symbol in listed)


def with_gaps_filled(symbols: Mapping[int, str], size: int) -> list[str]:
    """Symbols by their ids -> all `size` symbols; ids without one get fairseq's names for such.

    Example: {0: "a", 2: "b"}, 3 -> ["a", "madeupword0001", "b"].
    """
    if symbols and max(symbols) >= size:
        raise ValueError(
            f"the tokenizer gives {symbols[max(symbols)]!r} the id {max(symbols)}, and the model has embeddings of "
            f"{size:,} symbols: resize them with transformers (resize_token_embeddings), or remove the token"
        )
    if symbols and min(symbols) < 0:
        raise ValueError(f"the tokenizer gives {symbols[min(symbols)]!r} the id {min(symbols)}, which is below 0")
    return [symbols.get(number, f"{MADE_UP}{number:04}") for number in range(size)]
