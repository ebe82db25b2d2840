"""Each workaround repairs the fault that it names, and only that."""

import argparse
import os
import pickle

import pytest
import torch
from fairseq.file_io import PathManager

from roberta_plugin import fairseq_workarounds


class Unlisted:
    """A class that no checkpoint of fairseq holds."""


def test_checkpoints_with_a_namespace_load_and_others_are_still_refused(tmp_path):
    torch.save({"args": argparse.Namespace(arch="x"), "weight": torch.ones(2)}, tmp_path / "good.pt")
    assert torch.load(tmp_path / "good.pt")["args"].arch == "x"
    torch.save({"args": Unlisted()}, tmp_path / "bad.pt")
    with pytest.raises(pickle.UnpicklingError, match="Unlisted"):
        torch.load(tmp_path / "bad.pt")


def test_a_copy_that_fails_half_way_leaves_the_old_file_whole(tmp_path, monkeypatch):
    new, last = tmp_path / "checkpoint_1_10.pt", tmp_path / "checkpoint_last.pt"
    new.write_bytes(b"new" * 1000)
    last.write_bytes(b"old")

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_bytes() == b"old"
    monkeypatch.undo()
    assert PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_bytes() == b"new" * 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == [new.name, last.name]


def test_a_copy_refuses_to_overwrite_unless_told(tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        PathManager.copy(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").read_text() == "b"


def test_installing_twice_changes_nothing():
    before = PathManager.copy
    fairseq_workarounds.install()
    assert PathManager.copy is before is fairseq_workarounds.atomic_copy
