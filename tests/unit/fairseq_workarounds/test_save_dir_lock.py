"""One training a save folder: the second is refused, and the death of the first sets the folder free."""

import errno
import fcntl
import multiprocessing
import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from roberta_plugin.fairseq_workarounds import save_dir_lock
from roberta_plugin.fairseq_workarounds.save_dir_lock import acquire, load_checkpoint
from roberta_plugin.locks import TRAINING_LOCK

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
    monkeypatch.setattr(save_dir_lock, "_held", held)
    yield
    for descriptor in held.values():
        os.close(descriptor)


def test_a_second_training_is_refused_until_the_first_is_dead(tmp_path, other):
    first = other(f"process 7 on {socket.gethostname()}\n")
    with pytest.raises(ValueError, match=r"Another training \(process 7 on .*use another --save-dir"):
        acquire(tmp_path)
    first.kill()
    first.wait()
    acquire(tmp_path)
    assert (tmp_path / TRAINING_LOCK).read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"
    acquire(tmp_path)  # a launch job locks the folder before it looks at the checkpoints, and fairseq-train again


def test_the_lock_of_another_host_is_waited_for(tmp_path, other, monkeypatch):
    """A job that is started again elsewhere may come before the file server has noticed the death of its node."""
    first = other("process 7 on a-node-that-died\n")
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            first.kill()
            first.wait()

    monkeypatch.setattr(save_dir_lock.time, "sleep", sleep)
    acquire(tmp_path)
    assert len(waits) == 3


def test_the_lock_of_another_host_is_not_waited_for_without_end(tmp_path, other, monkeypatch):
    other("process 7 on a-node-that-lives\n")
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(save_dir_lock, "time", clock)
    with pytest.raises(ValueError, match="process 7 on a-node-that-lives"):
        acquire(tmp_path)
    assert now[0] >= save_dir_lock.OTHER_HOST_SECONDS


def test_a_file_system_without_locks_is_warned_of(tmp_path, monkeypatch, caplog):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    acquire(tmp_path)
    assert "cannot be locked" in caplog.text
    assert "No locks available" in caplog.text


def test_a_worker_that_outlives_its_training_does_not_keep_the_lock(tmp_path):
    acquire(tmp_path)
    ours, theirs = multiprocessing.Pipe()
    child = os.fork()
    if child == 0:
        theirs.send("alive")
        theirs.recv()
        os._exit(0)
    try:
        assert ours.recv() == "alive"
        os.close(save_dir_lock._held.pop(tmp_path))  # as the kernel does at our death
        acquire(tmp_path)
    finally:
        ours.send("end")
        os.waitpid(child, 0)


@pytest.mark.parametrize(("rank", "no_save", "is_locked"), [(0, False, True), (1, False, False), (0, True, False)])
def test_rank_0_locks_where_checkpoints_are_saved(tmp_path, rank, no_save, is_locked):
    cfg = SimpleNamespace(save_dir=str(tmp_path), no_save=no_save)
    trainer = SimpleNamespace(data_parallel_rank=rank)
    assert load_checkpoint(lambda cfg, trainer, **options: options, cfg, trainer, a=1) == {"a": 1}
    assert (tmp_path / TRAINING_LOCK).exists() == is_locked
