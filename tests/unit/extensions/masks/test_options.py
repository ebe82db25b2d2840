"""The options of scores belong to the extension that gives them, on the command line and in Python."""

import dataclasses
from pathlib import Path

import pytest

from roberta_plugin.extensions.masks.options import MaskPredictOptions
from roberta_plugin.prediction.predict import PredictSettings, wanted_kind
from roberta_plugin.prediction.settings import CommonPredictSettings


def test_the_trunk_has_none_of_them_and_the_settings_have_them_all():
    ours = {item.name for item in dataclasses.fields(MaskPredictOptions)}
    common, whole = (
        {item.name for item in dataclasses.fields(each)} for each in (CommonPredictSettings, PredictSettings)
    )
    assert ours == {"score", "per_token"} and not ours & common and ours <= whole


@pytest.mark.parametrize(
    ("options", "kind"),
    [({}, None), ({"score": "unmasked"}, "score"), ({"score": "pll", "task_kind": "pronoun"}, "phrase_ranking")],
)
def test_a_way_of_scoring_chooses_the_kind_unless_one_is_named(options, kind):
    assert wanted_kind(PredictSettings(model=Path("m"), **options)) == kind


def test_a_way_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="--score must be pll or pll-word-l2r or unmasked, got 'other'"):
        PredictSettings(model=Path("m"), score="other")
