"""The SLURM side of a sweep without a SLURM: settings, and what is known to be in the queue."""

import json
from types import SimpleNamespace

import pytest

from roberta_plugin.cluster.sweep_slurm import SweepJob, parameters_of, queued_runs, submit


def test_settings_become_submitits_parameters():
    settings = {"partition": "gpu", "time": "1-12:00:00", "gpus_per_node": "8", "mem": "64GB", "setup": "module load x"}
    assert parameters_of(settings) == {
        "partition": "gpu",
        "time": 36 * 60,
        "mem": "64GB",
        "setup": ["module load x"],
        "additional_parameters": {"gpus-per-node": "8"},
    }


def test_typed_gpus_gpus_without_gres_and_any_other_option():
    settings = {"time": "5", "gpus_per_node": "h100:8", "sbatch.mail-type": "FAIL", "sbatch.exclusive": "true"}
    assert parameters_of(settings)["additional_parameters"] == {
        "gpus-per-node": "h100:8",
        "mail-type": "FAIL",
        "exclusive": True,
    }
    by_gres = parameters_of({"time": "5", "gpus_per_node": "h100:8", "gpu_request": "gres"})
    assert by_gres["additional_parameters"] == {"gres": "gpu:h100:8"}
    assert "additional_parameters" not in parameters_of({"time": "5", "gpus_per_node": "8", "gpu_request": "none"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "no time limit, which --slurm needs"),
        ({"time": "soon"}, "'soon' is no time limit"),
        ({"time": "5", "cpus_per_task": "all"}, "cpus_per_task in the grid file must be a whole number, got 'all'"),
        ({"time": "5", "gpus_per_node": "all"}, "slurm, gpus_per_node in the grid file is 'all': write how many GPUs"),
        ({"time": "5", "sbatch.array": "1-9"}, "--array follows from other settings"),
        ({"time": "5", "sbatch.comment": "a\nb"}, "must not hold a line break"),
        ({"time": "5", "partition": "a\nb"}, "must not hold a line break"),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        parameters_of(settings)


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
    assert queued_runs(tmp_path) == set(), "without jobs.json nobody should ask SLURM"
    (tmp_path / "jobs.json").write_text(json.dumps({"a/seed-1": "100_0", "a/seed-2": "100_1", "b/seed-1": "7"}))
    squeue("100 1\\n7 N/A\\n")
    assert queued_runs(tmp_path) == {"a/seed-2", "b/seed-1"}
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
    with pytest.raises(FileNotFoundError, match="no sbatch on this machine"):
        submit([], root=tmp_path, code=tmp_path, num_parallel=1, settings={"time": "5"})


class FakeFolder(SimpleNamespace):
    """A run whose training ends in a given state at once."""

    def start(self):
        return SimpleNamespace(wait=lambda: self.state)

    def failure(self):
        return {"reason": "fairseq-train ended with exit code 1: ValueError: bad lr"}


def test_a_failed_training_fails_its_array_task_with_the_reason(tmp_path):
    folder = FakeFolder(state="failed", run=SimpleNamespace(name="a/seed-1"), path=tmp_path)
    with pytest.raises(RuntimeError, match=r"a/seed-1: .*ValueError: bad lr; see .*log.txt"):
        SweepJob()(folder)
    assert SweepJob()(FakeFolder(state="done")) == "done"
