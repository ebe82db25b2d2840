"""The resources of the machine that this process may use."""

import os


def num_cores() -> int:
    """Number of cores that this process may run on; fewer than the machine has in a container or under taskset."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
