"""Answers about pronouns."""

import pytest

from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions
from tests.tiny_predictors import Predictors


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return Predictors(tmp_path_factory.mktemp("predictors"))


def answers(model, records, **changes):
    settings = PredictSettings(model=model, device="cpu", **changes)
    return list(iterate_predictions(settings, records))


def test_pronouns_have_the_answers_of_the_hub(models):
    hub = RobertaHub.from_pretrained(models["pronoun"])
    record = {"text": "The dog, and [it] was bad.", "candidates": ["a dog", "a hen"]}
    (found,) = answers(models["pronoun"], [record])
    assert found["answer"] == hub.disambiguate_pronoun(record["text"], record["candidates"])
    assert list(found["scores"]) == record["candidates"]
