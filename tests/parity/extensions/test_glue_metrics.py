"""GLUE's metrics equal those of scikit-learn and SciPy; losses equal fairseq's on the same scores."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch
from fairseq.criterions.sentence_prediction import SentencePredictionConfig, SentencePredictionCriterion
from fairseq.examples.roberta.wsc.wsc_criterion import WSCCriterion

from roberta_plugin.extensions.pronouns.training import phrase_scores
from roberta_plugin.finetuning.kinds import metrics
from tests.score_losses import Scores, make_criterion, make_sample
from tests.tiny_models import fairseq_model
from tests.unit.extensions.pronouns import test_phrase_scores


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_classes", [2, 3])
def test_counts_give_what_scikit_learn_gives(seed, num_classes):
    rng = np.random.default_rng(seed)
    answers = rng.integers(0, num_classes, 200)
    predictions = np.where(rng.random(200) < 0.5, answers, rng.integers(0, num_classes, 200))
    counts = metrics.confusion(answers, predictions, num_classes=num_classes)
    assert counts.tolist() == sklearn.metrics.confusion_matrix(answers, predictions).tolist()
    assert metrics.accuracy(counts) == sklearn.metrics.accuracy_score(answers, predictions)
    assert metrics.mcc(counts) == pytest.approx(sklearn.metrics.matthews_corrcoef(answers, predictions), abs=1e-14)
    if num_classes == 2:
        assert metrics.f1(counts) == pytest.approx(sklearn.metrics.f1_score(answers, predictions), abs=1e-14)


def test_where_all_predictions_are_the_same_scikit_learn_gives_0_too():
    answers, predictions = np.array([0, 1, 1]), np.zeros(3, dtype=int)
    counts = metrics.confusion(answers, predictions, num_classes=2)
    assert metrics.mcc(counts) == sklearn.metrics.matthews_corrcoef(answers, predictions) == 0
    assert metrics.f1(counts) == sklearn.metrics.f1_score(answers, predictions) == 0


@pytest.mark.parametrize("seed", range(5))
def test_correlations_are_scipy_s_with_ties_too(seed):
    rng = np.random.default_rng(seed)
    answers = rng.integers(0, 26, 300) / 5
    predictions = (answers + rng.normal(size=300) * (1 + seed)).astype(np.float32)
    predictions[:50] = predictions[50:100]
    pearson = scipy.stats.pearsonr(predictions.astype(np.float64), answers)[0]
    assert metrics.pearson(predictions, answers) == pytest.approx(pearson, abs=1e-12)
    spearman = scipy.stats.spearmanr(predictions, answers)[0]
    assert metrics.spearman(predictions, answers) == pytest.approx(spearman, abs=1e-12)


class HeadModel(Scores):
    """The same for fairseq's criterion."""

    classification_heads = {"sentence_classification_head": None}

    def forward(self, features_only, classification_head_name, src_lengths):
        return self.scores, None

    def get_targets(self, sample, net_output):
        return sample["target"]


@pytest.mark.parametrize("is_regression", [False, True])
def test_loss_and_gradient_are_those_of_fairseq_s_sentence_prediction(is_regression):
    model = HeadModel(8, 1 if is_regression else 3)
    labels = [0.5 * number for number in range(8)] if is_regression else [0, 1, 2, 2, 1, 0, 0, 1]
    sample = make_sample(range(9), {"label": labels}, list(range(8)))
    ours = make_criterion("regression" if is_regression else "classification", num_classes=3)
    task = SimpleNamespace(target_dictionary=None, label_dictionary=None)
    theirs = SentencePredictionCriterion(SentencePredictionConfig(regression_target=is_regression), task)
    loss, sample_size, _ = ours(model, sample)
    expected, expected_size, _ = theirs(model, {**sample, "target": torch.tensor(labels)})
    assert sample_size == expected_size
    torch.testing.assert_close(loss, expected)
    gradients = [torch.autograd.grad(value, model.scores)[0] for value in (loss, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("is_cross_entropy", [False, True])
def test_the_loss_of_phrases_is_that_of_fairseq_s_wsc(is_cross_entropy):
    model, first = Scores(9, 1), [0, 4, 6, 9]
    sample = make_sample(first, {"label": [1, 1, 1]}, [0, 1, 2])
    ours = make_criterion("phrase_ranking", margin_alpha=3.0, margin_beta=0.7, phrase_cross_entropy=is_cross_entropy)
    options = SimpleNamespace(wsc_cross_entropy=is_cross_entropy, wsc_margin_alpha=3.0, wsc_margin_beta=0.7)
    scores = model.scores[:, 0]
    expected = sum(
        WSCCriterion.get_loss(SimpleNamespace(args=options), scores[start : start + 1], scores[start + 1 : stop])
        for start, stop in pairwise(first)
    )
    torch.testing.assert_close(ours(model, sample)[0], expected)


def test_scores_of_phrases_are_those_of_fairseq_s_wsc():
    model = fairseq_model().eval()
    rows, sample = test_phrase_scores.make_sample()
    mask_id, sizes = test_phrase_scores.MASK, test_phrase_scores.PHRASE_SIZES
    criterion = SimpleNamespace(task=SimpleNamespace(mask=mask_id))
    criterion.get_masked_input = lambda tokens, mask: WSCCriterion.get_masked_input(criterion, tokens, mask)
    with torch.no_grad():
        ours = phrase_scores(model, sample, mask_id=mask_id)[:, 0]
        for row, size, score, start in zip(rows, sizes, ours, [2, 2, 4, 4, 4], strict=True):
            mask = torch.zeros(1, len(row), dtype=torch.bool)
            mask[0, start : start + size] = True
            theirs = WSCCriterion.get_lprobs(criterion, model, row[None], mask)
            torch.testing.assert_close(score, theirs[0], rtol=1e-4, atol=1e-4)
