"""The SLURM side of a sweep without a SLURM: settings, and what is known to be in the queue."""

import json

import pytest

from roberta_plugin.cluster.sweep_slurm import parameters_of, queued_jobs, queued_runs, submit


def test_settings_become_submitits_parameters():
    settings = {"partition": "gpu", "time": "1-12:00:00", "gpus_per_node": "8", "mem": "64GB", "setup": "module load x"}
    assert parameters_of(settings) == {
        "partition": "gpu",
        "time": 36 * 60,
        "gpus_per_node": 8,
        "mem": "64GB",
        "setup": ["module load x"],
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "no time limit, which --slurm needs"),
        ({"time": "soon"}, "'soon' is no time limit"),
        ({"time": "5", "cpus_per_task": "all"}, "cpus_per_task in the grid file must be a whole number, got 'all'"),
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
        path.write_text(f"#!/bin/sh\nprintf '{lines}'\nexit {code}\n")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return replace


def test_jobs_and_array_tasks_in_the_queue(squeue):
    squeue("100 0\\n100 12\\n7 N/A\\n")
    assert queued_jobs() == {"100_0", "100_12", "7"}
    squeue("")
    assert queued_jobs() == set()


def test_runs_in_the_queue(squeue, tmp_path):
    assert queued_runs(tmp_path) == set(), "without jobs.json nobody should ask SLURM"
    (tmp_path / "jobs.json").write_text(json.dumps({"a/seed-1": "100_0", "a/seed-2": "100_1", "b/seed-1": "7"}))
    squeue("100 1\\n7 N/A\\n")
    assert queued_runs(tmp_path) == {"a/seed-2", "b/seed-1"}


def test_without_an_answer_nothing_is_guessed(squeue, tmp_path):
    (tmp_path / "jobs.json").write_text('{"a/seed-1": "1"}')
    with pytest.raises(ChildProcessError, match="this machine has no squeue"):
        queued_runs(tmp_path)
    squeue("", code=1)
    with pytest.raises(ChildProcessError, match="squeue does not answer"):
        queued_runs(tmp_path)


@pytest.mark.usefixtures("squeue")
def test_without_sbatch_nothing_is_submitted(tmp_path):
    with pytest.raises(FileNotFoundError, match="no sbatch on this machine"):
        submit([], root=tmp_path, num_parallel=1, settings={"time": "5"})
