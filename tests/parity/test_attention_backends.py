"""Every attention backend against the definition in float64: outputs, gradients, padding, odd lengths, dropout."""

import math

import pytest
import torch

from roberta_plugin.models import attention_backends
from roberta_plugin.models.attention_backends import BACKENDS, choose_backend

SHAPES = [(3, 4, 17, 8), (1, 1, 1, 16), (2, 3, 64, 32), (2, 2, 33, 5)]


def make_inputs(shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(sum(shape))
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for _ in range(3)]


def make_padding(shape):
    """No row is padding from its beginning: every block has <s>."""
    batch, _, length, _ = shape
    lengths = torch.tensor([max(1, length - 3 * row) for row in range(batch)])
    return torch.arange(length) >= lengths[:, None]


def definition(q, k, v, is_padding):
    q, k, v = (tensor.detach().double().requires_grad_() for tensor in (q, k, v))
    scores = torch.einsum("bhik,bhjk->bhij", q, k) / math.sqrt(q.size(-1))
    if is_padding is not None:
        scores = scores.masked_fill(is_padding[:, None, None, :], -math.inf)
    exponentials = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    return torch.einsum("bhij,bhjk->bhik", exponentials / exponentials.sum(-1, keepdim=True), v), (q, k, v)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("padded", [False, True])
def test_outputs_and_gradients_are_the_definitions(name, shape, padded):
    inputs = make_inputs(shape)
    is_padding = make_padding(shape) if padded else None
    expected, references = definition(*inputs, is_padding)
    found = BACKENDS[name](*inputs, is_padding=is_padding, dropout_prob=0.0)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
    weights = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    for one, reference in zip(inputs, references, strict=True):
        torch.testing.assert_close(one.grad.double(), reference.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_half_precision_stays_close(name, dtype, tolerance):
    inputs = make_inputs(SHAPES[2], dtype)
    is_padding = make_padding(SHAPES[2])
    expected, _ = definition(*inputs, is_padding)
    found = BACKENDS[name](*inputs, is_padding=is_padding, dropout_prob=0.0)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", BACKENDS)
def test_dropout_keeps_the_mean_and_has_the_right_spread(name):
    """With v = 1, the output is the sum of the kept weights / 0.75: mean 1, variance (1/3) * sum of squared weights."""
    torch.manual_seed(0)
    q, k, _ = make_inputs((16, 8, 64, 16))
    found = BACKENDS[name](q, k, torch.ones_like(q), is_padding=None, dropout_prob=0.25)[..., 0].detach().double()
    weights = torch.softmax(q.double() @ k.double().transpose(-1, -2) / 4, dim=-1)
    variance = (weights.square().sum(-1) / 3).mean()
    assert float(found.mean()) == pytest.approx(1.0, abs=0.01)
    assert float((found - 1).square().mean()) == pytest.approx(float(variance), rel=0.05)


def test_the_choice_follows_device_and_dropout():
    cpu = torch.device("cpu")
    assert choose_backend("auto", device=cpu, dropout_prob=0.1).name == "onednn"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_backends, "has_onednn", lambda: False)
        assert choose_backend("auto", device=cpu, dropout_prob=0.1).name == "eager"
        assert choose_backend("auto", device=cpu, dropout_prob=0.0).name == "sdpa"
        with pytest.raises(
            RuntimeError, match=r"needs a CPU and a torch built with oneDNN.*Use --attention-backend sdpa"
        ):
            choose_backend("onednn", device=cpu, dropout_prob=0.0)
    assert choose_backend("auto", device=torch.device("cuda"), dropout_prob=0.1).name == "sdpa"
    with pytest.raises(ValueError, match="--attention-backend must be auto or one of eager, sdpa, onednn, got 'magic'"):
        choose_backend("magic", device=cpu, dropout_prob=0.0)
