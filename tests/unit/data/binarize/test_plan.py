import multiprocessing
import os
import signal
import time

import pytest

from roberta_plugin.data.binarize.plan import folder_lock, split_lock


def add_one(folder, times):
    for _ in range(times):
        with folder_lock(folder):
            number = int((folder / "number").read_text())
            time.sleep(0.001)
            (folder / "number").write_text(str(number + 1))


def test_the_lock_of_the_folder_keeps_processes_apart_though_its_file_comes_and_goes(tmp_path):
    (tmp_path / "number").write_text("0")
    processes = [multiprocessing.get_context("fork").Process(target=add_one, args=(tmp_path, 50)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert (tmp_path / "number").read_text() == "200"
    assert [path.name for path in tmp_path.iterdir()] == ["number"]


def hold(folder, is_held, may_end):
    with split_lock(folder, "train"):
        is_held.set()
        may_end.wait(60)


def test_a_split_has_one_writer_and_others_are_free(tmp_path):
    context = multiprocessing.get_context("fork")
    is_held, may_end = context.Event(), context.Event()
    process = context.Process(target=hold, args=(tmp_path, is_held, may_end))
    process.start()
    assert is_held.wait(60)
    with pytest.raises(OSError, match=r"Another process is writing .*train: wait"), split_lock(tmp_path, "train"):
        pass
    with split_lock(tmp_path, "valid"):
        pass
    may_end.set()
    process.join(60)
    with split_lock(tmp_path, "train"):
        pass
    assert not list(tmp_path.iterdir())


def hold_with_a_child(folder, is_held):
    """As a binarization whose worker outlives it for a moment."""
    with split_lock(folder, "train"):
        child = os.fork()
        if child == 0:
            time.sleep(0.5)
            os._exit(0)
        is_held.set()
        os.kill(os.getpid(), signal.SIGKILL)


def test_the_lock_of_a_killed_run_is_free_once_its_workers_have_ended(tmp_path):
    context = multiprocessing.get_context("fork")
    is_held = context.Event()
    process = context.Process(target=hold_with_a_child, args=(tmp_path, is_held))
    process.start()
    assert is_held.wait(60)
    while process.exitcode is None:  # join waits for the worker too
        time.sleep(0.01)
    begun = time.monotonic()
    with split_lock(tmp_path, "train"):
        assert time.monotonic() - begun > 0.2, "nobody held it: the test shows less than it says"
    assert not list(tmp_path.iterdir())
