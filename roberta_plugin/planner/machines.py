"""--machine NAME or FILE -> Machine: one of NVIDIA's, or your own.

A file is YAML, with the fields of `Machine`; `gpu`, a name as in `models/device_peaks.py`, may stand for peak_tflops:

    gpu: H100 PCIe
    memory_gb: 80
    inside_gb_s: 64              # between GPUs of a node: per GPU and direction
    between_gb_s: 50             # between nodes: per node and direction
    gpus_per_node: 4
    write_gb_s: 2                # of rank 0, onto the file system of the checkpoints
    price_per_gpu_hour: 2.5
"""

from __future__ import annotations

from pathlib import Path

from roberta_plugin.models.device_peaks import peak_of
from roberta_plugin.planner.network import MACHINES, Machine
from roberta_plugin.settings import convert
from roberta_plugin.training.options_file import read_yaml

_POSITIVE = ("peak_tflops", "memory_gb", "inside_gb_s", "between_gb_s", "gpus_per_node", "write_gb_s")


def machine_of(text: str) -> Machine:
    """The machine of this name, or in this file.

    Raises:
        ValueError: for an unknown name, or a file with an unknown key, without a needed one, or with a bad value.
    """
    if text in MACHINES:
        return MACHINES[text]
    path = Path(text)
    if not path.is_file():
        raise ValueError(f"--machine must be one of {', '.join(MACHINES)}, or a YAML file of your own, got {text!r}.")
    values = {"name": path.stem, **read_yaml(path)}
    gpu = values.pop("gpu", None)
    if gpu is not None and "peak_tflops" not in values:
        peak = peak_of(str(gpu))
        if not peak:
            raise ValueError(f"{path}: the peak of the gpu {gpu!r} is not known: give peak_tflops, dense and in bf16.")
        values["peak_tflops"] = peak / 1e12
    machine = convert(Machine, values, where=str(path))
    for name in _POSITIVE:
        if not 0 < getattr(machine, name) < float("inf"):
            raise ValueError(f"{path}: {name} must be positive, got {getattr(machine, name)}.")
    if machine.price_per_gpu_hour is not None and not 0 <= machine.price_per_gpu_hour < float("inf"):
        raise ValueError(f"{path}: price_per_gpu_hour must not be negative, got {machine.price_per_gpu_hour}.")
    return machine
