"""FLOPs of a training step, and the peak FLOP/s of devices: for the figures in the training log.

Letters: L layers, h model dimension, f feed-forward dimension, V vocabulary.
"""

from __future__ import annotations

import torch

# Dense peak in half precision, FLOP/s, from NVIDIA's data sheets (SXM boards where there are several).
HALF_PRECISION_PEAKS = {"V100": 125e12, "A100": 312e12, "H100": 989e12, "H200": 989e12, "B200": 2250e12}


def training_flops(
    *,
    num_layers: int,
    dim: int,
    ffn_dim: int,
    vocab_size: int,
    num_tokens: int,
    num_pairs: int,
    num_predicted: int,
) -> float:
    """FLOPs of forward and backward, counting a multiply-add as two.

        6 L (4 h^2 + 2 h f) tokens  +  12 L h pairs  +  6 (h^2 + h V) predicted

    6 FLOPs per weight and token (Kaplan et al. 2020, section 2.1), the two matmuls of attention for each pair of
    positions that attend to each other, and the LM head for each predicted position. Padding and recomputation do not
    count. The last layer counts in full, as is usual for MFU.

    Args:
        num_layers: L.
        dim: h.
        ffn_dim: f.
        vocab_size: V.
        num_tokens: tokens, pads not counted.
        num_pairs: the sum of the squared lengths of the sequences.
        num_predicted: predicted positions.
    """
    layers = 6.0 * num_layers * (4 * dim * dim + 2 * dim * ffn_dim) * num_tokens
    attention = 12.0 * num_layers * dim * num_pairs
    return layers + attention + 6.0 * (dim * dim + dim * vocab_size) * num_predicted


def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Peak FLOP/s of the device in this type; 0 if unknown."""
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return 0.0
    return peak_of(torch.cuda.get_device_name(device))


def peak_of(device_name: str) -> float:
    """Peak FLOP/s in half precision of the device with this name; 0 if unknown."""
    return next((peak for model, peak in HALF_PRECISION_PEAKS.items() if model in device_name), 0.0)
