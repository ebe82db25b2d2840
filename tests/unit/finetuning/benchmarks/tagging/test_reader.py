"""Files in every form that is read, and what is said of the others."""

import gzip
import json
import lzma
import re

import pytest

from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.kinds.entities import read_file
from roberta_plugin.finetuning.options import TaggingOptions

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER
-DOCSTART- -X- -X- O

Blackburn NNP I-NP I-PER
"""


def read(tmp_path, text, *, name="train.txt", needs_tags=True, **options):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_file(path, columns=(options.get("tokens_column"), options.get("tags_column")), needs_tags=needs_tags)


def files_of(task, raw, **named):
    return benchmark_of(task).files(raw, TaggingOptions(**named))


def test_columns_of_conll_2003_with_documents(tmp_path):
    found = read(tmp_path, CONLL)
    assert [(each.texts, each.target, each.group, each.line) for each in found] == [
        (("EU", "rejects"), ("B-ORG", "O"), "0", 3),
        (("Peter",), ("B-PER",), "0", 6),
        (("Blackburn",), ("I-PER",), "1", 9),
    ]
    assert found[0].place_of_word(1) == f"{tmp_path / 'train.txt'}, line 4"


@pytest.mark.parametrize(
    "text",
    [
        b"New York\tO\na\tB-X\n\t\n\nb\tI-X\n",  # WNUT-17 ends a sentence with a tab
        b"\xef\xbb\xbfNew York\tO\r\na\tB-X\r\n\r\n \r\nb\tI-X",
        b"New York\tO\ra\tB-X\r\rb\tI-X\r",
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_tabs_byte_order_marks_line_ends_and_blank_lines(tmp_path, text, suffix):
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(suffix, bytes)
    found = read(tmp_path, pack(text), name=f"train.txt{suffix}")
    assert [(each.texts, each.target) for each in found] == [(("New York", "a"), ("O", "B-X")), (("b",), ("I-X",))]
    assert {each.group for each in found} == {""}


def test_other_white_space_and_invisible_characters_are_part_of_a_word(tmp_path):
    words = ["watched\u200bwas", "Dubbz\ufeff", "a\u00a0b", "c\u2028d", "e\x85", "\u200b"]
    found = read(tmp_path, "".join(f"{word}  O\n" for word in words))
    assert found[0].texts == tuple(words)


def test_a_word_may_be_empty_between_tabs(tmp_path):
    assert read(tmp_path, "a\tO\n\tB-X\n")[0].texts == ("a", "")


def test_columns_are_chosen_by_number_or_by_name(tmp_path):
    text = "word pos tag\nEU NNP B-ORG\n\nBonn NNP B-LOC\n"
    for options in ({"tokens_column": "word", "tags_column": "pos"}, {"tags_column": "pos"}):
        assert [each.target for each in read(tmp_path, text, **options)] == [("NNP",), ("NNP",)]
    found = read(tmp_path, text.split("\n", 1)[1], tokens_column="3", tags_column="1")
    assert (found[0].texts, found[0].target) == (("B-ORG",), ("EU",))


def test_json_lines(tmp_path):
    lines = [
        {"tokens": ["New", "", "York"], "tags": ["B-X", "O", "O"], "document": "a"},
        {"words": ["x"], "ner_tags": ["O"], "document": "a"},
        {"tokens": [], "tags": [], "document": "b"},
    ]
    found = read(tmp_path, "\n\n".join(map(json.dumps, lines)), name="train.jsonl")
    assert [(each.texts, each.target, each.group) for each in found] == [
        (("New", "", "York"), ("B-X", "O", "O"), "0"),
        (("x",), ("O",), "0"),
        ((), (), "1"),
    ]
    assert found[1].place_of_word(0).endswith("train.jsonl, line 3, word 1")
    mine = read(tmp_path, '{"w": ["a"], "t": ["O"]}', name="t.json", tokens_column="w", tags_column="t")
    assert mine[0].texts == ("a",)


def test_a_test_file_may_lack_tags(tmp_path):
    assert read(tmp_path, "a\nb\n\nc\n", needs_tags=False)[0].target is None
    assert read(tmp_path, '{"tokens": ["a"]}', name="t.jsonl", needs_tags=False)[0].target is None
    with pytest.raises(ValueError, match=r"train\.txt, line 1: there are no tags, which only a test file may lack"):
        read(tmp_path, "a\nb\n")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a O\nb B-X x\n", {}, "line 2 has 3 columns, and the first line 2: 'b B-X x'"),
        ("a\tO\nb\t\n", {}, "line 2: the tag of 'b' is empty"),
        ("a O\n", {"tags_column": "3"}, "--tags-column 3, but the first line has 2 columns"),
        ("a O\n", {"tags_column": "ner"}, "--tags-column ner, but the first line names the columns a, O"),
        ("a O\n", {"tags_column": "1"}, "words and tags are both in column 1"),
        ("\n \n", {}, "holds no words"),
        (b"a O\r\r\xff O\n", {}, "line 3: byte 0xff is not UTF-8"),
        ("a O\n".encode("utf-16-le"), {}, "line 1: it holds byte 0x00"),
        ("a O\n", {"tags_column": "\u00b2"}, "--tags-column \u00b2, but the first line names the columns a, O"),
    ],
)
def test_what_is_wrong_with_columns_is_named(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 'train.txt'}") + ".*" + re.escape(message)):
        read(tmp_path, text, **options)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: it is not valid JSON"),
        ("[" * 100_000, "line 2: it is not valid JSON"),
        ("[1]", "line 2: expected a JSON object, found [1]"),
        ('{"text": "a"}', "line 2 lacks the field tokens"),
        ('{"tokens": "a", "tags": ["O"]}', "line 2: tokens must be a list, found 'a'"),
        ('{"tokens": ["a", "b"], "tags": ["O"]}', "line 2 has 2 words and 1 tags"),
        ('{"tokens": ["a"], "tags": [0]}', "line 2: tags holds numbers: write the names"),
        ('{"tokens": ["\\ud83d"], "tags": ["O"]}', "line 2: tokens, entry 1, holds half of a surrogate pair"),
        ('{"tokens": ["a"]}', "line 2, word 1: there are no tags"),
    ],
)
def test_what_is_wrong_with_json_lines_is_named(tmp_path, line, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(tmp_path, '{"tokens": ["a"], "tags": ["O"]}\n' + line, name="train.jsonl")


def test_files_are_found_by_their_usual_names_or_by_options(tmp_path):
    for name in ("eng.train", "eng.testb", "mine.bio"):
        (tmp_path / name).write_text("a O\n")
    assert files_of("conll2003", tmp_path) == {"train": [tmp_path / "eng.train"], "test": [tmp_path / "eng.testb"]}
    assert files_of("tagging", tmp_path, valid="mine.bio") == {"valid": [tmp_path / "mine.bio"]}
    (tmp_path / "dev.conll.zst").touch()
    assert files_of("tagging", tmp_path) == {"valid": [tmp_path / "dev.conll.zst"]}
    with pytest.raises(FileNotFoundError, match=r"no data for wnut17: looked for train: wnut17train\.conll; valid: "):
        files_of("wnut17", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"--test .* does not exist"):
        files_of("tagging", tmp_path, test="none")
