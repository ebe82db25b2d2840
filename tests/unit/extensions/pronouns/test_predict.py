"""Answers about pronouns."""

import pytest

from roberta_plugin.hub import RobertaHub
from tests.tiny_predictors import answers, new_predictors

models = pytest.fixture(new_predictors, scope="module")


def test_pronouns_have_the_answers_of_the_hub(models):
    hub = RobertaHub.from_pretrained(models["pronoun"])
    record = {"text": "The dog, and [it] was bad.", "candidates": ["a dog", "a hen"]}
    (found,) = answers(models["pronoun"], [record])
    assert found["answer"] == hub.disambiguate_pronoun(record["text"], record["candidates"])
    assert list(found["scores"]) == record["candidates"]
