"""GLUE's losses against plain computations, and metrics of a validation that is cut into batches."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from fairseq.criterions import CRITERION_REGISTRY

from roberta_plugin.finetuning.kinds import kind_class, metrics
from roberta_plugin.finetuning.kinds.base import Official
from roberta_plugin.finetuning.training import find_training
from tests.tiny_validation import validated


class Scores(torch.nn.Module):
    """A model that has the scores of all sequences of a split as parameters."""

    def __init__(self, num_sequences, num_scores):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.scores = torch.nn.Parameter(torch.randn(num_sequences, num_scores, generator=generator))


def make_criterion(kind, *, num_classes=2, scale=(0.0, 1.0), label_weights=None, labels=(), **options):
    names = labels or [str(number) for number in range(num_classes)]
    settings = {"labels": names, "class_weights": "none", "weights": label_weights}
    settings |= {"mean": scale[0], "deviation": scale[1]}
    made = kind_class(kind)(settings, official=Official(limits=(0.0, 5.0)))
    outputs = {"outputs": lambda model, sample: model.scores[sample["rows"]]}
    training = find_training(type(made))(made, SimpleNamespace(), None)
    task = SimpleNamespace(kind=made, target_dictionary=None, training=training, **outputs)
    return CRITERION_REGISTRY["roberta_sentence_prediction"](task, **options)


def make_sample(first, columns, examples):
    """A batch of some of the examples that have the sequences first[i] to first[i + 1]."""
    rows = [row for example in examples for row in range(first[example], first[example + 1])]
    counts = [first[example + 1] - first[example] for example in examples]
    return {
        "id": torch.tensor(examples),
        "rows": torch.tensor(rows),
        "offsets": torch.tensor([0, *itertools.accumulate(counts)]),
        "columns": {name: torch.as_tensor(values)[examples] for name, values in columns.items()},
        "split": "valid",
        "nsentences": len(examples),
        "ntokens": 7 * len(rows) - 1,
        "npositions": 7 * len(rows),
        "net_input": {"src_lengths": torch.full((len(rows),), 7)},
    }


def check_loss(criterion, model, sample, expected, *, sample_size):
    model.train()
    loss, size, log = criterion(model, sample)
    assert size == sample_size == log["sample_size"]
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    (gradient,) = torch.autograd.grad(loss, model.scores)
    (wanted,) = torch.autograd.grad(expected, model.scores)
    torch.testing.assert_close(gradient, wanted)
    assert wanted.abs().sum() > 0
    assert log.keys() == {"loss", "sample_size", "ntokens", "nsentences", "npositions"}


class Split:
    """A split in memory."""

    name = "valid"

    def __init__(self, first, columns):
        self.offsets, self.sequences = np.array(first), range(first[-1])
        self.columns = {name: np.asarray(values) for name, values in columns.items()}

    def __len__(self):
        return len(self.offsets) - 1


def validate(criterion, model, first, columns):
    """What a validation logs, in batches of random sizes in random order."""
    split = Split(first, columns)
    criterion.task.prepared = SimpleNamespace(split=lambda name: split)
    rng = np.random.default_rng(2)
    order = rng.permutation(len(split)).tolist()
    edges = sorted({0, len(order), *rng.integers(1, len(order), 11).tolist()})
    batches = [make_sample(first, columns, order[start:stop]) for start, stop in itertools.pairwise(edges)]
    return {**validated(criterion, model, batches), "num_batches": len(batches)}


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


PHRASES = ([0, 3, 4, 6, 10], {"label": [1, 1, 0, 1], "before": [1] * 4, "after": [1] * 4})


def test_the_right_phrase_must_be_ahead_by_a_margin():
    model = Scores(10, 1)
    sample = make_sample(*PHRASES, [3, 2, 0, 1])
    scores, expected = model.scores[:, 0].double(), torch.zeros((), dtype=torch.float64)
    for right, rivals in ((0, (1, 2)), (6, (7, 8, 9))):  # label 0 teaches nothing, nor does a phrase without rivals
        for rival in rivals:
            expected = expected - scores[right] + 3.0 * torch.relu(scores[rival] - scores[right] + 0.7)
    criterion = make_criterion("phrase_ranking", margin_alpha=3.0, margin_beta=0.7)
    check_loss(criterion, model, sample, expected, sample_size=2)


def test_phrases_can_have_a_cross_entropy_instead():
    model = Scores(10, 1)
    scores = model.scores[:, 0].double()
    expected = -scores[:3].log_softmax(0)[0] - scores[6:].log_softmax(0)[0]
    criterion = make_criterion("phrase_ranking", phrase_cross_entropy=True)
    check_loss(criterion, model, make_sample(*PHRASES, [3, 2, 0, 1]), expected, sample_size=2)


def test_a_batch_of_wrong_phrases_has_no_loss():
    loss, size, _ = make_criterion("phrase_ranking")(Scores(10, 1), make_sample(*PHRASES, [2]))
    assert (loss.item(), size) == (0.0, 0)
    loss.backward()


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


def test_a_model_that_has_diverged_is_not_judged():
    model = Scores(60, 2)
    with torch.no_grad():
        model.scores[7] = float("nan")
    values = validate(make_criterion("classification"), model, range(61), {"label": np.arange(60) % 2})
    assert np.isnan(values["accuracy"])


def test_only_the_summed_loss_exists_and_logs_can_be_summed():
    criterion = make_criterion("classification")
    with pytest.raises(ValueError, match="reduce=True"):
        criterion(Scores(1, 2), make_sample(range(2), {"label": [0]}, [0]), reduce=False)
    assert criterion.logging_outputs_can_be_summed()
