import pytest

from roberta_plugin.data.tokenizers import gigatoken_engine
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS
from roberta_plugin.data.tokenizers.gigatoken_engine import GigatokenEngine

MERGES = [("t", "h"), ("th", "e")]


@pytest.fixture
def engine():
    pieces = [*BYTE_CHARACTERS, "th", "the"]
    return GigatokenEngine({piece: index for index, piece in enumerate(pieces)}, MERGES)


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
    assert gigatoken_engine._resident_bytes() > 0
    starts, memory = [], [0]
    start = engine._start
    monkeypatch.setattr(gigatoken_engine, "_resident_bytes", lambda: memory[0])
    monkeypatch.setattr(engine, "_start", lambda: (starts.append(memory[0]), start()))
    engine._start_bytes = 0
    first = encode(engine, ["the thing"])
    limit = gigatoken_engine._MAX_GROWTH
    for megabytes in (1, limit, limit + 1, limit + 2, 2 * limit + 1, 2 * limit + 2):
        memory[0] = megabytes
        assert encode(engine, ["the thing"]) == first
    assert starts == [limit + 1, 2 * limit + 2]


def test_no_limit_where_the_system_does_not_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(gigatoken_engine, "_MEMORY_OF_PROCESS", tmp_path / "absent")
    assert gigatoken_engine._resident_bytes() == 0
