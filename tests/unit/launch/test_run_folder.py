"""A run of a sweep: states, the metric in the log, what an attempt leaves behind, which checkpoints stay."""

import dataclasses
import errno
import json
import os
import signal
import sys
import time
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from roberta_plugin.launch import run_folder
from roberta_plugin.launch.log import last_exception
from roberta_plugin.launch.process import stop_orphan
from roberta_plugin.launch.run_folder import (
    ITSELF,
    Metric,
    Run,
    RunFolder,
    Status,
    add_jobs,
    check_choice,
    drop_optimizer,
    find_submitted,
    keep_best,
    keep_weights,
    known_jobs,
    metric_in_log,
    not_best,
    read_status,
    write_status,
)
from roberta_plugin.locks import owner_file
from roberta_plugin.runs import DONE, RunFiles, RunRecord, read_record, write_record

PPL = Metric(log="valid", value="ppl", goal="min", at="best")


def line(kind, **values):
    prefix = "" if kind == "train_inner" else f"{kind}_"
    record = {f"{prefix}{name}": str(value) for name, value in values.items()}
    return f"2026-01-01 00:00:00 | INFO | {kind} | {json.dumps(record)}\n"


LOG = [
    line("train_inner", num_updates=5, ppl=1),
    line("valid", num_updates=10, ppl=30, accuracy=5),
    line("valid", num_updates=20, ppl=20, accuracy=9),
    line("valid", num_updates=30, ppl=25, accuracy=7),
]


@pytest.mark.parametrize(
    ("metric", "value", "update"),
    [
        (PPL, 20, 20),
        (Metric(log="valid", value="ppl", goal="min", at="last"), 25, 30),
        (Metric(log="valid", value="accuracy", goal="max", at="best"), 9, 20),
        (Metric(log="valid", value="accuracy", goal="min", at="best"), 5, 10),
    ],
)
def test_the_metric_is_found_in_the_log(metric, value, update):
    assert metric_in_log(LOG, metric) == {"value": value, "num_updates": update}


def test_of_a_repeated_validation_the_last_one_counts():
    assert metric_in_log([*LOG, line("valid", num_updates=20, ppl=40)], PPL) == {"value": 25, "num_updates": 30}


def test_a_diverged_validation_is_never_the_best_and_never_a_result():
    assert metric_in_log([*LOG, line("valid", num_updates=40, ppl="nan")], PPL)["value"] == 20
    with pytest.raises(ValueError, match="not a finite number at update 40; the record has num_updates, ppl"):
        metric_in_log(
            [*LOG, line("valid", num_updates=40, ppl="nan")], Metric(log="valid", value="ppl", goal="min", at="last")
        )


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (Metric(log="test", value="ppl", goal="min"), "no record of the split 'test'"),
        (Metric(log="valid", value="f1", goal="max"), "valid f1 is not a finite number"),
    ],
)
def test_a_metric_that_is_not_there_is_named(metric, message):
    with pytest.raises(ValueError, match=message):
        metric_in_log(LOG, metric)


@pytest.fixture
def program(monkeypatch):
    """Let a Python program take the place of fairseq-train; its arguments are in sys.argv[1:]."""

    def replace(code):
        monkeypatch.setattr(run_folder, "train_program", lambda: [sys.executable, "-c", code])

    return replace


def make(root, *, arguments=("data", "--lr", "1"), metric=PPL):
    folder = RunFolder(root, Run(cell="lr-1", seed="2", settings={"lr": "1"}, arguments=arguments), metric)
    folder.prepare()
    return folder


def printing(lines):
    return f"import sys\nprint({''.join(lines)!r})\n"


def test_a_run_goes_from_waiting_to_done(tmp_path, program):
    folder = make(tmp_path)
    assert folder.path == tmp_path / "lr-1" / "seed-2"
    assert folder.state() == "waiting"
    program(printing(LOG) + "print(sys.argv[1:])\n")
    assert folder.start().wait() == "done"
    assert folder.state() == "done"
    assert {"value": 20, "num_updates": 20, "attempts": 1}.items() <= folder.result().items()
    assert "--seed', '2', '--save-dir'" in (folder.path / "log.txt").read_text()


def test_without_flock_a_run_that_has_ended_leaves_no_lock_for_other_machines(tmp_path, program, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("roberta_plugin.locks.fcntl.flock", refuse)
    program(printing(LOG))
    folder = make(tmp_path)
    attempt = folder.start()
    assert owner_file(folder.path / "lock").is_file()
    assert attempt.wait() == "done"
    assert not owner_file(folder.path / "lock").exists()


def test_a_failed_run_says_why_counts_attempts_and_can_be_done_later(tmp_path, program):
    folder = make(tmp_path)
    program("print('out of memory'); raise SystemExit(3)")
    assert folder.start().wait() == "failed"
    assert folder.start().wait() == "failed"
    failure = folder.failure()
    assert failure["attempts"] == 2
    assert "exit code 3" in failure["reason"]
    assert failure["log_ends"][-1] == "out of memory"
    program(printing(LOG))
    assert folder.start().wait() == "done"
    assert folder.failure() is None
    assert folder.result()["attempts"] == 3


def test_a_run_without_the_metric_has_failed(tmp_path, program):
    folder = make(tmp_path)
    program("print('nothing to see')")
    assert folder.start().wait() == "failed"
    assert "no record of the split 'valid'" in folder.failure()["reason"]


def test_the_metric_may_be_in_a_json_file(tmp_path, program):
    folder = make(tmp_path, arguments=("{folder}",), metric=Metric(file="scores.json", value="dev.f1", goal="max"))
    program("import sys; open(sys.argv[1] + '/scores.json', 'w').write('{\"dev\": {\"f1\": 88.5}}')")
    assert folder.start().wait() == "done"
    assert folder.result()["value"] == 88.5
    other = make(tmp_path / "b", arguments=("{folder}",), metric=Metric(file="scores.json", value="dev.em", goal="max"))
    assert other.start().wait() == "failed"
    assert "no finite number dev.em (it has None)" in other.failure()["reason"]


def test_nobody_starts_a_running_run_and_a_stopped_one_waits_again(tmp_path, program):
    folder = make(tmp_path)
    program("import time; time.sleep(60)")
    attempt = folder.start()
    assert folder.state() == "running"
    assert attempt.poll() is None
    assert folder.start() is None
    attempt.stop()
    assert folder.state() == "waiting"
    assert folder.result() is None
    assert folder.failure() is None


def test_a_signal_handler_may_stop_what_is_waited_for(tmp_path, program):
    """As submitit does when SLURM preempts the job."""
    folder = make(tmp_path)
    program("import time; print('ready', flush=True); time.sleep(60)")
    attempt = folder.start()

    class PreemptedError(Exception):
        pass

    def handle(number, frame):
        attempt.stop()
        raise PreemptedError

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(PreemptedError):
            attempt.wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert folder.state() == "waiting"


def test_a_training_whose_sweep_was_killed_is_stopped_by_the_next_one(tmp_path, program):
    """Until then it holds its lock, and nobody starts it a second time."""
    folder = make(tmp_path)
    program(
        "import subprocess, time; subprocess.Popen(['sleep', '60'], close_fds=False); print(1, flush=True); time.sleep(60)"
    )
    sweep = os.fork()
    if sweep == 0:
        folder.start()
        time.sleep(60)
        os._exit(0)
    wait_until(lambda: (folder.path / "log.txt").exists() and (folder.path / "log.txt").read_text())
    assert not stop_orphan(folder.path / "lock"), "somebody waits for it"
    os.kill(sweep, signal.SIGKILL)
    os.waitpid(sweep, 0)
    assert folder.state() == "running"
    assert folder.start() is None
    assert stop_orphan(folder.path / "lock")
    assert folder.state() == "waiting"
    assert not stop_orphan(folder.path / "lock")


def test_the_training_of_another_machine_is_left_alone(tmp_path, program):
    folder = make(tmp_path)
    program("import time; time.sleep(60)")
    attempt = folder.start()
    owner = json.loads((folder.path / "lock").read_text())
    (folder.path / "lock").write_text(json.dumps({**owner, "host": "elsewhere", "pid": 1}))
    assert not stop_orphan(folder.path / "lock")
    assert folder.state() == "running"
    attempt.stop()


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def test_stopping_ends_the_whole_session(tmp_path, program):
    folder = make(tmp_path)
    program("import subprocess, time; subprocess.Popen(['sleep', '60']); print('ready', flush=True); time.sleep(60)")
    attempt = folder.start()
    while "ready" not in (folder.path / "log.txt").read_text():
        time.sleep(0.01)
    session = attempt.process.pid
    attempt.stop()
    deadline = time.monotonic() + 30
    while members_of(session) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert members_of(session) == []


def members_of(session):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                state, _, _, own = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[:4]
            except OSError:
                continue
            found += [int(entry)] if int(own) == session and state != "Z" else []
    return found


def test_a_folder_whose_run_was_begun_with_a_removed_option_goes_on_without_it(tmp_path):
    arguments = ("data", "--attention-backend", "nested", "--lr", "1", "--background-checkpoints")
    RunFolder(tmp_path, Run(cell="a", seed="1", settings={}, arguments=arguments), PPL).prepare()
    RunFolder(tmp_path, Run(cell="a", seed="1", settings={}, arguments=("data", "--lr", "1")), PPL).check()


def test_a_folder_of_other_options_is_refused(tmp_path):
    make(tmp_path)
    other = RunFolder(tmp_path, Run(cell="lr-1", seed="2", settings={}, arguments=("data", "--lr", "3")), PPL)
    with pytest.raises(
        ValueError, match=r"lr-1/seed-2 holds a run with other options: --lr was 1 and is 3 now\..*another --output-dir"
    ):
        other.check()
    make(tmp_path).check()


def test_a_sweep_may_be_moved_with_the_data_beside_it(tmp_path):
    def folder(name, data):
        run = Run(cell="a", seed="1", settings={}, arguments=(data, "--finetune-from-model", f"{tmp_path}/model.pt"))
        return RunFolder(tmp_path / name / "runs", run, PPL)

    folder("old", f"{tmp_path}/old/data").prepare()
    (tmp_path / "old").rename(tmp_path / "new")
    folder("new", f"{tmp_path}/new/data").check()
    folder("new", f"{tmp_path}/old/data").check()
    with pytest.raises(ValueError, match=r"data was .*/old/data and is .*/other now"):
        folder("new", f"{tmp_path}/other").check()


def test_a_folder_may_be_moved_whose_runs_start_from_its_own_models(tmp_path):
    def folder(name, model="a"):
        path = tmp_path / name / "pretraining" / model / "model.pt"
        run = Run(cell="a", seed="1", settings={}, arguments=("data", "--finetune-from-model", str(path)))
        return RunFolder(tmp_path / name / "fine-tuning" / "RTE" / "runs", run, PPL)

    folder("old").prepare()
    (tmp_path / "old").rename(tmp_path / "new")
    folder("new").check()
    with pytest.raises(ValueError, match=r"from-model was .*/old/pretraining/a/model.pt and is .*/pretraining/b/"):
        folder("new", model="b").check()


def test_a_new_training_deletes_the_outputs_of_an_earlier_one(tmp_path, program):
    program(printing(LOG))
    folder = make(tmp_path)
    (folder.path / "outputs").mkdir()
    (folder.path / "outputs" / "valid.npz").touch()
    folder.start().wait()
    assert not (folder.path / "outputs").exists()


def test_a_change_of_the_metric_is_read_from_the_log_anew(tmp_path, program):
    program(printing(LOG))
    make(tmp_path).start().wait()
    folder = make(tmp_path, metric=Metric(log="valid", value="accuracy", goal="max"))
    assert folder.result()["value"] == 9
    folder = make(tmp_path, metric=Metric(log="valid", value="f1", goal="max"))
    assert folder.state() == "failed"


TRACEBACK = """\
Traceback (most recent call last):
  File "x.py", line 1, in f
ValueError: %s
{"num_updates": 3}
"""


def test_the_reason_is_the_last_exception_of_this_attempt(tmp_path, program):
    folder = make(tmp_path)
    program(f"import sys; print({TRACEBACK % 'an old one'!r}); sys.exit(1)")
    folder.start().wait()
    assert "exit code 1: ValueError: an old one" in folder.failure()["reason"]
    program("import sys; sys.exit(2)")
    folder.start().wait()
    assert folder.failure()["reason"] == "fairseq-train ended with exit code 2"
    program(f"import sys; print({TRACEBACK % 'bad --lr'!r}); sys.exit(1)")
    folder.start().wait()
    assert "exit code 1: ValueError: bad --lr" in folder.failure()["reason"]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], ""),
        (["Errors: 3", "an Error: no"], ""),
        (["ValueError: a", "  File", "torch.cuda.OutOfMemoryError: b", "more"], "torch.cuda.OutOfMemoryError: b more"),
        (["AssertionError"], "AssertionError"),
    ],
)
def test_exceptions_in_a_log(lines, found):
    assert last_exception(lines) == found


def test_a_run_uses_the_code_of_its_snapshot(tmp_path, program):
    folder = make(tmp_path)
    folder.code = tmp_path / "code"
    (folder.code / "roberta_plugin").mkdir(parents=True)
    (folder.code / "roberta_plugin" / "__init__.py").write_text("NAME = 'the copy'\n")
    program("import sys, roberta_plugin; print(roberta_plugin.NAME, sys.argv[1:])\n" + printing(LOG))
    assert folder.start().wait() == "done", (folder.path / "log.txt").read_text()
    log = (folder.path / "log.txt").read_text()
    assert "the copy" in log
    assert f"'--user-dir', '{folder.code}/roberta_plugin'" in log


@pytest.mark.parametrize("name", ["run.json", "result.json"])
@pytest.mark.parametrize("content", ["", "[1]", "{", "{}"])
def test_a_damaged_file_is_named(tmp_path, name, content):
    folder = make(tmp_path)
    (folder.path / name).write_text(content)
    with pytest.raises(ValueError, match=rf"lr-1/seed-2/{name} .*: delete it when the run's job has ended"):
        folder.check() if name == "run.json" else folder.result()


ACCURACY = Metric(log="valid", value="accuracy", goal="max", at="best")


def save(path, *, weight=1.0):
    state = {"model": {"w": torch.full((50, 50), weight)}, "args": Namespace(a=1), "optimizer_history": [{}]}
    torch.save({**state, "last_optimizer_state": {"exp_avg": torch.zeros(100, 50)}}, path)


def with_checkpoints(
    root, cell, seed, *, value=None, names=("checkpoint_best.pt", "checkpoint_last.pt"), metric=ACCURACY
):
    """A run folder with checkpoints, finished if there is a value."""
    folder = RunFolder(root, Run(cell=cell, seed=seed, settings={}, arguments=("data",)), metric)
    folder.prepare()
    (folder.path / "checkpoints").mkdir()
    for name in names:
        save(folder.path / "checkpoints" / name)
    if value is not None:
        folder._write("result.json", {"value": value})
    return folder


def left(folder):
    return sorted(path.name for path in (folder.path / "checkpoints").iterdir())


def test_the_weights_stay_and_the_optimizer_s_state_goes(tmp_path):
    path = tmp_path / "checkpoint_best.pt"
    save(path, weight=3.0)
    before = path.stat().st_size
    drop_optimizer(path)
    assert path.stat().st_size < before / 2
    with torch.serialization.safe_globals([Namespace]):
        state = torch.load(path, weights_only=True)
    assert state.keys() == {"model", "args", "optimizer_history"}
    assert torch.equal(state["model"]["w"], torch.full((50, 50), 3.0))
    inode = path.stat().st_ino
    drop_optimizer(path)
    assert path.stat().st_ino == inode, "written again for nothing"


@pytest.mark.parametrize(("at", "kept"), [("best", "checkpoint_best.pt"), ("last", "checkpoint_last.pt")])
def test_of_each_finished_run_the_checkpoint_of_its_metric_is_kept(tmp_path, at, kept):
    metric = Metric(log="valid", value="accuracy", goal="max", at=at)
    folders = [with_checkpoints(tmp_path, "a", seed, value=1.0, metric=metric) for seed in "12"]
    keep_weights(folders)
    assert [left(folder) for folder in folders] == [[kept], [kept]]
    assert [folder.state() for folder in folders] == [DONE, DONE]


def test_what_a_kill_left_half_written_is_removed_from_finished_runs(tmp_path):
    folder = with_checkpoints(tmp_path, "a", "1", value=1.0)
    (folder.path / "checkpoints" / ".checkpoint_best.pt.508d381f.tmp").write_bytes(b"PK")
    keep_weights([folder])
    assert left(folder) == ["checkpoint_best.pt"]


@pytest.mark.parametrize("keep", [keep_weights, lambda folders: keep_best(folders, ACCURACY)])
def test_an_unfinished_run_keeps_all_that_it_goes_on_from(tmp_path, keep):
    done, unfinished = with_checkpoints(tmp_path, "a", "1", value=1.0), with_checkpoints(tmp_path, "a", "2")
    keep([done, unfinished])
    assert left(unfinished) == ["checkpoint_best.pt", "checkpoint_last.pt"]
    with torch.serialization.safe_globals([Namespace]):
        for name in left(unfinished):
            path = unfinished.path / "checkpoints" / name
            assert "last_optimizer_state" in torch.load(path, weights_only=True)
    assert left(done) == ["checkpoint_best.pt"], "whether it is the best of its cell is not known yet"


def test_of_each_complete_cell_the_best_run_is_kept(tmp_path):
    values = {("a", "1"): 50.0, ("a", "2"): 70.0, ("a", "3"): 60.0, ("b", "1"): 90.0, ("b", "2"): 80.0}
    folders = {run: with_checkpoints(tmp_path, *run, value=value) for run, value in values.items()}
    unneeded = not_best(list(folders.values()), ACCURACY)
    assert [folder.run.name for folder in unneeded] == ["a/seed-1", "a/seed-3", "b/seed-2"]
    keep_best(list(folders.values()), ACCURACY)
    assert {run for run, folder in folders.items() if left(folder)} == {("a", "2"), ("b", "1")}
    assert not_best(list(folders.values()), ACCURACY) == []
    keep_best(list(folders.values()), ACCURACY)
    assert {run for run, folder in folders.items() if left(folder)} == {("a", "2"), ("b", "1")}


RECORD = RunRecord(arguments=("d",), num_gpus=4, batch_sequences=64, snapshot="snapshots/0")
STATUS = Status(
    job_id="7",
    attempt=1,
    phase="training",
    update=250,
    max_update=1000,
    loss=3.5,
    tokens_per_second=1e6,
    updates_per_second=2.5,
    time=0.0,
)


def test_what_is_written_is_read(tmp_path):
    assert read_record(tmp_path) is None
    assert read_status(tmp_path) is None
    write_record(tmp_path, RECORD)
    write_status(tmp_path, STATUS)
    assert read_record(tmp_path) == RECORD
    assert read_status(tmp_path) == STATUS


def test_the_time_left_follows_from_the_speed():
    assert STATUS.seconds_left == 300
    assert Status(**{**vars(STATUS), "update": 1001}).seconds_left == 0
    assert Status(**{**vars(STATUS), "updates_per_second": None}).seconds_left is None
    assert Status(**{**vars(STATUS), "max_update": 0}).seconds_left is None


def test_what_was_submitted_is_found_down_to_three_levels(tmp_path):
    for name in ("a", "b/c", "d/e/f", "d/e/f/too/deep"):
        (tmp_path / name).mkdir(parents=True)
        add_jobs(tmp_path / name, {ITSELF: "7"})
    assert find_submitted(tmp_path) == [tmp_path / "a", tmp_path / "b" / "c", tmp_path / "d" / "e" / "f"]
    assert find_submitted(tmp_path / "a") == [tmp_path / "a"]


@pytest.mark.parametrize(("name", "read"), [("status.json", read_status), ("run.json", read_record)])
def test_a_broken_file_of_a_launched_run_is_named(tmp_path, name, read):
    for text in ("{", "", "[1]", "{}"):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=rf"{name} .*: delete it when the run's job has ended"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", '{"arguments": 5}', r"run\.json: 'arguments' is 5, which is not a list: delete it"),
        ("run.json", '{"arguments": [], "asked": 1}', r"run\.json: 'asked' is 1, which is not an object"),
        ("jobs.json", '{"x": {}}', r"jobs\.json: 'x' is {}, which is not a text or null: cancel its jobs"),
    ],
)
def test_records_with_values_of_another_type_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        (read_record if name == "run.json" else known_jobs)(tmp_path)


def test_a_run_that_trains_is_not_recorded_with_another_choice_before_it_has_ended(tmp_path, program):
    folder, at_last = make(tmp_path, metric=ACCURACY), dataclasses.replace(ACCURACY, at="last")
    program("import time\n" + printing(LOG) + "time.sleep(3)\n")
    attempt = folder.start()
    assert make(tmp_path, metric=at_last).state() == "running"
    assert RunFiles(folder.path).choice() == "best"
    attempt.wait()
    again = make(tmp_path, metric=at_last)
    assert (again.state(), again.result()["value"]) == ("done", 7)
    assert RunFiles(folder.path).choice() == "last"


def test_another_choice_is_refused_where_the_weights_of_this_one_were_kept(tmp_path):
    at_last = dataclasses.replace(ACCURACY, at="last")
    folders = [with_checkpoints(tmp_path, "a", str(seed), value=seed) for seed in (1, 2, 3)]
    for folder in folders:
        folder._write("result.json", {"value": 1.0, "metric": asdict(ACCURACY)})
    others = [RunFolder(tmp_path, folder.run, at_last) for folder in folders]
    check_choice(others)
    keep_weights(folders[:2])
    with pytest.raises(ValueError, match=r"checkpoint_last.pt is deleted in 2 of 3 \(a/seed-1, a/seed-2\): give"):
        check_choice(others)
    check_choice(folders)
    for folder in others[:2]:
        folder.run = dataclasses.replace(folder.run, arguments=("data", "--no-save"))
    check_choice(others)
