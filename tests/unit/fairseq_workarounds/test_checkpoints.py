"""Checkpoints are whole or refused, whatever fairseq or a disk does; one training at a time saves in a folder."""

import errno
import fcntl
import logging
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from roberta_plugin.checkpoint_files import fault_of, load_state
from roberta_plugin.fairseq_workarounds import checkpoints
from roberta_plugin.fairseq_workarounds.checkpoints import lock_and_load, lock_save_dir
from roberta_plugin.hub import RobertaHub
from roberta_plugin.locks import TRAINING_LOCK
from roberta_plugin.models.adapters import TARGETS, add_adapters
from tests.refusals import refused
from tests.tiny_checkpoints import write_pickle_payload
from tests.tiny_models import options as tiny_options
from tests.tiny_models import our_model

NEW, OLD = {"weight": torch.full((50_000,), 2.0)}, {"weight": torch.full((50_000,), 1.0)}


@pytest.fixture
def last(tmp_path):
    path = tmp_path / "checkpoint_last.pt"
    torch.save(OLD, path)
    return path


@pytest.fixture
def waits(monkeypatch):
    """Seconds that were waited, without waiting."""
    seconds = []
    monkeypatch.setattr(checkpoints.time, "sleep", seconds.append)
    return seconds


def fail_fsync(monkeypatch, times, number=errno.ENOSPC):
    """Let the first `times` calls of os.fsync fail; count them."""
    calls, real = [], os.fsync

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) <= times:
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return calls


def weight(path):
    assert fault_of(path) is None
    return torch.load(path)["weight"][0].item()


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def save(path):
    checkpoint_utils.torch_persistent_save(NEW, str(path))


def copy(path):
    source = path.with_name("checkpoint_1_10.pt")
    torch.save(NEW, source)
    try:
        PathManager.copy(str(source), str(path), overwrite=True)
    finally:
        source.unlink()


def test_a_checkpoint_has_shared_layers_once_and_every_adapter(tmp_path):
    """fairseq hands over a copy of each entry, where it comes from a GPU."""
    sharing = {"encoder_layers": 4, "share_layers": "groups:2"}
    model = our_model(**sharing)
    add_adapters(model, rank=2, alpha=4.0, targets=TARGETS)
    parameters = {name: value.clone() for name, value in model.state_dict().items()}
    assert sum(".adapter.lora_" in name for name in parameters) == 4 * len(TARGETS) * 2
    options = {**vars(tiny_options(**sharing)), "_name": "fast_roberta"}
    state = {"args": None, "cfg": {"task": {}, "model": options}, "model": parameters}
    checkpoint_utils.torch_persistent_save(state, str(tmp_path / "checkpoint_last.pt"))
    found = load_state(tmp_path / "checkpoint_last.pt")["model"]
    assert found.keys() == parameters.keys()
    assert all(torch.equal(found[name], value) for name, value in parameters.items())
    layers = "encoder.sentence_encoder.layers."
    for name in [name.removeprefix(f"{layers}0.") for name in found if name.startswith(f"{layers}0.")]:
        places = [found[f"{layers}{number}.{name}"].data_ptr() for number in range(4)]
        assert places[0] == places[1] != places[2] == places[3], name


@pytest.mark.parametrize("write", [save, copy])
def test_a_disk_that_is_full_for_a_moment_costs_a_wait(last, monkeypatch, waits, caplog, write):
    fail_fsync(monkeypatch, times=2)
    with caplog.at_level(logging.WARNING):
        write(last)
    assert weight(last) == 2.0
    assert files(last.parent) == [last.name]
    assert waits == [1, 2]
    assert f"Cannot write {last}: No space left on device. Trying again in 1 s." in caplog.text


@pytest.mark.parametrize("write", [save, copy])
def test_a_disk_that_stays_full_ends_in_an_error_and_the_old_checkpoint_survives(last, monkeypatch, waits, write):
    fail_fsync(monkeypatch, times=99)
    message = (
        f"checkpoint {last} cannot be written for 60 s: No space left.*Free some space.*run the same command again"
    )
    with pytest.raises(OSError, match=message) as caught:
        write(last)
    assert caught.value.errno == errno.ENOSPC
    assert weight(last) == 1.0
    assert files(last.parent) == [last.name]
    assert sum(waits) == 60


def test_an_error_that_does_not_pass_and_a_failure_of_our_own_are_not_repeated(tmp_path, last, waits):
    message = r"gone/checkpoint_last\.pt cannot be written: No such file or directory"
    refused(message, save, tmp_path / "gone" / "checkpoint_last.pt", error=OSError)
    unsaved = {"f": lambda: None}
    refused("pickle", checkpoint_utils.torch_persistent_save, unsaved, str(last), error=Exception)
    assert weight(last) == 1.0
    assert waits == []


@pytest.mark.parametrize("kind", ["cut off", "flipped"])
def test_what_reaches_the_disk_damaged_takes_no_name(last, monkeypatch, waits, kind):
    """torch.save says that all is well, and the bytes are others."""
    real, calls = torch.save, []

    def save_damaged(state, file):
        real(state, file)
        calls.append(file.name)
        if len(calls) == 1 and kind == "cut off":
            file.truncate(100_000)
        elif len(calls) == 1:
            file.seek(100_000)
            file.write(b"x")

    monkeypatch.setattr(torch, "save", save_damaged)
    save(last)
    monkeypatch.undo()
    assert weight(last) == 2.0
    assert len(set(calls)) == 2, "the second attempt used the file of the first"


def test_a_stream_gets_one_attempt(waits):
    """The second attempt of fairseq's own would go behind the first."""
    written = []

    class Full:
        def write(self, data):
            written.append(data)
            raise OSError(errno.ENOSPC, "full")

        def flush(self):
            pass

    refused(r"full|unexpected pos", checkpoint_utils._torch_persistent_save, NEW, Full(), error=Exception)
    assert waits == []


@pytest.mark.parametrize("system", ["copies", errno.EXDEV, errno.EOPNOTSUPP, "stops half way"])
def test_copies_are_files_of_their_own_also_where_file_systems_copy_nothing_or_half(tmp_path, monkeypatch, system):
    """What `cp other.pt checkpoint_last.pt` does to one must not happen to both."""
    source, target = tmp_path / "checkpoint_1_10.pt", tmp_path / "checkpoint_best.pt"
    torch.save(NEW, source)
    real, calls = os.copy_file_range, []

    def copy_file_range(source, target, count):
        calls.append(count)
        if system == "copies":
            return real(source, target, count)
        if system != "stops half way":
            raise OSError(system, "cannot")
        return real(source, target, 1000) if len(calls) == 1 else 0

    monkeypatch.setattr(os, "copy_file_range", copy_file_range)
    PathManager.copy(str(source), str(target), overwrite=True)
    assert calls
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_ino != source.stat().st_ino


def test_a_copy_that_comes_out_short_is_made_again(tmp_path, last, monkeypatch, waits):
    """A file system says that all is copied, and has copied nothing."""
    torch.save(NEW, tmp_path / "new.pt")

    def copy_file_range(source, target, count):
        if not waits:
            os.lseek(source, count, os.SEEK_SET)
        return 0

    monkeypatch.setattr(os, "copy_file_range", copy_file_range)
    PathManager.copy(str(tmp_path / "new.pt"), str(last), overwrite=True)
    assert weight(last) == 2.0 and waits == [1]


def test_a_start_removes_what_an_earlier_run_left(tmp_path, caplog):
    left = tmp_path / ".checkpoint_last.pt.01234567.tmp"
    for rank, stays in ((1, True), (0, False)):
        left.write_bytes(b"half")
        given = SimpleNamespace(save_dir=str(tmp_path)), SimpleNamespace(data_parallel_rank=rank)
        with caplog.at_level(logging.INFO):
            options = checkpoints.load_checkpoint(lambda cfg, trainer, **options: options, *given, x=1)
        assert options == {"x": 1}
        assert left.exists() is stays
    assert f"Removed {left.name}" in caplog.text


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
    refused(r"checkpoint_best\.pt is damaged: the checksum .* Use another checkpoint", load, path)


def cut_off_file_of_torch_before_1_6(path):
    """As the released models are, without checksums."""
    torch.save({"model": {"weight": torch.ones(4000)}}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:5000])


@pytest.mark.parametrize(
    ("write", "error", "message"),
    [
        (cut_off_file_of_torch_before_1_6, ValueError, r"x\.pt cannot be read as a checkpoint .*unexpected EOF"),
        (lambda path: torch.save([1], path), ValueError, r"x\.pt cannot be read as a checkpoint"),
        (lambda path: torch.save({"a": 1}, path), ValueError, r"x\.pt cannot be read as a checkpoint"),
        (
            lambda path: torch.save({"args": Unlisted()}, path),
            pickle.UnpicklingError,
            r"x\.pt holds the Python object .*Unlisted, and reading it could run code",
        ),
        (  # torch words its refusal of os, sys and posix in another way than that of other modules
            lambda path: write_pickle_payload(path, "zip", path.with_name("sentinel")),
            pickle.UnpicklingError,
            r"x\.pt holds the Python object posix\.system, .* could run code",
        ),
        (lambda path: None, FileNotFoundError, r"x\.pt"),
    ],
)
def test_what_cannot_be_loaded_is_named(tmp_path, write, error, message):
    write(tmp_path / "x.pt")
    refused(message, checkpoint_utils.load_checkpoint_to_cpu, str(tmp_path / "x.pt"), error=error)
    assert not (tmp_path / "sentinel").exists()


HOLD = """
import fcntl, os, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
file.write(sys.argv[2])
file.flush()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path):
    """Another process that holds the lock; called with what it writes into the file."""
    processes = []

    def start(holder):
        command = [sys.executable, "-c", HOLD, str(tmp_path / TRAINING_LOCK), holder]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch):
    held = {}
    monkeypatch.setattr(checkpoints, "_held", held)
    yield
    for descriptor in held.values():
        os.close(descriptor)


def test_a_second_training_is_refused_until_the_first_is_dead(tmp_path, other):
    first = other(f"process 7 on {socket.gethostname()}\n")
    refused(r"Another training \(process 7 on .*use another --save-dir", lock_save_dir, tmp_path)
    first.kill()
    first.wait()
    lock_save_dir(tmp_path)
    assert (tmp_path / TRAINING_LOCK).read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"
    lock_save_dir(tmp_path)  # a launch job locks the folder before it looks at the checkpoints, and fairseq-train again


def test_the_lock_of_another_host_is_waited_for(tmp_path, other, monkeypatch):
    """A job that is started again elsewhere may come before the file server has noticed the death of its node."""
    first = other("process 7 on a-node-that-died\n")
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            first.kill()
            first.wait()

    monkeypatch.setattr(checkpoints.time, "sleep", sleep)
    lock_save_dir(tmp_path)
    assert len(waits) == 3


def test_the_lock_of_another_host_is_not_waited_for_without_end(tmp_path, other, monkeypatch):
    other("process 7 on a-node-that-lives\n")
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(checkpoints, "time", clock)
    refused("process 7 on a-node-that-lives", lock_save_dir, tmp_path)
    assert now[0] >= checkpoints.OTHER_HOST_SECONDS


def test_a_file_system_without_locks_is_warned_of(tmp_path, monkeypatch, caplog):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock_save_dir(tmp_path)
    assert "cannot be locked" in caplog.text
    assert "No locks available" in caplog.text


def test_a_worker_that_outlives_its_training_does_not_keep_the_lock(tmp_path):
    lock_save_dir(tmp_path)
    ours, theirs = multiprocessing.Pipe()
    child = os.fork()
    if child == 0:
        theirs.send("alive")
        theirs.recv()
        os._exit(0)
    try:
        assert ours.recv() == "alive"
        os.close(checkpoints._held.pop(tmp_path))  # as the kernel does at our death
        lock_save_dir(tmp_path)
    finally:
        ours.send("end")
        os.waitpid(child, 0)


@pytest.mark.parametrize(("rank", "no_save", "is_locked"), [(0, False, True), (1, False, False), (0, True, False)])
def test_rank_0_locks_where_checkpoints_are_saved(tmp_path, rank, no_save, is_locked):
    cfg = SimpleNamespace(save_dir=str(tmp_path), no_save=no_save)
    trainer = SimpleNamespace(data_parallel_rank=rank)
    assert lock_and_load(lambda cfg, trainer, **options: options, cfg, trainer, a=1) == {"a": 1}
    assert (tmp_path / TRAINING_LOCK).exists() == is_locked
