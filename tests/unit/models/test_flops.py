"""The cost of a step, against the weights of a real model and against published figures."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from roberta_plugin.models import flops
from roberta_plugin.models.flops import PEAKS, device_peaks, half_precision_peak, peak_flops, training_flops
from tests.tiny_models import make_batch, our_model, sequence_model


def test_six_flops_a_weight_and_token():
    model = our_model()
    layers = model.encoder.sentence_encoder.layers
    weights = sum(parameter.numel() for parameter in layers.parameters() if parameter.dim() == 2)
    assert model.training_flops(num_tokens=7, num_pairs=0, num_predicted=0) == 6 * weights * 7
    head = model.encoder.lm_head
    weights = head.dense.weight.numel() + head.weight.numel()
    assert model.training_flops(num_tokens=0, num_pairs=0, num_predicted=5) == 6 * weights * 5


def test_attention_costs_two_products_forward_and_four_backward():
    """q k^T of one layer: T^2 pairs, h multiply-adds each, 2 FLOPs a multiply-add."""
    sizes = {"num_layers": 2, "dim": 16, "ffn_dim": 0, "vocab_size": 0, "num_tokens": 0, "num_predicted": 0}
    assert training_flops(**sizes, num_pairs=10**2) == 2 * (2 + 4) * (2 * 16 * 10**2)


@pytest.mark.parametrize(("sizes", "gigaflops"), [((12, 768, 3072), 0.60), ((24, 1024, 4096), 2.01)])
def test_base_and_large_cost_what_is_known(sizes, gigaflops):
    layers, dim, ffn_dim = sizes
    sizes = {"num_layers": layers, "dim": dim, "ffn_dim": ffn_dim, "vocab_size": 50265}
    flops = training_flops(**sizes, num_tokens=512, num_pairs=512**2, num_predicted=0.15 * 512)
    assert flops / 512 / 1e9 == pytest.approx(gigaflops, abs=0.006)


@pytest.mark.parametrize("feed_forward", ["plain", "geglu"])
@pytest.mark.parametrize("checkpoint_activations", [False, True])
def test_what_is_executed_is_what_torch_counts(checkpoint_activations, feed_forward):
    """torch's counter sees every matrix product of a step, forward and backward."""
    options = {"checkpoint_activations": checkpoint_activations, "feed_forward": feed_forward}
    model = our_model(attention_backend="eager", **options).bfloat16()
    tokens, _, _ = make_batch((12, 12, 12))
    positions = torch.tensor([[1, 4, 7]] * 3)
    predicted = {"positions": positions, "labels": tokens.gather(1, positions)}
    with FlopCounterMode(display=False) as counter:
        model(tokens, predicted=predicted, has_padding=False)[0].backward()
    counts = {"num_tokens": 36, "num_pairs": 3 * 12**2, "num_predicted": 9}
    assert counter.get_total_flops() == pytest.approx(model.executed_flops(**counts), rel=0.01)
    assert model.training_flops(**counts) > 1.05 * model.executed_flops(**counts) or checkpoint_activations


def test_a_head_of_sequences_is_counted_as_torch_counts_it():
    model, (tokens, _, _) = sequence_model(attention_backend="eager").bfloat16(), make_batch((12, 12, 12))
    positions = torch.tensor([[0, 4, 7]] * 3)  # <s> predicts the next sentence, and no token
    labels = tokens.gather(1, positions).masked_fill(positions.eq(0), 1)
    counts = {"num_tokens": 36, "num_pairs": 3 * 12**2, "num_predicted": 6}

    def counted():
        with FlopCounterMode(display=False) as counter:
            loss, extra = model(tokens, predicted={"positions": positions, "labels": labels}, has_padding=False)
            sum([loss, *(logits.sum() for logits in extra.get("sequence_logits", {}).values())]).backward()
        return counter.get_total_flops()

    with_head = counted()
    expected = model.executed_flops(**counts, num_sequences=3)
    assert with_head == pytest.approx(expected, rel=0.01)
    of_head = model.training_flops(**counts, num_sequences=3) - model.training_flops(**counts)
    model.encoder.names_of_sequence_heads = ()
    assert with_head - counted() == of_head == 3 * 6 * (24**2 + 2 * 24)
    assert model.training_flops(**counts, num_sequences=3) == model.training_flops(**counts)


CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("name", "bf16"),
    [
        ("NVIDIA H200", 989.4),
        ("NVIDIA H200 NVL", 835.5),
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756.5),
        ("NVIDIA H100 NVL", 835.5),
        ("NVIDIA GH200 480GB", 989.4),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA A800-SXM4-80GB", 312),
        ("NVIDIA H20", 148),
        ("NVIDIA B200", 2250),
        ("NVIDIA GB200", 2500),
        ("NVIDIA B300 SXM6 AC", 2250),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA A10G", 70),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA RTX 6000 Ada Generation", 364.2),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 0),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 0),
        ("Tesla V100-SXM2-32GB", 0),
        ("Tesla V100-PCIE-16GB", 0),
        ("AMD Instinct MI300X", 1307.4),
        ("Some other device", 0),
    ],
)
def test_peaks_are_found_by_the_name_of_the_device(name, bf16):
    assert device_peaks(name).bf16 == bf16
    halves = {"Tesla V100-SXM2-32GB": 125e12, "Tesla V100-PCIE-16GB": 112e12}  # which have fp16 alone
    assert half_precision_peak(name) == halves.get(name, bf16 * 1e12)


def test_peaks_are_dense_and_in_order():
    """Tensor cores: TF32 at half the speed of 16 bits; a number with sparsity would be twice too large."""
    for name, (fp16, bf16, tf32, fp32) in PEAKS.items():
        assert bf16 in (0, fp16), name
        assert tf32 == 0 or tf32 == pytest.approx(fp16 / 2, rel=0.02), name
        assert 0 < fp32 < fp16, name


def test_the_type_that_is_computed_in_counts(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100-SXM4-80GB")
    assert peak_flops(CUDA, torch.bfloat16) == peak_flops(CUDA, torch.float16) == 312e12
    assert peak_flops(CUDA, torch.float64) == 0.0
    before = torch.get_float32_matmul_precision()
    try:
        for precision, peak in (("highest", 19.5e12), ("high", 156e12)):
            torch.set_float32_matmul_precision(precision)
            assert peak_flops(CUDA, torch.float32) == peak
    finally:
        torch.set_float32_matmul_precision(before)
    monkeypatch.setattr(flops.torch, "is_autocast_enabled", lambda kind: True)
    monkeypatch.setattr(flops.torch, "get_autocast_dtype", lambda kind: torch.float16)
    assert peak_flops(CUDA, torch.float32) == 312e12
    assert peak_flops(CPU, torch.bfloat16) == 0.0
