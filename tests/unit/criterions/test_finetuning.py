"""The criterion of all fine-tuning, with the kind of the tests: what it asks of a kind, and what a validation logs."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.score_losses import Scores, check_loss, make_criterion, make_sample, validate


@pytest.mark.parametrize("examples", [range(6), [4, 0, 5, 2]])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_the_kind_with_smoothing_in_training_alone(smoothing, examples):
    model, labels = Scores(6, 3), [0, 2, 1, 1, 0, 2]
    criterion = make_criterion("made", num_classes=3, label_smoothing=smoothing)
    sample = make_sample(range(7), {"label": labels}, [*examples])
    scores, chosen = model.scores[[*examples]], torch.tensor(labels)[[*examples]]
    expected = F.cross_entropy(scores, chosen, reduction="sum", label_smoothing=smoothing)
    check_loss(criterion, model, sample, expected, sample_size=len(chosen))
    plain = F.cross_entropy(scores.double(), chosen, reduction="sum")
    criterion.eval()
    assert criterion(model, sample)[0].item() == pytest.approx(plain.item(), rel=1e-5)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_metrics_are_those_of_the_whole_split_however_it_is_cut_into_batches(num_classes):
    model = Scores(60, num_classes)
    labels = np.random.default_rng(1).integers(0, num_classes, 60)
    values = validate(make_criterion("made", num_classes=num_classes), model, range(61), {"label": labels})
    accuracy = 100 * (model.scores.argmax(dim=1).numpy() == labels).mean()
    assert values["accuracy"] == pytest.approx(accuracy) and 0 < accuracy < 100
    assert values["made_error"] == pytest.approx(100 - accuracy)
    assert values["padding"] == pytest.approx(100 * values["num_batches"] / 420, abs=0.01)
    expected = F.cross_entropy(model.scores, torch.tensor(labels)).item()
    assert values["loss"] == pytest.approx(expected, abs=1e-4)


def test_a_model_that_has_diverged_is_not_judged():
    model = Scores(60, 2)
    with torch.no_grad():
        model.scores[7] = float("nan")
    values = validate(make_criterion("made"), model, range(61), {"label": np.arange(60) % 2})
    assert np.isnan(values["accuracy"])


def test_only_the_summed_loss_exists_and_logs_can_be_summed():
    criterion = make_criterion("made")
    with pytest.raises(ValueError, match="reduce=True"):
        criterion(Scores(1, 2), make_sample(range(2), {"label": [0]}, [0]), reduce=False)
    assert criterion.logging_outputs_can_be_summed()
