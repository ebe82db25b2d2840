"""Text from files and pipes of any compression, by lines and as JSON Lines; what is no text is named."""

import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import random
import sys
import threading
import time

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from roberta_plugin.data import text_inputs_files
from roberta_plugin.data.text_inputs import BadLineError, LineRules, count_lines, lines_of, read_blocks
from roberta_plugin.data.text_inputs_files import TextInput, decompressed_pieces, find_inputs, read_ahead

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


ARCHIVES = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "zst": zstd.compress}
RECORD_LINES = b'{"text": "one"}\n{"text": "two"}\n'


def test_patterns_are_expanded_in_order(tmp_path):
    for name in ("b2.txt", "b1.txt", "a.txt", "[odd].txt"):
        (tmp_path / name).write_text("x\n")
    found = find_inputs([tmp_path / "b*.txt", tmp_path / "a.txt", tmp_path / "[odd].txt"])
    assert [source.path.rsplit("/", 1)[1] for source in found] == ["b1.txt", "b2.txt", "a.txt", "[odd].txt"]


def test_inputs_that_cannot_be_used_are_named(tmp_path):
    (tmp_path / "a.txt").write_text("x\n")
    with pytest.raises(FileNotFoundError, match=r"missing\.txt"):
        find_inputs([tmp_path / "a.txt", tmp_path / "missing.txt"])
    with pytest.raises(ValueError, match=r"a\.txt is given twice"):
        find_inputs([tmp_path / "a.txt", tmp_path / "*.txt"])
    with pytest.raises(FileNotFoundError, match="at least one"):
        find_inputs([])


@pytest.mark.parametrize("name", ["c4.json", "c4.json.gz", "c4.json.zst", "c4.jsonl", "c4.ndjson.xz", "C4.JSONL.bz2"])
def test_json_lines_are_recognized_under_their_usual_names(tmp_path, name):
    suffix = name.rsplit(".", 1)[1]
    (tmp_path / name).write_bytes(ARCHIVES.get(suffix, bytes)(RECORD_LINES))
    (source,) = find_inputs([tmp_path / name])
    assert source.form == "jsonl"
    assert find_inputs([tmp_path / name], text_format="text")[0].form == "text"


def test_a_long_first_record_is_recognized(tmp_path):
    (tmp_path / "c4.json").write_text(json.dumps({"text": "word " * 100_000}) + "\n")
    assert find_inputs([tmp_path / "c4.json"])[0].form == "jsonl"


@pytest.mark.parametrize("content", [b'[\n{"text": "one"}\n]\n', b'{\n  "text": "one"\n}\n'])
def test_json_that_is_not_json_lines_is_refused(tmp_path, content):
    (tmp_path / "all.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"all\.json is JSON, but not one record per line.*--format text"):
        find_inputs([tmp_path / "all.json"])


def test_json_lines_of_another_name_are_refused_until_the_format_is_given(tmp_path):
    (tmp_path / "part-0.txt").write_bytes(RECORD_LINES)
    with pytest.raises(ValueError, match=r"part-0\.txt begins like JSON Lines.*--format jsonl, or --format text"):
        find_inputs([tmp_path / "part-0.txt"])
    assert find_inputs([tmp_path / "part-0.txt"], text_format="jsonl")[0].form == "jsonl"
    (tmp_path / "code.txt").write_bytes(b"{ braces }\n")
    assert find_inputs([tmp_path / "code.txt"])[0].form == "text"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((compress(b"text\n" * 99), f"compressed with .*{suffix}") for suffix, compress in ARCHIVES.items()),
        (b"PAR1" + bytes(99), "Parquet"),
        (b"PK\x03\x04" + bytes(99), "zip"),
        ("text\n".encode("utf-16"), "iconv"),
    ],
    ids=[*ARCHIVES, "parquet", "zip", "utf-16"],
)
def test_what_is_no_plain_text_is_refused_under_a_plain_name(tmp_path, content, message):
    (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(ValueError, match=rf"text\.txt is .*{message}"):
        find_inputs([tmp_path / "text.txt"])


@pytest.mark.parametrize("suffix", ARCHIVES)
def test_an_archive_of_no_bytes_is_refused(tmp_path, suffix):
    (tmp_path / f"a.{suffix}").write_bytes(b"")
    with pytest.raises(ValueError, match=rf"a\.{suffix} is empty"):
        find_inputs([tmp_path / f"a.{suffix}"], text_format="text")


@pytest.mark.parametrize("suffix", ["txt", *ARCHIVES])
def test_a_pipe_is_read_whatever_its_compression(tmp_path, suffix):
    data = b"one\ntwo\n" * 1000
    content = ARCHIVES.get(suffix, bytes)(data)
    assert b"".join(blocks_through_a_pipe(tmp_path / "pipe", content)) == data


def test_json_lines_in_a_pipe_need_their_format(tmp_path):
    with pytest.raises(ValueError, match=r"pipe begins like JSON Lines"):
        blocks_through_a_pipe(tmp_path / "pipe", RECORD_LINES)
    assert blocks_through_a_pipe(tmp_path / "pipe2", RECORD_LINES, text_format="jsonl") == [RECORD_LINES]


def blocks_through_a_pipe(path, content, **options):
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(content,)).start()
    (source,) = find_inputs([path], **options)
    assert source.is_stream
    assert source.is_sequential
    return list(read_blocks(source))


@pytest.mark.parametrize("suffix", ARCHIVES)
@pytest.mark.parametrize("damage", ["cut off", "other content", "changed"])
def test_a_damaged_archive_is_named(tmp_path, suffix, damage):
    path = tmp_path / f"text.{suffix}"
    # random digits: nothing to compress, so that the damage is in the middle of the text
    whole = ARCHIVES[suffix]("".join(f"{number * 7919 % 99991}\n" for number in range(20_000)).encode())
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 0xFF
    path.write_bytes({"cut off": whole[:-9], "other content": b"plain text\n" * 5, "changed": bytes(broken)}[damage])
    if (suffix, damage) == ("zst", "changed"):
        path.write_bytes(zstd.compress(b"a" * 999, options={zstd.CompressionParameter.checksum_flag: 1})[:-1] + b"x")
    with pytest.raises(ValueError, match=rf"text\.{suffix} cannot be decompressed"):
        decompressed(path, 2**16)


def decompressed(path, block_bytes):
    with open(path, "rb") as file:
        return list(read_ahead(decompressed_pieces(file, path.suffix, str(path), block_bytes)))


@pytest.mark.parametrize("suffix", ARCHIVES)
def test_a_damaged_second_stream_and_an_empty_file_are_named(tmp_path, suffix):
    path = tmp_path / f"text.{suffix}"
    for content in (b"", ARCHIVES[suffix](b"one\n") + b"\x01" * 40):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"text\.{suffix} cannot be decompressed"):
            decompressed(path, 2**16)


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
    with pytest.raises(ValueError, match=r"text.zst: Zstandard needs backports.zstd, not installed here: pip install"):
        decompressed(tmp_path / "text.zst", 2**16)


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
