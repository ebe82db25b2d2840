"""`roberta jobs`: a row for each launched run."""

import argparse

import pytest

from roberta_plugin.cli import jobs
from roberta_plugin.cluster import slurm_commands
from roberta_plugin.cluster.status import Launch, Status, write_launch, write_status


@pytest.fixture
def run_jobs(monkeypatch, capsys):
    """Run the command with SLURM's word for each job; returns the lines it prints."""

    def run_jobs(*folders, states):
        monkeypatch.setattr(slurm_commands, "job_state", lambda job_id: states.get(job_id, slurm_commands.LOST))
        parser = argparse.ArgumentParser()
        jobs.add_parser(parser.add_subparsers())
        args = parser.parse_args(["jobs", *map(str, folders)])
        assert args.run(args) == 0
        return capsys.readouterr().out.splitlines()

    return run_jobs


def add_run(folder, job_id, *, status_of=None, **changes):
    folder.mkdir(parents=True)
    launch = Launch(job_id=job_id, name="base", num_gpus=4, batch_sequences=64, batch_tokens=None, snapshot="s")
    write_launch(folder, launch)
    values = {"attempt": 1, "phase": "training", "update": 2500, "max_update": 10000, "loss": 3.25, "time": 0.0}
    values |= {"tokens_per_second": 1234567.8, "updates_per_second": 2.0, "job_id": status_of or job_id}
    if changes.get("phase", True) is not None:
        write_status(folder, Status(**{**values, **changes}))


def test_the_table(run_jobs, tmp_path):
    add_run(tmp_path / "a", "7")
    add_run(tmp_path / "b", "8", phase="finished", update=10000)
    add_run(tmp_path / "c", "9", phase=None)
    add_run(tmp_path / "d", "10", status_of="3")  # launched again as job 10, which has written nothing yet
    add_run(tmp_path / "e", "11", phase="starting", loss=None, tokens_per_second=None, updates_per_second=None)
    lines = run_jobs(
        tmp_path, states={"7": "running", "8": "completed", "9": "pending", "10": "pending", "11": "running"}
    )
    assert [line.split("  ") and line.split()[:2] for line in lines[1:]] == [
        ["7", "running"],
        ["8", "finished"],
        ["9", "pending"],
        ["10", "pending"],
        ["11", "running"],
    ]
    assert "2,500 of 10,000" in lines[1]
    assert "3.250" in lines[1]
    assert "1,234,568" in lines[1]
    assert "1:02:30" in lines[1]  # 7,500 updates at 2 a second
    assert lines[1].endswith(str(tmp_path / "a"))
    assert "(starting)" in lines[5]
    assert "2,500" not in lines[4]


def test_a_job_that_slurm_has_forgotten_is_unknown(run_jobs, tmp_path):
    add_run(tmp_path / "a", "7")
    assert run_jobs(tmp_path, states={})[1].split()[:2] == ["7", "unknown"]


def test_no_runs_and_no_folder(run_jobs, tmp_path):
    assert run_jobs(tmp_path, states={}) == [f"no launched run in {tmp_path}"]
    with pytest.raises(FileNotFoundError, match="name the folder that holds your runs"):
        run_jobs(tmp_path / "none", states={})
