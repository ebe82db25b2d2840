"""Peaks of GPUs by the names that torch gives them, and by the type that is computed in."""

import pytest
import torch

from roberta_plugin.models import device_peaks
from roberta_plugin.models.device_peaks import PEAKS, peak_flops, peak_of, peaks_of

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
        ("AMD Instinct MI300X", 1307.4),
        ("Some other device", 0),
    ],
)
def test_peaks_are_found_by_the_name_of_the_device(name, bf16):
    assert peaks_of(name).bf16 == bf16


def test_half_precision_of_a_v100_is_fp16():
    assert peak_of("Tesla V100-SXM2-32GB") == 125e12
    assert peak_of("Tesla V100-PCIE-16GB") == 112e12


@pytest.mark.parametrize("name", PEAKS)
def test_peaks_are_dense_and_in_order(name):
    """Tensor cores: TF32 at half the speed of 16 bits; a number with sparsity would be twice too large."""
    fp16, bf16, tf32, fp32 = PEAKS[name]
    assert bf16 in (0, fp16)
    assert tf32 == 0 or tf32 == pytest.approx(fp16 / 2, rel=0.02)
    assert 0 < fp32 < fp16


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
    monkeypatch.setattr(device_peaks.torch, "is_autocast_enabled", lambda kind: True)
    monkeypatch.setattr(device_peaks.torch, "get_autocast_dtype", lambda kind: torch.float16)
    assert peak_flops(CUDA, torch.float32) == 312e12
    assert peak_flops(CPU, torch.bfloat16) == 0.0
