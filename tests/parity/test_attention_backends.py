"""Every attention backend against the definition in float64: outputs, gradients, padding, odd lengths, dropout."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from roberta_plugin.models import attention as attention_backends
from roberta_plugin.models import attention_kernels
from roberta_plugin.models.attention import BACKENDS, choose_backend, chosen_kernel, exact_dropout
from roberta_plugin.models.attention_kernels import Sequences
from roberta_plugin.models.cpu import has_fast_bf16
from tests.refusals import refused

PADDED = [name for name, backend in BACKENDS.items() if backend.serves_padded]
PACKED = list(BACKENDS)
CPU = torch.device("cpu")

SHAPES = [(3, 4, 17, 8), (1, 1, 1, 16), (2, 3, 64, 32), (2, 2, 33, 5)]


def make_inputs(shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(sum(shape))
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for _ in range(3)]


def make_padding(shape):
    """No row is padding from its beginning: every block has <s>."""
    batch, _, length, _ = shape
    lengths = torch.tensor([max(1, length - 3 * row) for row in range(batch)])
    return torch.arange(length) >= lengths[:, None]


def definition(q, k, v, may_attend):
    q, k, v = (tensor.detach().double().requires_grad_() for tensor in (q, k, v))
    scores = torch.einsum("bhik,bhjk->bhij", q, k) / math.sqrt(q.size(-1))
    if may_attend is not None:
        scores = scores.masked_fill(~may_attend, -math.inf)
    exponentials = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    return torch.einsum("bhij,bhjk->bhik", exponentials / exponentials.sum(-1, keepdim=True), v), (q, k, v)


def backend_for(name, *, device=CPU, dropout_prob=0.0):
    """The backend, or a skip that says what it lacks here."""
    try:
        BACKENDS[name].assert_supported(device, dropout_prob=dropout_prob)
    except RuntimeError as error:
        pytest.skip(str(error))
    return BACKENDS[name]


def assert_same_with_gradients(found, inputs, expected, references, tolerance=1e-5):
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1)).to(found.device)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    for one, reference in zip(inputs, references, strict=True):
        torch.testing.assert_close(one.grad.double(), reference.grad, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", PADDED)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("padded", [False, True])
def test_outputs_and_gradients_are_the_definitions(name, shape, padded):
    inputs = make_inputs(shape)
    is_padding = make_padding(shape) if padded else None
    expected, references = definition(*inputs, ~is_padding[:, None, None] if padded else None)
    found = backend_for(name)(*inputs, is_padding=is_padding, dropout_prob=0.0)
    assert_same_with_gradients(found, inputs, expected, references)


@pytest.mark.parametrize("name", PADDED)
def test_some_positions_alone_may_attend(name):
    q, k, v = make_inputs((3, 4, 17, 8))
    q = q.detach()[:, :, 2:7].clone().requires_grad_()
    is_padding = make_padding(k.shape)
    expected, references = definition(q, k, v, ~is_padding[:, None, None])
    found = backend_for(name)(q, k, v, is_padding=is_padding, dropout_prob=0.0)
    assert_same_with_gradients(found, (q, k, v), expected, references)


@pytest.mark.parametrize("name", PADDED)
@pytest.mark.parametrize("dropout_prob", [0.0, 0.1])
def test_a_row_of_nothing_but_padding_disturbs_no_other(name, dropout_prob):
    """Not the outputs of the others, and not one gradient, since all share the parameters."""
    inputs = make_inputs((3, 4, 17, 8))
    is_padding = make_padding(inputs[0].shape)
    is_padding[1] = True
    real = [0, 2]
    found = backend_for(name)(*inputs, is_padding=is_padding, dropout_prob=dropout_prob)
    assert found.isfinite().all()
    (found[real] ** 2).sum().backward()
    assert all(one.grad.isfinite().all() and not one.grad[1].any() and one.grad[0].any() for one in inputs)
    if dropout_prob == 0.0:
        others = [one.detach()[real].requires_grad_() for one in inputs]
        expected, references = definition(*others, ~is_padding[real][:, None, None])
        gradients = torch.autograd.grad((expected**2).sum(), references)
        torch.testing.assert_close(found[real].double(), expected, atol=1e-5, rtol=1e-5)
        for one, gradient in zip(inputs, gradients, strict=True):
            torch.testing.assert_close(one.grad[real].double(), gradient, atol=1e-5, rtol=1e-5)


class LargestTensor(TorchDispatchMode):
    """Keeps the size of the largest tensor that an operation has returned."""

    numel = 0

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        found = operation(*arguments, **(options or {}))
        tensors = [each for each in tree_leaves(found) if isinstance(each, torch.Tensor)]
        self.numel = max(self.numel, *(tensor.numel() for tensor in tensors), 0)
        return found


@pytest.mark.parametrize("is_padded", [False, True])
def test_without_gradients_no_tensor_has_the_square_of_the_length(is_padded):
    """The sentences of a long document attend to each other: 30,000 of them would need gigabytes for each head."""
    q, k, v = make_inputs((1, 2, 300, 8))
    is_padding = make_padding((1, 2, 290, 8)) if is_padded else None
    is_padding = torch.nn.functional.pad(is_padding, (0, 10), value=True) if is_padded else None
    backend = choose(dropout_prob=0.0, max_seqlen=300)
    with torch.no_grad(), LargestTensor() as largest:
        found = backend(q, k, v, is_padding=is_padding, dropout_prob=0.0)
    assert found.numel() <= largest.numel < 300 * 300


def numbers_of(lengths):
    """Of each position of a packed row, the number of its sequence."""
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


def make_sequences(q_lengths, k_lengths):
    cu_seqlens = [torch.tensor([0, *lengths]).cumsum(0).int() for lengths in (q_lengths, k_lengths)]
    return Sequences(*cu_seqlens, max(q_lengths), max(k_lengths))


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(
    ("q_lengths", "k_lengths"),
    [((5, 1, 30, 12), (5, 1, 30, 12)), ((2, 1, 7, 3), (9, 4, 31, 3)), ((48,), (48,))],
    ids=str,
)
def test_sequences_of_a_packed_row_do_not_see_each_other(name, q_lengths, k_lengths):
    backend = backend_for(name)
    generator = torch.Generator().manual_seed(0)
    sizes = (sum(q_lengths), sum(k_lengths), sum(k_lengths))
    q, k, v = inputs = [torch.randn(1, 3, n, 8, generator=generator).requires_grad_() for n in sizes]
    sequences = make_sequences(q_lengths, k_lengths)
    expected, references = definition(q, k, v, numbers_of(q_lengths)[:, None] == numbers_of(k_lengths))
    found = backend(*inputs, sequences=sequences, dropout_prob=0.0)
    assert_same_with_gradients(found, inputs, expected, references)

    last = backend(*inputs, sequences=sequences, dropout_prob=0.0)[:, :, -q_lengths[-1] :]
    gradients = torch.autograd.grad(last.sum(), (k, v))
    for gradient in gradients:
        others = gradient[:, :, : -k_lengths[-1]]
        assert not others.any(), "what is computed for the last sequence depends on others"
        assert gradient[:, :, -k_lengths[-1] :].any()


@pytest.mark.parametrize("name", PACKED)
def test_empty_sequences_change_nothing(name):
    """Their number is rounded up, so that shapes stay the same from batch to batch."""
    inputs = make_inputs((1, 2, 20, 8))
    plain, rounded = make_sequences((8, 12), (8, 12)), make_sequences((8, 12, 0, 0), (8, 12, 0, 0))
    backend = backend_for(name)
    outputs = [backend(*inputs, sequences=sequences, dropout_prob=0.0) for sequences in (plain, rounded)]
    torch.testing.assert_close(*outputs)


@pytest.mark.parametrize("name", PADDED)
@pytest.mark.parametrize("layout", ["padded", "not padded", "packed"])
@pytest.mark.parametrize("number", [None, 6, 99], ids=["all", "few", "many"])
def test_local_windows_are_the_definitions(name, layout, number, monkeypatch):
    """In every backend's own parts: windows of queries, with keys on either side; and a whole row of padding."""
    monkeypatch.setattr(attention_kernels, "WINDOW_QUERIES", 4)
    reach, length = 3, 41
    batch = 1 if layout == "packed" else 3
    inputs = make_inputs((batch, 2, length, 8))
    may_attend = ((torch.arange(length)[:, None] - torch.arange(length)).abs() <= reach).expand(batch, 1, -1, -1)
    places = [0, 4, 7, 8, 20, *range(23, 35), 40] if layout == "packed" else [40, 0, *range(7, 15), 20, 25, 0]
    places = torch.tensor(places[:number]).expand(batch, -1)  # one of them twice, and those of padded rows in no order
    options = {"reach": reach, "places": None if number is None else places}
    if layout == "padded":
        options["is_padding"] = is_padding = torch.arange(length) >= torch.tensor([length, 26, 0])[:, None]
        may_attend = may_attend & ~is_padding[:, None, None]
    if layout == "packed":
        lengths = (5, 1, 24, 11)
        of = numbers_of(lengths)
        q_lengths = lengths if number is None else torch.bincount(of[places[0]], minlength=4).tolist()
        options["sequences"] = make_sequences(q_lengths, lengths)
        may_attend = may_attend & (of[:, None] == of)
    is_used = may_attend.any(dim=-1, keepdim=True)  # of the others, which are padding, nothing is asked
    expected, references = definition(*inputs, may_attend | ~is_used)
    q, k, v = inputs
    if number is not None:
        q, expected, is_used = (attention_kernels.pick(x, places) for x in (q, expected, is_used.expand(-1, 2, -1, -1)))
    found = backend_for(name)(q, k, v, dropout_prob=0.0, **options)
    assert found.isfinite().all()
    at = is_used.expand_as(found)
    assert_same_with_gradients(found[at], inputs, expected[at], references)


@pytest.mark.parametrize("layout", ["padded", "packed", "windows"])
def test_weights_that_are_computed_twice_are_the_same(layout, monkeypatch):
    """Those of long sequences, a few queries at once; dropout drops the same ones in both directions."""
    inputs = make_inputs((2 if layout == "padded" else 1, 2, 41, 8))
    options = {"reach": 5 if layout == "windows" else None}
    options["is_padding"] = make_padding(inputs[0].shape) if layout == "padded" else None
    options["sequences"] = make_sequences((30, 11), (30, 11)) if layout == "packed" else None
    backend, results = backend_for("onednn"), []
    for at_most in (2**28, 0):
        monkeypatch.setattr(attention_kernels, "MOST_WEIGHTS", at_most)
        monkeypatch.setattr(attention_kernels, "WEIGHTS_AT_ONCE", 100)
        found = backend(*inputs, **options, dropout_prob=0.0)
        results.append([found, *torch.autograd.grad((found**2).sum(), inputs)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)

    ones = torch.ones_like(inputs[2]).requires_grad_()
    found = backend(*inputs[:2], ones, **options, dropout_prob=0.25)[..., 0]
    assert 0.9 < float(found.mean()) < 1.1 and float(found.std()) > 0.05
    (gradient,) = torch.autograd.grad(found.sum(), ones)
    assert float(gradient[..., 0].sum()) == pytest.approx(float(found.sum()), rel=1e-5)


@pytest.mark.parametrize("name", PADDED)
def test_memory_of_local_windows_is_linear_in_the_length(name):
    with LargestTensor() as largest:
        inputs = make_inputs((1, 1, 4096, 8))
        backend_for(name)(*inputs, reach=8, dropout_prob=0.0).sum().backward()
    assert 4096 * 16 <= largest.numel <= 4096 * (128 + 16)  # weights of 128 queries at once, or of a window's


@pytest.mark.parametrize("name", PADDED)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_half_precision_stays_close(name, dtype, tolerance):
    inputs = make_inputs(SHAPES[2], dtype)
    is_padding = make_padding(SHAPES[2])
    expected, _ = definition(*inputs, ~is_padding[:, None, None])
    found = backend_for(name)(*inputs, is_padding=is_padding, dropout_prob=0.0)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_packed_rows_on_a_gpu_are_the_definitions(name, dtype, gpu):
    backend = backend_for(name, device=torch.device(gpu))
    lengths = (64, 1, 200, 33)
    inputs = [torch.randn(1, 4, sum(lengths), 64, device=gpu, dtype=dtype).requires_grad_() for _ in range(3)]
    sequences = make_sequences(lengths, lengths)
    sequences = Sequences(*(each.to(gpu) if torch.is_tensor(each) else each for each in sequences))
    of = numbers_of(lengths).to(gpu)
    expected, references = definition(*inputs, of[:, None] == of)
    found = backend(*inputs, sequences=sequences, dropout_prob=0.0)
    assert_same_with_gradients(found, inputs, expected, references, tolerance=3e-2)


@pytest.fixture
def in_bf16():
    """--matmul-precision medium, where the processor multiplies bf16."""
    if not has_fast_bf16():
        pytest.skip("this processor has neither AVX512-BF16 nor AMX")
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.mark.usefixtures("in_bf16")
@pytest.mark.parametrize("is_packed", [False, True])
def test_products_in_bf16_round_logits_and_weights_and_no_more(is_packed):
    inputs = make_inputs((1, 4, 60, 32) if is_packed else SHAPES[2])
    if is_packed:
        sequences, of = make_sequences((20, 1, 39), (20, 1, 39)), torch.tensor([0] * 20 + [1] + [2] * 39)
        layout, may_attend = {"sequences": sequences}, of[:, None] == of
    else:
        is_padding = make_padding(SHAPES[2])
        layout, may_attend = {"is_padding": is_padding}, ~is_padding[:, None, None]
    expected, references = definition(*inputs, may_attend)
    found = backend_for("onednn")(*inputs, dropout_prob=0.0, **layout)
    weights = torch.randn(found.shape)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    pairs = [(found, expected), *((one.grad, other.grad) for one, other in zip(inputs, references, strict=True))]
    for one, other in pairs:
        assert one.dtype == torch.float32
        error = (one.double() - other).detach().norm() / other.detach().norm()
        assert 1e-4 < error < 2.0**-6


@pytest.mark.usefixtures("in_bf16")
def test_dropout_in_bf16_drops_the_same_weights_in_both_directions():
    """With v = 1 and its gradient: which weights count in the output, and which in the gradient of v."""
    q, k = torch.zeros(2, 3, 64, 16), torch.zeros(2, 3, 64, 16)  # all weights are 1/64
    v = torch.eye(64)[:, :16].expand(2, 3, 64, 16).clone().requires_grad_()
    torch.manual_seed(0)
    found = backend_for("onednn", dropout_prob=0.25)(q, k, v, dropout_prob=0.25)  # the weights of 16 positions
    kept = found.ne(0)
    assert float(kept.double().mean()) == pytest.approx(0.75, abs=0.02)
    torch.testing.assert_close(found[kept], torch.full((int(kept.sum()),), 1 / 48), rtol=1e-2, atol=0)
    rows = torch.zeros(2, 3, 64, 16)
    rows[..., 0] = torch.arange(64)  # tells positions that attend apart
    (gradient,) = torch.autograd.grad(found, v, rows)
    expected = torch.einsum("bhqk,bhq->bhk", found.detach(), rows[..., 0])
    torch.testing.assert_close(gradient[:, :, :16, 0], expected, rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("name", BACKENDS)
def test_dropout_keeps_the_mean_and_has_the_right_spread(name, is_packed):
    """With v = 1, the output is the sum of the kept weights / 0.75: mean 1, variance (1/3) * sum of squared weights."""
    if not is_packed and not BACKENDS[name].serves_padded:
        pytest.skip(f"{name} does not serve such batches")
    backend = backend_for(name, dropout_prob=0.25)
    torch.manual_seed(0)
    shape = (1, 8, 1024, 16) if is_packed else (16, 8, 64, 16)
    q, k = torch.randn(shape), torch.randn(shape)
    sequences = make_sequences([64] * 16, [64] * 16) if is_packed else None
    found = backend(q, k, torch.ones_like(q), sequences=sequences, dropout_prob=0.25)[..., 0].double()
    blocks = [x.double().unflatten(2, (-1, 64)) for x in (q, k)]
    weights = torch.softmax(blocks[0] @ blocks[1].transpose(-1, -2) / 4, dim=-1)
    variance = (weights.square().sum(-1) / 3).mean()
    assert float(found.mean()) == pytest.approx(1.0, abs=0.01)
    assert float((found - 1).square().mean()) == pytest.approx(float(variance), rel=0.05)


def choose(name="auto", *, device="cpu", dtype=torch.float32, dropout_prob=0.1, max_seqlen=512, is_packed=False):
    options = {"dtype": dtype, "dropout_prob": dropout_prob, "max_seqlen": max_seqlen, "is_packed": is_packed}
    return choose_backend(name, device=torch.device(device), **options)


def test_the_choice_follows_device_length_and_dropout(monkeypatch):
    assert choose().name == choose(is_packed=True).name == "onednn"
    assert choose(max_seqlen=32).name == "eager"
    assert choose(max_seqlen=32, dropout_prob=0.0).name == choose(dropout_prob=0.0).name == "sdpa"
    assert choose(dropout_prob=0.0, is_packed=True).name == "onednn"
    assert choose(device="cuda").name == "sdpa"
    for dropout_prob in (0.0, 0.1):
        in_bf16 = {"dropout_prob": dropout_prob, "dtype": torch.bfloat16}
        monkeypatch.setattr(attention_backends, "rounds", lambda: False)
        assert choose(**in_bf16).name == "eager"
        monkeypatch.setattr(attention_backends, "rounds", lambda: True)
        assert choose(**in_bf16).name == "onednn"
        assert choose(max_seqlen=256, **in_bf16).name == "eager"
    monkeypatch.setattr(attention_backends, "has_onednn", lambda: False)
    assert choose().name == "eager"
    assert choose(dropout_prob=0.0).name == "sdpa"
    message = r"needs a CPU and a torch built with oneDNN.*Use --attention-backend sdpa"
    refused(message, choose, "onednn", error=RuntimeError)


def test_a_dropout_that_cudnn_would_round_excludes_it():
    """It knows sixteenths; torch 2.9 to 2.11 prefer it on Hopper."""
    cuda = torch.device("cuda")
    for dropout_prob, is_exact in ((0.0, True), (0.125, True), (0.1, False), (0.05, False)):
        with exact_dropout(cuda, dropout_prob):
            assert torch.backends.cuda.cudnn_sdp_enabled() == is_exact
            assert torch.backends.cuda.flash_sdp_enabled() and torch.backends.cuda.mem_efficient_sdp_enabled()
        assert torch.backends.cuda.cudnn_sdp_enabled()
    with exact_dropout(CPU, 0.1):
        assert torch.backends.cuda.cudnn_sdp_enabled()


def test_the_kernel_that_torch_takes_is_known():
    """A mask excludes flash on a GPU, and dropout on a CPU."""
    sizes = {"device": CPU, "dtype": torch.float32, "num_heads": 2, "head_dim": 16, "length": 32}
    for dropout_prob, expected in ((0.0, "flash"), (0.1, "math")):
        found = chosen_kernel(BACKENDS["sdpa"], dropout_prob=dropout_prob, has_padding=False, **sizes)
        assert found == expected
    assert chosen_kernel(BACKENDS["eager"], dropout_prob=0.1, has_padding=True, **sizes) == "eager"


def test_a_backend_that_cannot_run_says_what_it_needs():
    unpadded = "torch_flash does not serve padded batches: use auto or one of eager, sdpa, onednn"
    for name, is_packed, error, message in (
        ("magic", False, ValueError, "--attention-backend must be auto or one of eager, .*, got 'magic'"),
        ("torch_flash", False, ValueError, unpadded),
        ("torch_flash", True, RuntimeError, "'torch_flash' needs a GPU, found device 'cpu'"),
    ):
        refused(message, choose, name, is_packed=is_packed, error=error)
