"""Answers in bf16 and int8: near those of fp32, independent of their batch, and refused where the machine has none."""

import os
import subprocess
import sys

import pytest
import torch

from roberta_plugin.models import precision
from roberta_plugin.models.attention import side_by_side
from roberta_plugin.models.cpu import Bf16Product, Int8Product
from roberta_plugin.models.precision import available, check_precision, set_precision
from tests.refusals import refused
from tests.tiny_models import MODERN, SWITCHED, fairseq_model, our_model

CPU = torch.device("cpu")
# Largest difference of features, which the last norm gives a variance of 1; bf16 has 8 bits, int8 7 and a sign.
TOLERANCES = {"bf16": 0.06, "int8": 0.15}
LOWER = [
    pytest.param(name, marks=pytest.mark.skipif(name not in available(CPU), reason="not on this processor"))
    for name in TOLERANCES
]


def tokens_of(*lengths: int) -> torch.Tensor:
    tokens = torch.ones(len(lengths), max(lengths), dtype=torch.int64)
    for row, length in enumerate(lengths):
        tokens[row, :length] = torch.randint(4, 70, (length,))
        tokens[row, 0] = 0
    return tokens


@pytest.fixture(
    params=[{}, {"encoder_normalize_before": True}, MODERN, SWITCHED],
    ids=["norm-after", "norm-before", "modern", "switched"],
)
def model(request):
    made = our_model(**request.param)
    made.register_classification_head("task", num_classes=3)
    return made.eval()


@pytest.mark.parametrize("name", LOWER)
def test_features_classes_and_tokens_are_near_those_of_fp32(model, name):
    tokens = tokens_of(12, 7, 1)
    is_token = tokens.ne(1)
    calls = {"features": {"features_only": True}, "classes": {"head": "task"}, "tokens": {}}
    with torch.inference_mode():
        expected = {what: model(tokens, **call)[0] for what, call in calls.items()}
        set_precision(model, name, CPU)
        found = {what: model(tokens, **call)[0] for what, call in calls.items()}
    for what, values in found.items():
        assert values.dtype == torch.float32
        difference, size = values - expected[what], expected[what].std()
        difference = difference if what == "classes" else difference[is_token]
        assert 0 < difference.abs().max() < TOLERANCES[name] * max(1, size), what


@pytest.mark.parametrize("name", LOWER)
def test_the_features_of_a_position_depend_on_neither_the_batch_nor_the_positions_asked_for(model, name):
    tokens, positions = tokens_of(9, 9, 5), torch.tensor([[0, 3], [5, 0], [4, 1]])
    set_precision(model, name, CPU)
    head = model.encoder.lm_head
    with torch.inference_mode():
        together, _ = model(tokens, features_only=True)
        alone, _ = model(tokens[2:, :5], features_only=True)
        some = model.position_features(tokens, positions)
        assert head(torch.empty(0, head.dense.in_features)).shape == (0, len(head.bias))
    assert (together[2:, :5] - alone).abs().max() < 0.02  # a scale of the whole batch makes 0.1
    assert torch.allclose(some, together.gather(1, positions[..., None].expand(some.shape)), atol=0.02)


@pytest.mark.parametrize("name", LOWER)
def test_it_stays_as_it_is_and_says_so(model, name):
    set_precision(model, name, CPU)
    model.to("cpu").float().eval()
    for change in (model.half, model.double, lambda: model.to("meta")):
        refused(r"lower precision stays on the CPU as it is: open it again", change)


@pytest.mark.skipif(len(available(CPU)) == 1, reason="fp32 alone on this processor")
def test_it_is_changed_once_and_shared_layers_stay_shared():
    model = our_model(encoder_layers=4, share_layers="groups:2")
    set_precision(model, available(CPU)[-1], CPU)
    assert len(set(map(id, model.encoder.sentence_encoder.layers))) == 2
    refused("or one that was changed before: give fp32", set_precision, model, available(CPU)[-1], CPU)


@pytest.mark.skipif("int8" not in available(CPU), reason="not on this processor")
def test_an_int8_product_is_exact_in_its_integers():
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(24, 40, generator=generator), torch.randn(6, 40, generator=generator)
    x[2] = 0.0
    x[3] *= 1000  # an outlier leaves the other rows alone
    bias = torch.randn(24, generator=generator)
    w_scale = weight.abs().amax(1, keepdim=True) / 127
    x_scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
    sums = (x / x_scale).round().double() @ (weight / w_scale).round().double().t()
    expected = (sums * x_scale.double() * w_scale.double().t() + bias).float()
    assert torch.allclose(Int8Product(weight, bias)(Int8Product.read(x)), expected, rtol=1e-5, atol=1e-5)
    assert (expected - (x @ weight.t() + bias)).abs()[[0, 1, 4, 5]].max() < 0.3


@pytest.mark.skipif("bf16" not in available(CPU), reason="not on this processor")
def test_a_bf16_product_rounds_its_factors_and_its_result():
    generator = torch.Generator().manual_seed(0)
    weight, x, bias = torch.randn(24, 40, generator=generator), torch.randn(6, 40, generator=generator), torch.zeros(24)
    expected = x.bfloat16().double() @ weight.bfloat16().double().t()
    assert torch.allclose(Bf16Product(weight, bias)(x.bfloat16()).double(), expected, rtol=2**-8, atol=1e-6)


def test_fp32_keeps_its_bits_and_copies_no_weights(model):
    tokens = tokens_of(12, 7)
    with torch.inference_mode():
        expected, _ = model(tokens, features_only=True)
    set_precision(model, "fp32", CPU)
    with torch.inference_mode():
        found, _ = model(tokens, features_only=True)
    assert torch.equal(found, expected)
    attention = model.encoder.sentence_encoder.layers[0].self_attn
    size = attention.q_proj.weight.nbytes
    assert attention.k_proj.weight.data_ptr() - attention.q_proj.weight.data_ptr() == size
    weights = [getattr(attention, name).weight for name in ("q_proj", "k_proj", "v_proj")]
    with torch.inference_mode():
        assert side_by_side(weights).data_ptr() == weights[0].data_ptr(), "the weights are copied at each call"
        assert torch.equal(side_by_side(weights), torch.cat(weights))
        assert torch.equal(side_by_side(weights[::-1]), torch.cat(weights[::-1]))  # not in this order in memory
    model(tokens, features_only=True)[0].sum().backward()  # gradients still reach all three
    assert all(projection.weight.grad.any() for projection in (attention.q_proj, attention.k_proj, attention.v_proj))


def test_a_processor_without_the_instructions_is_told_the_nearest_it_has(monkeypatch):
    monkeypatch.setattr(precision, "has_int8", lambda: False)
    monkeypatch.setattr(precision, "has_fast_bf16", lambda: True)
    refused(
        r"int8 needs a processor with avx512_vnni .* does not have them, or .*: give bf16\.",
        check_precision,
        "int8",
        CPU,
    )
    monkeypatch.setattr(precision, "has_fast_bf16", lambda: False)
    refused(r"bf16 needs a processor with avx512_bf16 .*: give fp32\.", check_precision, "bf16", CPU)
    cuda = torch.device("cuda")
    refused(r"int8 is for CPUs, and the device is cuda: give bf16\.", check_precision, "int8", cuda)
    refused("one of fp32, bf16, int8, got 'fp16'", check_precision, "fp16", CPU)


@pytest.mark.skipif(len(available(CPU)) == 1, reason="fp32 alone on this processor")
def test_what_onednn_may_not_use_is_not_there():
    """Under such a limit int8 answered with sums cut off at 16 bits, and bf16 with a traceback."""
    code = "import torch\nfrom roberta_plugin.models.precision import available\nprint(available(torch.device('cpu')))"
    env = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "('fp32',)\n"


@pytest.mark.skipif(len(available(CPU)) == 1, reason="fp32 alone on this processor")
def test_a_model_of_fairseq_is_refused_in_a_sentence():
    message = r"is for models of this plugin .* import it by `roberta import`"
    refused(message, set_precision, fairseq_model(), available(CPU)[-1], CPU)
