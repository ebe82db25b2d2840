"""Dropout on a CPU: right share, right scale, a gradient with the same mask, reproducible by seed."""

import pytest
import torch

from roberta_plugin.models.cpu.dropout import Dropout, draw_words, dropout, kept


@pytest.mark.parametrize("probability", [0.1, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(1_000_003,), (100, 77, 131)])
def test_share_and_scale_keep_the_mean(probability, shape):
    torch.manual_seed(0)
    output = dropout(torch.ones(shape), probability)
    dropped = output.eq(0).float().mean().item()
    assert dropped == pytest.approx(probability, abs=0.002)
    kept = output[output.ne(0)]
    level = round(probability * 65536) / 65536
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - level)))
    assert output.mean().item() == pytest.approx(1.0, abs=0.005)


def test_neighbours_that_share_a_random_word_are_independent():
    torch.manual_seed(0)
    stays = kept(draw_words(torch.Size([400_000])), 32768).view(-1, 4)
    assert stays.unique().tolist() == [0.0, 1.0]
    correlation = torch.corrcoef(stays.t()) - torch.eye(4)
    assert correlation.abs().max() < 0.01


def test_the_gradient_passes_where_the_value_did():
    torch.manual_seed(0)
    x = torch.randn(50, 33, requires_grad=True)
    output = dropout(x, 0.3)
    output.sum().backward()
    torch.testing.assert_close(x.grad * x.detach(), output.detach())
    assert 0.2 < x.grad.eq(0).float().mean() < 0.4


def test_a_seed_repeats_it_and_evaluation_switches_it_off():
    x = torch.randn(64, 64)
    module = Dropout(0.1)
    torch.manual_seed(5)
    first, second = module(x), module(x)
    torch.manual_seed(5)
    assert torch.equal(module(x), first)
    assert not torch.equal(first, second)
    assert torch.equal(module.eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert "0.1" in repr(module)
