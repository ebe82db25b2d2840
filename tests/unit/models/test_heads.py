"""Heads and the loss over the vocabulary: the same numbers as by plain steps."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from roberta_plugin.models import linear_cross_entropy, roberta_encoder
from roberta_plugin.models.cpu import has_fast_bf16
from roberta_plugin.models.heads import ClassificationHead, MaskedLMHead, pool_windows
from roberta_plugin.models.linear_cross_entropy import (
    PLAIN_BYTES,
    choose_path,
    chunked,
    chunked_on_device,
    pad_vocabulary,
    plain,
    summed_cross_entropy,
)
from tests.refusals import refused
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
    refused("classification head", model, tokens, windows=windows)


PATHS = [plain, chunked, chunked_on_device]


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
def test_a_padded_vocabulary_has_the_same_loss_and_gradients(path):
    """V = 50 becomes 64; the added symbols are impossible and have no gradient."""
    *inputs, targets = make_inputs(61)
    results = []
    for is_padded in (False, True):
        x, weight, bias = (tensor.detach().clone().requires_grad_() for tensor in inputs)
        padded = pad_vocabulary(weight, bias) if is_padded else (weight, bias)
        assert len(padded[0]) == len(padded[1]) == (64 if is_padded else 50)
        loss = path(x, *padded, targets, IGNORED)
        loss.backward()
        results.append([loss, x.grad, weight.grad, bias.grad])
    for plainly, with_padding in zip(*results, strict=True):
        assert with_padding.shape == plainly.shape and with_padding.isfinite().all()
        torch.testing.assert_close(with_padding, plainly, rtol=1e-6, atol=1e-6)
    weight, bias = torch.ones(56, 3), torch.ones(56)
    assert pad_vocabulary(weight, bias)[0] is weight, "rows of 56 numbers are aligned"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("rows", "factor"), [(1, 3), (7, 3), (8, 3), (9, 3), (61, 3), (61, 1)])
def test_values_and_gradients_are_the_definitions(path, rows, factor, monkeypatch):
    monkeypatch.setattr(linear_cross_entropy, "ROWS_IN_CHUNK", 8)
    monkeypatch.setattr(linear_cross_entropy, "ROWS_IN_LARGE_CHUNK", 8)
    *inputs, targets = make_inputs(rows)
    expected, references = definition(*inputs, targets)
    found = path(*inputs, targets, IGNORED)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=1e-6)
    (found * factor).backward()
    (expected * factor).backward()
    for one, reference in zip(inputs, references, strict=True):
        torch.testing.assert_close(one.grad.double(), reference.grad, atol=2e-5, rtol=1e-5)


@pytest.mark.skipif(not has_fast_bf16(), reason="this processor has neither AVX512-BF16 nor AMX")
def test_products_in_bf16_round_their_factors_and_no_more(monkeypatch):
    """--matmul-precision medium: parameters, gradients and their sums over chunks are in fp32."""
    monkeypatch.setattr(linear_cross_entropy, "ROWS_IN_CHUNK", 8)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    *inputs, targets = make_inputs(61)
    expected, references = definition(*inputs, targets)
    found = chunked(*inputs, targets, IGNORED)
    assert found.dtype == torch.float32
    assert 0 < abs(float(found - expected)) < 2.0**-8 * float(expected)
    found.backward()
    expected.backward()
    for one, reference in zip(inputs, references, strict=True):
        assert one.grad.dtype == torch.float32
        assert 1e-5 < float((one.grad.double() - reference.grad).norm() / reference.grad.norm()) < 2.0**-7


@pytest.mark.parametrize("path", [plain, chunked_on_device])
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


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_in_half_precision_on_a_gpu(dtype, gpu):
    check_half_precision(dtype, device=gpu)


def test_gradients_in_bf16_are_as_exact_in_chunks():
    check_half_precision(torch.bfloat16, device="cpu")


def check_half_precision(dtype, *, device):
    """The gradient of W is a sum over rows: in bf16 sums over many chunks, 2 % of it would be lost."""
    *inputs, targets = (tensor.to(device) for tensor in make_inputs(4928, dtype, dim=64, vocab_size=700))
    inputs = [tensor.detach().mul(0.1).requires_grad_() for tensor in inputs]
    expected, references = definition(*inputs, targets)
    expected.backward()
    errors = {}
    for path in (plain, chunked_on_device):
        found = path(*inputs, targets, IGNORED)
        gradients = torch.autograd.grad(found, inputs)
        assert float(found) == pytest.approx(float(expected), rel=1e-3)
        errors[path] = [
            float((gradient.double() - reference.grad).norm() / reference.grad.norm())
            for gradient, reference in zip(gradients, references, strict=True)
        ]
    for of_plain, of_chunks in zip(errors[plain], errors[chunked_on_device], strict=True):
        assert of_chunks <= max(1.5 * of_plain, 0.004)


@pytest.mark.parametrize("path", PATHS)
def test_autocast_computes_in_half_precision_and_returns_fp32_gradients(path):
    *inputs, targets = make_inputs(61)
    expected, references = definition(*inputs, targets)
    with torch.autocast("cpu", torch.bfloat16):
        found = path(*inputs, targets, IGNORED)
    found.backward()
    expected.backward()
    assert found.dtype == torch.float32
    for one, reference in zip(inputs, references, strict=True):
        assert one.grad.dtype == torch.float32
        assert float((one.grad.double() - reference.grad).norm() / reference.grad.norm()) < 0.02


def test_the_path_follows_device_type_and_memory(monkeypatch):
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert choose_path(cpu, torch.float32, num_logits=1) is chunked
    assert choose_path(cpu, torch.bfloat16, num_logits=1) is plain
    with torch.autocast("cpu", torch.bfloat16):
        assert choose_path(cpu, torch.float32, num_logits=1) is plain
    monkeypatch.setattr(linear_cross_entropy, "device_memory", lambda device: 140e9)
    assert choose_path(cuda, torch.bfloat16, num_logits=4928 * 50265) is plain
    assert choose_path(cuda, torch.bfloat16, num_logits=4 * 4928 * 50265) is chunked_on_device
    limit = int(140e9 / 16 / PLAIN_BYTES)
    assert choose_path(cuda, torch.bfloat16, num_logits=limit) is plain
    assert choose_path(cuda, torch.bfloat16, num_logits=limit + 1) is chunked_on_device
