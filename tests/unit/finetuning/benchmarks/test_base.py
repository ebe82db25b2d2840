"""Texts of official files and what they may hold, and the paper's epochs in fairseq's updates."""

import pytest

from roberta_plugin.finetuning.benchmarks.base import Training, describe_files, read_text
from roberta_plugin.tables import check_text


def test_a_byte_order_mark_is_left_out_and_a_byte_that_is_not_utf8_named(tmp_path):
    for mark in (b"", b"\xef\xbb\xbf"):
        (tmp_path / "a").write_bytes(mark + "caf\u00e9\n".encode())
        assert read_text(tmp_path / "a") == "caf\u00e9\n"
    (tmp_path / "a.story").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"a\.story: byte 0xe9 at 3 is not UTF-8\. Save the file as UTF-8\."):
        read_text(tmp_path / "a.story")


def test_the_content_identifies_files_wherever_they_lie(tmp_path):
    for name, content in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        (tmp_path / name).write_bytes(content)
    same, other = describe_files([tmp_path / "a"]), describe_files([tmp_path / "c"])
    assert describe_files([tmp_path / "b"])["sha256"] == same["sha256"] != other["sha256"]
    assert (same["files"], same["bytes"], same["names"]) == (1, 3, ["a"])


def test_what_is_no_text_is_refused():
    halves = "half of a surrogate pair at character 0"
    for value, message in ((3, "text must be a text, found 3"), (" ", "text is empty"), ("\ud800", halves)):
        with pytest.raises(ValueError, match=f"^line 1: .*{message}"):
            check_text(value, "text", "line 1")


def test_the_last_and_smaller_batch_of_an_epoch_is_an_update_too():
    # RTE: 2,490 examples in batches of 16 are 156 updates an epoch; fairseq's own recipe has 2,036 for 13 of them
    found = Training().schedule(2490, 16)
    assert found == {"batch-size": "16", "total-num-update": "1560", "max-update": "1560", "warmup-updates": "94"}
    assert Training().schedule(2490, 32, epochs=1)["max-update"] == "78"
