import bz2
import gzip
import io
import itertools
import json
import lzma
import random

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from roberta_plugin.data import text_inputs_files
from roberta_plugin.data.text_inputs import BadLineError, LineRules, count_lines, lines_of, read_blocks
from roberta_plugin.data.text_inputs_files import TextInput, find_inputs

KEEP = LineRules(keep_spaces=True)
TEXT = TextInput("t", "t")
RECORDS = TextInput("c.jsonl", "c.jsonl", form="jsonl")
COMPRESS = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "zst": zstd.compress, "txt": bytes}


def pythons_lines(data):
    """Lines as Python's text mode reads them."""
    return [line.rstrip("\n") for line in io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")]


def all_lines(path, *, rules=KEEP, block_bytes=2**20, edges=(0, None)):
    lines = []
    source = TextInput(str(path), str(path))
    for start, end in itertools.pairwise(edges):
        for block in read_blocks(source, start=start, end=end, block_bytes=block_bytes):
            assert block
            found = lines_of(block, source=source, first_line=1, rules=rules)[0]
            assert count_lines(block, source) == len(found)
            lines += found
    return lines


@settings(max_examples=300, deadline=None)
@given(
    text=st.lists(st.sampled_from(["a", "\u00e9", "\U0001f600", "\n", "\r", "\r\n", "\u2028", "\x85", "bc"])).map(
        "".join
    ),
    cuts=st.lists(st.integers(0, 60)),
    block_bytes=st.integers(1, 9),
)
def test_parts_of_a_file_hold_each_line_once_wherever_they_are_cut(tmp_path_factory, text, cuts, block_bytes):
    path = tmp_path_factory.mktemp("parts") / "text"
    path.write_bytes(text.encode())
    expected = pythons_lines(text.encode())
    found = all_lines(path, block_bytes=block_bytes, edges=(0, *sorted(cuts), None))
    assert found == [line if line.strip() else "" for line in expected]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_all_compressions_give_the_same_lines(tmp_path, suffix):
    data = "".join(f"line {number}\u00e9\r\n\n" for number in range(5000)).encode()
    path = tmp_path / f"text.{suffix}"
    path.write_bytes(COMPRESS[suffix](data[:40_000]) + COMPRESS[suffix](data[40_000:]))  # two streams in one file
    read = []
    lines = []
    (source,) = find_inputs([path])
    for block in read_blocks(source, block_bytes=1000, on_read=read.append):
        lines += lines_of(block, source=source, first_line=1, rules=KEEP)[0]
    assert lines == pythons_lines(data)
    assert sum(read) == path.stat().st_size
    assert len(read) > 5


@pytest.mark.parametrize(
    "suffix", [pytest.param(name, marks=[pytest.mark.slow] if name == "xz" else []) for name in COMPRESS]
)
def test_a_line_of_gigabytes_is_named_before_it_fills_the_memory(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(text_inputs_files, "LONGEST_LINE", 2**22)
    path = tmp_path / f"text.{suffix}"
    path.write_bytes(COMPRESS[suffix](b"a\n" + random.Random(0).randbytes(2**23).hex().encode()))
    (source,) = find_inputs([path])
    with pytest.raises(ValueError, match=rf"text\.{suffix}: a line has more than \d+ MiB\. Split"):
        list(read_blocks(source))


def test_white_space_is_stripped_as_fairseq_does_or_kept():
    block = "  a b\t\n\u00a0\u3000\n\x1cc\x1f\n".encode()
    assert lines_of(block, source=TEXT, first_line=1, rules=LineRules())[0] == ["a b", "", "c"]
    assert lines_of(block, source=TEXT, first_line=1, rules=KEEP)[0] == ["  a b\t", "", "\x1cc\x1f"]


def test_a_line_that_is_no_utf8_is_named_or_left_out_and_counted():
    block = b"good\nbad \xff\r\ngood \xc3\xa9\nbad \xe4\xbd"
    with pytest.raises(BadLineError, match=r"corpus\.txt, line 12: byte 0xff at column 4 is not UTF-8"):
        lines_of(block, source=TextInput("corpus.txt", "corpus.txt"), first_line=11, rules=LineRules())
    lines, num_bad = lines_of(
        block, source=TextInput("corpus.txt", "corpus.txt"), first_line=11, rules=LineRules(skip_bad_lines=True)
    )
    assert lines == ["good", "good \u00e9"]
    assert num_bad == 2


@pytest.mark.parametrize("suffix", ["txt", "gz"])
def test_a_byte_order_mark_at_the_beginning_of_a_file_is_no_text(tmp_path, suffix):
    path, text = tmp_path / f"text.{suffix}", "one\n" * 30 + "\ufefftwo\n"
    path.write_bytes(COMPRESS.get(suffix, bytes)(text.encode("utf-8-sig")))
    (source,) = find_inputs([path])
    blocks = read_blocks(source, block_bytes=8)
    lines = [line for block in blocks for line in lines_of(block, source=source, first_line=1, rules=KEEP)[0]]
    assert lines == text.splitlines()
    if suffix == "txt":
        parts = [read_blocks(source, start=start, end=start + 7) for start in range(0, path.stat().st_size, 7)]
        assert b"".join(block for part in parts for block in part) == text.encode()


def test_a_line_with_a_zero_byte_is_named_or_left_out_and_counted():
    block = b"good\nbad\0 line\ngood \xc3\xa9\n\xff\n"
    with pytest.raises(BadLineError, match=r"c\.txt, line 6: byte 0x00 at column 3 is no text.*UTF-16.*tr -d"):
        lines_of(block, source=TextInput("c.txt", "c.txt"), first_line=5, rules=LineRules())
    skipping = LineRules(skip_bad_lines=True)
    assert lines_of(block, source=TEXT, first_line=5, rules=skipping) == (["good", "good \u00e9"], 2)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_zero_byte_is_no_text_in_a_document_either(tmp_path, form):
    path = tmp_path / f"text.{form}"
    if form == "jsonl":
        path.write_text('{"text": "good"}\n{"text": "a\\u0000b"}\n')
    else:
        pyarrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
        parquet.write_table(pyarrow.table({"text": ["good", "a\0b"]}), path)
    (source,) = find_inputs([path])
    block = b"".join(read_blocks(source))
    with pytest.raises(BadLineError, match=rf"text\.{form}, (line|row) 2: byte 0x00 at character 1 .*--skip-bad-lines"):
        lines_of(block, source=source, first_line=1, rules=LineRules())
    assert lines_of(block, source=source, first_line=1, rules=LineRules(skip_bad_lines=True)) == (["good", ""], 1)


def test_json_lines_are_documents_with_a_blank_line_after_each():
    records = [{"text": " one\n\n two\r\nthree "}, {"text": "four", "id": 1}]
    block = "\n".join(map(json.dumps, records)).encode() + b"\n\n"
    assert lines_of(block, source=RECORDS, first_line=1, rules=LineRules())[0] == [
        "one",
        "two",
        "three",
        "",
        "four",
        "",
    ]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"{", "not valid JSON"),
        (b'{"body": "x"}', 'field "text"'),
        (b'{"text": 5}', 'field "text"'),
        (b"[1]", 'field "text"'),
        (b'{"text": "\\ud800"}', "surrogate"),
        (b'{"text": "\xff"}', "not valid JSON"),
    ],
)
def test_a_bad_record_is_named_or_left_out_and_counted(record, reason):
    block = b'{"text": "good"}\n' + record + b'\n{"text": "fine"}\n'
    with pytest.raises(BadLineError, match=rf"c\.jsonl, line 2: .*{reason}"):
        lines_of(block, source=RECORDS, first_line=1, rules=LineRules())
    lines, num_bad = lines_of(block, source=RECORDS, first_line=1, rules=LineRules(skip_bad_lines=True))
    assert (lines, num_bad) == (["good", "", "fine", ""], 1)


def test_another_json_field():
    rules = LineRules(text_column="body")
    assert lines_of(b'{"body": "x"}', source=RECORDS, first_line=1, rules=rules)[0] == ["x", ""]
