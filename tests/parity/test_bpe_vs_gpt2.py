"""Byte-level BPE gives the ids of fairseq's GPT-2 encoder, on any text, with both engines."""

import functools
import lzma
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from tests.real_data import multilingual_lines

gpt2_bpe_utils = pytest.importorskip("fairseq.data.encoders.gpt2_bpe_utils")

ADVERSARIAL = [
    "",
    " ",
    "   ",
    "\n\n\r\n\t",
    " leading and trailing ",
    "it's WE'RE i'll I'D can't'd ''s 's's",
    "a\u00a0b\u2003c\u3000d\u0085e\x1ff\x0bg\u200bh\ufeffi",
    "1\u00b2\u2155\u0661\u4e00\u3007\u2160",
    "na\u00efve cafe\u0301 \u1e9b\u0323 \ufb01 \u0130\u0131",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f \U0001f600" * 5,
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u4f60\u597d \u3053\u3093 \ud55c\uae00 \u0e2a\u0e27\u0e31",
    "\x00\x01\x7f\x80\u009f\ufffd\uffff\U0010ffff",
    "\u0558 \u0870x\u0c5c9 \U0001fae8",  # assigned late or never
    "<|endoftext|> <s> </s> <mask> #version \u0120the",
    "x" * 3000,
    "ab" * 1500 + " " * 300 + "!" * 500,
    "=" * 257 + "\t" * 65 + "y",
    "https://a.b/c?d=%20e&f=[g]{h}\\n\\u0041",
]


@pytest.fixture(scope="module")
def gpt2_folder(shared_data):
    return shared_data / "gpt2_bpe"


@pytest.fixture(scope="module")
def reference(gpt2_folder):
    encoder = gpt2_bpe_utils.get_encoder(str(gpt2_folder / "encoder.json"), str(gpt2_folder / "vocab.bpe"))
    encoder.encode = functools.cache(encoder.encode)  # both engines are compared with it, some lines also stripped
    return encoder


@pytest.fixture(scope="module", params=[True, False], ids=["gigatoken", "plain"])
def tokenizer(request, gpt2_folder):
    tokenizer = ByteLevelBpe.load(gpt2_folder, use_fast_engine=request.param)
    assert (tokenizer._engine is not None) == request.param
    return tokenizer


def check(tokenizer, reference, lines):
    """Compare a list of lines as it is, and stripped, which the fast engine treats in another way."""
    check_lines(tokenizer, reference, [line.strip().replace("\n", " ") for line in lines])
    return check_lines(tokenizer, reference, lines)


def check_lines(tokenizer, reference, lines):
    ids, lengths = tokenizer.encode_lines(lines)
    expected = [reference.encode(line) for line in lines]
    assert lengths.tolist() == [len(line) for line in expected]
    assert ids.tolist() == [index for line in expected for index in line]
    return len(ids)


def test_adversarial_text(tokenizer, reference):
    check(tokenizer, reference, ADVERSARIAL)
    for line in ADVERSARIAL:  # alone too: a line with a young character decides about the whole list
        check(tokenizer, reference, [line])
        assert tokenizer.encode(line) == reference.encode(line)
        assert tokenizer.decode(tokenizer.encode(line)) == reference.decode(reference.encode(line)) == line


def test_every_character_is_of_the_same_kind(tokenizer, reference):
    """Each character after a letter, a mark and a digit: the cut between words shows which kind it is.

    All characters that Unicode has given a meaning, and one in fifty of the large regular blocks and of the rest.
    """
    large_blocks = (range(0x3400, 0xA000), range(0xAC00, 0xD7A4), range(0x17000, 0x18D00), range(0x1B170, 0x1B300))
    codes = [
        code
        for code in range(sys.maxunicode + 1)
        if not 0xD800 <= code < 0xE000
        and (code % 50 == 0 or (code < 0x1F000 and not any(code in block for block in large_blocks)))
        and (code % 50 == 0 or unicodedata.category(chr(code)) not in ("Cn", "Co"))
    ]
    assert len(codes) > 30_000
    lines = [f"a{chr(code)}!{chr(code)}1{chr(code)} {chr(code)}" for code in codes]
    for start in range(0, len(lines), 1000):
        check(tokenizer, reference, lines[start : start + 1000])


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
PARTS = ["'s", "'ll", " ", "  ", "\n", "\u00a0", "the", " of", "\u00e9", "\u4f60", "12", "..", "\u0558"]
words = st.lists(st.one_of(text, st.sampled_from(PARTS)), max_size=30).map("".join)


@settings(max_examples=150, deadline=None)
@given(lines=st.lists(words, max_size=6))
def test_any_text(tokenizer, reference, lines):
    check(tokenizer, reference, lines)


@pytest.mark.parametrize("name", ["books", "wikipedia", "news"])
def test_real_text(tokenizer, reference, shared_data, name):
    with lzma.open(shared_data / "text" / f"{name}.valid.txt.xz", "rt", encoding="utf-8") as file:
        lines = file.read(300_000).split("\n")
    assert check(tokenizer, reference, lines) > 30_000


def test_multilingual_text(tokenizer, reference, shared_data):
    lines = multilingual_lines(shared_data, 30_000)
    assert {line.isascii() for line in lines} == {True, False}
    assert check(tokenizer, reference, lines) > 30_000
