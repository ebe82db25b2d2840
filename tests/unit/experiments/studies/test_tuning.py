"""The results of a fine-tuning probe: of which cell, and what is kept of the others."""

import json
from types import SimpleNamespace

import pytest

from roberta_plugin.experiments.studies import probes as study_probes
from roberta_plugin.experiments.studies.probes import Model, results_of, run_folders, tuning_grid
from roberta_plugin.experiments.studies.settings import TuningProbe
from roberta_plugin.experiments.sweeps.grid import grid_from
from tests.tiny_benchmarks import write_prepared


@pytest.fixture
def probe(tmp_path):
    return TuningProbe(
        name="probe",
        task="RTE",
        raw=tmp_path,
        tokenizer=tmp_path,
        max_length=16,
        seeds=("1", "2"),
        grid={"lr": "1e-4,1e-3,1e-2", "batch": "16"},
    )


def test_a_learning_rate_at_which_a_run_diverges_costs_its_cell_and_not_the_model_s_value(tmp_path, probe, monkeypatch):
    prepared = write_prepared(tmp_path / "probe" / "data")
    model = Model(variant="a", seed="1", checkpoint=tmp_path / "gone.pt")
    models = [model, Model(variant="another", seed="1", checkpoint=tmp_path / "gone.pt")]
    grid = grid_from(tuning_grid(probe, prepared, models, num_ranks=0), tmp_path / "grid.json")
    folders = run_folders(grid, tmp_path / "probe")[:6]
    assert {folder.run.settings["model"] for folder in folders} == {"a-seed-1"}
    stored = []

    def evaluate(settings):
        members = [{"metrics": {"accuracy": 60.0 + number}} for number in range(len(settings.checkpoints))]
        return [SimpleNamespace(members=members)]

    monkeypatch.setattr(study_probes, "evaluate", evaluate)
    monkeypatch.setattr(study_probes, "store_outputs", lambda settings: stored.extend(settings.checkpoints))

    def result():
        return results_of(probe, model, grid, tmp_path / "probe", metric="accuracy", device=None, only_read=False)

    for number, folder in enumerate(folders[:-1]):
        assert result() is None, "runs are left to do"
        (folder.path / "checkpoints").mkdir(parents=True)
        (folder.path / "checkpoints" / "checkpoint_best.pt").write_bytes(b"weights")
        (folder.path / "result.json").write_text(json.dumps({"value": 50 + number}))
    diverged = folders[-1]
    (diverged.path / "checkpoints").mkdir(parents=True)
    (diverged.path / "checkpoints" / "checkpoint_last.pt").write_bytes(b"to resume from")
    assert result() is None
    (diverged.path / "failure.json").write_text(json.dumps({"reason": "nan", "attempts": 1}))

    found = result()
    assert found["cell"] == {"lr": "1e-3", "batch": "16"}, (
        "of the other cell with a result, 54 is the median of one seed"
    )
    assert found["seeds"] == {"1": 60.0, "2": 61.0} and found["value"] == 60.5
    assert len(stored) == 3
    assert [folder.checkpoint() is None for folder in folders[:-1]] == [True] * 5
    assert (diverged.path / "checkpoints" / "checkpoint_last.pt").exists(), "a run that is not done resumes from it"
