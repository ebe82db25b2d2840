"""What is kept of finished runs, and that nothing of unfinished ones is touched."""

from argparse import Namespace

import pytest
import torch

from roberta_plugin.experiments.sweeps.grid import Metric, Run
from roberta_plugin.experiments.sweeps.keep import drop_optimizer, keep_best, keep_weights, not_best
from roberta_plugin.experiments.sweeps.run import DONE, RunFolder

ACCURACY = Metric(log="valid", value="accuracy", goal="max", at="best")


def save(path, *, weight=1.0):
    state = {"model": {"w": torch.full((50, 50), weight)}, "args": Namespace(a=1), "optimizer_history": [{}]}
    torch.save({**state, "last_optimizer_state": {"exp_avg": torch.zeros(100, 50)}}, path)


def make(root, cell, seed, *, value=None, names=("checkpoint_best.pt", "checkpoint_last.pt"), metric=ACCURACY):
    """A run folder with checkpoints, finished if there is a value."""
    folder = RunFolder(root, Run(cell=cell, seed=seed, settings={}, arguments=("data",)), metric)
    folder.prepare()
    (folder.path / "checkpoints").mkdir()
    for name in names:
        save(folder.path / "checkpoints" / name)
    if value is not None:
        folder._write("result.json", {"value": value})
    return folder


def left(folder):
    return sorted(path.name for path in (folder.path / "checkpoints").iterdir())


def test_the_weights_stay_and_the_optimizer_s_state_goes(tmp_path):
    path = tmp_path / "checkpoint_best.pt"
    save(path, weight=3.0)
    before = path.stat().st_size
    drop_optimizer(path)
    assert path.stat().st_size < before / 2
    with torch.serialization.safe_globals([Namespace]):
        state = torch.load(path, weights_only=True)
    assert state.keys() == {"model", "args", "optimizer_history"}
    assert torch.equal(state["model"]["w"], torch.full((50, 50), 3.0))
    inode = path.stat().st_ino
    drop_optimizer(path)
    assert path.stat().st_ino == inode, "written again for nothing"


@pytest.mark.parametrize(("at", "kept"), [("best", "checkpoint_best.pt"), ("last", "checkpoint_last.pt")])
def test_of_each_finished_run_the_checkpoint_of_its_metric_is_kept(tmp_path, at, kept):
    metric = Metric(log="valid", value="accuracy", goal="max", at=at)
    folders = [make(tmp_path, "a", seed, value=1.0, metric=metric) for seed in "12"]
    keep_weights(folders)
    assert [left(folder) for folder in folders] == [[kept], [kept]]
    assert [folder.state() for folder in folders] == [DONE, DONE]


def test_what_a_kill_left_half_written_is_removed_from_finished_runs(tmp_path):
    folder = make(tmp_path, "a", "1", value=1.0)
    (folder.path / "checkpoints" / ".checkpoint_best.pt.508d381f.tmp").write_bytes(b"PK")
    keep_weights([folder])
    assert left(folder) == ["checkpoint_best.pt"]


@pytest.mark.parametrize("keep", [keep_weights, lambda folders: keep_best(folders, ACCURACY)])
def test_an_unfinished_run_keeps_all_that_it_goes_on_from(tmp_path, keep):
    done, unfinished = make(tmp_path, "a", "1", value=1.0), make(tmp_path, "a", "2")
    keep([done, unfinished])
    assert left(unfinished) == ["checkpoint_best.pt", "checkpoint_last.pt"]
    with torch.serialization.safe_globals([Namespace]):
        for name in left(unfinished):
            path = unfinished.path / "checkpoints" / name
            assert "last_optimizer_state" in torch.load(path, weights_only=True)
    assert left(done) == ["checkpoint_best.pt"], "whether it is the best of its cell is not known yet"


def test_of_each_complete_cell_the_best_run_is_kept(tmp_path):
    values = {("a", "1"): 50.0, ("a", "2"): 70.0, ("a", "3"): 60.0, ("b", "1"): 90.0, ("b", "2"): 80.0}
    folders = {run: make(tmp_path, *run, value=value) for run, value in values.items()}
    unneeded = not_best(list(folders.values()), ACCURACY)
    assert [folder.run.name for folder in unneeded] == ["a/seed-1", "a/seed-3", "b/seed-2"]
    keep_best(list(folders.values()), ACCURACY)
    assert {run for run, folder in folders.items() if left(folder)} == {("a", "2"), ("b", "1")}
    assert not_best(list(folders.values()), ACCURACY) == []
    keep_best(list(folders.values()), ACCURACY)
    assert {run for run, folder in folders.items() if left(folder)} == {("a", "2"), ("b", "1")}
