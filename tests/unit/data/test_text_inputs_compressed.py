import bz2
import gzip
import lzma
import threading
import time

import pytest
import zstandard

from roberta_plugin.data.text_inputs_compressed import decompressed_pieces, read_ahead

COMPRESS = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "zst": zstandard.compress}


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
        path.write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(b"a" * 999)[:-1] + b"x")
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
    for suffix in ("gz", "xz", "bz2"):
        path = tmp_path / f"text.{suffix}"
        path.write_bytes(COMPRESS[suffix](bytes(2**24)))
        sizes = [len(piece) for piece, _ in decompressed(path, 2**16)]
        assert sum(sizes) == 2**24
        assert max(sizes) <= 2**16


def test_zstandard_gives_what_a_few_kilobytes_hold_and_no_more(tmp_path):
    path = tmp_path / "text.zst"
    path.write_bytes(COMPRESS["zst"](bytes(2**29)) + COMPRESS["zst"](b"more"))
    sizes = [len(piece) for piece, _ in decompressed(path, 2**20)]
    assert sum(sizes) == 2**29 + 4
    assert max(sizes) <= 2**27


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
