"""Heads: masked positions alone are scored, and the loss is that of their scores."""

import torch
import torch.nn.functional as F

from roberta_plugin.models.heads import ClassificationHead
from roberta_plugin.models.pretraining_heads import MaskedLMHead
from tests.tiny_models import our_model


def test_the_loss_is_that_of_the_scores_at_masked_positions():
    torch.manual_seed(0)
    head = MaskedLMHead(6, activation=F.gelu, vocab_size=11, weight=None)
    features = torch.randn(2, 5, 6)
    masked = torch.tensor([[0, 1, 0, 0, 1], [0, 0, 1, 0, 0]], dtype=torch.bool)
    targets = torch.tensor([3, 10, 0])
    scores = head(features)
    torch.testing.assert_close(head(features, masked_tokens=masked), scores[masked])
    expected = F.cross_entropy(scores[masked], targets, reduction="sum")
    padded = torch.tensor([[3, 1], [10, 0]])
    rows = torch.stack([features[masked][0], torch.full((6,), 7.0), features[masked][1], features[masked][2]])
    torch.testing.assert_close(head.loss(rows.view(2, 2, 6), padded, pad_id=1), expected)
    torch.testing.assert_close(head.loss(features[masked], targets, pad_id=1), expected)


def test_classes_are_scored_from_the_first_token():
    head = ClassificationHead(our_model().encoder, num_classes=3, inner_dim=4)
    features = torch.randn(2, 5, 24)
    changed = features.clone()
    changed[:, 1:] = 0
    assert torch.equal(head(features), head(changed))
    expected = head.out_proj(torch.tanh(head.dense(features[:, 0])))
    torch.testing.assert_close(head(features), expected)
