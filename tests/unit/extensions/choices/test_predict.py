"""Options that are chosen."""

import pytest

from roberta_plugin.hub import RobertaHub
from tests.tiny_predictors import CLASSES, answers, new_predictors

models = pytest.fixture(new_predictors, scope="module")


def test_the_option_with_the_highest_score_is_the_answer(models):
    hub = RobertaHub.from_pretrained(models["multiple_choice"])
    question = {"context": "a  good thing", "question": "It is _ .", "options": ["bad", "good", "good bad"]}
    (found,) = answers(models["multiple_choice"], [question])
    inputs = [("a good thing", f"It is {option} .") for option in question["options"]]
    expected = hub.predict(CLASSES, inputs, return_logits=True)[:, 0].softmax(dim=0)
    assert found["probabilities"] == pytest.approx(expected.tolist(), abs=1e-5)
    assert found["answer"] == int(expected.argmax())
    assert found["option"] == question["options"][found["answer"]]
    in_columns = {f"option{number}": option for number, option in enumerate(question["options"], start=1)}
    del question["options"]
    assert answers(models["multiple_choice"], [question | in_columns])[0] == found
