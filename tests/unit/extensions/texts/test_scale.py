"""A regression's head answers on the scale of the labels in use, and on that of training in evaluation."""

import torch

from roberta_plugin.conversion.portable import rescale_to_labels, rescale_to_training
from roberta_plugin.finetuning import identity

NAME = "classification_heads.mine.out_proj."


SETTINGS = {"kind": "regression", "labels": [], "mean": 1500.0, "deviation": 200.0}


def state(**changes):
    model = {NAME + "weight": torch.randn(1, 4), NAME + "bias": torch.randn(1), "encoder.x": torch.randn(2)}
    data = {"task": "custom", "settings": {**SETTINGS, **changes}}
    return {
        "model": model,
        "cfg": {"task": {"_name": "roberta_sentence_prediction", "classification_head_name": "mine"}},
        "task_state": {identity.KEY: data},
    }


def answers(content, features):
    return features @ content["model"][NAME + "weight"].T + content["model"][NAME + "bias"]


def test_the_head_gives_numbers_as_the_labels_were_and_the_way_back():
    before, features = state(), torch.randn(5, 4)
    after = rescale_to_labels(before)
    torch.testing.assert_close(answers(after, features), 1500 + 200 * answers(before, features))
    assert identity.read_record(after)["settings"] == {"kind": "regression", "labels": []}
    assert after["model"]["encoder.x"] is before["model"]["encoder.x"]
    again = rescale_to_labels(after)
    assert torch.equal(answers(again, features), answers(after, features)), "the scale is applied once"
    back = rescale_to_training(after, SETTINGS)
    torch.testing.assert_close(answers(back, features), answers(before, features), atol=1e-4, rtol=1e-4)
    assert torch.equal(answers(rescale_to_training(before, SETTINGS), features), answers(before, features))
