"""Labels and numbers of texts."""

import shutil

import pytest
import torch

from roberta_plugin.hub import RobertaHub
from tests.tiny_predictors import CLASSES, PAIRS, answers, new_predictors, write_finetuning

models = pytest.fixture(new_predictors, scope="module")


@pytest.mark.parametrize("shift", [-0.1, 4.9])  # of numbers from 0.04 to 0.17
def test_numbers_are_clipped_to_the_tasks_limits(models, tmp_path, shift):
    folder = shutil.copytree(models["regression"], tmp_path / "model")
    state = torch.load(folder / "model.pt", weights_only=False)
    state["model"][f"classification_heads.{CLASSES}.out_proj.bias"] += shift
    torch.save(state, folder / "model.pt")
    found = [answer["score"] for answer in answers(folder, PAIRS)]
    pairs = [(record["text"].strip(), record["text_pair"].strip()) for record in PAIRS]
    logits = RobertaHub.from_pretrained(folder).predict(CLASSES, pairs, return_logits=True)[:, 0]
    assert found == pytest.approx(logits.clamp(0, 5).tolist(), abs=1e-4)
    assert 0 < logits.eq(logits.clamp(0, 5)).sum() < len(logits)


def test_a_label_is_given_at_the_threshold_and_temperature_of_the_run_that_answers(models, tmp_path):
    (plain,) = answers(models["single"], ["good"])
    names, shares = zip(*plain["probabilities"].items(), strict=True)
    assert len(names) == 2
    folder = write_finetuning(tmp_path / "tuned", models["single"], {"temperature": 0.1, "threshold": 0.99})
    powers = [share**10 for share in shares]  # divided by 0.1
    (tuned,) = answers(folder, ["good"])
    assert list(tuned["probabilities"].values()) == pytest.approx([each / sum(powers) for each in powers], abs=1e-5)
    assert tuned["label"] == names[powers[1] / sum(powers) >= 0.99]
    assert tuned["threshold"] == 0.99
    assert "threshold" not in plain
    assert answers(folder / "runs" / "lr-1" / "seed-2", ["good"], data=folder / "data") == [tuned]
    for limit, label in ((0.0, names[1]), (1.0, names[0])):
        (given,) = answers(folder, ["good"], threshold=limit, temperature=1.0)
        assert given == {**plain, "label": label, "probability": plain["probabilities"][label], "threshold": limit}


@pytest.mark.parametrize(
    ("name", "task_kind", "message"),
    [
        ("fill_mask", "classification", "has no head for classification: fine-tune it first"),
        ("single", "regression", "has 2 outputs, one for each class"),
    ],
)
def test_what_a_model_cannot_do_is_said(models, name, task_kind, message):
    with pytest.raises(ValueError, match=message):
        answers(models[name], ["good"], task_kind=task_kind)
