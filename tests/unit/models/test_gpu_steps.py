"""Training steps of a GPU, on the CPU by stand-ins: they never wait for the device, and compiled layers are whole graphs."""

import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.logging import metrics
from fairseq.optim import AMPOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer
from omegaconf import OmegaConf
from torch.utils._python_dispatch import TorchDispatchMode

from roberta_plugin.criterions.masked_lm import RobertaMaskedLMCriterion
from roberta_plugin.fairseq_workarounds import half_precision
from roberta_plugin.fairseq_workarounds.log_output import on_host
from roberta_plugin.models import compiling
from roberta_plugin.models.linear_cross_entropy import choose_path, summed_cross_entropy
from roberta_plugin.optim.adamw import RobertaAdamW, RobertaAdamWConfig
from tests.benchmarks import count_gpu_step
from tests.benchmarks.training_steps import Step
from tests.fake_cuda import KernelError, WaitError, Watch, fake_cuda, moved
from tests.tiny_models import OrderHead, gathered, make_batch, our_model
from tests.unit.fairseq_workarounds.test_log_output import Waits
from tests.unit.models.test_encoder import packed_batch

SIZES = {"encoder_embed_dim": 64, "encoder_ffn_embed_dim": 96, "encoder_attention_heads": 4, "encoder_layers": 2}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "amp": torch.float32}
RECOMPUTED = {"checkpoint_activations": True}
ONE_LAYER = {**SIZES, "encoder_layers": 1}
SMALL = 1e4  # bytes of memory, in which not even the logits of a tiny batch fit


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    compiling._has_reported.clear()
    yield
    torch._dynamo.reset()


def make_optimizer(precision, params):
    """As fairseq's trainer builds it for --PRECISION."""
    cfg = OmegaConf.structured(FairseqConfig)
    OmegaConf.set_struct(cfg, False)
    settings = OmegaConf.structured(RobertaAdamWConfig)
    OmegaConf.set_struct(settings, False)
    cfg.optimizer = OmegaConf.merge(settings, {"_name": "roberta_adamw", "lr": [1e-4]})
    kind = precision.removeprefix("memory-efficient-")
    if kind != "fp32":
        setattr(cfg.common, kind, True)
    if kind != precision:
        setattr(cfg.common, precision.replace("-", "_"), True)
        return MemoryEfficientFP16Optimizer.build_optimizer(cfg, params)
    if kind == "fp32":
        return RobertaAdamW(cfg.optimizer, params)
    return (AMPOptimizer if kind == "amp" else FP16Optimizer).build_optimizer(cfg, params)


def masked_lm_criterion():
    return RobertaMaskedLMCriterion(SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: 1)))


def clip(optimizer, max_norm):
    """As the wrapper does, but for the loss scalers' look at the norm, for which fairseq waits."""
    if isinstance(optimizer, AMPOptimizer):
        optimizer.scaler.unscale_(optimizer.optimizer)
        return optimizer.fp32_optimizer.clip_grad_norm(max_norm)
    if getattr(optimizer, "scaler", None) is None:
        return optimizer.clip_grad_norm(max_norm)
    if isinstance(optimizer, MemoryEfficientFP16Optimizer):
        return optimizer.wrapped_optimizer.clip_grad_norm(0.0)
    optimizer._sync_fp16_grads_to_fp32()
    return optimizer.fp32_optimizer.clip_grad_norm(0.0)


def train(mode, model, sample, precision, *, max_norm=0.0, num_batches=1, sample_size=None, is_watched=True):
    """Two updates; what the second has run. The first may set up what lasts."""
    criterion = masked_lm_criterion()
    model = moved(model, mode, DTYPES[precision.removeprefix("memory-efficient-")]).train()
    sample = moved(sample, mode)
    optimizer = make_optimizer(precision, list(model.parameters()))
    for may_wait in (True, False):
        watch = Watch(may_wait=may_wait)
        with watch if is_watched else nullcontext():
            optimizer.zero_grad()
            for _ in range(num_batches):
                half_precision.before_backward(optimizer, model)
                with torch.autocast("cuda", enabled=precision == "amp"):
                    loss, found_size, log = criterion(model, sample)
                optimizer.backward(loss)
            if sample_size == "on the device":
                found_size = torch.full((), float(found_size), dtype=torch.float64, device="cuda")
            optimizer.multiply_grads(1 / found_size)
            norm = clip(optimizer, max_norm)
            optimizer.step()
    assert loss.device.type == norm.device.type == "cuda"
    assert [name for name, value in log.items() if torch.is_tensor(value)] == ["loss"]
    assert all(parameter.device.type == "cuda" for parameter in model.parameters())
    return watch.counts


@pytest.mark.parametrize(("kind", "precision", "options"), [
    ("padded", "fp32", {}), ("padded", "amp", {}), ("padded", "bf16", RECOMPUTED), ("full", "fp16", {}),
    ("full", "bf16", {}), ("full", "amp", RECOMPUTED), ("packed", "bf16", {}), ("packed", "fp16", RECOMPUTED),
    ("packed", "amp", {}),
])  # fmt: skip
def test_a_step_stays_on_the_device_and_never_waits(kind, precision, options):
    model, sample = our_model(**SIZES, dropout=0.1, attention_dropout=0.1, **options), make_sample(kind)
    with fake_cuda() as mode:
        counts = train(mode, model, sample, precision)
    attention = {"padded": "_scaled_dot_product_efficient_attention", "packed": "_flash_attention_forward"}
    kernel = attention.get(kind, "_scaled_dot_product_flash_attention")
    assert counts[kernel] == (4 if "checkpoint_activations" in options else 2)
    assert counts[kernel.removesuffix("_forward") + "_backward"] == 2
    assert counts["_fused_adamw_"] == 1
    assert kind != "packed" or "select_backward" not in counts, "a gradient is copied into a tensor of zeros"


@pytest.mark.parametrize(("size", "padded"), [(1001, 1024), (1003, 1024), (1000, 1000), (1024, 1024)])
@pytest.mark.parametrize("memory", [140e9, SMALL], ids=["plain", "in chunks"])
def test_products_with_the_vocabulary_are_aligned(size, padded, memory):
    """Rows of logits begin at multiples of 16 bytes, in the forward pass and in both products of the backward pass."""
    with fake_cuda(memory=memory):
        x, weight, bias = (
            torch.empty(shape, dtype=torch.bfloat16, device="cuda", requires_grad=True)
            for shape in ((40, 64), (size, 64), (size,))
        )
        with Shapes() as shapes:
            summed_cross_entropy(
                x, weight, bias, torch.zeros(40, dtype=torch.int64, device="cuda"), ignored=1
            ).backward()
    assert weight.grad.shape == weight.shape and bias.grad.shape == bias.shape
    assert len(shapes.of_products) == 3 and all(padded in shape for shape in shapes.of_products)


class Shapes(TorchDispatchMode):
    """The shapes of all products' factors, together."""

    def __init__(self):
        super().__init__()
        self.of_products = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket.__name__ in ("mm", "addmm"):
            self.of_products.append([size for factor in args[-2:] for size in factor.shape])
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("precision", "max_norm", "sample_size"), [
    ("fp32", 0.0, "on the device"), ("fp32", 1.0, "on the host"), ("bf16", 0.0, "on the host"),
    ("bf16", 1.0, "on the device"), ("fp16", 1.0, "on the device"), ("amp", 0.0, "on the device"),
    ("memory-efficient-bf16", 1.0, "on the device"), ("memory-efficient-fp16", 0.0, "on the device"),
])  # fmt: skip
def test_an_update_of_several_batches_never_waits(precision, max_norm, sample_size):
    """With several ranks, the sum of the sample sizes is a number of the device."""
    model, sample = our_model(**ONE_LAYER), make_sample("full")
    with fake_cuda() as mode:
        counts = train(mode, model, sample, precision, max_norm=max_norm, num_batches=2, sample_size=sample_size)
    assert counts["_foreach_norm"] == counts["_fused_adamw_"] == 1


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "amp"])
def test_the_loss_in_chunks_stays_on_the_device(precision):
    model, sample = our_model(**ONE_LAYER), make_sample("full")
    with fake_cuda(memory=SMALL) as mode:
        assert choose_path(torch.device("cuda"), torch.bfloat16, num_logits=1000).__name__ == "chunked_on_device"
        counts = train(mode, model, sample, precision)
    assert "_log_softmax" not in counts


def test_pairs_with_the_second_task_stay_on_the_device():
    model, sample = our_model(**SIZES), make_sample("padded")
    model.encoder.add_module("order_head", OrderHead(64))
    model.encoder.names_of_sequence_heads = ("order_head",)
    sample["predicted"]["positions"][:, 0] = 0
    sample["predicted"]["labels"][:, 0] = 1
    sample["sequence_labels"] = {"order": torch.tensor([0, 1, 0, 1])}
    criterion = masked_lm_criterion()
    with fake_cuda() as mode:
        model, sample = moved(model, mode, torch.bfloat16).train(), moved(sample, mode)
        criterion(model, sample)
        with Watch():
            criterion(model, sample)[0].backward()


@pytest.mark.parametrize(
    ("kind", "options"),
    [("padded", {}), pytest.param("full", {}, marks=pytest.mark.slow), ("packed", RECOMPUTED)],
    ids=str,
)
@pytest.mark.usefixtures("graphs_as_they_are")
def test_compiled_layers_embeddings_and_loss_are_whole_graphs_without_a_warning(kind, options, recwarn):
    """A graph of the embeddings, of a layer, of the last layer, and of head and loss."""
    torch._dynamo.utils.counters.clear()
    model, sample = our_model(**SIZES, dropout=0.1, attention_dropout=0.1, **options), make_sample(kind)
    with fake_cuda(is_compiled=True) as mode:
        for layer in model.encoder.sentence_encoder.layers:
            layer.compile(backend="aot_eager", fullgraph=True)
        model.encoder.sentence_encoder.backend = model.encoder.lm_head.backend = "aot_eager"
        train(mode, model, sample, "bf16", is_watched=False)
    assert compiling.num_graphs() == 4
    assert not compiling._has_reported
    assert [str(warning.message) for warning in recwarn if "Dynamo" in str(warning.message)] == []


@pytest.mark.parametrize("source", ["host", "device"])
def test_a_state_from_the_host_steps_on_the_device(source):
    """Fused, a step counter on the host would be an address that the kernel cannot read."""
    with fake_cuda() as mode:
        states = []
        for device in ("cpu", "cuda"):
            parameters = [torch.nn.Parameter(torch.randn(5, 3, device=device))]
            optimizer = make_optimizer("fp32", parameters)
            if device == "cuda":
                optimizer.load_state_dict(states[0])
            parameters[0].grad = torch.ones_like(parameters[0])
            with Watch(may_wait=True):
                optimizer.step()
            states.append(optimizer.state_dict())
            if source == "host":
                states[-1]["param_groups"][0].pop("fused")
        (state,) = optimizer.optimizer.state.values()
    assert {value.device.type for value in state.values()} == {"cuda"}
    assert mode is not None


def test_the_watch_sees_what_it_should():
    """The guard of all of these."""
    with fake_cuda(), Watch():
        x = torch.randn(4, 8, device="cuda")
        for waits in (
            lambda: x.sum().item(),
            lambda: x[x > 0],
            lambda: x[torch.tensor([0, 1])],
            lambda: torch.as_tensor(2.0, device="cuda"),
            lambda: x.new_tensor([1.0, 2.0]),
            lambda: x.cpu(),
            lambda: x.nonzero(),
        ):
            with pytest.raises(WaitError):
                waits()
        with pytest.raises(RuntimeError, match=r"cuda:0.*cpu"):
            x + torch.ones(8)
        rows, bounds = torch.randn(6, 2, 16, device="cuda"), torch.arange(3, device="cuda")
        for q, edges in ((rows, bounds), (rows.bfloat16(), bounds), (rows.bfloat16()[..., :12], bounds.int())):
            with pytest.raises(KernelError):
                torch.ops.aten._flash_attention_forward(q, q, q, edges, edges, 3, 3, 0.0, False, False)
        a, scale = torch.randn(16, 24, device="cuda").to(torch.float8_e4m3fn), torch.ones((), device="cuda")
        with pytest.raises(KernelError):
            torch._scaled_mm(a, a.t(), scale, scale, out_dtype=torch.bfloat16)


def make_sample(kind, lengths=(17, 9, 1, 13)):
    """A batch as the loader makes it: padded, without padding, or packed."""
    tokens, masked, targets = make_batch((15, 15, 15) if kind == "full" else lengths)
    predicted, net_input = gathered(masked, targets), {"src_tokens": tokens, "has_padding": kind == "padded"}
    if kind == "packed":
        row, packing, of_row = packed_batch(tokens, masked, targets, multiple=64)
        predicted, net_input = {**of_row, "number": len(targets)}, {"src_tokens": row, "packing": packing}
    sizes = {"ntokens": int(tokens.ne(1).sum()), "nsentences": len(tokens), "npairs": 500}
    return {"net_input": net_input, "predicted": predicted, "target": net_input["src_tokens"], **sizes}


def test_our_logging_reads_no_value_once_all_are_on_the_host():
    model = our_model().train()
    criterion = masked_lm_criterion()
    outputs = [criterion(model, make_sample("padded"))[2] for _ in range(2)]
    with Waits() as waits, metrics.aggregate(new_root=True) as meters:
        criterion.reduce_metrics(on_host(outputs))
        found = meters.get_smoothed_values()
    assert waits.found == []
    expected = sum(output["loss"].item() for output in outputs) / sum(output["sample_size"] for output in outputs)
    assert found["loss"] == pytest.approx(expected / math.log(2), abs=1e-3)


def test_counts_of_a_step_grow_by_the_same_with_each_layer(monkeypatch):
    """What `tests.benchmarks.count_gpu_step` reports; the first step has no waits, and flash attention in each layer."""
    counts = []
    for layers in (2, 3, 4):
        monkeypatch.setitem(count_gpu_step.SHAPES, "small", (layers, 64, 96, 4))
        step = Step(arch="small", batch_size=2, length=32, vocab_size=205, packed=True)
        found = count_gpu_step.count(step)
        assert found.waits == []
        assert found.groups["attention"].kernels == 2 * layers
        counts.append(found.total)
    for name in ("kernels", "bytes", "flops"):  # lists of tensors take launches in steps
        two, three, four = (getattr(count, name) for count in counts)
        assert 0 < three - two == pytest.approx(four - three)


def test_lists_of_tensors_take_as_many_launches_as_torch_s_kernels():
    tensors = [torch.empty(10, device="meta")] * 111
    assert [count_gpu_step.num_launches_over(tensors[:size], 1) for size in (1, 110, 111)] == [1, 1, 2]
    large = torch.empty(320 * 65536, device="meta")
    assert [count_gpu_step.num_launches_over([large] * size, 1) for size in (1, 2)] == [1, 2]
