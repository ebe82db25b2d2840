"""Every path of the loss against its definition in float64, values and gradients."""

import pytest
import torch

from roberta_plugin.models import linear_cross_entropy
from roberta_plugin.models.linear_cross_entropy import (
    choose_path,
    chunked,
    fused,
    has_fused,
    plain,
    summed_cross_entropy,
)

PATHS = [
    plain,
    chunked,
    pytest.param(fused, marks=pytest.mark.skipif(not has_fused(), reason="this torch has no F.linear_cross_entropy")),
]


IGNORED = 49


def make_inputs(rows, dtype=torch.float32, *, dim=12, vocab_size=50):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, dim, generator=generator)
    weight = torch.randn(vocab_size, dim, generator=generator)
    bias = torch.randn(vocab_size, generator=generator)
    targets = torch.randint(0, IGNORED, (rows,), generator=generator)
    targets[2::5] = IGNORED
    return *(tensor.to(dtype).requires_grad_() for tensor in (x, weight, bias)), targets


def definition(x, weight, bias, targets):
    x, weight, bias = (tensor.detach().double().requires_grad_() for tensor in (x, weight, bias))
    scores = x @ weight.t() + bias
    losses = scores.logsumexp(dim=1) - scores.gather(1, targets[:, None])[:, 0]
    return losses[targets.ne(IGNORED)].sum(), (x, weight, bias)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("rows", [1, 7, 8, 9, 61])
def test_values_and_gradients_are_the_definitions(path, rows, monkeypatch):
    monkeypatch.setattr(linear_cross_entropy, "ROWS_IN_CHUNK", 8)
    *inputs, targets = make_inputs(rows)
    expected, references = definition(*inputs, targets)
    found = path(*inputs, targets, IGNORED)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=1e-6)
    (found * 3).backward()
    (expected * 3).backward()
    for one, reference in zip(inputs, references, strict=True):
        torch.testing.assert_close(one.grad.double(), reference.grad, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("path", [plain])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_loss_is_summed_in_fp32(path, dtype):
    *inputs, targets = make_inputs(4000, dtype)
    expected, _ = definition(*inputs, targets)
    found = path(*inputs, targets, IGNORED)
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(float(expected), rel=1e-3)


def test_large_scores_do_not_overflow():
    x = torch.full((3, 2), 200.0, requires_grad=True)
    weight = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [0.5, 0.5]], requires_grad=True)
    loss = chunked(x, weight, torch.zeros(3, requires_grad=True), torch.tensor([0, 1, 2]), IGNORED)
    assert float(loss) == pytest.approx(800 + 200)
    loss.backward()
    assert x.grad.isfinite().all()


def test_no_predicted_position_is_a_loss_of_zero():
    *inputs, targets = make_inputs(5)
    inputs = [inputs[0][:0], *inputs[1:]]
    loss = summed_cross_entropy(*inputs, targets[:0], ignored=IGNORED)
    loss.backward()
    assert float(loss) == 0.0
    assert float(inputs[1].grad.abs().sum()) == 0.0


def test_the_path_follows_device_and_type():
    assert choose_path(torch.zeros(1)) is chunked
    assert choose_path(torch.zeros(1, dtype=torch.bfloat16)) is plain
    if has_fused():
        assert choose_path(torch.zeros(1, device="meta").as_subclass(FakeCuda)) is fused


class FakeCuda(torch.Tensor):
    """A tensor that says it is on a GPU."""

    @property
    def device(self):
        return torch.device("cuda")
