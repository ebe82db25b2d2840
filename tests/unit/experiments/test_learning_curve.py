"""Logs of runs become a plot; without a record there is none."""

import math
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure

from roberta_plugin.experiments import learning_curve
from roberta_plugin.experiments.learning_curve import PLOT, write_learning_curve
from roberta_plugin.experiments.sweeps.grid import Metric
from roberta_plugin.training.log import Curve

LOG = """2026 | INFO | train | {"train_loss": "0.9", "train_num_updates": "10"}
2026 | INFO | valid | {"valid_loss": "0.8", "valid_accuracy": "70", "valid_num_updates": "10"}
"""


def test_a_plot_is_drawn_of_runs_that_have_a_log(tmp_path):
    runs = [SimpleNamespace(path=tmp_path / name, run=SimpleNamespace(seed=name)) for name in "12"]
    metric = Metric(log="valid", value="accuracy", goal="max", at="best")
    write_learning_curve(runs, metric, tmp_path / "results", is_regression=False)
    assert not (tmp_path / "results").exists()
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "log.txt").write_text(LOG)
    write_learning_curve(runs, metric, tmp_path / "results", is_regression=False)
    assert (tmp_path / "results" / PLOT).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("is_regression", "value", "label"), [(False, 1.0, "bits per example"), (True, math.log(2), "squared")]
)
def test_losses_are_in_bits_as_everywhere_else(monkeypatch, is_regression, value, label):
    figures = []

    @contextmanager
    def shown(*_, **__):
        figures.append(Figure())
        yield figures[0]

    monkeypatch.setattr(learning_curve, "picture", shown)
    one = Curve([10], [math.log(2)])
    learning_curve.plot({"seed 1": (one, one, one)}, "accuracy", None, is_regression=is_regression)
    losses, metric = figures[0].axes
    assert losses.lines[0].get_ydata()[0] == pytest.approx(value) and label in losses.get_ylabel()
    assert metric.get_ylabel() == "accuracy (percent)"
