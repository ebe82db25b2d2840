"""examples/search.py: Optuna chooses the options of a sweep's cells (`pip install optuna`)."""

import runpy
import sys

import pytest

from roberta_plugin.launch import run_folder
from tests.conftest import REPOSITORY
from tests.forked_training import ForkedProcess
from tests.integration.test_sweep import grid_of

pytestmark = pytest.mark.integration


def test_a_search_continues_with_the_trial_that_was_stopped(tiny_data_bin, tmp_path, monkeypatch, capsys):
    optuna = pytest.importorskip("optuna", reason="needs Optuna: pip install optuna")
    monkeypatch.setattr(run_folder, "TrainingProcess", ForkedProcess)
    grid = grid_of(tmp_path / "grid.yaml", tiny_data_bin, axes={"lr": ["1"]}, seeds=["1"], updates=10)

    def search(trials):
        words = [str(grid), "--output-dir", str(tmp_path / "runs"), "--trials", trials]
        monkeypatch.setattr(sys, "argv", ["search.py", *words])
        runpy.run_path(str(REPOSITORY / "examples" / "search.py"), run_name="__main__")
        return optuna.load_study(storage=f"sqlite:///{tmp_path}/runs/optuna.db", study_name="search")

    study = search("1")
    stopped = study.ask()
    chosen = runpy.run_path(str(REPOSITORY / "examples" / "search.py"))["suggested"](stopped)
    study = search("2")
    done = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
    assert len(done) == 2 and done[1].params == stopped.params
    assert (tmp_path / "runs" / f"lr-{chosen['lr']}_weight-decay-{chosen['weight-decay']}" / "seed-1").is_dir()
    assert f"best value: {min(trial.value for trial in done):.4g} with" in capsys.readouterr().out
