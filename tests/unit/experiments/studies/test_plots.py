"""The bars: every value is inside of the panel."""

import pytest
from matplotlib.figure import Figure

from roberta_plugin.experiments.studies.plots import _draw_probe
from roberta_plugin.experiments.studies.settings import read_study
from tests.tiny_study import write_study


@pytest.mark.parametrize("values", [[-3.0, -1.0], [-3.0, 60.0], [90.0, 91.0], [0.5, 20.0], [7.0, 7.0]])
def test_every_value_is_inside_of_the_panel(tmp_path, values):
    """Also correlations, which may be negative."""
    path = write_study(tmp_path / "study.yaml", data=tmp_path, variants={"a": None, "b": None})
    study = read_study(path)
    axes = Figure().add_subplot()
    _draw_probe(axes, study.probes[0], {"a": {"1": values[0]}, "b": {"1": values[1]}}, study)
    low, high = axes.get_ylim()
    assert low < min(values) <= max(values) < high
    assert low >= 0 or min(values) < 0
