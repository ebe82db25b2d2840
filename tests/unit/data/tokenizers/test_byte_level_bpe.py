"""Byte-level BPE in its two engines: the same ids for any text, and the bounded memory of the fast one."""

import json
import pickle
import sys
import unicodedata

import pytest

from roberta_plugin.data.tokenizers import byte_level_bpe as engines
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe, GigatokenEngine
from tests.refusals import refused
from tests.tiny_tokenizers import byte_level_bpe

SPACE = BYTE_CHARACTERS[32]
MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), (SPACE, "hell"), ("a", "a")]


def small(use_fast_engine=True):
    return byte_level_bpe(MERGES, use_fast_engine=use_fast_engine)


ENGINES = pytest.mark.parametrize("fast", [True, False], ids=["gigatoken", "plain"])


@ENGINES
def test_merges_by_rank_from_left_to_right(fast):
    tokenizer = small(fast)
    assert tokenizer.encode("hell") == [258]
    assert tokenizer.encode("x hello") == [ord("x"), 259, ord("o")]
    assert tokenizer.encode("aaaaa") == [260, 260, ord("a")]
    ids, lengths = tokenizer.encode_lines(["hell", "", "aaaaa"])
    assert ids.tolist() == [258, 260, 260, ord("a")]
    assert lengths.tolist() == [1, 0, 3]
    assert (ids.dtype, lengths.dtype) == ("int32", "int32")
    of_two = byte_level_bpe([("b", "c"), ("a", "b")], use_fast_engine=fast)
    assert [of_two.pieces[index] for index in of_two.encode("abcab")] == ["a", "bc", "ab"]


@ENGINES
def test_no_lines_and_empty_lines(fast):
    for lines in ([], [""], ["", ""]):
        ids, lengths = small(fast).encode_lines(lines)
        assert ids.tolist() == []
        assert lengths.tolist() == [0] * len(lines)


def test_a_merge_that_creates_a_better_pair_waits_until_its_own_pair_is_done():
    # "abc" has two ways to arise; the later one must merge everywhere before (abc, a) may take its second half.
    merges = [("b", "c"), ("ab", "c"), ("abc", "a"), ("a", "bc"), ("a", "b")]
    pieces = [*BYTE_CHARACTERS, "bc", "abc", "abca", "ab"]
    tokenizer = ByteLevelBpe(pieces, merges, use_fast_engine=False)
    assert [pieces[index] for index in tokenizer.encode("abcabc")] == ["abc", "abc"]


@pytest.mark.parametrize("missing", ["gigatoken", "awkward"])
def test_without_gigatoken_or_what_it_needs_the_plain_engine_serves(monkeypatch, missing):
    assert small(True)._engine is not None and small(False)._engine is None
    monkeypatch.setitem(sys.modules, missing, None)
    tokenizer = small(True)
    assert tokenizer._engine is None
    assert tokenizer.encode_lines(["hell", " hell"])[0].tolist() == [258, 259]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_stops_an_import_of_the_engine_is_not_swallowed(monkeypatch, error):
    """gigatoken imports awkward at the first text with white space around it."""

    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "awkward":
                raise error

    tokenizer = small(True)
    assert tokenizer._engine is not None
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "awkward", raising=False)
        patch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
        with pytest.raises(error):
            tokenizer.encode_lines([" hell"])
    assert tokenizer.encode_lines([" hell"])[0].tolist() == small(False).encode(" hell")


@ENGINES
def test_long_words_take_no_quadratic_time(fast):
    text = "a" * 300_001  # minutes, if each merge searched the whole word
    assert small(fast).encode_lines([text])[1].tolist() == [150_001]


def test_decode_gives_the_text_back_and_replaces_broken_characters():
    tokenizer = small()
    text = "hello \u00e9\U0001f600\n\ttwo  spaces "
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode("\u00e9")[:1]) == "\ufffd"
    refused("261", tokenizer.decode, [261])


def test_word_starts_are_pieces_with_a_space_in_front():
    starts = small().word_starts()
    assert [index for index, start in enumerate(starts) if start] == [32, 259]


def test_half_a_surrogate_pair_is_refused():
    for fast in (True, False):
        refused("surrogates", small(fast).encode_lines, ["a\ud800"], error=UnicodeEncodeError)


def test_saves_loads_and_pickles(tmp_path):
    tokenizer = small()
    tokenizer.encode_lines(["make the engine"])
    tokenizer.save(tmp_path)
    for again in (load_tokenizer(tmp_path), pickle.loads(pickle.dumps(tokenizer))):
        assert again.pieces == tokenizer.pieces
        assert again.merges == tokenizer.merges
        assert again.description() == tokenizer.description()
    assert tokenizer.symbols[260] == "260"
    assert json.loads((tmp_path / "encoder.json").read_text())["hell"] == 258, "GPT-2's format"
    assert (tmp_path / "vocab.bpe").read_text().splitlines()[:2] == ["#version: 0.2", "h e"]


def test_memory_for_words_is_bounded(monkeypatch):
    monkeypatch.setattr(engines, "_MAX_REMEMBERED_WORDS", 10)
    tokenizer = small(False)
    for number in range(50):
        tokenizer.encode(f"w{number} hello")
    assert 0 < len(tokenizer._remembered) <= 10


def test_a_folder_without_tokenizer_tells_what_was_looked_for(tmp_path):
    refused(r"encoder\.json and vocab\.bpe", load_tokenizer, tmp_path, error=FileNotFoundError)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("encoder.json", b"{", ["encoder.json", "JSON"]),
        ("encoder.json", b"[" * 100_000, ["encoder.json", "nested too deeply"]),
        ("encoder.json", b'{"a": 0, "b": 2}', ["encoder.json", "gaps"]),
        ("encoder.json", b'{"a": 0, " ": 1}', ["encoder.json", "' '"]),
        ("encoder.json", b'{"a": 0}', ["byte character"]),
        ("vocab.bpe", b"#version: 0.2\nl l", ["vocab.bpe", "line end"]),
        ("vocab.bpe", b"l l\n", ["vocab.bpe", "#version"]),
        ("vocab.bpe", b"#version: 0.2\nl l\nh\n", ["vocab.bpe, line 3", "'h'"]),
        ("vocab.bpe", b"#version: 0.2\nl l\nl l\n", ["vocab.bpe, line 3", "twice"]),
        ("vocab.bpe", b"#version: 0.2\nl l\nl x\n", ["vocab.bpe, line 3", "'lx'"]),
        ("vocab.bpe", b"#version: 0.2\nl \xff\n", ["vocab.bpe", "UTF-8"]),
    ],
)
def test_refuses_files_of_another_format(tmp_path, name, content, words):
    small().save(tmp_path)
    (tmp_path / name).write_bytes(content)
    said = refused(".", load_tokenizer, tmp_path)
    assert [word for word in [*words, str(tmp_path)] if word not in said] == []


def test_a_young_character_sends_its_own_line_alone_to_the_plain_engine(monkeypatch):
    """U+0558 has no kind, and U+1FAE8 is of Unicode 15; Python 3.11 has the tables of 14, 3.12 those of 15."""
    young = "\U0001fae8" if unicodedata.category("\U0001fae8") == "Cn" else "\U0003fffd"
    lines = ["hello", "", f"a {young} face", "hell", young, "hell \u0558hell\u0558 hello", ""] + ["hello hell"] * 100
    expected = small(False).encode_lines(lines)
    tokenizer = small()
    slow = []
    encode = ByteLevelBpe.encode
    monkeypatch.setattr(ByteLevelBpe, "encode", lambda self, text: slow.append(text) or encode(self, text))
    ids, lengths = tokenizer.encode_lines(lines)
    assert ids.tolist() == expected[0].tolist()
    assert lengths.tolist() == expected[1].tolist()
    assert slow == [f"a {young} face", young, "hell \u0558hell\u0558 hello"]
    assert tokenizer.encode_lines([young])[0].tolist() == small(False).encode(young)


FEW_MERGES = [("t", "h"), ("th", "e")]


@pytest.fixture
def engine():
    pieces = [*BYTE_CHARACTERS, "th", "the"]
    return GigatokenEngine({piece: index for index, piece in enumerate(pieces)}, FEW_MERGES)


def encode(engine, lines):
    return [array.tolist() for array in engine.encode_lines(lines, "\n".join(lines).encode())]


STRIPPED = ["the", "a the", "\u00e9", "!", "a\tb"]
NOT_STRIPPED = [[" the", "a"], ["the\t"], ["the\nthe", "a"], ["\x1cthe", "a"], ["the\u00a0", "a"], ["a\n", "\n\nb"]]


@pytest.mark.parametrize("lines", [STRIPPED, STRIPPED[:1], *NOT_STRIPPED])
def test_many_lines_give_what_each_gives_alone(engine, lines):
    ids, lengths = encode(engine, lines)
    alone = [engine._tokenizer.encode(line).tolist() for line in lines]
    assert ids == [index for line in alone for index in line]
    assert lengths == [len(line) for line in alone]


def test_only_stripped_lines_are_encoded_as_one_text(engine, monkeypatch):
    whole, batches = [], []
    tokenizer = engine._tokenizer

    class Watched:
        def encode(self, text):
            whole.append(text)
            return tokenizer.encode(text)

        def encode_batch(self, lines, *, parallel):
            batches.append(lines)
            return tokenizer.encode_batch(lines, parallel=parallel)

    monkeypatch.setattr(engine, "_tokenizer", Watched())
    for lines in (STRIPPED, *NOT_STRIPPED):
        encode(engine, lines)
    assert whole == ["\n".join(STRIPPED).encode()]
    assert batches == NOT_STRIPPED


def test_it_starts_anew_when_the_process_has_grown_and_the_ids_stay_the_same(engine, monkeypatch):
    """That memory stays flat on real text is measured by benchmarks/bench_binarize.py."""
    assert engines._resident_bytes() > 0
    starts, memory = [], [0]
    start = engine._start
    monkeypatch.setattr(engines, "_resident_bytes", lambda: memory[0])
    monkeypatch.setattr(engine, "_start", lambda: (starts.append(memory[0]), start()))
    engine._start_bytes = 0
    first = encode(engine, ["the thing"])
    limit = engines._MAX_GROWTH
    for megabytes in (1, limit, limit + 1, limit + 2, 2 * limit + 1, 2 * limit + 2):
        memory[0] = megabytes
        assert encode(engine, ["the thing"]) == first
    assert starts == [limit + 1, 2 * limit + 2]


def test_no_limit_where_the_system_does_not_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(engines, "_MEMORY_OF_PROCESS", tmp_path / "absent")
    assert engines._resident_bytes() == 0
