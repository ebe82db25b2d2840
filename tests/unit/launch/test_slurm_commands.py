"""SLURM's answers are understood, and its absence is no crash."""

import os

import pytest

from roberta_plugin.launch import slurm_commands


@pytest.fixture
def answer(tmp_path, monkeypatch):
    """Put commands of SLURM's names on the path that print a given text."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def answer(command, text, code=0):
        path = tmp_path / command
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
        path.chmod(0o755)

    return answer


def test_partitions_are_read(answer):
    answer("sinfo", "main 12\nhigh 4")
    assert slurm_commands.partitions() == {"main": 12, "high": 4}


def test_all_jobs_and_tasks_of_arrays_are_asked_about_at_once(answer):
    answer("squeue", "7|N/A|RUNNING|None\n8|N/A|PENDING|Resources\n100|12|COMPLETED|None")
    expected = {"7": ("running", "None"), "8": ("pending", "Resources"), "100_12": ("completed", "None")}
    jobs = slurm_commands.jobs({"7", "8", "9", "100"})
    assert jobs == expected
    assert [job.is_active for job in jobs.values()] == [True, True, False]
    assert slurm_commands.jobs(()) == {}


def test_a_forgotten_job_is_unknown(answer):
    answer("squeue", "slurm_load_jobs error: Invalid job id specified", code=1)
    assert slurm_commands.jobs({"7"}) == {}


def test_a_controller_that_is_down_is_not_a_job_that_is_gone(answer):
    answer("squeue", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)", code=1)
    with pytest.raises(OSError, match="Unable to contact"):
        slurm_commands.jobs({"7"})


def test_a_submission_takes_nothing_over_from_the_job_that_it_is_made_in(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)
    values = {"SLURM_JOB_ID": "5", "SLURM_GPUS_PER_NODE": "1", "SBATCH_EXCLUSIVE": "1", "CUDA_VISIBLE_DEVICES": "3"}
    values["SRUN_CPUS_PER_TASK"] = "1"  # of an outer sbatch --cpus-per-task; srun would prefer it
    kept = {"SLURM_CONF": "/etc/slurm.conf", "SBATCH_ACCOUNT": "lab", "SBATCH_PARTITION": "gpu", "OTHER": "x"}
    for name, value in {**values, **kept}.items():
        monkeypatch.setenv(name, value)
    with slurm_commands.submission_environment(given={"partition"}):
        assert not values.keys() & os.environ.keys()
        assert os.environ["SBATCH_ACCOUNT"] == "lab"
        assert "SBATCH_PARTITION" not in os.environ, "it would win over the recipe's"
        assert os.environ["SLURM_CONF"] == "/etc/slurm.conf"
    assert {name: os.environ[name] for name in {**values, **kept}} == {**values, **kept}
    monkeypatch.delenv("SLURM_JOB_ID")
    with slurm_commands.submission_environment():
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


def test_without_slurm_one_is_told_where_to_go(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match="login node"):
        slurm_commands.partitions()
