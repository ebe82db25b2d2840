"""Runs on this machine: so many at a time, retries, shares of the machine, and an end in order."""

import threading

import pytest

from roberta_plugin.experiments.sweeps import local as sweep_local
from roberta_plugin.experiments.sweeps.local import environments, run_locally, visible_gpus


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
    monkeypatch.setattr(sweep_local, "POLL_S", 0.001)


def sweep(runs, **options):
    events = []
    run_locally(runs, report=lambda run, event: events.append((run.name, event)), **options)
    return events


@pytest.mark.parametrize("num_parallel", [1, 2, 3])
def test_never_more_than_asked_for_and_all_of_them(num_parallel):
    runs = [FakeRun(str(number), polls=1 + number % 3) for number in range(8)]
    events = sweep(runs, num_parallel=num_parallel)
    assert FakeRun.most_alive == num_parallel
    assert sorted(name for name, event in events if event == "done") == [run.name for run in runs]


def test_a_failed_run_is_retried_so_often(monkeypatch):
    bad = FakeRun("bad", states=("failed", "failed", "failed"))
    late = FakeRun("late", states=("failed", "done"))
    events = sweep([bad, late], num_parallel=2, retries=2)
    assert [event for name, event in events if name == "bad"] == ["started", "failed"] * 3
    assert [event for name, event in events if name == "late"] == ["started", "failed", "started", "done"]


def test_without_retries_a_failure_stands():
    assert sweep([FakeRun("bad", states=("failed",))], num_parallel=1) == [("bad", "started"), ("bad", "failed")]


def test_a_run_of_somebody_else_is_passed_over():
    events = sweep([FakeRun("theirs", elsewhere=True), FakeRun("ours")], num_parallel=1)
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
    monkeypatch.setattr(sweep_local, "num_cores", lambda: 9)
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
