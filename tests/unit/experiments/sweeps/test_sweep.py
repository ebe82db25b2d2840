"""Which runs of a grid are to be done, and what is refused before anything is."""

import json

import pytest

from roberta_plugin.experiments.sweeps import running, sweep
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.experiments.sweeps.sweep import check_options, prepare, to_do
from roberta_plugin.launch import submission
from roberta_plugin.launch.options_file import read_yaml
from roberta_plugin.locks import is_locked, try_lock


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
    for module in (sweep, running):
        monkeypatch.setattr(module, "queued_runs", lambda root: answers.pop(0))
    monkeypatch.setattr(sweep, "check_options", lambda grid: None)
    monkeypatch.setattr(submission, "submit_runs", None)
    monkeypatch.setattr(running, "ASK_EVERY_S", 0)
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


def test_folders_say_what_they_hold(tmp_path):
    folders = prepare(grid_of(tmp_path), tmp_path / "out")
    assert [folder.run.name for folder in folders] == ["lr-1/seed-1", "lr-1/seed-2", "lr-2/seed-1", "lr-2/seed-2"]
    about = json.loads((tmp_path / "out" / "lr-2" / "seed-1" / "run.json").read_text())
    arguments = ["d", "--lr", "2"]
    settings = {"lr": "2"}
    sweep = str(tmp_path / "out")
    assert about == {"cell": "lr-2", "seed": "1", "settings": settings, "arguments": arguments, "sweep": sweep}
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
    with pytest.raises(FileNotFoundError, match="no-such-folder"):
        check_options(grid_of(tmp_path, train=train, axes="data: [no-such-folder]"))
