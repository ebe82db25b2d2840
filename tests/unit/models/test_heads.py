"""Heads: masked positions alone are scored, and the loss is that of their scores; windows are pooled."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from roberta_plugin.models import roberta_encoder
from roberta_plugin.models.heads import ClassificationHead, pool_windows
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


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_windows_are_pooled_as_in_a_loop_with_equal_gradients(pooling):
    torch.manual_seed(0)
    features = torch.randn(7, 1, 5, dtype=torch.float64, requires_grad=True)  # the last one is padding of a packed row
    first = torch.tensor([0, 1, 4, 6])
    weights = torch.randn(3, 5, dtype=torch.float64)
    found = pool_windows(features, first=first, pooling=pooling)
    rows = [features[a:b, 0] for a, b in pairwise(first.tolist())]
    expected = torch.stack([row.mean(0) if pooling == "mean" else row.max(0).values for row in rows])
    assert torch.equal(found[:, 0], expected)
    (gradient,) = torch.autograd.grad((found[:, 0] * weights).sum(), features)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), features)
    torch.testing.assert_close(gradient, wanted, atol=0, rtol=1e-14)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_document_of_windows_is_read_in_parts_with_equal_logits(pooling, monkeypatch):
    model = our_model(max_positions=10).eval()
    model.register_classification_head("topic", num_classes=3)
    tokens = torch.randint(4, 20, (9, 10))
    tokens[:, 0] = 0
    tokens[3, 6:] = 1
    windows = {"first": torch.tensor([0, 1, 9]), "pooling": pooling}
    with torch.no_grad():
        expected = model(tokens, head="topic", windows=windows)[0]
        alone = model(tokens[:1], head="topic")[0]
        monkeypatch.setattr(roberta_encoder, "POSITIONS_AT_ONCE", 25)
        found = model(tokens, head="topic", windows=windows)[0]
    assert found.shape == (2, 3)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found[:1], alone)
    with pytest.raises(ValueError, match="classification head"):
        model(tokens, windows=windows)
