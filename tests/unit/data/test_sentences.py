"""Sentences: the hand-checked texts, nothing lost, paragraphs found again, long lines in linear time."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from roberta_plugin.data.binarize.pipeline import BinarizeSettings, binarize
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.sentences import split_line, split_lines
from roberta_plugin.data.text_inputs import LineRules
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from tests.tiny_tokenizers import train_tokenizer

TEXTS = [line.split("|") for line in (Path(__file__).parent / "sentences.txt").read_text().splitlines()]
KNOWN_ERRORS = ("He visited the U.S.", "Prof. Lee and Lt. Col. Jones met Gov. Brown on Jan. 5.")


@pytest.mark.parametrize("sentences", TEXTS, ids=lambda sentences: sentences[0][:30])
def test_hand_checked_texts_are_split_where_they_should_be(sentences):
    found = split_line(" ".join(sentences))
    assert (found == sentences) == (sentences[0] not in KNOWN_ERRORS)
    assert " ".join(found) == " ".join(sentences)


OTHER_ENDS = (  # danda, full-width marks, Arabic, Urdu, Armenian, Ethiopic, Burmese, Khmer, Greek's and Spanish's questions
    ["\u0935\u0939 \u0917\u092f\u093e\u0964", "\u0915\u094d\u092f\u094b\u0902?", "\u0939\u093e\u0901\u0965"],
    ["\u4ed6\u8d70\u4e863\uff0e5\u3002", "2020\u5e74\uff01", "\u4e3a\u4ec0\u4e48\uff1f"],
    ["\u300c\u306a\u305c\uff1f\u300d\u3068\u805e\u3044\u305f\u3002", "(\u884c\u304f\u3002)", "\u306f\u3044\u3002"],
    ["\u0628\u0642\u064a\u062a\u061f", "\u0646\u0639\u0645."],
    ["\u0648\u06c1 \u06af\u06cc\u0627\u06d4", "\u06c1\u0627\u06ba\u06d4"],
    ["\u0546\u0561 \u0563\u0576\u0561\u0581\u0589", "\u0531\u0575\u0578\u0589"],
    ["\u12a5\u1231 \u1204\u12f0\u1362", "\u1260\u12cb\u1362"],
    ["\u101e\u1031\u101e\u104b", "\u1014\u1031\u104b"],
    ["\u1782\u17b6\u178f\u17cb\u17d4", "\u1793\u17b6\u1784\u17d4"],
    ["\u0388\u03c6\u03c5\u03b3\u03b5.", "\u0393\u03b9\u03b1\u03c4\u03af;", "\u039d\u03b1\u03b9."],
)


@pytest.mark.parametrize("sentences", OTHER_ENDS, ids=ascii)
def test_sentences_end_with_the_marks_of_their_script(sentences):
    assert split_line(" ".join(sentences)) == sentences
    if "\u3002" in sentences[-1]:  # without spaces, too
        assert split_line("".join(sentences[:1] * 2)) == sentences[:1] * 2


def test_a_line_is_its_sentences_and_a_blank_line_stays():
    lines = ["He didn't go.  She  stayed; alone.", "", "Why?", "No end here", "Ça va? Oui.", "日本。"]
    sentences, begins = split_lines(lines)
    assert sentences[:3] == ["He didn't go.", "She  stayed; alone.", ""]
    assert begins.tolist() == [1, 0, 1, 1, 1, 1, 0, 1]
    assert len(sentences) == len(begins) and "".join("".join(sentences).split()) == "".join("".join(lines).split())


def test_the_sentences_of_a_very_long_line_are_whole():
    assert split_line("Word goes here. " * 4_000) == ["Word goes here."] * 4_000


@pytest.mark.parametrize(
    "text",
    ["word " * 60_000, "x" * 200_000, "a.b" * 60_000, '"' * 100_000, "Mr. A. " * 30_000, ("A. " + "b " * 9_995) * 10],
)
def test_lines_without_sentences_take_linear_time(text):
    start = time.process_time()
    found = split_line(text.strip())
    assert time.process_time() - start < 10
    assert "".join("".join(found).split()) == "".join(text.split())


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    rng = np.random.default_rng(0)
    lines = []
    for document in range(60):
        for _ in range(rng.integers(1, 5)):
            chosen = rng.integers(0, len(TEXTS), rng.integers(1, 4))
            lines.append(" ".join(" ".join(TEXTS[number]) for number in chosen))
        lines += [""] * (1 + (document % 7 == 0))
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    train_tokenizer("byte_level_bpe", [folder / "text.txt"], vocab_size=400, folder=folder)
    return folder / "text.txt", lines, (load_tokenizer(folder), Vocabulary.load(folder / "dict.txt"))


def make(text, destination, *, workers=1, split_sentences=True, part_bytes=700):
    path, _, (tokenizer, vocabulary) = text
    return binarize(
        [str(path)],
        split="train",
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        destination=destination,
        settings=BinarizeSettings(
            workers=workers, rules=LineRules(split_sentences=split_sentences), part_bytes=part_bytes, overwrite=True
        ),
        progress=False,
    )


def test_a_data_bin_of_sentences_has_its_paragraphs(text, tmp_path):
    _, lines, (tokenizer, _) = text
    manifest = make(text, tmp_path / "one")
    expected, begins = split_lines(lines)
    tokens = MmapTokens(tmp_path / "one" / "train")
    paragraphs = np.fromfile(tmp_path / "one" / "train.paragraphs", dtype=np.uint8)
    assert len(tokens) == len(expected) > len(lines) and np.array_equal(paragraphs, begins)
    _, sizes = tokenizer.encode_lines(expected)
    assert (tokens.sizes == sizes + 1).all()
    assert manifest["splits"]["train"]["rules"]["split_sentences"] is True
    assert manifest["splits"]["train"]["outputs"]["train.paragraphs"]["bytes"] == len(expected)

    make(text, tmp_path / "two", workers=2, part_bytes=3000)
    for name in ("train.bin", "train.idx", "train.paragraphs"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_without_the_option_lines_stay_and_no_paragraphs_are_left_behind(text, tmp_path):
    make(text, tmp_path)
    manifest = make(text, tmp_path, split_sentences=False)
    assert len(MmapTokens(tmp_path / "train")) == len(text[1])
    assert not (tmp_path / "train.paragraphs").exists()
    assert "split_sentences" not in json.dumps(manifest)
