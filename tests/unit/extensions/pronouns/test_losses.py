"""Losses of phrases against plain computations."""

import torch

from tests.score_losses import Scores, check_loss, make_criterion, make_sample

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
