"""The fields of a tokenizer's files in Hugging Face's form: what becomes of each (`foreign_fields`).

tokenizer.json  tokenizer_config.json  special_tokens_map.json
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roberta_plugin.data.tokenizers.additions import MASK_OF_BERT
from roberta_plugin.foreign_fields import Table, check_fields, known, noted, only
from roberta_plugin.json_files import read_json

SHORTEST = 6  # tokens, of a pair: `<s> a </s> </s> b </s>`
COPY = "copy the file again"
OF_BERT = {"[CLS]": "<s>", "[SEP]": "</s>", "[PAD]": "<pad>", "[UNK]": "<unk>", MASK_OF_BERT: "<mask>"}
_ANOTHER = "Use it with transformers, or take another tokenizer: `roberta tokenizer train` makes one."
_ONE_TEXT = ["<s>", "A", "</s>"]
_TWO_TEXTS = ["<s>", "A", "</s>", "</s>", "B", "</s>"]
_JOINS_OTHERWISE = (
    "joins symbols and texts otherwise than RoBERTa's, which is not followed: a text is "
    f"{' '.join(_ONE_TEXT)}, a pair is {' '.join(_TWO_TEXTS)}."
)
_WORD_MARK = "\u2581"

TOKENIZER: Table = known(
    "added_tokens normalizer pre_tokenizer post_processor model version truncation padding decoder"
)
# Steps of tokenizer.json by what they are and by their type; others are refused. Positions come from the text itself,
# and every byte has an id of byte-level BPE.
STEPS: Mapping[str, Mapping[str, Table]] = {
    "model": {
        "BPE": {
            **known("type vocab merges unk_token fuse_unk byte_fallback"),
            **dict.fromkeys(("continuing_subword_prefix", "end_of_word_suffix"), only("", None)),
            "dropout": only(None, 0.0),
            "ignore_merges": only(False, None),
        },
        "Unigram": {**known("type vocab unk_id"), "byte_fallback": only(False, None)},
        "WordLevel": {**known("type vocab"), "unk_token": only("<unk>")},
    },
    "BPE normalizer": {"NFC": known("type")},  # and the names in an export
    "BPE pre_tokenizer": {
        "ByteLevel": {**known("type add_prefix_space trim_offsets"), "use_regex": only(True, None)},
    },
    "WordLevel pre_tokenizer": {"WhitespaceSplit": known("type")},
    "Unigram normalizer": {
        "Sequence": known("type normalizers"),
        "Precompiled": known("type precompiled_charsmap"),
        "Replace": {
            **known("type"),
            "pattern": only({"Regex": " {2,}"}, {"String": "\n"}, {"String": "\r"}, {"String": "\t"}),
            "content": only(" ", _WORD_MARK),
        },
        "Strip": known("type strip_left strip_right"),  # SentencePiece drops white space there, too
    },
    "Unigram pre_tokenizer": {
        "Sequence": known("type pretokenizers"),
        "WhitespaceSplit": known("type"),
        "Metaspace": {
            **known("type str_rep split"),
            "replacement": only(_WORD_MARK),
            "add_prefix_space": only(True, None),
            "prepend_scheme": only("always", None),
        },
    },
    "post_processor": {
        "RobertaProcessing": known("type trim_offsets add_prefix_space sep cls"),
        "BertProcessing": known("type sep cls"),
        "TemplateProcessing": known("type single pair special_tokens"),
        "ByteLevel": known("type trim_offsets add_prefix_space use_regex"),
        "Sequence": known("type processors"),
    },
}
# The pre_tokenizer without which texts would get other pieces
_CUTS = {"BPE": "ByteLevel", "Unigram": "Metaspace", "WordLevel": "WhitespaceSplit"}
_STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
# Normalizers that an export of byte-level BPE writes for the white space that its head reads, which is known anyway.
_OF_AN_EXPORT = (
    {"type": "Replace", "pattern": {"Regex": "[\\r\\n]"}, "content": " "},
    {"type": "Sequence", "normalizers": [_STRIP]},
    {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, _STRIP]},
)

SYMBOLS: Table = {
    "bos_token": only("<s>", None),
    "cls_token": only("<s>", None),
    "eos_token": only("</s>", None),
    "sep_token": only("</s>", None),
    "unk_token": only("<unk>", None),
    "pad_token": only("<pad>", None),
    "mask_token": only("<mask>", None),
    **known("additional_special_tokens extra_special_tokens"),
}
_ROBERTAS = [f"{name}Tokenizer{fast}" for name in ("Roberta", "XLMRoberta", "Camembert") for fast in ("", "Fast")]
_OF_ANY_STEPS = ("PreTrainedTokenizerFast", "TokenizersBackend")
# Lengths are options here, and special symbols in a text are text; the tokenizers of RoBERTa do not read do_lower_case.
TOKENIZER_CONFIG: Table = {
    **SYMBOLS,
    **known("""
        add_prefix_space added_tokens_decoder model_max_length max_len clean_up_tokenization_spaces errors trim_offsets
        do_lower_case split_special_tokens max_length stride truncation_strategy pad_to_multiple_of pad_token_type_id
        model_input_names chat_template backend from_slow is_local legacy local_files_only merges_file name_or_path
        processor_class special_tokens_map_file tokenizer_file use_fast vocab_file __version__
    """),
    "tokenizer_class": noted("its files are read as a RoBERTa's", *_ROBERTAS, *_OF_ANY_STEPS, None),
    "truncation_side": noted("texts lose what is at their end", "right", None),
    "padding_side": noted("heads read <s> here, and transformers' the padding that is on the left", "right", None),
    **dict.fromkeys(("add_bos_token", "add_eos_token"), only(True, None)),
    "sp_model_kwargs": only({}, None),
    "auto_map": noted("code of other authors is not run", None, {}),
}


def read_file(path: Path) -> dict[str, Any]:
    """The object in a file of a tokenizer, empty if there is none; special symbols have RoBERTa's names.

    ModernBERT's have BERT's, in all files of a folder.
    """
    content = read_json(path, keys=(), remedy=COPY) or {}
    return _renamed(content) if has_names_of_bert(path.parent) else content


def has_names_of_bert(folder: Path) -> bool:
    """True if the special symbols of a folder's tokenizer.json are called [CLS], [SEP] and so on."""
    added = (read_json(folder / "tokenizer.json", keys=(), remedy=COPY) or {}).get("added_tokens")
    names = {token.get("content") for token in added or () if isinstance(token, dict)}
    return OF_BERT.keys() <= names and names.isdisjoint(OF_BERT.values())


def _renamed(value: object) -> Any:
    if isinstance(value, dict):
        return {OF_BERT.get(name, name): _renamed(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one) for one in value]
    return OF_BERT.get(value, value) if isinstance(value, str) else value


@contextmanager
def well_formed(where: Path) -> Iterator[None]:
    """Errors about the structure of files, in a sentence that names the file or folder."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{where} is not complete ({type(error).__name__}: {error}): {COPY}.") from error


def check_tokenizer(folder: Path) -> list[str]:
    """Notes on the fields of the tokenizer's files in a folder; raises as `check_fields`."""
    notes: list[str] = []
    contents = {}
    for name, table in {"tokenizer_config.json": TOKENIZER_CONFIG, "special_tokens_map.json": SYMBOLS}.items():
        contents[name] = read_file(folder / name)
        notes += check_fields(contents[name], table, folder / name, remedy=_ANOTHER)
    path = folder / "tokenizer.json"
    content = read_file(path)
    notes += check_fields(content, TOKENIZER, path, remedy=_ANOTHER)
    with well_formed(path):
        notes += _check_steps(content, path)
        if kind_of_pieces(content) == "Unigram":
            notes += _check_spaces(content, path, contents["tokenizer_config.json"].get("tokenizer_class"))
        notes += _check_versions(content, path, contents["tokenizer_config.json"])
        # A class of RoBERTa's joins as RoBERTa's whatever the file says.
        is_followed = contents["tokenizer_config.json"].get("tokenizer_class") in _OF_ANY_STEPS
        joining = {"RobertaProcessing", "BertProcessing", "TemplateProcessing"}
        if is_followed and not any(step["type"] in joining for step in _steps(content.get("post_processor"))):
            notes.append(f"{path}: the post_processor {_JOINS_OTHERWISE}")
    return notes


def _check_versions(content: Mapping[str, Any], path: Path, config: Mapping[str, Any]) -> list[str]:
    """Notes on steps that versions 4 and 5 of transformers follow in different files."""
    notes, name, wanted = [], config.get("tokenizer_class"), config.get("add_prefix_space")
    of_bytes = [step for step in _steps(content.get("pre_tokenizer")) if step.get("type") == "ByteLevel"]
    differs = any(bool(step.get("add_prefix_space")) != bool(wanted) for step in of_bytes)
    if name in _OF_ANY_STEPS and wanted is not None and differs:
        notes.append(
            f"{path}: add_prefix_space is not as in tokenizer_config.json, which is followed: texts begin "
            f"with{'' if wanted else 'out'} a space. transformers 5 follows tokenizer.json: make both the same."
        )
    if name in _ROBERTAS and composes_texts(content):
        notes.append(
            f"{path}: the normalizer NFC is followed, which transformers 5 leaves out for {name}: write "
            "PreTrainedTokenizerFast as tokenizer_class to have it there, or remove it."
        )
    return notes


def kind_of_pieces(content: Mapping[str, Any]) -> Any:
    """The type of the model in a tokenizer.json; files from before 2021, as the released ones, do not name it."""
    model = content.get("model") or {}
    if "type" in model or "vocab" not in model:
        return model.get("type")
    return "BPE" if "merges" in model else "Unigram" if isinstance(model["vocab"], list) else None


def _check_steps(content: Mapping[str, Any], path: Path) -> list[str]:
    notes = []
    kind = kind_of_pieces(content)
    if kind is not None:
        content = {**content, "model": {**content["model"], "type": kind}}
    for part in ("model", "normalizer", "pre_tokenizer", "post_processor"):
        if part == "normalizer" and kind == "BPE" and _without_nfc(content.get(part)) in _OF_AN_EXPORT:
            continue
        is_of_kind = part in ("normalizer", "pre_tokenizer")
        tables = STEPS.get(f"{kind} {part}" if is_of_kind else part) or {}
        steps = _steps(content.get(part))
        if others := [str(step.get("type")) for step in steps if step.get("type") not in tables]:
            listed = ", ".join(name for name in others if name != "Sequence" or len(others) == 1)
            has = f"only {', '.join(tables)}" if tables else "none"
            raise ValueError(f"{path}: the {part} has the step {listed}, and RoBERTa's have {has}. {_ANOTHER}")
        for step in steps:
            notes += check_fields(step, tables[step["type"]], f"{path}: {part}", remedy=_ANOTHER)
            if part == "post_processor" and not _joins_as_roberta(step):
                notes.append(f"{path}: the post_processor {_JOINS_OTHERWISE}")
        if part == "pre_tokenizer" and kind in _CUTS and all(step["type"] != _CUTS[kind] for step in steps):
            raise ValueError(
                f"{path}: the pre_tokenizer does not have the step {_CUTS[kind]}, which RoBERTa's have. {_ANOTHER}"
            )
    return notes


def _check_spaces(content: Mapping[str, Any], path: Path, tokenizer_class: object) -> list[str]:
    """Notes on white space of Unigram, which SentencePiece reads as one space, and none at the ends of a text."""
    before, cuts = (_steps(content.get(part)) for part in ("normalizer", "pre_tokenizer"))
    splits = any(step["type"] == "WhitespaceSplit" for step in cuts)
    joins = any(step.get("pattern") == {"Regex": " {2,}"} for step in before)
    strips = any(step["type"] == "Strip" and step.get("strip_right") for step in before)
    if tokenizer_class not in _ROBERTAS and not splits and not (joins and strips):  # classes of RoBERTa's always split
        raise ValueError(
            f"{path}: each of several spaces is a piece, and here they are read as one: put WhitespaceSplit before "
            f"Metaspace into the pre_tokenizer, and train it again. {_ANOTHER}"
        )
    if not any(step["type"] == "Precompiled" for step in before):
        return [
            f"{path}: without the normalizer Precompiled, a tab or another white space than the space is a symbol of "
            "the text, which transformers reads as a space: replace them in your texts."
        ]
    return []


def composes_texts(content: Mapping[str, Any]) -> bool:
    """True if a tokenizer.json of byte-level BPE begins with Unicode's NFC."""
    return any(step.get("type") == "NFC" for step in _steps(content.get("normalizer")))


def _without_nfc(step: object) -> Any:
    steps = step.get("normalizers") if isinstance(step, dict) else None
    return steps[1] if steps and len(steps) == 2 and steps[0] == {"type": "NFC"} else step


def _steps(step: object) -> list[dict[str, Any]]:
    """A step of tokenizer.json, or all steps in a sequence of some."""
    if not isinstance(step, dict):
        return []
    inner: list[Any] = next((step[name] for name in ("normalizers", "pretokenizers", "processors") if name in step), [])
    return [step, *(each for one in inner for each in _steps(one))]


def _joins_as_roberta(step: Mapping[str, Any]) -> bool:
    if step["type"] == "TemplateProcessing":
        forms = [
            [(part.get("SpecialToken") or part.get("Sequence"))["id"] for part in step[name]]
            for name in ("single", "pair")
        ]
        return forms == [_ONE_TEXT, _TWO_TEXTS]
    if step["type"] in ("RobertaProcessing", "BertProcessing"):
        return step["type"] == "RobertaProcessing" and (step["cls"][0], step["sep"][0]) == ("<s>", "</s>")
    return True
