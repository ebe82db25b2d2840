"""The newest whole checkpoint is found, whatever happened to the others, and what happened is said."""

import os

import pytest
import torch

from roberta_plugin.launch.job import is_whole, prepare_checkpoints, updates_of


def write_checkpoint(path, updates):
    state = {"model": {"weight": torch.full((4000,), float(updates))}, "optimizer_history": [{"num_updates": updates}]}
    torch.save(state, path)


def cut_off(path):
    os.truncate(path, path.stat().st_size * 2 // 3)


def weight_of(path):
    return torch.load(path, weights_only=True)["model"]["weight"][0].item()


@pytest.fixture
def save_dir(tmp_path):
    """Three checkpoints of updates 20, 40, 60, the last one twice, as fairseq leaves them."""
    for updates in (20, 40, 60):
        write_checkpoint(tmp_path / f"checkpoint_1_{updates}.pt", updates)
    write_checkpoint(tmp_path / "checkpoint_last.pt", 60)
    return tmp_path


def test_a_sound_folder_is_left_alone(save_dir):
    before = {path.name: path.read_bytes() for path in save_dir.iterdir()}
    assert prepare_checkpoints(save_dir) == "resuming from checkpoint_last.pt, update 60"
    assert {path.name: path.read_bytes() for path in save_dir.iterdir()} == before


def test_an_empty_or_missing_folder_begins_the_training(tmp_path):
    assert "the training begins" in prepare_checkpoints(tmp_path)
    assert "the training begins" in prepare_checkpoints(tmp_path / "none")


def test_a_cut_off_last_checkpoint_is_replaced_by_the_newest_good_one(save_dir):
    cut_off(save_dir / "checkpoint_last.pt")
    cut_off(save_dir / "checkpoint_1_60.pt")
    said = prepare_checkpoints(save_dir)
    assert "checkpoint_last.pt is broken and was put aside as checkpoint_last.pt.broken" in said
    assert "checkpoint_1_60.pt is broken" in said
    assert said.endswith("resuming from checkpoint_1_40.pt, update 40")
    assert weight_of(save_dir / "checkpoint_last.pt") == 40
    assert (save_dir / "checkpoint_last.pt.broken").exists()
    assert prepare_checkpoints(save_dir) == "resuming from checkpoint_last.pt, update 40"


def test_the_best_checkpoint_counts_where_it_is_newer_than_the_others_that_are_whole(save_dir):
    write_checkpoint(save_dir / "checkpoint_best.pt", 55)
    for name in ("checkpoint_last.pt", "checkpoint_1_60.pt"):
        cut_off(save_dir / name)
    assert prepare_checkpoints(save_dir).endswith("resuming from checkpoint_best.pt, update 55")
    assert weight_of(save_dir / "checkpoint_last.pt") == 55
    assert (save_dir / "checkpoint_best.pt").is_file()


def test_a_damaged_byte_is_found_although_the_file_can_be_read(save_dir):
    path = save_dir / "checkpoint_last.pt"
    content = bytearray(path.read_bytes())
    at = content.index(torch.tensor([60.0, 60.0]).numpy().tobytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert updates_of(path) == 60
    assert not is_whole(path)
    assert "resuming from checkpoint_1_60.pt, update 60" in prepare_checkpoints(save_dir)


def test_a_last_checkpoint_that_is_missing_or_older_is_no_reason_to_lose_updates(save_dir):
    (save_dir / "checkpoint_last.pt").unlink()
    assert "resuming from checkpoint_1_60.pt" in prepare_checkpoints(save_dir)
    write_checkpoint(save_dir / "checkpoint_last.pt", 40)
    assert "resuming from checkpoint_1_60.pt" in prepare_checkpoints(save_dir)
    assert weight_of(save_dir / "checkpoint_last.pt") == 60


def test_what_was_being_written_is_removed(save_dir):
    (save_dir / "checkpoint_1_80.pt.tmp").write_bytes(b"half")
    assert "removed checkpoint_1_80.pt.tmp" in prepare_checkpoints(save_dir)
    assert not (save_dir / "checkpoint_1_80.pt.tmp").exists()


def test_nothing_whole_is_refused_and_nothing_is_touched(save_dir):
    for path in save_dir.iterdir():
        cut_off(path)
    before = sorted(path.name for path in save_dir.iterdir())
    with pytest.raises(ValueError, match="None of the checkpoints"):
        prepare_checkpoints(save_dir)
    assert sorted(path.name for path in save_dir.iterdir()) == before
