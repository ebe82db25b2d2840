"""Logs of runs become a plot; without a record there is none."""

from types import SimpleNamespace

from roberta_plugin.experiments.learning_curve import PLOT, write_learning_curve
from roberta_plugin.experiments.sweeps.grid import Metric

LOG = """2026 | INFO | train | {"train_loss": "0.9", "train_num_updates": "10"}
2026 | INFO | valid | {"valid_loss": "0.8", "valid_accuracy": "70", "valid_num_updates": "10"}
"""


def test_a_plot_is_drawn_of_runs_that_have_a_log(tmp_path):
    runs = [SimpleNamespace(path=tmp_path / name, run=SimpleNamespace(seed=name)) for name in "12"]
    metric = Metric(log="valid", value="accuracy", goal="max", at="best")
    write_learning_curve(runs, metric, tmp_path / "results")
    assert not (tmp_path / "results").exists()
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "log.txt").write_text(LOG)
    write_learning_curve(runs, metric, tmp_path / "results")
    assert (tmp_path / "results" / PLOT).read_bytes().startswith(b"\x89PNG")
