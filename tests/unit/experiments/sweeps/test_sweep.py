"""Which runs of a grid are to be done, what is refused before; runs here and on SLURM, and their progress."""

import json
import pickle
import subprocess
import sys
import threading
from types import SimpleNamespace

import cloudpickle
import pytest

from roberta_plugin.experiments.sweeps import sweep
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.experiments.sweeps.sweep import (
    SweepProgress,
    check_options,
    environments,
    prepare,
    run_locally,
    share_done,
    to_do,
    visible_gpus,
)
from roberta_plugin.launch import submission
from roberta_plugin.launch.job import RunJob
from roberta_plugin.launch.options_file import read_yaml
from roberta_plugin.launch.preflight import PreflightError
from roberta_plugin.launch.resources import Resources, check_slurm
from roberta_plugin.launch.run_folder import Run, queued_runs
from roberta_plugin.launch.submission import environment_lines, submit_runs, write_environment
from roberta_plugin.locks import is_locked, try_lock
from tests.unit.launch.test_run_folder import ACCURACY, RunFolder


def grid_of(tmp_path, train="data: d", axes="lr: [1, 2]"):
    path = tmp_path / "grid.yaml"
    path.write_text(
        f"train: {{{train}}}\naxes: {{{axes}}}\nseeds: [1, 2]\nmetric: {{log: valid, value: ppl, goal: min}}\n"
    )
    return read_grid(path)


def test_what_is_done_running_or_queued_is_left_alone(tmp_path):
    folders = prepare(grid_of(tmp_path), tmp_path / "out")
    done, running, queued, failed = folders
    (done.path / "result.json").write_text("{}")
    (failed.path / "failure.json").write_text("{}")
    with open(running.path / "lock", "w") as lock:
        assert try_lock(lock.fileno())
        assert to_do(folders, {queued.run.name}) == [failed]


def test_waiting_includes_what_an_earlier_call_has_submitted(tmp_path, monkeypatch):
    """A study that was stopped while its runs were in SLURM's queue: the second call submits nothing, and waits."""
    grid = grid_of(tmp_path)
    names = {run.name for run in grid.runs}
    answers = [names, names, names, set()]
    monkeypatch.setattr(sweep, "queued_runs", lambda root: answers.pop(0))
    monkeypatch.setattr(sweep, "check_options", lambda grid: None)
    monkeypatch.setattr(submission, "submit_runs", None)
    monkeypatch.setattr(sweep, "ASK_EVERY_S", 0)
    said = []
    settings = sweep.SweepSettings(grid=grid.path, output_dir=tmp_path / "out", slurm={"time": "1:00:00"}, wait=True)
    sweep.sweep(settings, say=said.append)
    assert not answers, "it did not wait until the queue was empty"
    assert said == ["4 runs of an earlier submission are in the queue: waiting for them"]


def test_a_sweep_that_begins_meanwhile_waits_until_the_jobs_are_noted(tmp_path, monkeypatch):
    grid, root, seen = grid_of(tmp_path), tmp_path / "out", []
    monkeypatch.setattr(sweep, "check_options", lambda grid: None)
    monkeypatch.setattr(sweep, "use_snapshot", lambda folders, **_: seen.append(is_locked(root / ".jobs.json.lock")))
    monkeypatch.setattr(sweep._Sweep, "submit", lambda self, chosen: seen.append(is_locked(root / ".jobs.json.lock")))
    sweep.sweep(sweep.SweepSettings(grid=grid.path, output_dir=root, slurm={"time": "1:00:00"}))
    assert seen == [True, True] and not is_locked(root / ".jobs.json.lock")


def test_a_copy_of_older_code_is_told_with_what_the_command_can_do(tmp_path, monkeypatch):
    grid, copy, said = grid_of(tmp_path), tmp_path / "out" / ".snapshots" / "0" / "code", []
    monkeypatch.setattr(sweep._Sweep, "train_here", lambda self, chosen: None)
    (copy / "roberta_plugin").mkdir(parents=True)
    for code in (None, tmp_path / "out"):  # of a procedure that trains by sweeps, without --renew-code
        settings = sweep.SweepSettings(grid=grid.path, output_dir=tmp_path / "out", code=code)
        sweep.train_grid(grid, settings, say=said.append)
    assert said == [
        f"the runs use the code in {copy}, which differs from the present one: {end}"
        for end in ("see --renew-code", "delete it, while no run is active, to use that")
    ]


def test_folders_say_what_they_hold(tmp_path):
    folders = prepare(grid_of(tmp_path), tmp_path / "out")
    assert [folder.run.name for folder in folders] == ["lr-1/seed-1", "lr-1/seed-2", "lr-2/seed-1", "lr-2/seed-2"]
    about = json.loads((tmp_path / "out" / "lr-2" / "seed-1" / "run.json").read_text())
    arguments = ["d", "--lr", "2"]
    of_run = {"cell": "lr-2", "seed": "1", "settings": {"lr": "2"}, "checkpoint": "best"}
    assert about == {**of_run, "arguments": arguments, "sweep": str(tmp_path / "out")}
    assert read_yaml(tmp_path / "out" / "grid.yaml") == read_yaml(tmp_path / "grid.yaml")


def test_a_changed_grid_may_add_runs_and_not_change_them(tmp_path):
    prepare(grid_of(tmp_path), tmp_path / "out")
    assert len(prepare(grid_of(tmp_path, axes="lr: [1, 2, 3]"), tmp_path / "out")) == 6
    with pytest.raises(ValueError, match="lr-1/seed-1 holds a run with other options"):
        prepare(grid_of(tmp_path, train="data: d, clip-norm: 1", axes="lr: [4, 1]"), tmp_path / "out")
    assert not (tmp_path / "out" / "lr-4").exists(), "folders were made although the grid was refused"


def test_a_cell_that_fairseq_would_refuse_is_named(tmp_path, tiny_data_bin):
    train = f"data: {tiny_data_bin}, task: roberta_masked_lm, criterion: roberta_masked_lm, arch: fast_roberta_tiny"
    train += ", lr: 0.1, max_tokens: 999"
    check_options(grid_of(tmp_path, train=train))
    with pytest.raises(ValueError, match=r"grid\.yaml, line 2, setting batch-size-x: .*invalid int value: 'x'"):
        check_options(grid_of(tmp_path, train=train, axes="batch-size: [8, x]"))
    (tmp_path / "common.yaml").write_text("nodes: 1\ntrain: {lrr: 3}\n")
    with pytest.raises(ValueError, match=r"common\.yaml, line 2, setting .*--lrr is unknown"):
        check_options(grid_of(tmp_path, train=f"recipe: common.yaml, {train}"))
    with pytest.raises(FileNotFoundError, match=r"setting data-no-such-folder: .*data folder no-such-folder does not"):
        check_options(grid_of(tmp_path, train=train, axes="data: [no-such-folder]"))


class FakeRun:
    """A run that takes `polls` looks until it ends in the next of `states`."""

    alive: list["FakeRun"] = []
    most_alive = 0

    def __init__(self, name, *, polls=2, states=("done",), elsewhere=False):
        self.name, self.polls, self.states, self.elsewhere = name, polls, list(states), elsewhere
        self.environments = []

    def start(self, environment):
        if self.elsewhere:
            return None
        self.environments.append(environment)
        FakeRun.alive.append(self)
        FakeRun.most_alive = max(FakeRun.most_alive, len(FakeRun.alive))
        self.left = self.polls
        self.folder = self
        self.stopped = False
        return self

    def poll(self):
        self.left -= 1
        if self.left > 0:
            return None
        FakeRun.alive.remove(self)
        return self.states.pop(0)

    def stop(self):
        self.stopped = True


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(FakeRun, "alive", [])
    monkeypatch.setattr(FakeRun, "most_alive", 0)
    monkeypatch.setattr(sweep, "POLL_S", 0.001)


def run_all(runs, **options):
    events = []
    run_locally(runs, report=lambda run, event: events.append((run.name, event)), **options)
    return events


@pytest.mark.parametrize("num_parallel", [1, 2, 3])
def test_never_more_than_asked_for_and_all_of_them(num_parallel):
    runs = [FakeRun(str(number), polls=1 + number % 3) for number in range(8)]
    events = run_all(runs, num_parallel=num_parallel)
    assert FakeRun.most_alive == num_parallel
    assert sorted(name for name, event in events if event == "done") == [run.name for run in runs]


def test_a_failed_run_is_retried_so_often(monkeypatch):
    bad = FakeRun("bad", states=("failed", "failed", "failed"))
    late = FakeRun("late", states=("failed", "done"))
    events = run_all([bad, late], num_parallel=2, retries=2)
    assert [event for name, event in events if name == "bad"] == ["started", "failed"] * 3
    assert [event for name, event in events if name == "late"] == ["started", "failed", "started", "done"]


def test_without_retries_a_failure_stands():
    assert run_all([FakeRun("bad", states=("failed",))], num_parallel=1) == [("bad", "started"), ("bad", "failed")]


def test_a_run_of_somebody_else_is_passed_over():
    events = run_all([FakeRun("theirs", elsewhere=True), FakeRun("ours")], num_parallel=1)
    assert events == [("theirs", "elsewhere"), ("ours", "started"), ("ours", "done")]


def test_what_ends_us_ends_the_runs():
    first, second = FakeRun("first", polls=10**9), FakeRun("second", polls=10**9)

    def report(run, event):
        if run is second:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_locally([first, second], num_parallel=2, report=report)
    assert first.stopped
    assert second.stopped


def test_runs_are_stopped_at_the_same_time_each_of_which_may_be_saving():
    meeting = threading.Barrier(3, timeout=20)
    runs = [FakeRun(str(number), polls=10**9) for number in range(3)]
    for run in runs:
        run.stop = meeting.wait

    def report(run, event):
        if run is runs[-1]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_locally(runs, num_parallel=3, report=report)
    assert not meeting.broken


def test_parallel_runs_share_the_cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(sweep, "num_cores", lambda: 9)
    assert environments(4, gpus_per_run=0) == [{"OMP_NUM_THREADS": "2"}] * 4
    assert environments(20, gpus_per_run=0)[0] == {"OMP_NUM_THREADS": "1"}
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert environments(2, gpus_per_run=0) == [{"OMP_NUM_THREADS": "5"}] * 2


def test_each_run_has_gpus_of_its_own(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5,6,7")
    assert [share["CUDA_VISIBLE_DEVICES"] for share in environments(2, gpus_per_run=2)] == ["3,5", "6,7"]
    with pytest.raises(ValueError, match=r"--parallel 3 with --gpus-per-run 2 needs 6 GPUs, and 4 are visible"):
        environments(3, gpus_per_run=2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == []


def with_log(root, seed, *, updates=None, value=None):
    run = Run(cell="a", seed=seed, settings={}, arguments=("data", "--max-update", "40"))
    folder = RunFolder(root, run, ACCURACY)
    folder.prepare()
    if updates is not None:
        record = f'x | INFO | train_inner | {{"num_updates": "{updates}", "loss": "1"}}\n'
        (folder.path / "log.txt").write_text("words\n" * 10_000 + record)
    if value is not None:
        folder._write("result.json", {"value": value})
    return folder


def test_a_run_is_as_far_as_its_log_says(tmp_path):
    runs = [
        with_log(tmp_path, "1"),
        with_log(tmp_path, "2", updates=10),
        with_log(tmp_path, "3", updates=10, value=1.0),
    ]
    assert [share_done(run) for run in runs] == [0.0, 0.25, 1.0]


def test_without_a_terminal_there_is_a_line_for_each_run_that_ends(tmp_path, capsys):
    runs = [with_log(tmp_path, "1", value=87.25), with_log(tmp_path, "2")]
    with SweepProgress(runs) as progress:
        for event in ("started", "done"):
            progress.report(runs[0], event)
            progress.look()
        progress.report(runs[1], "failed")
    out, err = capsys.readouterr()
    assert err == ""
    first, second = out.splitlines()
    assert first.endswith("1 of 2: a/seed-1 done: 87.25")
    assert second.endswith(f"2 of 2: a/seed-2 failed, see {runs[1].path / 'log.txt'}")


def test_on_a_terminal_a_bar_shows_the_share_and_the_time_left_and_one_the_run_that_trains(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sweep, "_LOOK_EVERY_S", 0.0)
    runs = [with_log(tmp_path, "1", updates=20), with_log(tmp_path, "2")]
    with SweepProgress(runs) as progress:
        progress.report(runs[0], "started")
        with open(runs[0].path / "lock", "w") as lock:
            assert try_lock(lock.fileno())
            progress.look()
        assert progress._bar.n == 0.5
    shown = capsys.readouterr().err
    assert "0.5 of 2 runs" in shown
    assert "left" in shown
    assert "a/seed-1:  50%" in shown and "20/40 updates" in shown and "loss=1.00" in shown
    assert "a/seed-2" not in shown


def test_a_time_limit_is_needed():
    with pytest.raises(ValueError, match="no time limit, which --slurm needs"):
        check_slurm(None)
    with pytest.raises(ValueError, match="no time limit, which --slurm needs"):
        check_slurm(Resources(partition="gpu"))
    check_slurm(Resources(time="5"))


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """An squeue that prints the given lines, alone on the path."""

    def replace(lines, code=0):
        path = tmp_path / "bin" / "squeue"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho \"$*\" > {tmp_path}/asked\nprintf '{lines}'\nexit {code}\n")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return replace


def test_runs_in_the_queue(squeue, tmp_path):
    assert queued_runs(tmp_path) == {}, "without jobs.json nobody should ask SLURM"
    (tmp_path / "jobs.json").write_text(json.dumps({"a/seed-1": "100_0", "a/seed-2": "100_1", "b/seed-1": "7"}))
    squeue("100|0|COMPLETED|None\\n100|1|PENDING|None\\n7|N/A|RUNNING|None\\n")
    assert queued_runs(tmp_path) == {"a/seed-2": "pending", "b/seed-1": "running"}
    asked = (tmp_path / "asked").read_text().split()
    assert {"--me", "--jobs=100,7"} <= set(asked), "other people's jobs were asked about"


def test_without_an_answer_nothing_is_guessed(squeue, tmp_path):
    (tmp_path / "jobs.json").write_text('{"a/seed-1": "1"}')
    with pytest.raises(ChildProcessError, match=r"jobs.json names jobs of SLURM, .* squeue is not installed here"):
        queued_runs(tmp_path)
    squeue("", code=1)
    with pytest.raises(ChildProcessError, match="SLURM cannot be asked"):
        queued_runs(tmp_path)
    (tmp_path / "jobs.json").write_text("")
    with pytest.raises(ValueError, match=r"jobs.json is empty: .*delete the file"):
        queued_runs(tmp_path)


@pytest.mark.usefixtures("squeue")
def test_without_sbatch_nothing_is_submitted(tmp_path):
    with pytest.raises(ValueError, match=r"SLURM cannot be asked here \(sinfo is not installed here\)"):
        submit_runs([], root=tmp_path, name="sweep", code=tmp_path, num_parallel=1, resources=Resources(time="5"))


def test_the_snapshot_is_imported_whatever_variables_and_modules_say(tmp_path):
    resources = Resources(env=("PYTHONPATH=/of/env",), setup=("export PYTHONPATH=/of/a/module:$PYTHONPATH",))
    write_environment(tmp_path, resources.env)
    lines = [*environment_lines(resources, snapshot=tmp_path), "echo $PYTHONPATH"]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}/code:/of/a/module:/of/env\n"


class FakeFolder(SimpleNamespace):
    """A run whose training ends in a given state at once."""

    def start(self):
        return SimpleNamespace(wait=lambda: self.state)

    def failure(self):
        return {"reason": "fairseq-train ended with exit code 1: ValueError: bad lr"}


def test_a_failed_training_fails_its_array_task_with_the_reason(tmp_path):
    folder = FakeFolder(state="failed", run=SimpleNamespace(name="a/seed-1", arguments=()), path=tmp_path)
    with pytest.raises(RuntimeError, match=r"a/seed-1: .*ValueError: bad lr; see .*log.txt"):
        RunJob()(folder)
    assert RunJob()(FakeFolder(state="done")) == "done"


def test_a_run_that_is_done_is_evaluated_in_its_job_also_by_a_later_start_of_it():
    class Folder(FakeFolder):
        def start(self):
            return None if self.is_left else super().start()

    evaluated = []
    job = RunJob(after=lambda folder: evaluated.append(folder.state()))
    assert job(Folder(state=lambda: "done", is_left=True)) == "elsewhere", "an earlier start has trained it"
    assert evaluated == ["done"]
    assert job(Folder(state=lambda: "running", is_left=True)) == "elsewhere"
    assert evaluated == ["done"]
    again = pickle.loads(cloudpickle.dumps(job.checkpoint(None).function))
    assert again._after is not None


def test_a_node_without_its_gpus_fails_the_run_and_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    noted = []
    run = SimpleNamespace(name="a/seed-1", arguments=("data",))
    folder = FakeFolder(state="done", run=run, path=tmp_path, fail=noted.append)
    with pytest.raises(PreflightError, match=r"Pre-flight: node .*: torch sees 0 GPUs, and the run needs 2"):
        RunJob(num_gpus=2)(folder)
    assert "torch sees 0 GPUs" in noted[0]
    run.arguments = ("data", "--cpu")
    assert RunJob(num_gpus=2)(folder) == "done"


def test_a_controller_that_is_silent_for_a_while_and_a_job_that_never_trained(tmp_path, monkeypatch):
    path, root = tmp_path / "grid.yaml", tmp_path / "out"
    metric = "{log: valid, value: ppl, goal: min}"
    path.write_text(f"train: {{data: d}}\naxes: {{lr: [1, 2]}}\nseeds: [1, 2]\nmetric: {metric}\n")
    folders = prepare(read_grid(path), root)
    (root / "jobs.json").write_text(json.dumps({folder.run.name: f"7_{i}" for i, folder in enumerate(folders)}))
    (folders[0].path / "result.json").write_text("{}")
    (folders[1].path / "failure.json").write_text('{"reason": "a reason of its own", "attempts": 1}')
    answers = [None, None, {"a run"}, None, set()]
    said, looks = [], []

    def queued_runs(root):
        answer = answers.pop(0)
        if answer is None:
            raise ChildProcessError("SLURM cannot be asked")
        return answer

    monkeypatch.setattr(sweep, "queued_runs", queued_runs)
    monkeypatch.setattr(sweep, "ASK_EVERY_S", 0)
    sweep.wait_for_queue(folders, root=root, keep="all", say=said.append, look=lambda: looks.append(1))
    assert not answers, "it did not wait until the queue was empty"
    silence = "SLURM cannot be asked; the jobs continue, and SLURM is asked again every 0 s for 60 minutes"
    assert [line.split(" ", 1)[1] for line in said] == [silence, "SLURM answers again"] * 2
    assert [folder.state() for folder in folders] == ["done", "failed", "failed", "failed"]
    assert folders[1].failure()["reason"] == "a reason of its own"
    assert folders[2].failure()["reason"] == (
        f"job 7_2 has ended, and the run is not done; its own log: {root}/submitit/7_2_0_log.err"
    )
    answers = [None, set()]
    monkeypatch.setattr(sweep, "PATIENCE_S", -1)
    with pytest.raises(ChildProcessError, match="SLURM cannot be asked"):
        sweep.wait_for_queue(folders, root=root, keep="all", say=said.append, look=lambda: looks.append(1))
