"""Inputs and their formats by name and content, and the content of compressed ones."""

import bz2
import gzip
import json
import lzma
import os
import sys
import threading
import time

import pytest
from backports import zstd

from roberta_plugin.data.text_inputs import read_blocks
from roberta_plugin.data.text_inputs_files import decompressed_pieces, find_inputs, read_ahead

COMPRESS = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "zst": zstd.compress}
RECORDS = b'{"text": "one"}\n{"text": "two"}\n'


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
    (tmp_path / name).write_bytes(COMPRESS.get(suffix, bytes)(RECORDS))
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
    (tmp_path / "part-0.txt").write_bytes(RECORDS)
    with pytest.raises(ValueError, match=r"part-0\.txt begins like JSON Lines.*--format jsonl, or --format text"):
        find_inputs([tmp_path / "part-0.txt"])
    assert find_inputs([tmp_path / "part-0.txt"], text_format="jsonl")[0].form == "jsonl"
    (tmp_path / "code.txt").write_bytes(b"{ braces }\n")
    assert find_inputs([tmp_path / "code.txt"])[0].form == "text"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((compress(b"text\n" * 99), f"compressed with .*{suffix}") for suffix, compress in COMPRESS.items()),
        (b"PAR1" + bytes(99), "Parquet"),
        (b"PK\x03\x04" + bytes(99), "zip"),
        ("text\n".encode("utf-16"), "iconv"),
    ],
    ids=[*COMPRESS, "parquet", "zip", "utf-16"],
)
def test_what_is_no_plain_text_is_refused_under_a_plain_name(tmp_path, content, message):
    (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(ValueError, match=rf"text\.txt is .*{message}"):
        find_inputs([tmp_path / "text.txt"])


@pytest.mark.parametrize("suffix", COMPRESS)
def test_an_archive_of_no_bytes_is_refused(tmp_path, suffix):
    (tmp_path / f"a.{suffix}").write_bytes(b"")
    with pytest.raises(ValueError, match=rf"a\.{suffix} is empty"):
        find_inputs([tmp_path / f"a.{suffix}"], text_format="text")


@pytest.mark.parametrize("suffix", ["txt", *COMPRESS])
def test_a_pipe_is_read_whatever_its_compression(tmp_path, suffix):
    data = b"one\ntwo\n" * 1000
    content = COMPRESS.get(suffix, bytes)(data)
    assert b"".join(blocks_through_a_pipe(tmp_path / "pipe", content)) == data


def test_json_lines_in_a_pipe_need_their_format(tmp_path):
    with pytest.raises(ValueError, match=r"pipe begins like JSON Lines"):
        blocks_through_a_pipe(tmp_path / "pipe", RECORDS)
    assert blocks_through_a_pipe(tmp_path / "pipe2", RECORDS, text_format="jsonl") == [RECORDS]


def blocks_through_a_pipe(path, content, **options):
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(content,)).start()
    (source,) = find_inputs([path], **options)
    assert source.is_stream
    assert source.is_sequential
    return list(read_blocks(source))


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("damage", ["cut off", "other content", "changed"])
def test_a_damaged_archive_is_named(tmp_path, suffix, damage):
    path = tmp_path / f"text.{suffix}"
    # random digits: nothing to compress, so that the damage is in the middle of the text
    whole = COMPRESS[suffix]("".join(f"{number * 7919 % 99991}\n" for number in range(20_000)).encode())
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


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_damaged_second_stream_and_an_empty_file_are_named(tmp_path, suffix):
    path = tmp_path / f"text.{suffix}"
    for content in (b"", COMPRESS[suffix](b"one\n") + b"\x01" * 40):
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
    for suffix in COMPRESS:
        path = tmp_path / f"text.{suffix}"
        path.write_bytes(COMPRESS[suffix](bytes(2**24)))
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
    for suffix, compress in COMPRESS.items():
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
