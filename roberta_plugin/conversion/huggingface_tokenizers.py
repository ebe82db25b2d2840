"""A tokenizer and its vocabulary -> files that transformers reads without our code.

    byte-level BPE   tokenizer.json  vocab.json  merges.txt             RobertaTokenizer
    SentencePiece    tokenizer.json  sentencepiece.bpe.model            XLMRobertaTokenizer, CamembertTokenizer
    all              tokenizer_config.json  special_tokens_map.json

Ids in these files are the model's. `<mask>` takes the space before it along (lstrip), as it does in pretraining and in
our hub: "end <mask>" is `end`, `<mask>`, not `end`, a space, `<mask>`. A model that was imported with a tokenizer
without lstrip keeps that.

Texts get the same ids as here, except that transformers reads the strings <s>, <pad>, </s> and <unk> of a text as
special symbols, unless it is called with split_special_tokens=True. With SentencePiece there are two more exceptions:
of two equally probable ways to cut a word tokenizers may choose another one, and it loses marks where a letter has
several.

Character BPE has no such form: Moses' rules, which cut text into words, are a program with lists of abbreviations.

Shapes: V symbols of the vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.conversion.huggingface_vocabulary import NOT_USED, changed_places
from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.data.tokenizers.sentencepiece import FILES as SENTENCEPIECE_FILES
from roberta_plugin.data.tokenizers.sentencepiece import SentencePiece
from roberta_plugin.data.vocabulary import MASK, SPECIALS, Vocabulary
from roberta_plugin.files import atomic_write

TOKENIZER, VOCABULARY, MERGES = "tokenizer.json", "vocab.json", "merges.txt"
_SPECIAL_TOKENS = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
}
CLASSES = {"roberta": "RobertaTokenizer", "xlm-roberta": "XLMRobertaTokenizer", "camembert": "CamembertTokenizer"}
_WORD_START = "\u2581"


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


def write_tokenizer(model: PortableModel, folder: Path, *, model_type: str, max_length: int) -> None:
    """Write all files of the tokenizer into a folder.

    Args:
        model: the model of the tokenizer.
        folder: an existing folder.
        model_type: see `model_type_of`.
        max_length: most tokens of the model.

    Raises:
        ValueError: if transformers cannot give the same ids.
    """
    if isinstance(model.tokenizer, ByteLevelBpe):
        built = _write_byte_level_bpe(model.tokenizer, model.vocabulary, folder)
    else:
        assert isinstance(model.tokenizer, SentencePiece)
        built = _write_sentencepiece(model.tokenizer, model.vocabulary, folder)
    added = {number: _added(symbol, model) for number, symbol in sorted(special_ids(model.vocabulary).items())}
    _save(built, list(added.values()), folder)
    special_tokens = {**_SPECIAL_TOKENS, "mask_token": {"__type": "AddedToken", **_added(MASK, model)}}
    config = {
        "tokenizer_class": CLASSES[model_type],
        "model_max_length": max_length,
        "add_prefix_space": model_type != "roberta",
        "clean_up_tokenization_spaces": False,
        **special_tokens,
        **({"errors": "replace", "trim_offsets": True} if model_type == "roberta" else {}),
        "added_tokens_decoder": {str(number): token for number, token in added.items()},
    }
    if model_type == "camembert":
        config["additional_special_tokens"] = [f"{symbol}{NOT_USED}" for symbol in ("<s>", "</s>", "<unk>")]
    for name, content in {"tokenizer_config.json": config, "special_tokens_map.json": special_tokens}.items():
        with atomic_write(folder / name, "w") as file:
            json.dump(content, file, indent=2, ensure_ascii=False)


def special_ids(vocabulary: Vocabulary) -> dict[int, str]:
    """Ids on Hugging Face's side of the five special symbols."""
    order = changed_places(vocabulary.symbols)
    ids = {symbol: number for number, symbol in enumerate(SPECIALS)} | {MASK: vocabulary.mask_id}
    return {int(order[number]) if order is not None else number: symbol for symbol, number in ids.items()}


def their_symbols(vocabulary: Vocabulary) -> list[str]:
    """The symbols in the order of their ids on Hugging Face's side (V,)."""
    order = changed_places(vocabulary.symbols)
    return [vocabulary.symbols[number] for number in (range(len(vocabulary)) if order is None else order)]


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
    with atomic_write(folder / VOCABULARY, "w") as file:
        json.dump(ids, file, ensure_ascii=False)
    with atomic_write(folder / MERGES, "w") as file:
        file.write("#version: 0.2\n" + "".join(f"{first} {second}\n" for first, second in tokenizer.merges))
    return built


def _write_sentencepiece(tokenizer: SentencePiece, vocabulary: Vocabulary, folder: Path) -> Any:
    """Write the SentencePiece model; return the tokenizer of `tokenizers`."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    proto = proto_of(tokenizer)
    scores = {piece.piece: piece.score for piece in proto.pieces[len(SPECIALS) - 1 :]}
    symbols = their_symbols(vocabulary)
    missing = sorted(scores.keys() - set(symbols))
    if missing:
        raise ValueError(_missing(missing, "SentencePiece model"))
    lowest = min(scores.values())
    special = {*SPECIALS, MASK}
    pieces = [(symbol, 0.0 if symbol in special else scores.get(symbol, lowest)) for symbol in symbols]
    built = Tokenizer(models.Unigram(pieces, unk_id=vocabulary.unk_id, byte_fallback=False))
    steps: list[Any] = [normalizers.Replace(Regex(" {2,}"), " ")]
    if proto.normalizer_spec.precompiled_charsmap:
        steps.insert(0, normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap))
    built.normalizer = normalizers.Sequence(steps)
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(_WORD_START, prepend_scheme="always")]
    )
    built.decoder = decoders.Metaspace(_WORD_START, prepend_scheme="always")
    ids = {symbol: number for number, symbol in special_ids(vocabulary).items()}
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
    with atomic_write(folder / TOKENIZER, "w") as file:
        file.write(built.to_str(pretty=True))
