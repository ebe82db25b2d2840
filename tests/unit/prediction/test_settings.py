"""Settings that cannot be are refused by name."""

from pathlib import Path

import pytest

from roberta_plugin.prediction.settings import PredictSettings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"top_k": 0}, "--top-k must be 1 or more, got 0"),
        ({"batch_tokens": -1}, "--batch-tokens must be 1 or more, got -1"),
        ({"null_threshold": 1.5}, "--null-threshold must be from 0 to 1, got 1.5"),
        ({"format": "xml"}, "--format must .*tsv.*, got 'xml'"),
        ({"threshold": -0.1}, "--threshold must be from 0 to 1, got -0.1"),
        ({"on_error": "ask"}, "--on-error must be stop or skip, got 'ask'"),
        ({"input": Path("a"), "output": Path("a")}, "--output a would overwrite the input itself"),
        ({"input": Path("b/../a.partial"), "output": Path("a")}, "--output a would overwrite the input itself"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        PredictSettings(model=Path("m"), **changes)


def test_csv_may_be_read_as_texts():
    assert PredictSettings(model=Path("m"), input=Path("a.csv"), format="text").format == "text"
