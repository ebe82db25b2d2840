"""`cudnn` and `flash3` against the definition: on a CPU by stand-ins for the kernels, on a GPU by the kernels themselves."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch

from roberta_plugin.models import hopper_attention
from roberta_plugin.models.attention import BACKENDS, check_agreement, choose_backend
from roberta_plugin.models.attention_kernels import agrees_with_definition
from tests.flash_stand_in import cudnn_on_cpu, flash_on_cpu
from tests.parity.test_attention_backends import assert_same_with_gradients, definition, make_sequences, numbers_of
from tests.refusals import refused
from tests.tiny_models import make_batch, our_model
from tests.unit.models.test_encoder import packed_batch

NAMES = ("cudnn", "flash3")
SCHEMA = (
    "query key value attn_bias cum_seq_q cum_seq_k max_q max_k compute_log_sumexp dropout_p is_causal return_debug_mask "
    "scale"
)


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=None, causal=False
):
    """Of FlashAttention-3, by its names, by the stand-in for FlashAttention-2."""
    given = (q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, 0.0, causal, False)
    return torch.ops.aten._flash_attention_forward(*given, scale=softmax_scale)[0], None


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    package = ModuleType("flash_attn_interface")
    package.flash_attn_varlen_func, package.__spec__ = flash_attn_varlen_func, ModuleSpec(package.__name__, None)
    monkeypatch.setitem(sys.modules, package.__name__, package)
    with flash_on_cpu(), cudnn_on_cpu():
        yield


def test_the_operator_has_the_arguments_that_are_given_to_it():
    schema = torch.ops.aten._cudnn_attention_forward.default._schema
    assert [argument.name for argument in schema.arguments] == SCHEMA.split()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("q_lengths", "k_lengths"),
    [((5, 1, 30, 12), (5, 1, 30, 12)), ((2, 0, 7, 3), (9, 4, 31, 3)), ((48, 0, 0), (48, 0, 0))],
    ids=str,
)
def test_outputs_and_gradients_are_the_definitions(name, q_lengths, k_lengths):
    generator = torch.Generator().manual_seed(0)
    sizes = (sum(q_lengths), sum(k_lengths), sum(k_lengths))
    inputs = [torch.randn(1, 3, n, 16, generator=generator).bfloat16().requires_grad_() for n in sizes]
    expected, references = definition(*inputs, numbers_of(q_lengths)[:, None] == numbers_of(k_lengths))
    found = BACKENDS[name](*inputs, sequences=make_sequences(q_lengths, k_lengths), dropout_prob=0.0)
    assert_same_with_gradients(found, inputs, expected, references, tolerance=3e-2)


def test_dropout_reaches_cudnn_and_its_derivative():
    """With v = 1 the output is the sum of the kept weights / 0.875; backward drops what forward has dropped."""
    torch.manual_seed(0)
    q, k = (torch.randn(1, 8, 512, 16).bfloat16() for _ in range(2))
    v = torch.ones(1, 8, 512, 16).bfloat16().requires_grad_()
    output = BACKENDS["cudnn"](q, k, v, sequences=make_sequences([64] * 8, [64] * 8), dropout_prob=0.125)
    kept = output.detach()
    assert float(kept.mean()) == pytest.approx(1.0, abs=0.02) and float(kept.std()) > 0.03
    (gradient,) = torch.autograd.grad(output[..., 0].sum(), v)
    assert float(gradient[..., 0].sum()) == pytest.approx(float(output.detach()[..., 0].double().sum()), rel=1e-2)


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_with_other_numbers_is_refused_before_a_training(name, monkeypatch):
    monkeypatch.setattr(hopper_attention.PackedKernel, "assert_supported", lambda *_, **__: None)
    backend, device = BACKENDS[name], torch.device("cpu")
    check_agreement(backend, device, torch.bfloat16)
    model = our_model(attention_backend=name)
    assert model.prefers_packing(device, torch.bfloat16)
    run = type(backend).run
    monkeypatch.setattr(type(backend), "run", lambda self, q, k, v, **how: run(self, 2 * q, k, v, **how))
    refused(
        f"{name} computes wrong numbers on this GPU",
        model.prefers_packing,
        device,
        torch.bfloat16,
        error=RuntimeError,
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"attention_backend": "cudnn", "attention_dropout": 0.1},
            "in sixteenths, and 0.1 is not a multiple: give 0.125",
        ),
        ({"attention_backend": "flash3", "attention_dropout": 0.125}, "flash3 has no dropout, and .* 0.125: give 0"),
        ({"attention_backend": "cudnn", "attention_window": 8}, "cudnn has no local windows: leave --attention-window"),
    ],
)
def test_what_a_kernel_lacks_is_refused_before_a_model_is_built(options, said):
    refused(said, our_model, **options)


def test_what_a_machine_lacks_is_one_sentence(monkeypatch):
    options = {"dtype": torch.bfloat16, "dropout_prob": 0.0, "max_seqlen": 64}
    for name in NAMES:
        said = f"'{name}' needs a GPU, found device 'cpu'. Use --attention-backend auto."
        refused(said, choose_backend, name, device=torch.device("cpu"), is_packed=True, error=RuntimeError, **options)
        refused(said, our_model(attention_backend=name).set_epoch, 1)
        refused("does not serve padded batches", choose_backend, name, device=torch.device("cpu"), **options)
    cuda = torch.device("cuda")
    monkeypatch.setattr(hopper_attention, "capability", lambda _: (8, 0))
    refused(
        "9.0 .H100. or more, found 8.0", BACKENDS["flash3"].assert_supported, cuda, dropout_prob=0, error=RuntimeError
    )
    monkeypatch.delitem(sys.modules, "flash_attn_interface")
    said = "needs the package flash_attn_interface .FlashAttention-3."
    refused(said, BACKENDS["flash3"].assert_supported, cuda, dropout_prob=0, error=RuntimeError)
    q = torch.zeros(1, 2, 4, 264, dtype=torch.bfloat16)
    said = "at most 128 dimensions and a multiple of 8; found bfloat16 and 264"
    sequences = make_sequences([4], [4])
    refused(said, BACKENDS["cudnn"], q, q, q, dropout_prob=0.0, sequences=sequences, error=RuntimeError)


def test_answers_of_a_model_that_was_trained_with_it_come_from_any_machine():
    tokens = torch.tensor([[0, 5, 6, 7, 2]])
    ours, theirs = (our_model(attention_backend=name).eval() for name in ("cudnn", "auto"))
    torch.testing.assert_close(ours(tokens)[0], theirs(tokens)[0])


@pytest.mark.usefixtures("graphs_as_they_are")
def test_compiled_layers_end_and_begin_at_the_kernel(monkeypatch):
    monkeypatch.setattr(hopper_attention.PackedKernel, "assert_supported", lambda *_, **__: None)
    row, packing, predicted = packed_batch(*make_batch(), multiple=64)
    losses, gradients = [], []
    for is_compiled in (False, True):
        model = our_model(attention_backend="cudnn", encoder_embed_dim=64, encoder_layers=2).bfloat16()
        if is_compiled:
            model.compile_parts(backend="aot_eager")
        losses.append(model(row, predicted=predicted, packing=packing)[0])
        gradients.append(torch.autograd.grad(losses[-1], list(model.parameters())))
    assert not model.compiled.has_given_up
    torch.testing.assert_close(losses[1], losses[0], rtol=2e-2, atol=0)
    for found, expected in zip(gradients[1], gradients[0], strict=True):
        assert (found - expected).norm() <= 0.05 * expected.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_kernel_of_this_device_agrees_with_the_definition(name, dtype, gpu, monkeypatch):
    monkeypatch.delitem(sys.modules, "flash_attn_interface")
    device = torch.device(gpu)
    if device.type == "cuda":
        try:
            BACKENDS[name].assert_supported(device, dropout_prob=0.0)
        except RuntimeError as error:
            pytest.skip(str(error))
    elif name == "flash3":
        pytest.skip("needs a GPU and FlashAttention-3")
    assert agrees_with_definition(BACKENDS[name], device, dtype)
