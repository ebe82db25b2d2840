"""GELU after a linear layer: Triton's kernels by its interpreter and its compiler, and when they are used."""

import importlib.util
import logging
import os
import subprocess
import sys
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F

from roberta_plugin.models import gelu
from roberta_plugin.models.cpu import Linear
from tests.conftest import REPOSITORY
from tests.fake_cuda import Watch, fake_cuda, moved
from tests.tiny_models import our_model
from tests.unit.models.test_gpu_steps import SIZES, make_sample, train

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs the package triton")
STEP = torch.finfo(torch.bfloat16).eps

PARITY = """
import torch, torch.nn.functional as F
from roberta_plugin.models.gelu_kernels import backward, forward

torch.manual_seed(0)
for dtype in (torch.bfloat16, torch.float16):
    for rows, columns in ((1, 16), (300, 144), (128, 256)):
        x, bias, gradient = (torch.randn(shape).mul(2).to(dtype) for shape in ((rows, columns), columns, (rows, columns)))
        summed = (x.double() + bias.double()).requires_grad_()
        expected = F.gelu(summed)
        expected.backward(gradient.double())
        of_x, sums = backward(gradient, x, bias)
        near = {"rtol": torch.finfo(dtype).eps, "atol": 1e-4}  # the interpreter cuts off where a GPU rounds
        torch.testing.assert_close(forward(x, bias).double(), expected.detach(), **near)
        torch.testing.assert_close(of_x.double(), summed.grad, **near)
        torch.testing.assert_close(sums.sum(0).double(), summed.grad.sum(0), rtol=1e-5, atol=1e-4)
        assert sums.shape == (-(-rows // 128), columns)
"""


@needs_triton
def test_kernels_compute_gelu_its_derivative_and_the_gradient_of_the_bias(tmp_path):
    """Against fp64; by Triton's interpreter, which is chosen before its import."""
    variables = {"TRITON_INTERPRET": "1", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", PARITY], env={**os.environ, **variables}, check=True, timeout=300)


@needs_triton
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("half", ["bf16", "fp16"])
def test_kernels_compile_for_an_a100_and_an_h100(capability, half, monkeypatch, tmp_path):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from roberta_plugin.models import gelu_kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for kernel in (gelu_kernels.forward_kernel, gelu_kernels.backward_kernel):
        types = {name: f"*{half}" for name in ("gradient", "x", "bias", "output", "of_x")} | {"sums": "*fp32"}
        types |= {"num_rows": "i32", "num_columns": "i32"}
        signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
        aligned = {
            (place,): [["tt.divisibility", 16]]
            for place, name in enumerate(kernel.arg_names)
            if signature[name] not in ("constexpr", "i32") or name == "num_columns"
        }
        source = ASTSource(kernel, signature, constexprs=gelu_kernels.SIZES, attrs=aligned)
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32))
        assert made.asm["cubin"] and "ld.global.v4" in made.asm["ptx"], "numbers are read one by one"


def by_torch(monkeypatch):
    """Let torch's operators do what the kernels do."""

    def gelu_of_sum_backward(gradient, x, bias):
        with torch.enable_grad():
            summed = (x.float() + bias.float()).requires_grad_()
            (of_x,) = torch.autograd.grad(F.gelu(summed), summed, gradient.float())
        return of_x.to(x.dtype), torch.stack([part.sum(0) for part in of_x.split(128)])

    monkeypatch.setattr(gelu, "gelu_of_sum", lambda x, bias: F.gelu(x.float() + bias.float()).to(x.dtype))
    monkeypatch.setattr(gelu, "gelu_of_sum_backward", gelu_of_sum_backward)


@pytest.mark.parametrize("bias_dtype", [torch.bfloat16, torch.float32], ids=["bf16", "autocast"])
def test_gradients_are_those_of_gelu_after_the_linear_layer(monkeypatch, bias_dtype):
    by_torch(monkeypatch)
    torch.manual_seed(0)
    x, bias = torch.randn(3, 70, 32).bfloat16(), torch.randn(32).to(bias_dtype)
    results = []
    for compute in (gelu._Gelu.apply, lambda x, bias: F.gelu(x.double() + bias.double())):
        inputs = [value.clone().requires_grad_() for value in (x, bias)]
        output = compute(*inputs)
        output.double().square().sum().backward()
        results.append([output.detach(), *(value.grad for value in inputs)])
        assert [value.grad.dtype for value in inputs] == [torch.bfloat16, bias_dtype]
    for found, expected in zip(*results, strict=True):
        error = (found.double() - expected.double()).abs().max()
        assert error <= 2 * STEP * expected.double().abs().max()


@pytest.mark.parametrize("precision", ["bf16", "amp"])
def test_a_step_on_a_gpu_takes_one_kernel_for_the_derivative_and_never_waits(monkeypatch, precision):
    counts = {}
    for least in (gelu.LEAST, 0):
        monkeypatch.setattr(gelu, "LEAST", least)
        model, sample = our_model(**SIZES, dropout=0.1, attention_dropout=0.1), make_sample("packed")
        with fake_cuda() as mode:
            counts[least] = train(mode, model, sample, precision)
    plain, joined = counts.values()
    assert plain["gelu"] == joined["gelu"] == plain["gelu_backward"] == joined["gelu_backward"] == 3  # with the head's
    assert joined["addmm"] == plain["addmm"] - 2, "a bias is added twice"
    assert joined["sum"] == plain["sum"]


@pytest.mark.parametrize(("change", "can"), [
    ("", True), ("compiled", False), ("no gradient", False), ("frozen", False), ("hook", False), ("adapter", False),
    ("no bias", False), ("odd columns", False), ("small", False), ("fp32", False), ("no triton", False),
])  # fmt: skip
def test_kernels_serve_large_trainings_in_half_precision(monkeypatch, change, can):
    monkeypatch.setattr(gelu, "LEAST", 2**30 if change == "small" else 0)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: change == "compiled")
    linear = Linear(32, 40 if change == "odd columns" else 48, bias=change != "no bias")
    if change == "adapter":
        linear.adapter = torch.nn.Linear(32, 48)
    if change == "hook":
        linear.register_forward_hook(lambda *_: None)
    with fake_cuda() as mode:
        dtype = torch.float32 if change == "fp32" else torch.bfloat16
        linear = moved(linear, mode, dtype).requires_grad_(change != "frozen")
        x = torch.empty(2, 5, 32, dtype=dtype, device="cuda", requires_grad=True)
        is_served = patch.object(gelu, "is_served", lambda *_: change != "no triton")
        with is_served, torch.set_grad_enabled(change != "no gradient"), Watch() as watch:
            assert gelu.can_join(linear, x) is can
            assert gelu.activated(linear, x, F.gelu).shape == (2, 5, linear.out_features)
    assert ("addmm" not in watch.counts) is (can or change == "no bias")


@pytest.mark.parametrize(("found", "words"), [
    (lambda *_: False, ""),
    (lambda *_: True, "kernels of GELU differ from torch's"),
    (RuntimeError("Failed to find C compiler.\nPlease specify one."), "(RuntimeError: Failed to find C compiler.)"),
])  # fmt: skip
def test_kernels_that_fail_a_trial_are_left_out_after_one_line(monkeypatch, caplog, found, words):
    def differ(*arguments):
        if isinstance(found, Exception):
            raise found
        return found(*arguments)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(gelu, "differ", differ)
    gelu.is_served.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert gelu.is_served(torch.device("cpu"), torch.bfloat16) is (not words)
    gelu.is_served.cache_clear()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == bool(words) and all(words in line for line in lines)


def test_the_trial_knows_right_numbers_from_wrong_ones(monkeypatch):
    by_torch(monkeypatch)
    assert not gelu.differ(torch.device("cpu"), torch.bfloat16)
    right = gelu.gelu_of_sum_backward
    monkeypatch.setattr(gelu, "gelu_of_sum_backward", lambda *values: (right(*values)[0], right(*values)[1] * 1.01))
    assert gelu.differ(torch.device("cpu"), torch.bfloat16)
