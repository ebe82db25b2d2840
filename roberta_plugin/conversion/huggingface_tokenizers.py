"""Tokenizers and vocabularies -> files in Hugging Face's form, which transformers reads without our code.

    byte-level BPE   tokenizer.json  vocab.json  merges.txt             RobertaTokenizer
    SentencePiece    tokenizer.json  sentencepiece.bpe.model            XLMRobertaTokenizer, CamembertTokenizer
    whitespace       tokenizer.json (WordLevel)                         PreTrainedTokenizerFast
    all              tokenizer_config.json  special_tokens_map.json

`data/tokenizers/huggingface` reads these files and explains how ids correspond. Character BPE has no such form: Moses'
rules, which cut text into words, are a program with lists of abbreviations.

Texts get the same ids as here, except that transformers reads the strings <s>, <pad>, </s> and <unk> of a text as
special symbols, unless it is called with split_special_tokens=True. With SentencePiece there are two more exceptions:
the library tokenizers may choose another one of two equally probable ways to cut a word, and it loses marks of letters
with several marks.

A fine-tuned head reads no white space at the ends of a text (`finetuning/records.py`). Its exported byte-level BPE does
the same by a normalizer in tokenizer.json. Its class is then PreTrainedTokenizerFast, because RobertaTokenizer leaves
normalizers out. But only RobertaTokenizer follows add_prefix_space, without which a list of words loses the spaces
between them. So taggers, which often get lists of words, have RobertaTokenizer and no normalizer. SentencePiece has
both rules itself.

`<mask>` includes the space before it (lstrip), as in pretraining and in our hub: "end <mask>" is `end`, `<mask>`, not
`end`, a space, `<mask>`. A model that was imported with a tokenizer without lstrip keeps the space.

Shapes: V symbols of the vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.data.tokenizers.additions import (
    AddedToken,
    additions_of,
    base_of,
    composes,
    pieces_of,
    special_ids_of,
)
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.data.tokenizers.huggingface import (
    MERGES,
    NOT_USED,
    SPECIAL_SYMBOLS,
    SPECIAL_TOKENS,
    SPECIAL_TOKENS_MAP,
    TOKENIZER,
    TOKENIZER_CONFIG,
    VOCABULARY,
    on_the_other_side,
    their_ids,
)
from roberta_plugin.data.tokenizers.huggingface_fields import OF_BERT
from roberta_plugin.data.tokenizers.sentencepiece import FILES as SENTENCEPIECE_FILES
from roberta_plugin.data.tokenizers.sentencepiece import WORD_START, SentencePiece
from roberta_plugin.data.tokenizers.whitespace import Whitespace
from roberta_plugin.data.vocabulary import MASK, SPECIALS
from roberta_plugin.files import atomic_write, write_text
from roberta_plugin.finetuning.records import WhiteSpace
from roberta_plugin.json_files import write_json

CLASSES = {"roberta": "RobertaTokenizer", "xlm-roberta": "XLMRobertaTokenizer", "camembert": "CamembertTokenizer"}
_WITH_NORMALIZER = "PreTrainedTokenizerFast"
_NAMES_OF_BERT = {ours: theirs for theirs, ours in OF_BERT.items()}


def model_type_of(model: PortableModel) -> str:
    """The model_type of Hugging Face that goes with the tokenizer.

    Raises:
        ValueError: for character BPE, which transformers does not support.
    """
    tokenizer = base_of(model.tokenizer)
    if isinstance(tokenizer, ByteLevelBpe | Whitespace):
        return "roberta"
    if isinstance(tokenizer, SentencePiece):
        return "camembert" if f"<s>{NOT_USED}" in model.vocabulary.symbols else "xlm-roberta"
    raise ValueError(
        f"The tokenizer of {model.path} is a {model.tokenizer.name}: it cuts words by Moses' rules, which the files of "
        "transformers cannot express. Models with byte_level_bpe, sentencepiece or whitespace can be exported. This "
        "model can be exported by `--to fairseq`."
    )


def write_tokenizer(
    model: PortableModel, folder: Path, *, model_type: str, max_length: int, white_space: WhiteSpace | None = None
) -> None:
    """Write all files of the tokenizer into a folder. `white_space` is how the model reads it; None: as its head does.

    Raises:
        ValueError: if transformers cannot give the same ids.
    """
    from tokenizers import normalizers

    tokenizer = base_of(model.tokenizer)
    _, add_prefix_space = additions_of(model.tokenizer)
    added = {number: _added(symbol, model) for symbol, number in special_ids(model).items()}
    added |= {number: token.flags for number, token in _ids_of_added(model).items()}
    added = dict(sorted(added.items()))
    if isinstance(tokenizer, ByteLevelBpe):
        built = _write_byte_level_bpe(model, tokenizer, added, folder, add_prefix_space=add_prefix_space)
        if leaves_out_space(model):
            built.normalizer = _normalizer(white_space or model.white_space)
        if composes(model.tokenizer):
            steps = [step for step in (normalizers.NFC(), built.normalizer) if step is not None]
            built.normalizer = normalizers.Sequence(steps) if len(steps) > 1 else steps[0]
    elif isinstance(tokenizer, Whitespace):
        built = _word_level(model, added)
    else:
        assert isinstance(tokenizer, SentencePiece)
        built = _write_sentencepiece(model, tokenizer, added, folder)
    _save(built, added, folder)
    special_tokens: dict[str, Any] = {key: their_symbol(symbol, model) for key, symbol in SPECIAL_TOKENS.items()}
    special_tokens |= {"mask_token": _added(MASK, model)}
    config = {
        "tokenizer_class": _class_of(model, built, model_type),
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": max_length,
        "add_prefix_space": add_prefix_space or model_type != "roberta",
        "clean_up_tokenization_spaces": False,
        **special_tokens,
        "mask_token": {"__type": "AddedToken", **_added(MASK, model)},
        **({"errors": "replace", "trim_offsets": True} if isinstance(tokenizer, ByteLevelBpe) else {}),
        "added_tokens_decoder": {str(number): token for number, token in added.items()},
    }
    if model_type == "camembert":
        config["additional_special_tokens"] = [f"{symbol}{NOT_USED}" for symbol in ("<s>", "</s>", "<unk>")]
    for name, content in {TOKENIZER_CONFIG: config, SPECIAL_TOKENS_MAP: special_tokens}.items():
        write_json(folder / name, content, ensure_ascii=False)


def _class_of(model: PortableModel, built: Any, model_type: str) -> str:
    """The class of transformers for the tokenizer; see the head of this file.

    RobertaTokenizer is not used for words alone, beside a normalizer, or with the special symbols of BERT: it would
    replace all of these by its own.
    """
    is_changed = built.normalizer is not None or special_ids_of(model.tokenizer)
    if isinstance(base_of(model.tokenizer), Whitespace) or (model_type == "roberta" and is_changed):
        return _WITH_NORMALIZER
    return CLASSES[model_type]


def write_pieces(ids: Mapping[str, int], merges: Sequence[tuple[str, str]], folder: Path) -> None:
    """Write vocab.json and merges.txt: the id of each piece, and the merges in their order."""
    with atomic_write(folder / VOCABULARY, "w") as file:
        json.dump(ids, file, ensure_ascii=False)
    with atomic_write(folder / MERGES, "w") as file:
        file.write("#version: 0.2\n" + "".join(f"{first} {second}\n" for first, second in merges))


def special_ids(model: PortableModel) -> dict[str, int]:
    """Hugging Face's ids of the five special symbols."""
    vocabulary = model.vocabulary
    order = _order(model)
    ids = {symbol: number for number, symbol in enumerate(SPECIALS)} | {MASK: vocabulary.mask_id}
    return ids if order is None else {symbol: int(order[number]) for symbol, number in ids.items()}


def _order(model: PortableModel) -> NDArray[np.int64] | None:
    """The written id of each of our ids (V,); None if all are the same."""
    return None if model.keeps_ids else their_ids(model.tokenizer, model.vocabulary.symbols)


def _added(symbol: str, model: PortableModel) -> dict[str, Any]:
    takes_space = symbol == MASK and not model.mask_keeps_space
    flags = {"lstrip": takes_space, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {"content": their_symbol(symbol, model), **flags}


def their_symbol(symbol: str, model: PortableModel) -> str:
    """The name of a special symbol in Hugging Face's tokenizer."""
    return _NAMES_OF_BERT.get(symbol, symbol) if special_ids_of(model.tokenizer) else symbol


def _ids_of_added(model: PortableModel) -> dict[int, AddedToken]:
    """Hugging Face's id of each added token."""
    tokens, _ = additions_of(model.tokenizer)
    pieces, to_model = pieces_of(model.tokenizer), model.vocabulary.tokenizer_to_model(model.tokenizer).tolist()
    numbers = dict(zip(pieces, to_model, strict=True))
    order = _order(model)
    ids = {token.content: numbers[token.content] for token in tokens}
    lost = [content for content, number in ids.items() if number == model.vocabulary.unk_id]
    if lost:
        raise ValueError(_missing(lost, "tokenizer"))
    return {ids[token.content] if order is None else int(order[ids[token.content]]): token for token in tokens}


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
    order = _order(model)
    ids: dict[str, int] = {}
    for number, symbol in enumerate(vocabulary.symbols):
        place = number if order is None else int(order[number])
        is_overwritten = number >= len(SPECIALS) and vocabulary.index(symbol) != number
        name = added[place]["content"] if place in added else symbol
        piece = tokenizer.pieces[back[number]] if back[number] >= 0 and not is_overwritten else name
        ids[f"{piece}_{place}" if piece in ids else piece] = place
    missing = [piece for piece in tokenizer.pieces if piece not in ids]
    if missing:
        raise ValueError(_missing(missing, "tokenizer"))
    built = Tokenizer(
        models.BPE(ids, tokenizer.merges, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False)
    )
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    built.decoder = decoders.ByteLevel()
    sep, cls = ((their_symbol(symbol, model), special_ids(model)[symbol]) for symbol in ("</s>", "<s>"))
    built.post_processor = processors.RobertaProcessing(sep, cls, trim_offsets=True, add_prefix_space=add_prefix_space)
    write_pieces(ids, tokenizer.merges, folder)
    return built


def _word_level(model: PortableModel, added: Mapping[int, Mapping[str, Any]]) -> Any:
    """The tokenizer of `tokenizers`. Symbols that are not words of a text get names with a space, which no word has."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = set(base_of(model.tokenizer).symbols)
    order, vocabulary = _order(model), model.vocabulary
    ids: dict[str, int] = {}
    for number, symbol in enumerate(vocabulary.symbols):
        place = number if order is None else int(order[number])
        is_found = symbol in words and vocabulary.index(symbol) == number
        ids[added[place]["content"] if place in added else symbol if is_found else f"{symbol} {number}"] = place
    built = Tokenizer(models.WordLevel(ids, unk_token=their_symbol("<unk>", model)))
    built.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    sep, cls = ((their_symbol(symbol, model), special_ids(model)[symbol]) for symbol in ("</s>", "<s>"))
    built.post_processor = processors.RobertaProcessing(sep, cls, trim_offsets=False, add_prefix_space=False)
    return built


def leaves_out_space(model: PortableModel) -> bool:
    """True if an exported tokenizer reads white space as the head does.

    SentencePiece and whitespace do so themselves. Byte-level BPE needs a normalizer, which only sees the parts of a
    text between added tokens, and which the class for lists of words does not support.
    """
    tokens, _ = additions_of(model.tokenizer)
    takes_normalizer = not tokens and not model.head.hugging_face.is_asked_by_words
    return isinstance(base_of(model.tokenizer), SentencePiece | Whitespace) or takes_normalizer


def _normalizer(white_space: WhiteSpace) -> Any:
    """The normalizer of byte-level BPE in `tokenizers`; None if it needs none."""
    from tokenizers import Regex, normalizers

    if white_space == "kept":
        return None
    if white_space == "spaces":
        return normalizers.Replace(Regex(r"[\r\n]"), " ")
    steps = [normalizers.Replace(Regex(r"\s+"), " ")] if white_space == "one_line" else []
    return normalizers.Sequence([*steps, normalizers.Strip()])


def _write_sentencepiece(
    model: PortableModel, tokenizer: SentencePiece, added: Mapping[int, Mapping[str, Any]], folder: Path
) -> Any:
    """Write the SentencePiece model; return the tokenizer of `tokenizers`.

    Added tokens are not pieces of the model, because Unigram would also find them within words. They have the ids after
    the pieces.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    proto, vocabulary = tokenizer.proto(), model.vocabulary
    scores = {piece.piece: piece.score for piece in proto.pieces[len(SPECIALS) - 1 :]}
    symbols = list(vocabulary.symbols) if model.keeps_ids else on_the_other_side(vocabulary.symbols)
    added_ids = {number for number, token in added.items() if token["content"] not in {*scores, *SPECIAL_SYMBOLS}}
    while added_ids and len(symbols) - 1 in {*added_ids, vocabulary.mask_id}:
        added_ids.discard(len(symbols) - 1)
        symbols.pop()
    if added_ids:
        contents = ", ".join(repr(added[number]["content"]) for number in sorted(added_ids))
        raise ValueError(
            f"The added tokens {contents} have ids before pieces of the SentencePiece model, which the files of "
            "transformers cannot express: extend the vocabulary before tokens are added."
        )
    missing = sorted(scores.keys() - set(symbols))
    if missing:
        raise ValueError(_missing(missing, "SentencePiece model"))
    lowest = min(scores.values())
    pieces = [(symbol, 0.0 if symbol in SPECIAL_SYMBOLS else scores.get(symbol, lowest)) for symbol in symbols]
    built = Tokenizer(models.Unigram(pieces, unk_id=vocabulary.unk_id, byte_fallback=False))
    steps: list[Any] = [normalizers.Replace(Regex(" {2,}"), " ")]
    if proto.normalizer_spec.precompiled_charsmap:
        steps.insert(0, normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap))
    built.normalizer = normalizers.Sequence(steps)
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(WORD_START, prepend_scheme="always")]
    )
    built.decoder = decoders.Metaspace(WORD_START, prepend_scheme="always")
    ids = special_ids(model)
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
        "which the files of transformers cannot express: only models whose dict.txt has all pieces, as from `roberta "
        "tokenizer train`, can be exported. This model can be exported by `--to fairseq`."
    )


def _save(built: Any, added: Mapping[int, Mapping[str, Any]], folder: Path) -> None:
    import tokenizers

    for number, token in added.items():
        (built.add_special_tokens if token["special"] else built.add_tokens)([tokenizers.AddedToken(**token)])
        assert built.token_to_id(token["content"]) == number
    write_text(folder / TOKENIZER, built.to_str(pretty=True))
