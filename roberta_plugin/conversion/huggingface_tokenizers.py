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
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from roberta_plugin.data.tokenizers.sentencepiece import CONTROLS, SentencePiece
from roberta_plugin.data.tokenizers.sentencepiece import FILES as SENTENCEPIECE_FILES
from roberta_plugin.data.vocabulary import MADE_UP, MASK, SPECIALS, Row, Vocabulary
from roberta_plugin.files import atomic_write, write_text
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.kinds.records import WhiteSpace

TOKENIZER, VOCABULARY, MERGES = "tokenizer.json", "vocab.json", "merges.txt"
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
_WORD_START = "\u2581"


class FoundTokenizer(NamedTuple):
    """The tokenizer that a folder's files describe."""

    tokenizer: Tokenizer
    vocabulary: Vocabulary
    notes: tuple[str, ...] = ()
    mask_keeps_space: bool = False
    """Whether the space before <mask> is a separate token, because <mask> has no lstrip."""


def model_type_of(model: PortableModel) -> str:
    """The model_type of Hugging Face that goes with the tokenizer.

    Raises:
        ValueError: for character BPE, which transformers has no form for.
    """
    if isinstance(model.tokenizer, ByteLevelBpe):
        return "roberta"
    if isinstance(model.tokenizer, SentencePiece):
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
    if isinstance(model.tokenizer, ByteLevelBpe):
        built = _write_byte_level_bpe(model.tokenizer, model.vocabulary, folder)
        built.normalizer = _normalizer(white_space or model.white_space)
    else:
        assert isinstance(model.tokenizer, SentencePiece)
        built = _write_sentencepiece(model.tokenizer, model.vocabulary, folder)
    ids = special_ids(model.vocabulary)
    added = {ids[symbol]: _added(symbol, model) for symbol in sorted(ids, key=lambda symbol: ids[symbol])}
    _save(built, list(added.values()), folder)
    special_tokens = {**_SPECIAL_TOKENS, "mask_token": {"__type": "AddedToken", **_added(MASK, model)}}
    config = {
        "tokenizer_class": (
            _WITH_NORMALIZER if model_type == "roberta" and built.normalizer is not None else CLASSES[model_type]
        ),
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": max_length,
        "add_prefix_space": model_type != "roberta",
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


def _write_byte_level_bpe(tokenizer: ByteLevelBpe, vocabulary: Vocabulary, folder: Path) -> Any:
    """Write vocab.json and merges.txt; return the tokenizer of `tokenizers`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    back = vocabulary.model_to_tokenizer(tokenizer)
    ids: dict[str, int] = {}
    for number, symbol in enumerate(vocabulary.symbols):
        is_overwritten = number >= len(SPECIALS) and vocabulary.index(symbol) != number
        piece = tokenizer.pieces[back[number]] if back[number] >= 0 and not is_overwritten else symbol
        ids[f"{piece}_{number}" if piece in ids else piece] = number
    missing = [piece for piece in tokenizer.pieces if piece not in ids]
    if missing:
        raise ValueError(_missing(missing, "tokenizer"))
    built = Tokenizer(
        models.BPE(ids, tokenizer.merges, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False)
    )
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.post_processor = processors.RobertaProcessing(
        ("</s>", vocabulary.eos_id), ("<s>", vocabulary.bos_id), trim_offsets=True, add_prefix_space=False
    )
    write_pieces(ids, tokenizer.merges, folder)
    return built


def _normalizer(white_space: WhiteSpace) -> Any:
    """What byte-level BPE of `tokenizers` does to a text before; None for nothing."""
    from tokenizers import Regex, normalizers

    if white_space == "kept":
        return None
    if white_space == "spaces":
        return normalizers.Replace(Regex(r"[\r\n]"), " ")
    steps = [normalizers.Replace(Regex(r"\s+"), " ")] if white_space == "one_line" else []
    return normalizers.Sequence([*steps, normalizers.Strip()])


def _write_sentencepiece(tokenizer: SentencePiece, vocabulary: Vocabulary, folder: Path) -> Any:
    """Write the SentencePiece model; return the tokenizer of `tokenizers`."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    proto = proto_of(tokenizer)
    scores = {piece.piece: piece.score for piece in proto.pieces[len(SPECIALS) - 1 :]}
    symbols = on_the_other_side(vocabulary.symbols)
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


def proto_of(tokenizer: SentencePiece) -> Any:
    """The SentencePiece model with its pieces and settings, as a message of protobuf."""
    from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(tokenizer.model)


def _save(built: Any, added: Sequence[dict[str, Any]], folder: Path) -> None:
    from tokenizers import AddedToken

    built.add_special_tokens([AddedToken(**token) for token in added])
    write_text(folder / TOKENIZER, built.to_str(pretty=True))


def read_tokenizer(folder: Path, *, num_symbols: int) -> FoundTokenizer:
    """The tokenizer in a folder, for a model with embeddings of `num_symbols` symbols (V).

    Raises:
        ValueError: if they describe a tokenizer that is not RoBERTa's, XLM-R's or CamemBERT's.
    """
    path = folder / TOKENIZER
    try:
        if path.is_file():
            content = _object(path)
            kind = (content.get("model") or {}).get("type")
            if kind == "BPE":
                _check_byte_level(content)
                pieces, merges = content["model"]["vocab"], [_pair(merge) for merge in content["model"]["merges"]]
                found = _byte_level_bpe({**pieces, **_added_ids(content)}, merges, num_symbols)
                return found._replace(notes=_prefix_note(content), mask_keeps_space=_mask_keeps_space(content))
            if kind == "Unigram":
                return _unigram(content, folder, num_symbols)._replace(mask_keeps_space=_mask_keeps_space(content))
            raise ValueError(f"its model is {kind!r}, and RoBERTa's are BPE and Unigram")
        if (folder / VOCABULARY).is_file() and (folder / MERGES).is_file():
            path = folder / VOCABULARY
            lines = (folder / MERGES).read_text(encoding="utf-8").split("\n")
            merges = [_pair(line) for line in lines if line and not line.startswith("#version")]
            found = _byte_level_bpe(_object(path), merges, num_symbols)
            return found._replace(mask_keeps_space=not _config_strips(folder))
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


def _byte_level_bpe(ids: Mapping[str, int], merges: Sequence[tuple[str, str]], num_symbols: int) -> FoundTokenizer:
    """Pieces are numbered as in GPT-2's encoder.json: bytes, results of merges, others.

    Example: of the released roberta-base this makes GPT-2's own two files, and fairseq's dict.txt without its counts.
    """
    known = [piece for piece in _in_order_of_gpt2(merges) if piece in ids]
    others = sorted((set(ids) - set(known) - _SPECIAL_SYMBOLS), key=lambda piece: (ids[piece], piece))
    listed = [piece for piece in others if not piece.startswith(MADE_UP)]
    pieces = [*known, *listed]
    tokenizer = ByteLevelBpe(pieces, merges)
    found = {ids[symbol]: symbol for symbol in (*others, *_SPECIAL_SYMBOLS) if symbol in ids}
    found |= {ids[piece]: str(number) for number, piece in enumerate(pieces) if ids[piece] != _UNKNOWN_ID}
    return FoundTokenizer(tokenizer, vocabulary_of(with_gaps_filled(found, num_symbols)))


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
    vocabulary = vocabulary_of(on_the_other_side(with_gaps_filled(found, num_symbols)))
    if (folder / SENTENCEPIECE_FILES[0]).is_file():
        return FoundTokenizer(SentencePiece.load(folder), vocabulary)
    return FoundTokenizer(SentencePiece(_sentencepiece_model(pieces, _charsmap(content))), vocabulary)


def _sentencepiece_alone(tokenizer: SentencePiece, num_symbols: int) -> FoundTokenizer:
    """As XLM-R: pieces follow the special symbols; between them and <mask> there may be unused ids."""
    found = dict(enumerate([*SPECIALS, *tokenizer.symbols[len(CONTROLS) :]]))
    found[num_symbols - 1] = MASK
    return FoundTokenizer(tokenizer, vocabulary_of(with_gaps_filled(found, num_symbols)))


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
        is_text = piece not in _SPECIAL_SYMBOLS and not piece.endswith(NOT_USED) and MADE_UP not in piece
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
    if before.get("type") != "ByteLevel" or content.get("normalizer") not in _normalizers():
        raise ValueError(
            f"its text is prepared by {before.get('type')} and {(content.get('normalizer') or {}).get('type')}, and "
            "RoBERTa's by ByteLevel alone"
        )


def _normalizers() -> list[Any]:
    """The normalizers that an export writes, as tokenizer.json has them."""
    from tokenizers import Tokenizer, models

    found: list[Any] = [None]
    for white_space in get_args(WhiteSpace):
        built = Tokenizer(models.BPE())
        if (normalizer := _normalizer(white_space)) is not None:
            built.normalizer = normalizer
        found.append(json.loads(built.to_str())["normalizer"])
    return found


def _prefix_note(content: Mapping[str, Any]) -> tuple[str, ...]:
    if not (content.get("pre_tokenizer") or {}).get("add_prefix_space"):
        return ()
    return ("Its tokenizer puts a space in front of every text (add_prefix_space); ours does not: write it yourself.",)


def _added_ids(content: Mapping[str, Any]) -> dict[str, int]:
    return {str(token["content"]): int(token["id"]) for token in content.get("added_tokens") or ()}


def _mask_keeps_space(content: Mapping[str, Any]) -> bool:
    return any(token["content"] == MASK and not token["lstrip"] for token in content.get("added_tokens") or ())


def _config_strips(folder: Path) -> bool:
    """Whether the settings beside vocab.json give <mask> lstrip; without them it has none, as in transformers."""
    found: list[Any] = []
    for path in (folder / TOKENIZER_CONFIG, folder / SPECIAL_TOKENS_MAP):
        content = _object(path)
        found += [*(content.get("added_tokens_decoder") or {}).values(), content.get("mask_token")]
    tokens = (token for token in found if isinstance(token, dict) and token.get("content") == MASK)
    return next((bool(token.get("lstrip")) for token in tokens), False)


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


def with_gaps_filled(symbol_of: dict[int, str], size: int) -> list[str]:
    """Symbols by their ids -> all `size` symbols; ids without one get fairseq's names for such.

    Example: {0: "a", 2: "b"}, 3 -> ["a", "madeupword0001", "b"].
    """
    if symbol_of and max(symbol_of) >= size:
        raise ValueError(f"the tokenizer has the id {max(symbol_of)}, and the model embeddings of {size:,} symbols")
    if symbol_of and min(symbol_of) < 0:
        raise ValueError(f"the tokenizer gives {symbol_of[min(symbol_of)]!r} the id {min(symbol_of)}, which is below 0")
    return [symbol_of.get(number, f"{MADE_UP}{number:04}") for number in range(size)]
