"""Machines from files; the time of an all-reduce, at its edges and by hand."""

from dataclasses import replace

import pytest

from roberta_plugin.planner.machines import ACHIEVED, LATENCY_S, Machine, all_reduce_seconds, machine_of
from tests.conftest import REPOSITORY
from tests.nodes import DGX_H100, NODES

TWO = Machine(name="two", peak_tflops=1, memory_gb=1, inside_gb_s=10, between_gb_s=1, gpus_per_node=2)
OWN = "memory_gb: 80\ninside_gb_s: 64\nbetween_gb_s: 50\n"


def test_files(tmp_path):
    assert machine_of(str(REPOSITORY / "slurm" / "machine.yaml")) == replace(DGX_H100, name="machine")
    path = tmp_path / "ours.yaml"
    path.write_text(f"gpu: H100 PCIe\ngpus_per_node: 4\nprice_per_gpu_hour: 2.5\n{OWN}")
    expected = Machine(
        name="ours",
        peak_tflops=756.5,
        memory_gb=80,
        inside_gb_s=64,
        between_gb_s=50,
        gpus_per_node=4,
        price_per_gpu_hour=2.5,
    )
    assert machine_of(str(path)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu: abacus\n" + OWN, "the peak of the gpu 'abacus' is not known: give peak_tflops"),
        (OWN, "peak-tflops is missing"),
        (f"peak_tflops: 100\n{OWN}gpus: 8\n", "unknown key 'gpus'"),
        (f"peak_tflops: much\n{OWN}", "--peak-tflops is 'much', which is not a number"),
        (f"peak_tflops: 0\n{OWN}", "--peak-tflops must be greater than 0, got 0"),
        (f"peak_tflops: 1\nprice_per_gpu_hour: -1\n{OWN}", "--price-per-gpu-hour must be 0 or more, got -1"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path, text, message):
    path = tmp_path / "ours.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"ours.yaml.*{message}"):
        machine_of(str(path))


def test_one_gpu_waits_for_no_other():
    assert all_reduce_seconds(1e9, num_gpus=1, machine=TWO) == 0


def test_by_hand():
    """2 GPUs pass the data once; 4 nodes of them pass 2 x 3/4 of it between the nodes as well."""
    inside = 1e9 / (10e9 * ACHIEVED)
    assert all_reduce_seconds(1e9, num_gpus=2, machine=TWO) == pytest.approx(inside)
    between = 1.5 * 1e9 / (1e9 * ACHIEVED) + 6 * LATENCY_S
    assert all_reduce_seconds(1e9, num_gpus=8, machine=TWO) == pytest.approx(inside + between)


def test_time_grows_with_gpus_and_bytes_and_stays_bounded():
    for machine in NODES:
        times = [all_reduce_seconds(7e8, num_gpus=2**k, machine=machine) for k in range(11)]
        assert times == sorted(times)
        limit = 2 * 7e8 * (1 / machine.inside_gb_s + 1 / machine.between_gb_s) / (1e9 * ACHIEVED)
        assert limit / 2 < times[-1] < limit + 256 * LATENCY_S
        assert all_reduce_seconds(14e8, num_gpus=1024, machine=machine) > 1.5 * times[-1]
