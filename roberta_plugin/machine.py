"""What this process may use of the machine."""

import os


def num_cores() -> int:
    """Processor cores that this process may run on: fewer than there are in a container or under taskset."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
