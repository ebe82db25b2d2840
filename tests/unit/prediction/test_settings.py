"""Settings that cannot be are refused by name."""

from pathlib import Path

import pytest

from roberta_plugin.prediction.settings import PredictSettings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": Path("a"), "output": Path("a")}, "--output a would overwrite the input itself"),
        ({"input": Path("b/../a.partial"), "output": Path("a")}, "--output a would overwrite the input itself"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        PredictSettings(model=Path("m"), **changes)


def test_csv_may_be_read_as_texts():
    assert PredictSettings(model=Path("m"), input=Path("a.csv"), format="text").format == "text"
