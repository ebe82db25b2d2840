"""SLURM's answers are understood, and its absence is no crash."""

import pytest

from roberta_plugin.cluster import slurm_commands


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
    assert slurm_commands.partitions() == [("main", 12), ("high", 4)]


@pytest.mark.parametrize(
    ("fields", "state", "goes_on"),
    [
        ("JobState=RUNNING Reason=None", "running", True),
        ("JobState=COMPLETING Reason=TimeLimit", "completing", True),
        ("JobState=TIMEOUT Reason=TimeLimit", "timeout", True),
        ("JobState=COMPLETING Reason=None", "completing", False),
        ("JobState=CANCELLED Reason=None", "cancelled", False),
    ],
)
def test_a_job_goes_on_unless_its_user_has_cancelled_it(answer, fields, state, goes_on):
    answer("scontrol", f"JobId=7 JobName=base {fields} Dependency=(null)")
    assert slurm_commands.job_state("7") == state
    assert slurm_commands.is_to_go_on("7") is goes_on


def test_a_forgotten_job_is_unknown(answer):
    answer("scontrol", "slurm_load_jobs error: Invalid job id specified", code=1)
    assert slurm_commands.job_state("7") == slurm_commands.LOST
    assert not slurm_commands.is_to_go_on("7")


def test_without_slurm_one_is_told_where_to_go(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not slurm_commands.has_slurm()
    with pytest.raises(OSError, match="login node"):
        slurm_commands.partitions()
