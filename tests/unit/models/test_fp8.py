"""Products in FP8 against rounding written out in float64, their derivatives, and where they are made."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from roberta_plugin.models import fp8
from roberta_plugin.models.cpu.linear import Linear
from roberta_plugin.models.fp8 import OF_GRADIENTS, OF_VALUES, Fp8Linear, check_device, fp8_linear, rounded
from tests.tiny_models import gathered, make_batch, our_model

# Bits of the mantissa, smallest exponent of a normal number, largest value: Micikevicius et al. 2022, table 1.
FORMATS = {OF_VALUES: (3, -6, 448.0), OF_GRADIENTS: (2, -14, 57344.0)}
SIZES = {"encoder_embed_dim": 32, "encoder_ffn_embed_dim": 64, "encoder_attention_heads": 2}


def nearest(matrix, dtype):
    """The nearest values of the format, ties to even, after division by the scale; multiplied by it again (float64)."""
    bits, smallest, largest = FORMATS[dtype]
    matrix = matrix.detach().double().numpy()
    scale = np.abs(matrix).max() / largest
    values = matrix / scale
    exponents = np.maximum(np.floor(np.log2(np.maximum(np.abs(values), 1e-300))), smallest)
    steps = 2.0 ** (exponents - bits)
    return torch.from_numpy(np.round(values / steps) * steps * scale)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_values_are_the_nearest_of_the_format(dtype, size):
    matrix = size * torch.randn(50, 40) ** 3  # many orders of magnitude
    found = rounded(matrix, dtype)
    expected = nearest(matrix, dtype)
    assert found.values.dtype == dtype
    # a value in the middle between two of the format may go either way, since the division by the scale rounds
    distance = (found.values.double() * found.scale - expected).abs()
    assert (distance > 1e-6 * expected.abs().max()).double().mean() < 0.002
    assert found.values.double().abs().max() == FORMATS[dtype][2]
    assert rounded(torch.zeros(2, 2), dtype).values.double().abs().max() == 0


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")])
@pytest.mark.parametrize("where", ["x", "weight", "gradient"])
def test_what_is_not_finite_stays_visible(value, where):
    x, weight = torch.randn(16, 16, requires_grad=True), torch.randn(32, 16, requires_grad=True)
    gradient = torch.randn(16, 32)
    with torch.no_grad():
        {"x": x, "weight": weight, "gradient": gradient}[where][3, 5] = value
    output = fp8_linear(x, weight)
    output.backward(gradient)
    assert torch.isfinite(output).all() == (where == "gradient")
    assert not torch.isfinite(x.grad).all() or not torch.isfinite(weight.grad).all()


def reference(x, weight, bias, factors):
    """Result and derivatives in float64 of factors that are rounded as they should be."""
    x8, weight8, factors8 = nearest(x.flatten(0, -2), OF_VALUES), nearest(weight, OF_VALUES), None
    factors8 = nearest(factors.flatten(0, -2), OF_GRADIENTS)
    output = (x8 @ weight8.t()).view(*x.shape[:-1], -1)
    output = output if bias is None else output + bias.detach().double()
    return output, (factors8 @ weight8).view(x.shape), factors8.t() @ x8


@pytest.fixture(params=["in fp32", "by torch's operator"])
def way(request, monkeypatch):
    """Both ways to multiply; the operator of GPUs exists on a CPU as well."""
    if request.param == "by torch's operator":
        monkeypatch.setattr(fp8, "product", fp8.scaled_mm)


def assert_right(shape, *, with_bias, dtype, tolerance, device="cpu"):
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(*sizes).to(dtype) for sizes in ((*shape, 48), (32, 48), (32,)))
    inputs = [t.to(device).requires_grad_() for t in ((x, weight, bias) if with_bias else (x, weight))]
    factors = torch.randn(*shape, 32).to(dtype)
    output = fp8_linear(*inputs)
    output.backward(factors.to(device))
    expected, x_grad, weight_grad = reference(x, weight, bias if with_bias else None, factors)
    found = [output.detach(), inputs[0].grad, inputs[1].grad]
    for one, other in zip(found, [expected, x_grad, weight_grad], strict=True):
        assert one.dtype == dtype and one.shape == other.shape
        assert float((one.cpu().double() - other).norm()) <= tolerance * float(other.norm())
    if with_bias:
        torch.testing.assert_close(inputs[2].grad.cpu(), factors.flatten(0, -2).sum(0))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("shape", [(1,), (16,), (37,), (3, 7)])
def test_result_and_derivatives_are_those_of_the_rounded_factors(shape, with_bias):
    assert_right(shape, with_bias=with_bias, dtype=torch.float32, tolerance=3e-3)  # ties: see above
    assert_right(shape, with_bias=with_bias, dtype=torch.bfloat16, tolerance=6e-3)


@pytest.fixture
def fp8_gpu(gpu):
    """A device that multiplies in FP8, or a skip that says why."""
    try:
        check_device(torch.device(gpu))
    except ValueError as error:
        pytest.skip(str(error))
    return gpu


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(1,), (64,), (37,), (3, 7)])
def test_a_gpu_multiplies_the_same_values(shape, dtype, fp8_gpu):
    assert_right(shape, with_bias=True, dtype=dtype, tolerance=6e-3, device=fp8_gpu)


@pytest.mark.gpu
def test_a_gpu_compiles_the_products(fp8_gpu):
    """By inductor, as --compile-layers does; rows that have to be filled up to a multiple of 16, and others."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    layer = Fp8Linear(32, 48).to(fp8_gpu, torch.bfloat16)
    compiled = torch.compile(layer, fullgraph=True)
    for rows in (64, 37, 21, 48, 1):
        x = torch.randn(rows, 32, device=fp8_gpu, dtype=torch.bfloat16, requires_grad=True)
        factors, found = torch.randn(rows, 48, device=fp8_gpu, dtype=torch.bfloat16), []
        for function in (layer, compiled):
            output = function(x)
            found.append([output.detach(), *torch.autograd.grad(output, [x, layer.weight], factors)])
        for one, other in zip(*found, strict=True):
            assert float((one.double() - other.double()).norm()) <= 1e-2 * float(other.double().norm())
    torch._dynamo.reset()


def test_the_error_is_that_of_the_formats():
    """Of random factors: some per cent of the result, where bf16 has some thousandths."""
    x, weight = torch.randn(64, 256), torch.randn(96, 256)
    exact = F.linear(x.double(), weight.double())
    error = float((fp8_linear(x, weight).double() - exact).norm() / exact.norm())
    assert 0.01 < error < 0.05


def test_layers_round_in_training_only():
    torch.manual_seed(0)
    layer, plain = Fp8Linear(16, 32), Linear(16, 32)
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(5, 16)
    assert torch.equal(layer.eval()(x), plain(x))
    assert not torch.equal(layer.train()(x), plain(x))
    assert layer(torch.zeros(0, 16)).shape == (0, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    layer.weight.requires_grad_(False)
    layer(x).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_rounds_results_and_not_the_sums(dtype):
    """A sum of values up to 448 x 448 does not fit into fp16; divided by both scales it does."""
    torch.manual_seed(0)
    x, weight = torch.randn(20, 512, requires_grad=True), torch.randn(32, 512, requires_grad=True)
    plain = fp8_linear(x.detach().to(dtype), weight.detach().to(dtype))
    with torch.autocast("cpu", dtype=dtype):
        output = fp8_linear(x, weight)
        output.float().sum().backward()  # backward under autocast too
    assert output.isfinite().all() and x.grad.isfinite().all() and weight.grad.isfinite().all()
    assert torch.equal(output, plain)


def test_compiled_graphs_ask_nothing_that_older_torch_cannot_trace(monkeypatch):
    """torch.amp.is_autocast_available returns a bool from C++, which splits a graph before dynamo learned of it."""
    monkeypatch.delattr(torch.amp, "is_autocast_available")
    assert fp8_linear(torch.randn(3, 16), torch.randn(32, 16)).shape == (3, 32)


def train_25(**options):
    tokens, masked, targets = make_batch()
    model = our_model(**SIZES, **options).train()
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=3e-3), []
    for _ in range(25):
        loss, _ = model(tokens, predicted=gathered(masked, targets))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return model, losses


def test_a_model_learns_as_well_and_has_the_same_parameters():
    """25 updates on one batch."""
    (model, found), (plain, expected) = train_25(fp8_products=True), train_25()
    assert found[-1] < 0.6 * found[0]
    assert found != expected
    assert found == pytest.approx(expected, rel=0.1, abs=0.5)
    assert model.state_dict().keys() == plain.state_dict().keys()
    plain.load_state_dict(model.state_dict())
    tokens = make_batch()[0]
    assert torch.equal(plain.eval()(tokens)[0], model.eval()(tokens)[0])


def test_compiled_layers_compute_the_same():
    torch._dynamo.reset()
    losses = []
    for backend in (None, "aot_eager"):
        model = our_model(**SIZES, encoder_layers=2, fp8_products=True, attention_backend="sdpa").train()
        if backend:
            for layer in model.encoder.sentence_encoder.layers:
                layer.compile(backend=backend, fullgraph=True)
        tokens, masked, targets = make_batch((15, 15, 15))
        loss, _ = model(tokens, predicted=gathered(masked, targets), has_padding=False)
        loss.backward()
        losses.append([loss.item(), *(float(parameter.grad.norm()) for parameter in model.parameters())])
    torch._dynamo.reset()
    assert losses[0] == pytest.approx(losses[1], rel=1e-3, abs=1e-2)


def test_devices_without_fp8_are_refused_by_name(monkeypatch):
    check_device(torch.device("cpu"))
    with pytest.raises(ValueError, match="--fp8-products: FP8 on a device of type mps is not supported"):
        check_device(torch.device("mps"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100")
    with pytest.raises(ValueError, match=r"NVIDIA A100 has CUDA capability 8\.0 and cannot multiply in FP8; 8\.9 or"):
        check_device(torch.device("cuda:0"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    check_device(torch.device("cuda:0"))
    monkeypatch.setattr(torch.version, "hip", "6.0")
    with pytest.raises(ValueError, match=r"cuda \(ROCm\)"):
        check_device(torch.device("cuda:0"))
