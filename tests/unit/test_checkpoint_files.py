"""Damage of any kind is found, and only what nobody is writing is removed."""

import fcntl

import pytest
import torch

from roberta_plugin.checkpoint_files import check_checkpoint, fault_of, remove_unfinished


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "checkpoint_last.pt"
    torch.save({"weight": torch.full((4000,), 60.0), "more": torch.arange(5)}, path)
    return path


def test_a_whole_checkpoint_has_no_fault(checkpoint, tmp_path):
    assert fault_of(checkpoint) is None
    check_checkpoint(checkpoint)
    old = tmp_path / "model.pt"
    torch.save({"weight": torch.ones(5)}, old, _use_new_zipfile_serialization=False)
    assert fault_of(old) is None


def damaged(content, kind):
    flipped = bytearray(content)
    flipped[content.index(torch.full((2,), 60.0).numpy().tobytes())] ^= 1
    return {
        "empty": (b"", "it is empty"),
        "cut off": (content[: len(content) * 2 // 3], "it was cut off or overwritten"),
        "cut off early": (content[:4], "it was cut off or overwritten"),
        "one bit": (bytes(flipped), "the checksum of its part .* is wrong"),
        "no head": (b"XXXX" + content[4:], "wrong|overwritten"),
    }[kind]


@pytest.mark.parametrize("kind", ["empty", "cut off", "cut off early", "one bit", "no head"])
def test_damage_is_found_and_the_error_names_file_and_remedy(checkpoint, kind):
    content, fault = damaged(checkpoint.read_bytes(), kind)
    checkpoint.write_bytes(content)
    with pytest.raises(ValueError, match=f"checkpoint_last.pt is damaged: .*{fault}.*Use another checkpoint, or bring"):
        check_checkpoint(checkpoint)


def test_each_byte_of_a_tensor_counts(tmp_path):
    path = tmp_path / "checkpoint.pt"
    torch.save({"weight": torch.arange(200.0)}, path)
    content = path.read_bytes()
    begin = content.index(torch.arange(200.0).numpy().tobytes())
    for at in range(begin, begin + 800, 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 8]) + content[at + 1 :])
        assert fault_of(path), at


def test_a_missing_file_is_no_damage(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.pt"):
        check_checkpoint(tmp_path / "none.pt")


def test_unfinished_files_are_removed_unless_another_process_writes_them(tmp_path):
    for name in (".checkpoint_last.pt.0a1b2c3d.tmp", "checkpoint_1_5.pt.tmp", ".crash.pt.00000000.tmp"):
        (tmp_path / name).write_bytes(b"half")
    kept = ["checkpoint_last.pt", "notes.tmp", ".hidden.tmp"]
    for name in kept:
        (tmp_path / name).write_bytes(b"whole")
    with open(tmp_path / ".crash.pt.00000000.tmp", "rb") as in_use:
        fcntl.flock(in_use, fcntl.LOCK_EX)
        assert remove_unfinished(tmp_path) == [".checkpoint_last.pt.0a1b2c3d.tmp", "checkpoint_1_5.pt.tmp"]
    assert remove_unfinished(tmp_path) == [".crash.pt.00000000.tmp"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)
    assert remove_unfinished(tmp_path / "no folder") == []
