"""Nodes for tests of the planner: NVIDIA's DGX-1, DGX-2H and DGX H100."""

from roberta_plugin.planner.training import Machine

_V100 = {"peak_tflops": 125, "memory_gb": 32, "inside_gb_s": 150}
DGX_1 = Machine(name="v100", between_gb_s=50, gpus_per_node=8, **_V100)
DGX_2 = Machine(name="v100-dgx2", between_gb_s=100, gpus_per_node=16, **_V100)
DGX_H100 = Machine(name="h100", peak_tflops=989.4, memory_gb=80, inside_gb_s=450, between_gb_s=400, gpus_per_node=8)
NODES = (DGX_1, DGX_2, DGX_H100)
