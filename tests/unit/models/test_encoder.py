"""Recomputed activations, told and looked-up padding, and what padding may not change."""

import pytest
import torch

from tests.tiny_models import make_batch, our_model


def test_checkpointed_activations_give_the_same_gradients():
    tokens, masked, targets = make_batch()
    results = []
    for checkpoint_activations in (False, True):
        model = our_model(checkpoint_activations=checkpoint_activations, dropout=0.2, attention_dropout=0.2)
        torch.manual_seed(3)
        loss, _ = model(tokens, masked_tokens=masked, targets=targets)
        loss.backward()
        results.append([loss, *(parameter.grad for parameter in model.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_padding_changes_nothing_for_the_tokens(backend):
    model = our_model(attention_backend=backend).eval()
    tokens, _, _ = make_batch((9,))
    wider = torch.nn.functional.pad(tokens, (0, 6), value=1)
    torch.testing.assert_close(model(wider)[0][:, :9], model(tokens)[0], atol=1e-5, rtol=1e-5)
    assert torch.equal(model(wider, has_padding=True)[0], model(wider)[0])
    assert torch.equal(model(tokens, has_padding=False)[0], model(tokens)[0])


def test_bf16_stays_close_to_fp32():
    model = our_model().eval()
    tokens, masked, targets = make_batch()
    expected, _ = model(tokens, masked_tokens=masked, targets=targets)
    found, _ = model.bfloat16()(tokens, masked_tokens=masked, targets=targets)
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(float(expected), rel=0.02)
