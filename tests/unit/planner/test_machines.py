"""Machines by name and from files."""

import pytest

from roberta_plugin.planner.machines import machine_of
from roberta_plugin.planner.network import MACHINES, Machine

OWN = "memory_gb: 80\ninside_gb_s: 64\nbetween_gb_s: 50\n"


def test_names_and_files(tmp_path):
    assert machine_of("b200") == MACHINES["b200"]
    assert MACHINES["b200"].peak_tflops == 2250
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
        (f"peak_tflops: 0\n{OWN}", "peak_tflops must be positive, got 0"),
        (f"peak_tflops: 1\nprice_per_gpu_hour: -1\n{OWN}", "price_per_gpu_hour must not be negative"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path, text, message):
    path = tmp_path / "ours.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"ours.yaml.*{message}"):
        machine_of(str(path))
