"""The model of the all-reduce, at its edges and by hand."""

import pytest

from roberta_plugin.planner.network import ACHIEVED, LATENCY_S, MACHINES, Machine, all_reduce_seconds

TWO = Machine(name="two", peak_tflops=1, memory_gb=1, inside_gb_s=10, between_gb_s=1, gpus_per_node=2)


def test_one_gpu_waits_for_nobody():
    assert all_reduce_seconds(1e9, num_gpus=1, machine=TWO) == 0


def test_by_hand():
    """2 GPUs pass the data once; 4 nodes of them pass 2 x 3/4 of it between the nodes as well."""
    inside = 1e9 / (10e9 * ACHIEVED)
    assert all_reduce_seconds(1e9, num_gpus=2, machine=TWO) == pytest.approx(inside)
    between = 1.5 * 1e9 / (1e9 * ACHIEVED) + 6 * LATENCY_S
    assert all_reduce_seconds(1e9, num_gpus=8, machine=TWO) == pytest.approx(inside + between)


def test_time_grows_with_gpus_and_bytes_and_stays_bounded():
    for machine in MACHINES.values():
        times = [all_reduce_seconds(7e8, num_gpus=2**k, machine=machine) for k in range(11)]
        assert times == sorted(times)
        limit = 2 * 7e8 * (1 / machine.inside_gb_s + 1 / machine.between_gb_s) / (1e9 * ACHIEVED)
        assert limit / 2 < times[-1] < limit + 256 * LATENCY_S
        assert all_reduce_seconds(14e8, num_gpus=1024, machine=machine) > 1.5 * times[-1]
