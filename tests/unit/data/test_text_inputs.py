"""Text from files and pipes of any compression, by lines and as JSON Lines; what is no text is named."""

import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import random
import re
import sys
import threading
import time

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from roberta_plugin.data import text_inputs_lines
from roberta_plugin.data.text_inputs import BadLineError, LineRules, count_lines, lines_of, read_blocks
from roberta_plugin.data.text_inputs_ahead import read_ahead, read_when_ready
from roberta_plugin.data.text_inputs_compressed import decompressed_pieces
from roberta_plugin.data.text_inputs_files import TextInput, find_inputs
from tests.refusals import refused

KEEP = LineRules(keep_spaces=True)
TEXT = TextInput("t", "t")
RECORDS = TextInput("c.jsonl", "c.jsonl", form="jsonl")
ARCHIVES = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "zst": zstd.compress}
COMPRESS = {**ARCHIVES, "txt": bytes}
RECORD_LINES = b'{"text": "one"}\n{"text": "two"}\n'


def lines(block, source=TEXT, *, first_line=1, **rules):
    """The lines of a block, and how many of them are bad."""
    return lines_of(block, source=source, first_line=first_line, rules=LineRules(**rules))


def refused_line(match, block, source, *, first_line=1):
    """The block has a line that is refused with this message."""
    refused(match, lines, block, source, first_line=first_line, error=BadLineError)


def pythons_lines(data):
    """Lines as Python's text mode reads them."""
    return [line.rstrip("\n") for line in io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")]


def all_lines(path, *, block_bytes, edges):
    found = []
    source = TextInput(str(path), str(path))
    for start, end in itertools.pairwise(edges):
        for block in read_blocks(source, start=start, end=end, block_bytes=block_bytes):
            assert block
            found += lines(block, source, keep_spaces=True)[0]
            assert count_lines(block, source) == len(lines(block, source, keep_spaces=True)[0])
    return found


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
    read, found = [], []
    (source,) = find_inputs([path])
    for block in read_blocks(source, block_bytes=1000, on_read=read.append):
        found += lines(block, source, keep_spaces=True)[0]
    assert found == pythons_lines(data)
    assert sum(read) == path.stat().st_size
    assert len(read) > 5


@pytest.mark.parametrize(
    "suffix", [pytest.param(name, marks=[pytest.mark.slow] if name == "xz" else []) for name in COMPRESS]
)
def test_a_line_of_gigabytes_is_named_before_it_fills_the_memory(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(text_inputs_lines, "LONGEST_LINE", 2**20)
    path = tmp_path / f"text.{suffix}"
    path.write_bytes(COMPRESS[suffix](b"a\n" + random.Random(0).randbytes(2**21).hex().encode()))
    (source,) = find_inputs([path])
    message = rf"text\.{suffix}: a line has more than \d+ MiB\. Split"
    refused(message, lambda: list(read_blocks(source)))


def test_white_space_is_stripped_as_fairseq_does_or_kept():
    block = "  a b\t\n\u00a0\u3000\n\x1cc\x1f\n".encode()
    assert lines(block)[0] == ["a b", "", "c"]
    assert lines(block, keep_spaces=True)[0] == ["  a b\t", "", "\x1cc\x1f"]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (b"good\nb\xc3\xa9d \xff\r\ngood \xc3\xa9\nbad \xe4\xbd", "byte 0xff at column 4 is not UTF-8"),
        (b"good\nbad\0 line\ngood \xc3\xa9\n\xff\n", r"byte 0x00 at column 3 is no text.*UTF-16.*tr -d"),
    ],
)
def test_a_line_that_is_no_utf8_or_has_a_zero_byte_is_named_or_left_out_and_counted(block, message):
    refused_line(rf"corpus\.txt, line 12: {message}", block, TextInput("corpus.txt", "corpus.txt"), first_line=11)
    assert lines(block, first_line=11, skip_bad_lines=True) == (["good", "good \u00e9"], 2)


@pytest.mark.parametrize("suffix", ["txt", "gz"])
def test_a_byte_order_mark_at_the_beginning_of_a_file_is_no_text(tmp_path, suffix):
    path, text = tmp_path / f"text.{suffix}", "one\n" * 30 + "\ufefftwo\n"
    path.write_bytes(COMPRESS.get(suffix, bytes)(text.encode("utf-8-sig")))
    (source,) = find_inputs([path])
    blocks = read_blocks(source, block_bytes=8)
    found = [line for block in blocks for line in lines(block, source, keep_spaces=True)[0]]
    assert found == text.splitlines()
    if suffix == "txt":
        parts = [read_blocks(source, start=start, end=start + 7) for start in range(0, path.stat().st_size, 7)]
        assert b"".join(block for part in parts for block in part) == text.encode()


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
    message = rf"text\.{form}, (line|row) 2: byte 0x00 at character 1 .*--skip-bad-lines"
    refused_line(message, block, source)
    assert lines(block, source, skip_bad_lines=True) == (["good", ""], 1)


def test_json_lines_are_documents_with_a_blank_line_after_each():
    records = [{"text": " one\n\n two\r\nthree "}, {"text": "four", "id": 1}]
    block = "\n".join(map(json.dumps, records)).encode() + b"\n\n"
    assert lines(block, RECORDS)[0] == ["one", "two", "three", "", "four", ""]
    assert lines(b'{"body": "x"}', RECORDS, text_column="body")[0] == ["x", ""]


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
    refused_line(rf"c\.jsonl, line 2: .*{reason}", block, RECORDS)
    assert lines(block, RECORDS, skip_bad_lines=True) == (["good", "", "fine", ""], 1)


def test_patterns_are_expanded_in_order(tmp_path):
    for name in ("b2.txt", "b1.txt", "a.txt", "[odd].txt"):
        (tmp_path / name).write_text("x\n")
    found = find_inputs([tmp_path / "b*.txt", tmp_path / "a.txt", tmp_path / "[odd].txt"])
    assert [source.path.rsplit("/", 1)[1] for source in found] == ["b1.txt", "b2.txt", "a.txt", "[odd].txt"]


def test_inputs_that_cannot_be_used_are_named(tmp_path):
    (tmp_path / "a.txt").write_text("x\n")
    given = (tmp_path / "a.txt", tmp_path / "missing.txt")
    refused(r"missing\.txt", find_inputs, given, error=FileNotFoundError)
    refused(r"a\.txt is given twice", find_inputs, [tmp_path / "a.txt", tmp_path / "*.txt"])
    refused("at least one", find_inputs, [], error=FileNotFoundError)


@pytest.mark.parametrize("name", ["c4.json", "c4.json.gz", "c4.json.zst", "c4.jsonl", "c4.ndjson.xz", "C4.JSONL.bz2"])
def test_json_lines_are_recognized_under_their_usual_names(tmp_path, name):
    suffix = name.rsplit(".", 1)[1]
    (tmp_path / name).write_bytes(ARCHIVES.get(suffix, bytes)(RECORD_LINES))
    (source,) = find_inputs([tmp_path / name])
    assert source.form == "jsonl"
    assert find_inputs([tmp_path / name], text_format="text")[0].form == "text"


def test_a_long_first_record_is_recognized_and_braces_are_no_record(tmp_path):
    (tmp_path / "c4.json").write_text(json.dumps({"text": "word " * 100_000}) + "\n")
    (tmp_path / "code.txt").write_bytes(b"{ braces }\n")
    assert [source.form for source in find_inputs([tmp_path / "c4.json", tmp_path / "code.txt"])] == ["jsonl", "text"]


def test_a_piece_that_is_not_there_yet_keeps_none_of_those_before_it_waiting():
    may_go_on = threading.Event()

    def pieces():
        yield 1
        may_go_on.wait(60)
        yield 2
        raise ValueError("no more")

    found = read_when_ready(pieces(), most=9, patience=0.0)
    assert [next(found), next(found)] == [1, None]
    may_go_on.set()
    assert next(piece for piece in found if piece is not None) == 2
    with pytest.raises(ValueError, match="no more"):
        list(found)
    assert list(read_ahead(iter(range(9)))) == list(range(9))


NOT_JSON_LINES = r"is JSON, but not one record per line.*--format text"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("all.json", b'[\n{"text": "one"}\n]\n', NOT_JSON_LINES),
        ("all.json", b'{\n  "text": "one"\n}\n', NOT_JSON_LINES),
        ("all.jsonl", b'[{"text": "one"}]', r"is JSON, but not one record per line: it is an array.*jq -c"),
        ("part-0.txt", RECORD_LINES, r"begins like JSON Lines.*--format jsonl, or --format text"),
        *(("text.txt", ARCHIVES[end](b"text\n" * 99), f"is .*compressed with .*{end}") for end in ARCHIVES),
        *((f"a.{end}", b"", "is empty") for end in ARCHIVES),
        ("text.txt", b"PAR1" + b"\xff" * 99, "is .*Parquet"),
        ("text.txt", b"PK\x03\x04" + b"\xff" * 99, "is .*zip"),
        ("text.txt", "text\n".encode("utf-16"), "is .*iconv"),
    ],
)
def test_what_is_no_plain_text_of_its_name_is_refused_until_the_format_is_given(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    given = {"text_format": "text"} if not content else {}
    refused(f"{re.escape(name)} {message}", find_inputs, [tmp_path / name], **given)
    if content == RECORD_LINES:
        assert find_inputs([tmp_path / name], text_format="jsonl")[0].form == "jsonl"


@pytest.mark.parametrize("suffix", ["txt", *ARCHIVES])
def test_a_pipe_is_read_whatever_its_compression(tmp_path, suffix):
    data = b"one\ntwo\n" * 1000
    content = ARCHIVES.get(suffix, bytes)(data)
    assert b"".join(blocks_through_a_pipe(tmp_path / "pipe", content)) == data


def test_json_lines_in_a_pipe_need_their_format(tmp_path):
    refused(r"pipe begins like JSON Lines", blocks_through_a_pipe, tmp_path / "pipe", RECORD_LINES)
    assert blocks_through_a_pipe(tmp_path / "pipe2", RECORD_LINES, text_format="jsonl") == [RECORD_LINES]


def blocks_through_a_pipe(path, content, **options):
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(content,)).start()
    (source,) = find_inputs([path], **options)
    assert source.is_stream
    assert source.is_sequential
    return list(read_blocks(source))


@pytest.mark.parametrize("suffix", ARCHIVES)
def test_a_damaged_archive_is_named(tmp_path, suffix):
    # random digits: nothing to compress, so that the damage is in the middle of the text
    whole = ARCHIVES[suffix]("".join(f"{number * 7919 % 99991}\n" for number in range(20_000)).encode())
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 0xFF
    if suffix == "zst":
        changed = zstd.compress(b"a" * 999, options={zstd.CompressionParameter.checksum_flag: 1})[:-1] + b"x"
    second_stream = ARCHIVES[suffix](b"one\n") + b"\x01" * 40
    for content in (whole[:-9], b"plain text\n" * 5, bytes(changed), second_stream, b""):
        (tmp_path / f"text.{suffix}").write_bytes(content)
        refused(rf"text\.{suffix} cannot be decompressed", decompressed, tmp_path / f"text.{suffix}", 2**16)


def decompressed(path, block_bytes):
    with open(path, "rb") as file:
        return list(read_ahead(decompressed_pieces(file, path.suffix, str(path), block_bytes)))


def test_padding_between_and_after_streams_is_no_damage(tmp_path):
    path = tmp_path / "text.xz"
    path.write_bytes(lzma.compress(b"one\n") + bytes(8) + lzma.compress(b"two\n") + bytes(4))
    assert b"".join(piece for piece, _ in decompressed(path, 2**16)) == b"one\ntwo\n"
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"one\n") + bytes(512))
    assert b"".join(piece for piece, _ in decompressed(path, 2**16)) == b"one\n"


def test_what_is_compressed_a_thousandfold_comes_in_small_pieces(tmp_path):
    for suffix in ARCHIVES:
        path = tmp_path / f"text.{suffix}"
        path.write_bytes(ARCHIVES[suffix](bytes(2**24)))
        sizes = [len(piece) for piece, _ in decompressed(path, 2**16)]
        assert sum(sizes) == 2**24
        assert max(sizes) <= 2**16


def test_without_its_package_a_zst_file_is_refused_with_the_command_that_installs_it(tmp_path, monkeypatch):
    (tmp_path / "text.zst").write_bytes(zstd.compress(b"one\n"))
    monkeypatch.delitem(sys.modules, "backports.zstd")
    monkeypatch.setitem(sys.modules, "backports", None)
    message = r"text.zst: Zstandard needs backports.zstd, not installed here: pip install"
    refused(message, decompressed, tmp_path / "text.zst", 2**16)


def test_pieces_and_the_bytes_read_for_them_add_up(tmp_path):
    data = "".join(f"{number * 7919 % 99991}\n" for number in range(20_000)).encode()
    for suffix, compress in ARCHIVES.items():
        path = tmp_path / f"text.{suffix}"
        path.write_bytes(compress(data))
        pieces = decompressed(path, 2**14)
        assert b"".join(piece for piece, _ in pieces) == data
        assert sum(num_read for _, num_read in pieces) == path.stat().st_size
        assert len(pieces) > 3


def test_an_error_of_the_reading_thread_is_raised_here_after_what_came_before():
    def pieces():
        yield b"a", 1
        yield b"b", 1
        raise ValueError("damaged")

    ahead = read_ahead(pieces())
    assert [next(ahead), next(ahead)] == [(b"a", 1), (b"b", 1)]
    with pytest.raises(ValueError, match="damaged"):
        next(ahead)


def test_a_reader_that_is_given_up_leaves_no_thread():
    before = threading.active_count()
    pieces = read_ahead((b"x", 1) for _ in range(10**9))
    next(pieces)
    pieces.close()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before
