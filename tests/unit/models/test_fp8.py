"""Products in fp8: close to those of bf16, exact in what stays in bf16, and refused where there are none."""

import pytest
import torch

from roberta_plugin.models import fp8
from roberta_plugin.models.fp8 import Fp8Linear, check_device, multiply, quantized
from tests.fake_cuda import Watch, fake_cuda, moved
from tests.refusals import refused
from tests.tiny_models import gathered, make_batch, our_model
from tests.unit.models.test_gpu_steps import make_sample, masked_lm_criterion

SIZES = {"encoder_embed_dim": 64, "encoder_ffn_embed_dim": 96, "encoder_layers": 3}


@pytest.fixture
def multiplies():
    """Where torch multiplies so on a CPU, too."""
    try:
        multiply(torch.ones(16, 16), torch.ones(16, 16))
    except RuntimeError:
        pytest.skip(f"torch {torch.__version__} has no products in fp8 with scales for rows on a CPU; 2.13 has")


def relative(found, expected):
    difference = found.detach().double() - expected.detach().double()
    return float(difference.norm() / expected.detach().double().norm())


def test_rows_of_any_size_keep_three_bits_and_zeros_stay():
    torch.manual_seed(0)
    x = torch.randn(5, 64) * 10.0 ** torch.arange(-6, 4, 2)[:, None]
    x[4] = 0.0
    numbers, scales = quantized(x)
    assert numbers.dtype == torch.float8_e4m3fn and scales.shape == (5, 1)
    back = numbers.float() * scales
    assert relative(back[:4], x[:4]) < 0.03 and torch.equal(back[4], x[4])
    assert all(relative(back[row], x[row]) < 0.035 for row in range(4))  # three bits: 2.6 % in the mean, 6.25 % at most


def test_a_product_and_its_gradients_are_those_of_float64_within_the_rounding(multiplies):
    torch.manual_seed(0)
    layer = Fp8Linear(64, 48).bfloat16()
    x = torch.randn(3, 7, 64).bfloat16().requires_grad_()
    upstream = torch.randn(3, 7, 48).bfloat16()
    found = [layer(x), *torch.autograd.grad(layer(x), (x, layer.weight, layer.bias), upstream)]
    wide = [each.detach().double().requires_grad_() for each in (x, layer.weight, layer.bias)]
    output = torch.nn.functional.linear(*wide)
    expected = [output, *torch.autograd.grad(output, wide, upstream.double())]
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours.dtype == torch.bfloat16 and ours.shape == theirs.shape
        assert relative(ours, theirs) < (0.05 if number < 2 else 0.01), "gradients of parameters are in bf16"
    assert relative(multiply(x[0], layer.weight), x[0].double() @ layer.weight.double().t()) > 0.003, "this is bf16"


def test_all_layers_but_the_last_and_no_head_train_in_fp8_and_names_are_the_same():
    model, plain = our_model(**SIZES, fp8_products=True), our_model(**SIZES)
    names = {name for name, module in model.named_modules() if type(module) is Fp8Linear}
    in_layer = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj", "fc1", "fc2")
    assert names == {f"encoder.sentence_encoder.layers.{n}.{part}" for n in (0, 1) for part in in_layer}
    assert model.state_dict().keys() == plain.state_dict().keys()
    shared = our_model(**SIZES, fp8_products=True, share_layers="all")
    assert not [module for module in shared.modules() if type(module) is Fp8Linear]


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.usefixtures("graphs_as_they_are")
def test_a_step_is_close_to_that_in_bf16_and_answers_are_equal(multiplies, is_compiled):
    """Compiled, with one such layer and the last: to compile each takes seconds."""
    torch._dynamo.reset()
    tokens, masked, targets = make_batch()
    found = []
    sizes = {**SIZES, "encoder_layers": 2} if is_compiled else SIZES
    for is_fp8 in (False, True):
        model = our_model(**sizes, fp8_products=is_fp8).bfloat16()
        if is_compiled and is_fp8:
            model.compile_parts(backend="aot_eager")
        loss = model(tokens, predicted=gathered(masked, targets))[0]
        gradient = torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(model.parameters()))])
        with torch.no_grad():
            found.append((loss.detach(), gradient, model.eval()(tokens)[0]))
    (loss, gradient, answers), (of_fp8, other, same) = found
    assert 0 < abs(float(of_fp8 / loss) - 1) < 0.05 and 0 < relative(other, gradient) < 0.25
    assert torch.equal(answers, same)
    assert not is_compiled or not model.compiled.has_given_up


def test_on_a_gpu_a_step_has_such_products_and_never_waits():
    model, sample = our_model(**SIZES, fp8_products=True), make_sample("packed")
    with fake_cuda() as mode:
        model, sample = moved(model, mode, torch.bfloat16).train(), moved(sample, mode)
        with Watch() as watch:
            masked_lm_criterion()(model, sample)[0].backward()
    assert watch.counts["_scaled_mm"] == 2 * 2 * 4, "forward and backward of joined projections, output, fc1 and fc2"


def test_what_the_machine_or_the_model_lacks_is_one_sentence(monkeypatch, caplog):
    refused("to be multiples of 16, and 40 is none", our_model, fp8_products=True, encoder_embed_dim=64)
    model, cuda = our_model(**SIZES, fp8_products=True), torch.device("cuda")
    refused("needs an H100 or a newer GPU, and this training is on 'cpu': leave it out", model.set_epoch, 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    refused(
        "9.0 .H100. or more, and this one has 8.0: leave it out", check_device, cuda, torch.bfloat16, is_compiled=True
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    refused(
        "goes with --bf16, and the weights are in float32: add --bf16",
        check_device,
        cuda,
        torch.float32,
        is_compiled=True,
    )
    for is_compiled in (True, False):
        check_device(cuda, torch.bfloat16, is_compiled=is_compiled)
    assert caplog.text.count("more time than the products save. Add --compile-layers.") == 1
    assert fp8.OPTION == "--fp8-products"
