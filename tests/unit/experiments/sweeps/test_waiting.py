"""What a sweep does until SLURM's queue is empty."""

import json

import pytest

from roberta_plugin.experiments.sweeps import waiting
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.experiments.sweeps.progress import SweepProgress
from roberta_plugin.experiments.sweeps.sweep import prepare


def test_a_controller_that_is_silent_for_a_while_and_a_job_that_never_trained(tmp_path, monkeypatch):
    path, root = tmp_path / "grid.yaml", tmp_path / "out"
    metric = "{log: valid, value: ppl, goal: min}"
    path.write_text(f"train: {{data: d}}\naxes: {{lr: [1, 2]}}\nseeds: [1, 2]\nmetric: {metric}\n")
    folders = prepare(read_grid(path), root)
    (root / "jobs.json").write_text(json.dumps({folder.run.name: f"7_{i}" for i, folder in enumerate(folders)}))
    (folders[0].path / "result.json").write_text("{}")
    (folders[1].path / "failure.json").write_text('{"reason": "a reason of its own", "attempts": 1}')
    answers = [None, None, {"a run"}, None, set()]
    said = []

    def queued_runs(root):
        answer = answers.pop(0)
        if answer is None:
            raise ChildProcessError("SLURM cannot be asked")
        return answer

    monkeypatch.setattr(waiting, "queued_runs", queued_runs)
    monkeypatch.setattr(waiting, "POLL_S", 0)
    waiting.wait_for_queue(folders, root=root, keep="all", say=said.append, show=SweepProgress)
    assert not answers, "it did not wait until the queue was empty"
    silence = "SLURM cannot be asked; the jobs go on, and SLURM is asked again every 0 s for 60 minutes"
    assert [line.split(" ", 1)[1] for line in said] == [silence, "SLURM answers again"] * 2
    assert [folder.state() for folder in folders] == ["done", "failed", "failed", "failed"]
    assert folders[1].failure()["reason"] == "a reason of its own"
    assert folders[2].failure()["reason"] == (
        f"job 7_2 has ended, and the run is not done; its own log: {root}/submitit/7_2_0_log.err"
    )
    answers = [None, set()]
    monkeypatch.setattr(waiting, "PATIENCE_S", -1)
    with pytest.raises(ChildProcessError, match="SLURM cannot be asked"):
        waiting.wait_for_queue(folders, root=root, keep="all", say=said.append, show=SweepProgress)


def test_a_long_silence_has_a_line_every_ten_minutes(tmp_path, monkeypatch):
    now = [0.0]

    def queued_runs(root):
        if now[0] < 1500:
            raise ChildProcessError("SLURM cannot be asked")
        return set()

    monkeypatch.setattr(waiting, "queued_runs", queued_runs)
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(waiting.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    said = []
    assert not waiting._may_be_queued(tmp_path, said.append)
    assert [line.rpartition(" for ")[2] for line in said[:-1]] == ["60 minutes", "50 minutes", "40 minutes"]
    assert "answers again" in said[-1]
