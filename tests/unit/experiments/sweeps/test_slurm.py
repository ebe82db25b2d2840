"""The SLURM side of a sweep without a SLURM: settings, what is in the queue, and waiting for it."""

import json
import pickle
import subprocess
from types import SimpleNamespace

import cloudpickle
import pytest

from roberta_plugin.experiments.sweeps import sweep
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.experiments.sweeps.sweep import prepare
from roberta_plugin.launch.job import RunJob
from roberta_plugin.launch.preflight import PreflightError
from roberta_plugin.launch.resources import Resources, check_slurm
from roberta_plugin.launch.run_folder import queued_runs
from roberta_plugin.launch.submission import environment_lines, submit_runs, write_environment


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
    with pytest.raises(ValueError, match=r"No SLURM here \(sinfo is not installed here\)"):
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
