"""Nodes and their networks: NVIDIA's by name, or your own from a file; the time of a gradient all-reduce.

A file of your own is YAML with the fields of `Machine`; `gpu`, a name as in `models/flops.py`, may stand for
peak_tflops:

    gpu: H100 PCIe
    memory_gb: 80
    inside_gb_s: 64              # between GPUs of a node: per GPU and direction
    between_gb_s: 50             # between nodes: per node and direction
    gpus_per_node: 4
    write_gb_s: 2                # of rank 0, onto the file system of the checkpoints
    price_per_gpu_hour: 2.5
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from roberta_plugin.models.flops import peak_of
from roberta_plugin.settings import REQUIRED, Checked, convert, setting
from roberta_plugin.training.options_file import read_yaml

ACHIEVED = 0.8  # share of the nominal bandwidth that NCCL reaches with large messages; an assumption
LATENCY_S = 10e-6  # per message between nodes; an assumption


@dataclass(frozen=True, kw_only=True)
class Machine(Checked):
    """A node and its network; nominal numbers from the vendor's data sheets."""

    name: str
    peak_tflops: float = setting(REQUIRED, "dense, in the 16-bit type", above=0)
    memory_gb: float = setting(REQUIRED, "of one GPU", above=0)
    inside_gb_s: float = setting(REQUIRED, "between GPUs of a node: per GPU and direction", above=0)
    between_gb_s: float = setting(REQUIRED, "between nodes: per node and direction", above=0)
    gpus_per_node: int = setting(8, "in the node", above=0)
    write_gb_s: float = setting(1.0, "of rank 0, onto the file system of the checkpoints; an assumption", above=0)
    price_per_gpu_hour: float | None = setting(None, "in any currency", smallest=0)


def _machine(
    name: str, gpu: str, *, memory_gb: float, inside_gb_s: float, adapters: int, gbit: int, gpus_per_node: int = 8
) -> Machine:
    """A node with `adapters` network adapters of `gbit` Gbit/s each."""
    return Machine(
        name=name,
        peak_tflops=peak_of(gpu) / 1e12,
        memory_gb=memory_gb,
        inside_gb_s=inside_gb_s,
        between_gb_s=adapters * gbit / 8,
        gpus_per_node=gpus_per_node,
    )


# NVIDIA's DGX machines. inside_gb_s is half of the usually quoted NVLink bandwidth, which counts both directions.
MACHINES = {
    machine.name: machine
    for machine in (
        _machine("v100", "V100", memory_gb=32, inside_gb_s=150, adapters=4, gbit=100),
        _machine("v100-dgx2", "V100", memory_gb=32, inside_gb_s=150, adapters=8, gbit=100, gpus_per_node=16),
        _machine("a100", "A100", memory_gb=80, inside_gb_s=300, adapters=8, gbit=200),
        _machine("h100", "H100", memory_gb=80, inside_gb_s=450, adapters=8, gbit=400),
        _machine("h200", "H200", memory_gb=141, inside_gb_s=450, adapters=8, gbit=400),
        _machine("b200", "B200", memory_gb=180, inside_gb_s=900, adapters=8, gbit=400),
    )
}


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
    try:
        return convert(Machine, values, where=str(path))
    except ValueError as error:
        where = "" if str(error).startswith(str(path)) else f"{path}: "
        raise ValueError(f"{where}{error}") from None


def all_reduce_seconds(num_bytes: float, *, num_gpus: int, machine: Machine) -> float:
    """Seconds of an all-reduce of `num_bytes` on every GPU.

        2 (g - 1) / g  S / B_inside  +  2 (n - 1) / n  S / B_between  +  2 (n - 1) latency

    A ring sends 2 (p - 1) / p of the data through each of p members, the minimum (Patarasuk and Yuan 2009, "Bandwidth
    optimal all-reduce algorithms for clusters of workstations"). The g GPUs of a node reduce-scatter among themselves,
    the n nodes all-reduce the parts over all their adapters at once, and the GPUs of each node gather the result.
    Bandwidths are multiplied by `ACHIEVED`.
    """
    inside = min(num_gpus, machine.gpus_per_node)
    nodes = -(-num_gpus // machine.gpus_per_node)
    seconds = _ring(num_bytes, inside, machine.inside_gb_s) + _ring(num_bytes, nodes, machine.between_gb_s)
    return seconds + 2 * (nodes - 1) * LATENCY_S


def _ring(num_bytes: float, members: int, gb_s: float) -> float:
    return 2 * (members - 1) / members * num_bytes / (gb_s * 1e9 * ACHIEVED)
