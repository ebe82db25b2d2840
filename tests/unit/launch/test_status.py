"""How far a run is: written, read, found."""

import pytest

from roberta_plugin.launch.status import (
    Launch,
    Status,
    attempt,
    find_runs,
    read_launch,
    read_status,
    write_launch,
    write_status,
)

LAUNCH = Launch(job_id="7", name="base", num_gpus=4, batch_sequences=64, batch_tokens=None, snapshot="snapshots/0")
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
    assert read_launch(tmp_path) is None
    assert read_status(tmp_path) is None
    write_launch(tmp_path, LAUNCH)
    write_status(tmp_path, STATUS)
    assert read_launch(tmp_path) == LAUNCH
    assert read_status(tmp_path) == STATUS


def test_the_time_left_follows_from_the_speed():
    assert STATUS.seconds_left == 300
    assert Status(**{**vars(STATUS), "update": 1001}).seconds_left == 0
    assert Status(**{**vars(STATUS), "updates_per_second": None}).seconds_left is None
    assert Status(**{**vars(STATUS), "max_update": 0}).seconds_left is None


def test_runs_are_found_down_to_three_levels(tmp_path):
    for name in ("a", "b/c", "d/e/f", "d/e/f/too/deep"):
        (tmp_path / name).mkdir(parents=True)
        write_launch(tmp_path / name, LAUNCH)
    assert find_runs(tmp_path) == [tmp_path / "a", tmp_path / "b" / "c", tmp_path / "d" / "e" / "f"]
    assert find_runs(tmp_path / "a") == [tmp_path / "a"]


def test_a_broken_file_is_named(tmp_path):
    for text in ("{", "", "[1]", "{}"):
        (tmp_path / "status.json").write_text(text)
        with pytest.raises(ValueError, match=r"status\.json .*: remove it"):
            read_status(tmp_path)
        (tmp_path / "launch.json").write_text(text)
        with pytest.raises(ValueError, match=r"launch\.json .*: remove it when the run's job has ended"):
            read_launch(tmp_path)


def test_slurm_counts_the_attempts(monkeypatch):
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    assert attempt() == 0
    monkeypatch.setenv("SLURM_RESTART_COUNT", "3")
    assert attempt() == 3
