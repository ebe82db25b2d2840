"""What is no checkpoint is refused, damage is found, nothing in a file is run, and only what nobody is writing is removed."""

import argparse
import fcntl
import pickle
import re
from functools import partial

import pytest
import torch
from fairseq import checkpoint_utils
from safetensors.torch import save_file

from roberta_plugin import fairseq_workarounds
from roberta_plugin.checkpoint_files import check_checkpoint, fault_of, load_state, remove_unfinished
from tests.refusals import refused
from tests.tiny_checkpoints import PICKLE_PAYLOADS, write_pickle_payload

fairseq_workarounds.install()


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "checkpoint_last.pt"
    torch.save({"weight": torch.full((4000,), 60.0), "more": torch.arange(5)}, path)
    return path


def test_a_whole_checkpoint_has_no_fault_and_a_missing_one_is_no_damage(checkpoint, tmp_path):
    assert fault_of(checkpoint) is None
    check_checkpoint(checkpoint)
    old = tmp_path / "model.pt"
    torch.save({"weight": torch.ones(5)}, old, _use_new_zipfile_serialization=False)
    assert fault_of(old) is None
    refused(r"none\.pt", check_checkpoint, tmp_path / "none.pt", error=FileNotFoundError)
    message = r"no checkpoint .*none\.pt: give the path of a \.pt file"
    refused(message, load_state, tmp_path / "none.pt", error=FileNotFoundError)


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda value: value.index_fill(0, torch.tensor([1]), torch.nan), "holds NaN or infinite values: its training"),
        (lambda value: value.index_fill(0, torch.tensor([1]), -torch.inf), "holds NaN or infinite values: its traini"),
        (lambda value: value.half().index_fill(0, torch.tensor([1]), torch.nan), "holds NaN or infinite values"),
        (lambda value: value.to(torch.complex64), "holds complex numbers"),
        (lambda value: value.to_sparse(), "(holds a sparse tensor|is damaged)"),
    ],
)
@pytest.mark.parametrize("for_use", [True, False])
def test_weights_without_numbers_are_named(tmp_path, spoil, fault, for_use):
    path = tmp_path / "checkpoint_best.pt"
    model = {"none": torch.empty(0), "count": torch.tensor(3), "large": torch.full((4,), 3e38), "half": torch.ones(2)}
    torch.save({"model": model}, path)
    load_state(path, for_use=for_use)
    torch.save({"model": {**model, "weight": spoil(torch.ones(5))}}, path)
    refused(rf"checkpoint_best\.pt.* {fault}.* (U|u)se another", load_state, path, for_use=for_use)


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
    message = f"checkpoint_last.pt is damaged: .*{fault}.*Use another checkpoint, or bring"
    refused(message, check_checkpoint, checkpoint)


def test_each_byte_of_a_tensor_counts(tmp_path):
    path = tmp_path / "checkpoint.pt"
    torch.save({"weight": torch.arange(200.0)}, path)
    content = path.read_bytes()
    begin = content.index(torch.arange(200.0).numpy().tobytes())
    for at in range(begin, begin + 800, 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 8]) + content[at + 1 :])
        assert fault_of(path), at


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


def test_a_checkpoint_of_either_form_is_read(tmp_path):
    saved = {"model": {"weight": torch.ones(2)}, "args": argparse.Namespace(arch="roberta_base")}
    for is_zip in (True, False):
        torch.save(saved, tmp_path / "model.pt", _use_new_zipfile_serialization=is_zip)
        state = load_state(tmp_path / "model.pt")
        assert state["args"].arch == "roberta_base"
        assert state["model"]["weight"].tolist() == [1, 1]


@pytest.mark.parametrize("kind", PICKLE_PAYLOADS)
def test_no_payload_is_run(tmp_path, kind):
    sentinel = tmp_path / "ran"
    write_pickle_payload(tmp_path / "model.pt", kind, sentinel)
    message = r"model\.pt (holds the Python object|cannot be read as a checkpoint)"
    said = refused(message, load_state, tmp_path / "model.pt")
    assert kind != "zip" or re.search(r"holds the Python object posix\.system, .* could run code", said)
    assert not sentinel.exists()


@pytest.mark.parametrize("kind", ["zip", "raw pickle", "namespace attribute", "eval"])
def test_the_payloads_run_where_they_are_trusted(tmp_path, kind):
    """Otherwise the test above would prove nothing."""
    sentinel, path = tmp_path / "ran", tmp_path / "model.pt"
    write_pickle_payload(path, kind, sentinel)
    if kind == "raw pickle":
        pickle.loads(path.read_bytes())
    else:
        torch.load(path, weights_only=False)
    assert sentinel.exists()


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize(
    "load", [load_state, partial(load_state, for_use=True), checkpoint_utils.load_checkpoint_to_cpu]
)
def test_a_tensor_that_claims_more_than_its_file_holds_is_refused(tmp_path, load, is_sparse):
    huge = torch.zeros(1).expand(10**9, 32)
    huge = torch.sparse_coo_tensor([[3]], [1.0], (10**12,)) if is_sparse else huge
    path = tmp_path / "model.pt"
    state = {"cfg": None, "optimizer_history": [{"lr_scheduler_state": {}}], "extra_state": {"train_iterator": {}}}
    endless: list[object] = []
    endless.append(endless)  # and is looked at once
    torch.save({**state, "model": {"weight": torch.ones(2), "huge": huge}, "endless": endless}, path)
    message = r"model\.pt has [\d,]+ bytes, .* claims [\d,]+,000,000 bytes.* Use another"
    refused(message, load, str(path))


def write_trained(path):
    """Weights and an optimizer's state, whose bytes are easy to find."""
    shared = torch.full((999,), 60.0)
    model = {
        "weight": shared,
        "tied": shared,
        "part": torch.full((20, 50), 70.0, dtype=torch.bfloat16)[5:],
        "none": torch.ones(0),
    }
    optimizer = {"state": {0: {"exp_avg": torch.full((2000,), 80.0)}}}
    torch.save({"model": model, "extra": {"lists": [torch.full((9,), 90.0)]}, "last_optimizer_state": optimizer}, path)


@pytest.mark.parametrize(
    ("damaged", "is_refused"),
    [(None, False), (torch.full((3,), 60.0), True), (torch.full((3,), 90.0), True), (torch.full((3,), 80.0), False)],
)
def test_what_is_used_is_whole_and_the_rest_is_not_read(tmp_path, damaged, is_refused):
    path = tmp_path / "model.pt"
    write_trained(path)
    content = bytearray(path.read_bytes())
    if damaged is not None:
        content[content.index(damaged.numpy().tobytes()) + 5] ^= 1
        path.write_bytes(content)
    if is_refused:
        refused(r"model\.pt is damaged: the checksum of its part .* is wrong", load_state, path, for_use=True)
    else:
        state = load_state(path, for_use=True)
        assert sorted(state) == ["extra", "model"]
        assert state["model"]["part"].shape == (15, 50)
        assert state["model"]["weight"].data_ptr() == state["model"]["tied"].data_ptr()
    if damaged is not None:  # a training needs all of it
        refused("is damaged", load_state, path)


def test_options_that_are_damaged_are_refused_before_use(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"model": {"weight": torch.ones(2)}, "cfg": {"model": {"_name": "fast_roberta"}}}, path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"fast_roberta", b"lost_roberta"))
    refused(r"model\.pt is damaged", load_state, path, for_use=True)


def write_cut_off(path, **options):
    torch.save({"model": {"weight": torch.ones(1000)}}, path, **options)
    path.write_bytes(path.read_bytes()[:2000])


THEIRS = {"roberta.embeddings.word_embeddings.weight": torch.ones(3)}
NO_CHECKPOINTS = {
    "junk": (lambda path: path.write_bytes(b"junk\n" * 100), "cannot be read as a checkpoint"),
    "empty": (lambda path: path.touch(), "is empty"),
    "cut off": (write_cut_off, "cannot be read as a checkpoint .* cut off"),
    "cut off, before 1.6": (
        lambda path: write_cut_off(path, _use_new_zipfile_serialization=False),
        "cannot be read as a checkpoint",
    ),
    "Hugging Face's": (lambda path: torch.save(THEIRS, path), "is a state dict of Hugging Face"),
    "safetensors": (lambda path: save_file(THEIRS, path), "is a safetensors file"),
    "a list": (lambda path: torch.save([torch.ones(3)], path), "has no entry `model`"),
    "no tensors": (
        lambda path: torch.save({"model": {"weight": "a text"}}, path),
        "the entry 'weight' of `model` is not a tensor",
    ),
}


@pytest.mark.parametrize("kind", NO_CHECKPOINTS)
def test_what_is_no_checkpoint_is_refused_in_one_sentence_that_names_it(tmp_path, kind):
    write, words = NO_CHECKPOINTS[kind]
    path = tmp_path / "model.pt"
    write(path)
    said = refused(words, load_state, path)
    assert str(path) in said and "\n" not in said
    advice = ("Give a .pt file that fairseq-train wrote.", "Turn its folder into a checkpoint with `roberta import`.")
    assert said.endswith(advice)
