"""Faster steps on a CPU: products through oneDNN against float64, and dropout that keeps the expectation."""

import os

import pytest
import torch
import torch.nn.functional as F

from roberta_plugin.models import cpu as cpu_linear
from roberta_plugin.models.cpu import (
    SHAPES_KEPT,
    Dropout,
    Linear,
    draw_words,
    dropout,
    has_fast_bf16,
    has_onednn,
    keep_fewer_shapes,
    kept,
    linear,
    num_padded,
    onednn_linear,
    plain_linear,
    rounds,
    serves,
)
from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.tiny_corpus import environment

pytestmark = pytest.mark.skipif(not has_onednn(), reason="this torch has no oneDNN")


def layouts(matrix):
    """The same matrix in every layout that a caller may bring."""
    wide = torch.zeros(matrix.size(0), 3 * matrix.size(1))
    wide[:, matrix.size(1) : 2 * matrix.size(1)] = matrix
    yield matrix.contiguous()
    yield matrix.t().contiguous().t()
    yield wide[:, matrix.size(1) : 2 * matrix.size(1)]


@pytest.mark.parametrize("library", ["oneDNN", "MKL", "torch"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (17, 5, 9), (64, 32, 48)])
def test_products_are_right_in_any_layout_and_library(shape, library, monkeypatch):
    monkeypatch.setattr(cpu_linear, "has_fast_mkl", lambda: library == "MKL")
    multiply = onednn_linear if library == "oneDNN" else plain_linear
    m, k, n = shape
    a, b, bias = torch.randn(m, k), torch.randn(n, k), torch.randn(n)
    expected = a.double() @ b.double().t()
    for left in layouts(a):
        for right in layouts(b):
            torch.testing.assert_close(multiply(left, right).double(), expected, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(multiply(left, right, bias).double(), expected + bias, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("vendor", ["GenuineIntel", "AuthenticAMD"])
def test_mkl_serves_intels_processors(vendor, monkeypatch):
    words = {"vendor_id": {"vendor_id", ":", vendor}}
    monkeypatch.setattr(cpu_linear, "processor_words", lambda key: words.get(key, set()))
    is_there = torch.backends.mkl.is_available()
    assert cpu_linear.has_fast_mkl.__wrapped__() == (is_there and vendor == "GenuineIntel")


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 5)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_values_and_derivatives_are_those_of_linear(shape, with_bias):
    x, weight = torch.randn(*shape, 6, requires_grad=True), torch.randn(8, 6, requires_grad=True)
    bias = torch.randn(8, requires_grad=True) if with_bias else None
    found = linear(x, weight, bias)
    inputs = [tensor for tensor in (x, weight, bias) if tensor is not None]
    references = [tensor.detach().double().requires_grad_() for tensor in inputs]
    expected = F.linear(*references)
    assert found.shape == (*shape, 8)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
    factors = torch.randn_like(found)
    (found * factors).sum().backward()
    (expected * factors).sum().backward()
    for tensor, reference in zip(inputs, references, strict=True):
        torch.testing.assert_close(tensor.grad.double(), reference.grad, atol=1e-5, rtol=1e-5)


def test_frozen_inputs_get_no_gradient():
    layer = Linear(4, 3)
    layer.weight.requires_grad_(False)
    layer(torch.randn(2, 4)).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is not None


def test_what_it_does_not_serve_takes_torchs_own_way():
    layer = Linear(4, 3)
    assert layer(torch.zeros(0, 4)).shape == (0, 3)
    assert layer.double()(torch.randn(2, 4, dtype=torch.float64)).dtype == torch.float64
    assert not serves(torch.zeros(2, 2, dtype=torch.bfloat16))
    assert not serves(torch.zeros(2, 2, device="meta"))
    assert serves(torch.zeros(2, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert Linear(4, 3)(torch.randn(2, 4)).dtype == torch.bfloat16


@pytest.fixture
def may_round():
    """As --matmul-precision medium; where the processor multiplies bf16."""
    if not has_fast_bf16():
        pytest.skip("this processor has neither AVX512-BF16 nor AMX")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


def test_products_in_bf16_round_no_more_than_their_factors_and_results(may_round):
    """The gradient of the bias is no product: it stays exact."""
    x, weight, bias = (torch.randn(shape, requires_grad=True) for shape in ((33, 256), (96, 256), (96,)))
    references = [tensor.detach().double().requires_grad_() for tensor in (x, weight, bias)]
    found, expected = linear(x, weight, bias), F.linear(*references)
    factors = torch.randn_like(found)
    (found * factors).sum().backward()
    (expected * factors).sum().backward()
    assert found.dtype == x.grad.dtype == weight.grad.dtype == torch.float32
    pairs = [(found, expected), (x.grad, references[0].grad), (weight.grad, references[1].grad)]
    for one, reference in pairs:
        error = float((one.double() - reference).norm() / reference.norm())
        assert 1e-4 < error < 2.0**-8, "either not in bf16, or less exact than bf16"
    torch.testing.assert_close(bias.grad.double(), references[2].grad, atol=1e-5, rtol=1e-5)


def test_products_in_bf16_have_few_different_numbers_of_rows(may_round, monkeypatch):
    """Each is a shape for which oneDNN generates code, in the forward pass and for both gradients."""
    shapes, numbers = set(), range(1, 1025, 13)

    def multiply(a, b, bias=None):
        shapes.add((tuple(a.shape), tuple(b.shape)))
        return onednn_linear(a, b, bias)

    monkeypatch.setattr(cpu_linear, "plain_linear", multiply)
    for rows in numbers:
        x, weight = torch.randn(rows, 32, requires_grad=True), torch.randn(16, 32, requires_grad=True)
        linear(x, weight).sum().backward()
        torch.testing.assert_close(x.grad, weight.detach().sum(dim=0).expand(rows, -1), atol=0.1, rtol=0.02)
        torch.testing.assert_close(weight.grad, x.detach().sum(dim=0).expand(16, -1), atol=0.5, rtol=0.02)
    assert len(shapes) == 3 * len({num_padded(rows) for rows in numbers}) < 3 * len(numbers) / 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_rows_have_a_product_of_no_rows(may_round, dtype):
    weight = torch.randn(16, 32, requires_grad=True)
    found = linear(torch.zeros(3, 0, 32, dtype=dtype), weight)
    found.sum().backward()
    assert found.shape == (3, 0, 16) and not weight.grad.any()


@pytest.mark.parametrize(("rows", "expected"), [(1, 64), (64, 64), (65, 128), (1025, 1152), (1152, 1152), (4000, 4096)])
def test_rows_are_padded_to_multiples_that_grow(rows, expected):
    assert num_padded(rows) == expected


def test_between_two_products_values_and_gradients_stay_in_bf16(may_round):
    """The first layer's result, and the gradient that comes back to it; parameters and residuals have fp32 ones."""
    first, second = Linear(256, 96, keeps_bf16=True), Linear(96, 64)
    x = torch.randn(3, 11, 256, requires_grad=True)
    params = [*first.parameters(), *second.parameters()]
    references = [tensor.detach().double().requires_grad_() for tensor in (x, *params)]
    inner = first(x)
    inner.retain_grad()
    found = second(F.gelu(inner))
    expected = F.linear(F.gelu(F.linear(*references[:3])), *references[3:])
    factors = torch.randn_like(found)
    (found * factors).sum().backward()
    (expected * factors).sum().backward()
    assert inner.dtype == inner.grad.dtype == torch.bfloat16
    assert found.dtype == torch.float32
    results, wanted = (found, x.grad, *(p.grad for p in params)), (expected, *(r.grad for r in references))
    for one, reference in zip(results, wanted, strict=True):
        assert one.dtype == torch.float32
        assert float((one.double() - reference).norm() / reference.norm()) < 2.0**-7


def test_fp32_is_the_default_and_what_a_processor_without_bf16_does(monkeypatch):
    x = torch.randn(2, 8, requires_grad=True)
    assert Linear(8, 4, keeps_bf16=True)(x).dtype == torch.float32
    assert torch.get_float32_matmul_precision() == "highest"
    assert not rounds()
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    monkeypatch.setattr(cpu_linear, "has_fast_bf16", lambda: False)
    assert not rounds()
    monkeypatch.setattr(cpu_linear, "has_fast_bf16", lambda: True)
    assert rounds()


CACHES = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
GROWTH = """
import random
import sys
import torch
from roberta_plugin.models.cpu import has_fast_bf16, keep_fewer_shapes, onednn_linear

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

if sys.argv[1] == "training":
    keep_fewer_shapes()
torch.set_num_threads(1)
random.seed(0)
dtype = torch.bfloat16 if has_fast_bf16() else torch.float32
weight = torch.randn(512, 256, dtype=dtype)
for number in range(1201):
    onednn_linear(torch.ones(random.randrange(300, 1300), 256, dtype=dtype), weight)
    before = resident() if number == 400 else before if number > 400 else 0
print((resident() - before) >> 20)
"""


@pytest.mark.parametrize(("use", "grows"), [("training", False), ("answers", True)])
def test_memory_of_a_training_stops_growing_with_new_numbers_of_rows(use, grows):
    """800 more shapes after 400: 14 to 37 MB, and 250 with the caches' own sizes, which a process reads once."""
    variables = {name: value for name, value in environment().items() if name not in CACHES}
    done = run_python(GROWTH, use, cwd=REPOSITORY, environment=variables)
    assert done.returncode == 0, done.stderr
    assert SHAPES_KEPT < 400
    assert (int(done.stdout) > 120) == grows, f"grew by {done.stdout} MB"


def test_a_size_of_the_user_s_stays(monkeypatch):
    monkeypatch.setenv(CACHES[0], "1024")
    monkeypatch.setenv(CACHES[1], "0")  # so that it is as before at the end
    del os.environ[CACHES[1]]
    keep_fewer_shapes()
    assert [os.environ[name] for name in CACHES] == ["1024", str(SHAPES_KEPT)]


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
