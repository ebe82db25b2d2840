import gzip
import lzma
import threading
import time

import pytest
import zstandard

from roberta_plugin.data.text_inputs_compressed import decompressed_pieces, read_ahead

COMPRESS = {"gz": gzip.compress, "xz": lzma.compress, "zst": zstandard.compress}


@pytest.mark.parametrize("suffix", ["gz", "xz", "zst"])
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
        list(decompressed_pieces(str(path), 2**16))


def test_pieces_and_the_bytes_read_for_them_add_up(tmp_path):
    data = "".join(f"{number * 7919 % 99991}\n" for number in range(20_000)).encode()
    for suffix, compress in COMPRESS.items():
        path = tmp_path / f"text.{suffix}"
        path.write_bytes(compress(data))
        pieces = list(read_ahead(decompressed_pieces(str(path), 2**14)))
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
