"""Locks where the file system has no flock: one holder, inherited by children, ended with them, named to others."""

import errno
import json
import os
import socket
import subprocess
import sys

import pytest

from roberta_plugin import locks
from roberta_plugin.locks import is_locked, one_writer, only_process, owner_file, try_lock

_HOLDER = """
import errno, fcntl, os, pathlib, subprocess, sys
def refuse(*_): raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
fcntl.flock = refuse
from roberta_plugin.locks import only_process
with only_process(pathlib.Path(sys.argv[1]), "busy") as lock:
    child = subprocess.Popen(["sleep", "60"], pass_fds=[lock])
    print(child.pid, flush=True)
    input()
"""


@pytest.fixture(params=[errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def without_flock(request, monkeypatch):
    def refuse(*_):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    monkeypatch.setattr(locks, "_warned", [])


def test_only_one_process_works_in_a_folder_and_the_next_follows(tmp_path, without_flock, caplog):
    with only_process(tmp_path, "busy"):
        assert is_locked(tmp_path / ".lock")
        with pytest.raises(ValueError, match=r"^busy$"), only_process(tmp_path, "busy"):
            pass
    assert not is_locked(tmp_path / ".lock") and not owner_file(tmp_path / ".lock").exists()
    with only_process(tmp_path, "busy"), one_writer(tmp_path / "a"):
        pass
    assert sum("has no file locks" in record.message for record in caplog.records) == 1
    assert [path.name for path in tmp_path.iterdir() if "tmp" in path.name or "old" in path.name] == []


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_killed_holder_s_child_keeps_the_lock_until_it_ends(tmp_path, without_flock):
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout and holder.stdin
    child = int(holder.stdout.readline())
    with pytest.raises(ValueError, match="busy"), only_process(tmp_path, "busy"):
        pass
    holder.kill()
    holder.wait()
    assert is_locked(tmp_path / ".lock")  # as with flock
    os.kill(child, 9)
    with only_process(tmp_path, "busy", patience_s=10):
        assert json.loads(owner_file(tmp_path / ".lock").read_text())["pid"] == os.getpid()
    holder.stdin.close()
    holder.stdout.close()


def test_the_lock_of_another_machine_is_refused_with_its_file_and_the_remedy(tmp_path, without_flock):
    owner = owner_file(tmp_path / ".lock")
    owner.write_text(json.dumps({"host": f"not-{socket.gethostname()}", "pid": 7, "since": "1"}))
    said = f"busy {owner} says that process 7 on not-.* if that process has ended, delete this file"
    with pytest.raises(ValueError, match=said), only_process(tmp_path, "busy"):
        pass
    assert is_locked(tmp_path / ".lock")
    owner.unlink()
    with only_process(tmp_path, "busy"):
        pass


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"host": "HOST", "pid": "x"}', '{"host": "HOST", "pid": 4194999}'])
def test_a_damaged_owner_file_and_one_of_an_ended_process_are_replaced(tmp_path, without_flock, text):
    owner_file(tmp_path / ".lock").write_text(text.replace("HOST", socket.gethostname()))
    with only_process(tmp_path, "busy"):
        assert json.loads(owner_file(tmp_path / ".lock").read_text())["pid"] == os.getpid()


def test_errors_of_another_kind_are_not_taken_for_a_file_system_without_locks(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with open(tmp_path / "a", "w") as file, pytest.raises(OSError, match="Input/output"):
        try_lock(file.fileno(), tmp_path / "a")
