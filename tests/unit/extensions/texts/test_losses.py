"""GLUE's losses against plain computations, and metrics of a validation that is cut into batches."""

import numpy as np
import pytest
import sklearn.metrics as sk
import torch

from roberta_plugin.finetuning.kinds import metrics
from tests.score_losses import Scores, check_loss, make_criterion, make_sample, validate


@pytest.mark.parametrize("examples", [range(6), [4, 0, 5, 2]])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("label_weights", [None, [0.5, 2.0, 1.25]])
def test_classification_is_torch_s_cross_entropy_with_weights_and_in_training_label_smoothing(
    label_weights, smoothing, examples
):
    """An example counts by the weight of its label."""
    model, labels = Scores(6, 3), [0, 2, 1, 1, 0, 2]
    options = {"label_weights": label_weights, "label_smoothing": smoothing}
    criterion = make_criterion("classification", num_classes=3, **options)
    sample = make_sample(range(7), {"label": labels}, [*examples])
    scores, chosen = model.scores[[*examples]], torch.tensor(labels)[[*examples]]
    weights = torch.tensor(label_weights or [1.0] * 3)
    size = weights[chosen].sum()
    expected = torch.nn.functional.cross_entropy(scores, chosen, weights, label_smoothing=smoothing) * size
    check_loss(criterion, model, sample, expected, sample_size=size)
    plain = -(scores.double().log_softmax(-1)[torch.arange(len(chosen)), chosen] * weights[chosen]).sum()
    criterion.eval()
    assert criterion(model, sample)[0].item() == pytest.approx(plain.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("scale", "numbers", "expected"),
    [((0.0, 1.0), [5.0, 1.0, 3.2], [5.0, 1.0, 3.2]), ((1000.0, 200.0), [1200.0, 900.0, 1000.0], [1.0, -0.5, 0.0])],
)
def test_regression_is_the_squared_error_of_the_number_or_of_its_multiple_of_a_deviation(scale, numbers, expected):
    model, of_all = Scores(6, 1), [0.0, numbers[0], 2.5, numbers[1], 4.0, numbers[2]]
    sample = make_sample(range(7), {"label": of_all}, [1, 3, 5])
    loss = (model.scores[[1, 3, 5], 0] - torch.tensor(expected)).square().sum()
    check_loss(make_criterion("regression", scale=scale), model, sample, loss, sample_size=3)
    with pytest.raises(ValueError, match=r"goes with kinds that choose .* this is regression"):
        make_criterion("regression", label_smoothing=0.1)


@pytest.mark.parametrize("weights", [None, [2.0, 0.5, 1.0]])
def test_several_labels_are_the_mean_of_their_binary_cross_entropies(weights):
    model, labels = Scores(6, 3), torch.tensor([[0, 1, 1], [0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    sample = make_sample(range(7), {"labels": labels.to(torch.uint8)}, [4, 0, 2])
    shares, present = model.scores[[4, 0, 2]].double().sigmoid(), labels[[4, 0, 2]]
    of_present = torch.tensor(weights or [1.0] * 3, dtype=torch.float64) * present * shares.log()
    expected = -(of_present + (1 - present) * (1 - shares).log()).sum() / 3
    check_loss(make_criterion("multi_label", label_weights=weights), model, sample, expected, sample_size=3)


def test_sentences_of_a_question_compete_with_each_other_and_with_none():
    model = Scores(6, 1)
    columns = {"answer": [0, 1, 2], "question": [0, 1, 2]}  # of two sentences, of three, of one: which is none
    sample = make_sample([0, 2, 5, 6], columns, [1, 2, 0])
    sample["columns"]["answer"] = torch.tensor([1, 1, 0])
    scores, zero = model.scores[:, 0].double(), torch.zeros(1)
    groups = ((scores[2:5], 1), (scores[5:], 1), (scores[:2], 0))
    expected = -sum(torch.cat([group, zero]).log_softmax(0)[answer] for group, answer in groups)
    check_loss(make_criterion("pair_ranking"), model, sample, expected, sample_size=3)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_metrics_of_classification_are_those_of_the_whole_split(num_classes):
    model = Scores(60, num_classes)
    labels = np.random.default_rng(1).integers(0, num_classes, 60)
    values = validate(make_criterion("classification", num_classes=num_classes), model, range(61), {"label": labels})
    counts = metrics.confusion(labels, model.scores.argmax(dim=1).numpy(), num_classes=num_classes)
    names = ["accuracy", "mcc", "f1", "acc_and_f1"][: 4 if num_classes == 2 else 2]
    assert {name: values[name] for name in names} == {name: 100 * metrics.OF_COUNTS[name](counts) for name in names}
    assert ("f1" in values) == (num_classes == 2)
    assert values["padding"] == pytest.approx(100 * values["num_batches"] / 420, abs=0.01)
    expected = torch.nn.functional.cross_entropy(model.scores, torch.tensor(labels)).item()
    assert values["loss"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", ["roc_auc", "average_precision", "f1_no", "f1_yes (f1)"])
def test_the_metric_that_chooses_is_scikit_learn_s(name):
    model = Scores(60, 2)
    labels = np.random.default_rng(1).integers(0, 2, 60)
    criterion = make_criterion("classification", best_checkpoint_metric=name, labels=["no", "yes (f1)"])
    values = validate(criterion, model, range(61), {"label": labels})
    scores = model.scores.detach().double().numpy()
    wanted = {
        "roc_auc": sk.roc_auc_score(labels, scores[:, 1] - scores[:, 0]),
        "average_precision": sk.average_precision_score(labels, scores[:, 1] - scores[:, 0]),
        "f1_no": sk.f1_score(labels, scores.argmax(axis=1), pos_label=0),
        "f1_yes (f1)": sk.f1_score(labels, scores.argmax(axis=1), pos_label=1),
    }
    assert values[name] == pytest.approx(100 * wanted[name], abs=1e-9)
    assert values["f1"] == pytest.approx(100 * wanted["f1_yes (f1)"])
    assert not values.keys() & ({"f1_no", "f1_yes (f1)"} - {name}), "a label's is logged if it chooses"


@pytest.mark.parametrize(("name", "number"), [("tuned_macro_f1", None), ("tuned_f1_b", 1), ("f1_b", 1)])
def test_metrics_of_several_labels_are_those_at_the_best_threshold_of_the_whole_split(name, number):
    model, labels = Scores(60, 4), (np.random.default_rng(1).random((60, 4)) < 0.3).astype(np.uint8)
    criterion = make_criterion("multi_label", best_checkpoint_metric=name, labels=list("abcd"))
    values = validate(criterion, model, range(61), {"labels": labels})
    shares = model.scores.detach().sigmoid().double().numpy()
    assert values["tuned_micro_f1"] == pytest.approx(100 * metrics.micro_f1s(shares, labels.astype(bool)).max())
    assert values["threshold"] == metrics.best_threshold(shares, labels.astype(bool))
    assert 20 < values["tuned_micro_f1"] < 90
    f1s = sk.f1_score(labels, shares >= values["threshold"], average=None)
    assert values[name] == pytest.approx(100 * (f1s.mean() if number is None else f1s[number]))
