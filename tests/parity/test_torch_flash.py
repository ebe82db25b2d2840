"""`torch_flash` against the definition: on a CPU by a stand-in for torch's kernel, on a GPU by the kernel itself."""

import pytest
import torch

from roberta_plugin.models import attention, attention_kernels
from roberta_plugin.models.attention import BACKENDS, choose_backend
from roberta_plugin.models.attention_kernels import Sequences, TorchFlashAttention, agrees_with_definition, pick
from tests.flash_stand_in import flash_on_cpu
from tests.parity.test_attention_backends import assert_same_with_gradients, definition, make_sequences, numbers_of
from tests.refusals import refused
from tests.tiny_models import our_model

SCHEMA = (
    "query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal return_debug_mask scale window_size_left "
    "window_size_right"
)
BACKWARD = "logsumexp cum_seq_q cum_seq_k max_q max_k dropout_p is_causal rng_state unused"


@pytest.fixture(autouse=True)
def kernel():
    with flash_on_cpu():
        yield


def test_the_operator_has_the_arguments_that_are_given_to_it():
    """torch calls it internal: a version that changes its order must be seen here."""
    schema = torch.ops.aten._flash_attention_forward.default._schema
    assert [argument.name for argument in schema.arguments][:13] == SCHEMA.split()
    backward = [argument.name for argument in torch.ops.aten._flash_attention_backward.default._schema.arguments]
    assert backward[5:14] == BACKWARD.split()


@pytest.mark.parametrize("dim", [16, 12], ids=["16", "12, padded to 16"])
@pytest.mark.parametrize(
    ("q_lengths", "k_lengths"),
    [((5, 1, 30, 12), (5, 1, 30, 12)), ((2, 0, 7, 3), (9, 4, 31, 3)), ((48, 0, 0), (48, 0, 0))],
    ids=str,
)
def test_outputs_and_gradients_are_the_definitions(q_lengths, k_lengths, dim):
    generator = torch.Generator().manual_seed(0)
    sizes = (sum(q_lengths), sum(k_lengths), sum(k_lengths))
    inputs = [torch.randn(1, 3, n, dim, generator=generator).bfloat16().requires_grad_() for n in sizes]
    expected, references = definition(*inputs, numbers_of(q_lengths)[:, None] == numbers_of(k_lengths))
    found = TorchFlashAttention()(*inputs, sequences=make_sequences(q_lengths, k_lengths), dropout_prob=0.0)
    assert found.shape == inputs[0].shape
    assert_same_with_gradients(found, inputs, expected, references, tolerance=3e-2)


@pytest.mark.parametrize("attending", ["all", "some"])
def test_local_windows_are_the_definitions(attending):
    """Single positions have windows around their own places; those at the end of a row belong to no sequence."""
    lengths, generator = (9, 4, 31, 3), torch.Generator().manual_seed(0)
    inputs = [torch.randn(1, 3, 47, 16, generator=generator).bfloat16().requires_grad_() for _ in range(3)]
    of = numbers_of(lengths)
    may_attend = (of[:, None] == of) & ((torch.arange(47)[:, None] - torch.arange(47)).abs() <= 3)
    expected, references = definition(*inputs, may_attend)
    (q, k, v), q_lengths, options = inputs, lengths, {}
    if attending == "some":
        places, q_lengths = torch.tensor([[0, 3, 8, 10, 13, 30, 43, 0, 0]]), (3, 1, 3, 0)
        q, expected, options = pick(q, places), pick(expected, places)[:, :, :7], {"places": places}
    sequences = make_sequences(q_lengths, lengths)
    found = TorchFlashAttention()(q, k, v, sequences=sequences, reach=3, dropout_prob=0.0, **options)
    assert found.shape == q.shape
    assert_same_with_gradients(found[:, :, : expected.size(2)], inputs, expected, references, tolerance=3e-2)


def test_dropout_reaches_the_kernel_and_its_derivative():
    """With v = 1 the output is the sum of the kept weights / 0.75; backward drops what forward has dropped."""
    torch.manual_seed(0)
    q, k = (torch.randn(1, 8, 512, 16).bfloat16() for _ in range(2))
    v = torch.ones(1, 8, 512, 16).bfloat16().requires_grad_()
    sequences = make_sequences([64] * 8, [64] * 8)
    output = TorchFlashAttention()(q, k, v, sequences=sequences, dropout_prob=0.25)
    found = output[..., 0].double()
    blocks = [each.double().unflatten(2, (-1, 64)) for each in (q, k)]
    weights = torch.softmax(blocks[0] @ blocks[1].transpose(-1, -2) / 4, dim=-1)
    assert float(found.mean()) == pytest.approx(1.0, abs=0.02)
    variance = float((weights.square().sum(-1) / 3).mean())
    assert float((found - 1).square().mean()) == pytest.approx(variance, rel=0.1)
    (gradient,) = torch.autograd.grad(output[..., 0].sum(), v)
    assert float(gradient[..., 0].sum()) == pytest.approx(float(output.detach()[..., 0].double().sum()), rel=1e-2)


def test_the_check_before_its_use_sees_wrong_numbers():
    for reach in (None, 8):
        assert agrees_with_definition(TorchFlashAttention(), torch.device("cpu"), torch.bfloat16, reach=reach)

    class WrongScale(TorchFlashAttention):
        def attend(self, q, k, v, mask, dropout_prob):
            return super().attend(2 * q, k, v, mask, dropout_prob)

    class WrongLengths(TorchFlashAttention):
        def attend(self, q, k, v, mask, dropout_prob):
            short = mask.sequences._replace(max_seqlen_q=32)
            return super().attend(q, k, v, mask._replace(sequences=short), dropout_prob)

    class WrongWindow(TorchFlashAttention):
        def attend(self, q, k, v, mask, dropout_prob):
            return super().attend(q, k, v, mask._replace(reach=mask.reach - 1), dropout_prob)

    for backend in (WrongScale(), WrongLengths(), WrongWindow()):
        assert not agrees_with_definition(backend, torch.device("cpu"), torch.bfloat16, reach=8)


def test_fp32_and_old_gpus_are_refused_by_name(monkeypatch):
    bounds = torch.tensor([0, 4], dtype=torch.int32)
    q = torch.zeros(1, 2, 4, 8)
    message = r"'torch_flash' needs --bf16, --fp16 or --amp, found torch.float32"
    given = {"dropout_prob": 0.1, "sequences": Sequences(bounds, bounds, 4, 4), "error": RuntimeError}
    refused(message, TorchFlashAttention(), q, q, q, **given)
    monkeypatch.setattr(attention_kernels, "has_kernel", lambda: True)
    monkeypatch.setattr(attention_kernels, "capability", lambda device: (7, 5))
    message, cuda = r"a GPU of compute capability 8.0 \(A100\) or more, found 7.5", torch.device("cuda")
    refused(message, TorchFlashAttention().assert_supported, cuda, dropout_prob=0.1, error=RuntimeError)
    options = {"device": torch.device("cuda"), "dropout_prob": 0.1, "max_seqlen": 512, "is_packed": True}
    assert choose_backend("auto", dtype=torch.bfloat16, **options).name == "sdpa"
    monkeypatch.setattr(attention_kernels, "capability", lambda device: (9, 0))
    assert choose_backend("auto", dtype=torch.bfloat16, **options).name == "torch_flash"
    assert choose_backend("auto", dtype=torch.float32, **options).name == "sdpa"
    assert choose_backend("auto", dtype=torch.bfloat16, head_dim=384, **options).name == "sdpa"
    assert attention.BACKENDS["torch_flash"].serves_padded is False


def test_heads_that_the_kernel_does_not_have_are_refused_and_not_packed_by_default(monkeypatch):
    q = torch.zeros(1, 1, 4, 264, dtype=torch.bfloat16)
    message = r"heads of at most 256 dimensions, found 264: raise --encoder-attention-h"
    given = {"dropout_prob": 0.1, "sequences": make_sequences([4], [4]), "error": RuntimeError}
    refused(message, TorchFlashAttention(), q, q, q, **given)
    monkeypatch.setattr("roberta_plugin.models.roberta.is_exact", lambda *_, **__: True)
    for heads, packs in ((1, False), (2, True)):
        model = our_model(encoder_embed_dim=512, encoder_attention_heads=heads, encoder_layers=1)
        assert model.prefers_packing(torch.device("cuda"), torch.bfloat16) is packs


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_kernel_of_this_device_agrees_with_the_definition(dtype, gpu):
    device = torch.device(gpu)
    if device.type == "cuda":
        BACKENDS["torch_flash"].assert_supported(device, dropout_prob=0.0)
    for reach in (None, 8):
        assert agrees_with_definition(BACKENDS["torch_flash"], device, dtype, reach=reach)
