"""Damaged checkpoints are refused by one sentence that names the file, whoever loads them."""

import pickle

import pytest
import torch
from fairseq import checkpoint_utils

from roberta_plugin.experiments.inference import load_state
from roberta_plugin.hub import RobertaHub
from tests.tiny_checkpoints import write_pickle_payload


class Unlisted:
    """A class that no checkpoint of fairseq holds."""


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[content.index(torch.full((2,), 60.0).numpy().tobytes())] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "load",
    [
        lambda path: checkpoint_utils.load_checkpoint_to_cpu(str(path)),  # --restore-file, fairseq-validate
        lambda path: RobertaHub.from_pretrained(path.parent),
        load_state,  # roberta evaluate, roberta finetune --model
    ],
    ids=["fairseq", "hub", "finetuning"],
)
def test_a_flipped_bit_is_refused_by_everything_that_loads(tmp_path, load):
    path = tmp_path / "checkpoint_best.pt"
    torch.save({"model": {"weight": torch.full((4000,), 60.0)}}, path)
    flip_a_bit(path)
    assert torch.load(path)["model"]["weight"][0] != 60.0, "torch alone would have found it"
    with pytest.raises(ValueError, match=r"checkpoint_best\.pt is damaged: the checksum .* Use another checkpoint"):
        load(path)


def test_an_old_file_that_was_cut_off_is_named(tmp_path):
    """Files of torch < 1.6, as the released models are, have no checksums."""
    path = tmp_path / "model.pt"
    torch.save({"model": {"weight": torch.ones(4000)}}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"model\.pt cannot be read as a checkpoint .*unexpected EOF"):
        checkpoint_utils.load_checkpoint_to_cpu(str(path))


@pytest.mark.parametrize("content", [[1], {"a": 1}])
def test_a_file_of_something_else_is_named(tmp_path, content):
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(ValueError, match=r"x\.pt cannot be read as a checkpoint"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "x.pt"))


def test_a_checkpoint_that_could_run_code_is_named_and_refused(tmp_path):
    torch.save({"args": Unlisted()}, tmp_path / "x.pt")
    with pytest.raises(
        pickle.UnpicklingError, match=r"x\.pt holds the Python object .*Unlisted, and reading it could run code"
    ):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "x.pt"))


def test_a_function_of_a_blocked_module_is_named_and_refused(tmp_path):
    """torch words its refusal of os, sys and posix in another way than that of other modules."""
    write_pickle_payload(tmp_path / "x.pt", "zip", tmp_path / "sentinel")
    with pytest.raises(pickle.UnpicklingError, match=r"x\.pt holds the Python object posix\.system, .* could run code"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "x.pt"))
    assert not (tmp_path / "sentinel").exists()


def test_a_missing_file_is_reported_as_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.pt"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "none.pt"))
