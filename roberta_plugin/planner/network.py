"""Time of a gradient all-reduce: a model of the network, and the machines it is applied to."""

from __future__ import annotations

from dataclasses import dataclass

from roberta_plugin.models.device_peaks import peak_of

ACHIEVED = 0.8  # share of the nominal bandwidth that NCCL reaches with large messages; an assumption
LATENCY_S = 10e-6  # per message between nodes; an assumption


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A node and its network; nominal numbers from the vendor's data sheets."""

    name: str
    peak_tflops: float  # dense, in the 16-bit type
    memory_gb: float  # of one GPU
    inside_gb_s: float  # between GPUs of a node: per GPU and direction
    between_gb_s: float  # between nodes: per node and direction
    gpus_per_node: int = 8
    write_gb_s: float = 1.0  # of rank 0, onto the file system of the checkpoints; an assumption
    price_per_gpu_hour: float | None = None


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
