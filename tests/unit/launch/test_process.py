import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from roberta_plugin.launch import process
from roberta_plugin.launch.process import lines_of, tracker_variables, variables_shown


@pytest.fixture
def descriptor(tmp_path):
    with open(tmp_path / "inherited", "w") as file:
        yield file.fileno()


def python(code):
    return [sys.executable, "-u", "-c", code]


def is_alive(pid):
    """Whether the process runs; a zombie whose parent has not asked for it yet does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, timeout=20.0):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_lines_come_one_by_one_and_are_kept(tmp_path, descriptor):
    code = "import os, sys; print(os.environ['ANSWER']); print('error', file=sys.stderr)"
    log = tmp_path / "log"
    log.write_text("an earlier run\n")
    lines = list(lines_of(python(code), log=log, environment={"ANSWER": "42"}, lock=descriptor))
    assert lines == ["42\n", "error\n"]
    assert log.read_text() == "an earlier run\n42\nerror\n"


def test_a_failure_shows_the_end_of_the_log_and_where_it_lies(tmp_path, descriptor):
    code = "for i in range(100): print('line', i)\nraise SystemExit(3)"
    with pytest.raises(ChildProcessError) as caught:
        list(lines_of(python(code), log=tmp_path / "log", environment={}, lock=descriptor))
    message = str(caught.value)
    assert "exit code 3" in message
    assert str(tmp_path / "log") in message
    assert "line 99" in message
    assert "line 50" not in message


def test_threads_of_every_training_spin_shortly_unless_the_user_says_otherwise(tmp_path, descriptor, monkeypatch):
    given = {"log": tmp_path / "log", "environment": {}, "lock": descriptor}
    code = "import os; print(os.environ['GOMP_SPINCOUNT'])"
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    assert list(lines_of(python(code), **given)) == ["1000\n"]
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert list(lines_of(python(code), **given)) == ["7\n"]


def test_closing_stops_the_command(tmp_path, descriptor):
    code = "import os, time\nprint(os.getpid())\ntime.sleep(300)"
    lines = lines_of(python(code), log=tmp_path / "log", environment={}, lock=descriptor)
    pid = int(next(lines))
    assert is_alive(pid)
    lines.close()
    assert not is_alive(pid)


def test_a_command_that_will_not_stop_is_killed(tmp_path, descriptor, monkeypatch):
    monkeypatch.setattr(process, "STOP_PATIENCE_S", 0.2)
    code = "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(os.getpid())\ntime.sleep(300)"
    lines = lines_of(python(code), log=tmp_path / "log", environment={}, lock=descriptor)
    pid = int(next(lines))
    lines.close()
    assert not is_alive(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_the_command_does_not_outlive_a_killed_parent(tmp_path):
    parent_code = f"""
import sys
from pathlib import Path
from roberta_plugin.launch.process import lines_of, tracker_variables, variables_shown
command = [sys.executable, "-u", "-c", "import os, time; print(os.getpid()); time.sleep(300)"]
for line in lines_of(command, log=Path({str(tmp_path / "log")!r}), environment={{}}, lock=1):
    print(line, end="", flush=True)
"""
    parent = subprocess.Popen(python(parent_code), stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_alive(pid)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert wait_until(lambda: not is_alive(pid))


FOLDER = Path("/runs/table3/lr-1e-4/seed-1")


def test_a_run_has_a_name_a_group_and_an_id_of_its_folder():
    found = tracker_variables(FOLDER, name="lr-1e-4/seed-1", group="table3", user=())
    assert found == {
        "WANDB_NAME": "lr-1e-4/seed-1",
        "WANDB_RUN_GROUP": "table3",
        "WANDB_RUN_ID": "e09ca8edfd8b0866",  # the same on every machine, and in every release
        "WANDB_RESUME": "allow",
    }
    assert tracker_variables(FOLDER.parent, user=())["WANDB_RUN_ID"] != found["WANDB_RUN_ID"]
    assert "WANDB_RUN_GROUP" not in tracker_variables(FOLDER, user=())


def test_what_the_user_has_set_stays():
    found = tracker_variables(FOLDER, user={"WANDB_NAME": "mine", "WANDB_RESUME": "must", "HOME": "/"})
    assert found.keys() == {"WANDB_RUN_ID"}


def test_they_are_shown_where_a_tracker_is_started():
    assert variables_shown({"WANDB_NAME": "a b"}, ["data", "--wandb-project", "mine"]) == "WANDB_NAME='a b' "
    assert variables_shown({"WANDB_NAME": "a b"}, ["data", "--wandb-project=mine"]) == "WANDB_NAME='a b' "
    assert variables_shown({"WANDB_NAME": "a b"}, ["data", "--lr", "1"]) == ""
