"""Nodes and their network, from a file; the time of a gradient all-reduce.

The file is YAML with the fields of `Machine`, as slurm/machine.yaml; `gpu`, a name as in `models/flops.py`, may stand
for peak_tflops.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from roberta_plugin.launch.options_file import read_yaml
from roberta_plugin.models.flops import peak_of
from roberta_plugin.settings import REQUIRED, Checked, convert, setting

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


def machine_of(text: str) -> Machine:
    """The machine in this file.

    Raises:
        ValueError: if there is none, or for an unknown key, a missing one, or a bad value.
    """
    path = Path(text)
    if not path.is_file():
        raise ValueError(
            f"--machine {text} is no file: name a YAML file with the numbers of your nodes; slurm/machine.yaml of this "
            "plugin's repository has those of a DGX H100."
        )
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
