"""Options of the tasks: their values are checked, and an option of another task is refused."""

import pytest

from roberta_plugin.finetuning.benchmarks import checked_options, options_for
from roberta_plugin.finetuning.options import GlueOptions, RaceOptions, SquadOptions


def test_an_option_of_another_task_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"--doc-stride is not an option of RTE: it has none\."):
        options_for("RTE", {"doc_stride": 1})
    with pytest.raises(ValueError, match=r"not an option of race: it has --question-length, --order\."):
        options_for("race", {"doc_stride": 1})
    with pytest.raises(ValueError, match="--null-threshold is not an option of squad1"):
        options_for("squad1", {"null_threshold": 0.5})
    with pytest.raises(ValueError, match="race has RaceOptions, got SquadOptions"):
        checked_options("race", SquadOptions())
    with pytest.raises(ValueError, match="--null-threshold is not an option of squad1"):
        checked_options("squad1", SquadOptions(null_threshold=0.5))


def test_what_is_not_given_is_the_default():
    assert options_for("race", {"order": None}) == checked_options("race", None) == RaceOptions()
    assert options_for("CoLA") == GlueOptions()
    assert SquadOptions(n_best=5, doc_stride=64, strict=True).given("prepare") == {"doc_stride": 64, "strict": True}
