"""FLOPs of a training step, and the peak FLOP/s of GPUs: for the figures in the training log.

Letters: L layers, of them G with attention to whole sequences, h model dimension, f feed-forward dimension, V
vocabulary.

Peaks, the denominator of `mfu`, go by torch's names of GPUs. They are of dense matrix products, half of the figure
"with sparsity" in recent data sheets, at the boost clock. From the vendors' data sheets and architecture whitepapers:

    NVIDIA V100, T4, A10, A30, A40, A100, L4, L40, L40S, H100, H200, HGX/DGX B200, GB200 NVL72, HGX B300, GB300 NVL72
    data sheets; RTX A6000 and RTX 6000 Ada data sheets; whitepapers "Ampere GA102", "Ada GPU architecture" and "RTX
    Blackwell GPU architecture" for GeForce, with accumulation in fp32, which trainings use. A800 and H800 compute as
    A100 and H100; their links are slower. H20: NVIDIA's published comparison for China. A10G: AWS, EC2 G5.
    AMD Instinct MI210, MI250X (torch counts each of its two dies as a device), MI300X, MI325X, MI350X, MI355X data
    sheets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch


def training_flops(
    *,
    num_layers: int,
    dim: int,
    ffn_dim: int,
    vocab_size: int,
    num_tokens: float,
    num_pairs: float,
    num_predicted: float,
    num_sequences: float = 0,
    sequence_classes: Sequence[int] = (),
    ffn_matrices: int = 2,
    num_local_layers: int = 0,
    window: int = 0,
) -> float:
    """FLOPs of forward and backward, counting a multiply-add as two.

        6 L (4 h^2 + 2 h f) tokens  +  12 L h pairs  +  6 (h^2 + h V) predicted  +  6 (h^2 + C h) sequences

    In layers with a local window there are at most (window + 1) tokens pairs. At the ends of sequences there are fewer:
    this is a bound, which is close in long sequences.

    6 FLOPs per weight and token (Kaplan et al. 2020, section 2.1), the two matmuls of attention for each pair of
    positions that attend to each other, the LM head for each predicted position, and heads for classes of
    sequences for each sequence. Padding and recomputation do not count. The last layer counts in full, as is
    usual for MFU.

    Args:
        num_layers: L.
        dim: h.
        ffn_dim: f.
        vocab_size: V.
        num_tokens: tokens, pads not counted.
        num_pairs: the sum of the squared lengths of the sequences.
        num_predicted: predicted positions.
        num_sequences: sequences whose <s> the heads for classes of sequences read.
        sequence_classes: C, the classes of each such head.
        ffn_matrices: of h x f in a layer, 2 above, or 3 with a gate.
        num_local_layers: L - G, layers with a local window.
        window: positions that attend to one in those layers, beside itself.
    """
    layers = 6.0 * num_layers * (4 * dim * dim + ffn_matrices * dim * ffn_dim) * num_tokens
    num_local_pairs = min(num_pairs, (window + 1) * num_tokens)
    attention = 12.0 * dim * ((num_layers - num_local_layers) * num_pairs + num_local_layers * num_local_pairs)
    heads = 6.0 * (dim * dim + dim * vocab_size) * num_predicted
    heads += sum(6.0 * (dim * dim + classes * dim) * num_sequences for classes in sequence_classes)
    return layers + attention + heads


def executed_flops(
    *,
    num_layers: int,
    dim: int,
    ffn_dim: int,
    vocab_size: int,
    num_tokens: int,
    num_pairs: int,
    num_predicted: int,
    num_sequences: int = 0,
    sequence_classes: Sequence[int] = (),
    ffn_matrices: int = 2,
    num_local_layers: int = 0,
    window: int = 0,
    last_is_local: bool = False,
    recomputes: bool = False,
) -> float:
    """FLOPs that our model executes for a step, 3 to 6 % less.

        6 (L - 1) (4 h^2 + 2 h f) tokens  +  12 (L - 1) h pairs  +  6 (h^2 + h V) predicted
        +  6 (2 h^2 tokens  +  (2 h^2 + 2 h f) predicted)  +  12 h pairs predicted / tokens
        +  6 (h^2 + C h) sequences

    The last layer makes keys and values of all tokens, and the rest for the predicted positions only, to which
    each <s> belongs in the second line, if a head reads it. With activations recomputed, layers cost a third
    more. Padding is left out, as above. Local layers are counted as the flash kernel computes them: the other backends
    compute twice the window, and all positions of the last layer.
    """
    sizes: dict[str, Any] = {"dim": dim, "ffn_dim": ffn_dim, "ffn_matrices": ffn_matrices, "vocab_size": vocab_size}
    counts: dict[str, Any] = {"num_tokens": num_tokens, "num_pairs": num_pairs, "num_predicted": 0}
    num_last = num_predicted + (num_sequences if sequence_classes else 0)  # positions that leave the last layer
    local: dict[str, Any] = {"num_local_layers": num_local_layers - last_is_local, "window": window}
    layers = training_flops(num_layers=num_layers - 1, **sizes, **counts, **local)
    layers += 6.0 * (2 * dim * dim * num_tokens + (2 * dim * dim + ffn_matrices * dim * ffn_dim) * num_last)
    num_last_pairs = min(num_pairs, (window + 1) * num_tokens) if last_is_local else num_pairs
    layers += 12.0 * dim * num_last_pairs * num_last / max(num_tokens, 1)
    counts = {"num_tokens": 0, "num_pairs": 0, "num_predicted": num_predicted}
    of_sequences: dict[str, Any] = {"num_sequences": num_sequences, "sequence_classes": sequence_classes}
    heads = training_flops(num_layers=0, **sizes, **counts, **of_sequences)
    return layers * (4 / 3 if recomputes else 1) + heads


class Peaks(NamedTuple):
    """10^12 FLOP/s; 0 where the device has no such arithmetic."""

    fp16: float
    bf16: float
    tf32: float
    fp32: float


def _half(half: float, tf32: float, fp32: float) -> Peaks:
    return Peaks(half, half, tf32, fp32)


_AMPERE, _HOPPER, _HOPPER_PCIE, _HOPPER_NVL = (
    _half(312, 156, 19.5),
    _half(989.4, 494.7, 66.9),
    _half(756.5, 378, 51.2),
    _half(835.5, 417.5, 60),
)

# Words of the device's name, all of which it must have; the entry with the most words counts. SXM boards where a name
# does not say.
PEAKS = {
    "V100": Peaks(125, 0, 0, 15.7),
    "V100 PCIE": Peaks(112, 0, 0, 14),
    "T4": Peaks(65, 0, 0, 8.1),
    "A10": _half(125, 62.5, 31.2),
    "A10G": _half(70, 35, 31.2),
    "A30": _half(165, 82, 10.3),
    "A40": _half(149.7, 74.8, 37.4),
    "A100": _AMPERE,
    "A800": _AMPERE,
    "RTX A6000": _half(154.8, 77.4, 38.7),
    "RTX 3090": _half(71, 35.6, 35.6),
    "RTX 4090": _half(165.2, 82.6, 82.6),
    "RTX 5090": _half(209.5, 104.8, 104.8),
    "RTX 6000 ADA": _half(364.2, 182.1, 91.1),
    "L4": _half(121, 60, 30.3),
    "L40": _half(181, 90.5, 90.5),
    "L40S": _half(362, 183, 91.6),
    "H20": _half(148, 74, 44),
    "H100": _HOPPER,
    "H100 PCIE": _HOPPER_PCIE,
    "H100 NVL": _HOPPER_NVL,
    "H800": _HOPPER,
    "H800 PCIE": _HOPPER_PCIE,
    "H200": _HOPPER,
    "H200 NVL": _HOPPER_NVL,
    "GH200": _HOPPER,
    "B200": _half(2250, 1125, 75),
    "GB200": _half(2500, 1250, 80),
    "B300": _half(2250, 1125, 75),
    "GB300": _half(2500, 1250, 80),
    "MI210": _half(181, 0, 45.3),
    "MI250X": _half(191.5, 0, 47.9),
    "MI300X": _half(1307.4, 653.7, 163.4),
    "MI325X": _half(1307.4, 653.7, 163.4),
    "MI350X": _half(2309.6, 0, 144.2),
    "MI355X": _half(2516.6, 0, 157.3),
}
# Parts and smaller versions of such devices.
OTHERS = {"LAPTOP", "MIG", "MAX", "D", "VGPU"}


def device_peaks(device_name: str) -> Peaks:
    """Peaks of the device with this name, 10^12 FLOP/s; zeros if it is unknown.

    Example: device_peaks("NVIDIA H100 PCIe").bf16 is 756.5.
    """
    words = set(re.split(r"[\s\-_/]+", device_name.upper()))
    fitting = [key for key in PEAKS if set(key.split()) <= words]
    if not fitting or words & OTHERS:
        return Peaks(0, 0, 0, 0)
    return PEAKS[max(fitting, key=lambda key: len(key.split()))]


def half_precision_peak(device_name: str) -> float:
    """Peak FLOP/s in half precision of the device with this name; 0 if unknown."""
    return 1e12 * device_peaks(device_name).fp16


def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Peak FLOP/s of the device for matrix products of parameters of this type; 0 if unknown.

    Under autocast in its type; in fp32 with TF32 where torch may use that.
    """
    if device.type != "cuda":
        return 0.0
    peaks = device_peaks(torch.cuda.get_device_name(device))
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
    if dtype == torch.float32:
        may_round = torch.backends.cuda.matmul.allow_tf32 and peaks.tf32 > 0
        return 1e12 * (peaks.tf32 if may_round else peaks.fp32)
    return 1e12 * {torch.float16: peaks.fp16, torch.bfloat16: peaks.bf16}.get(dtype, 0.0)
