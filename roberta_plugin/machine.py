"""The resources of the machine that this process may use."""

import os
from functools import cache
from pathlib import Path
from typing import Literal

Precision = Literal["fp32", "bf16", "int8"]
"""Precisions of the products of a trained model's answers (`models/precision.py`)."""
SPIN_COUNT = "1000"
"""GOMP_SPINCOUNT, read when torch is imported: threads that spin while they wait make a busy machine much slower; a
short spin costs an idle machine nothing."""


def num_cores() -> int:
    """Number of cores that this process may run on; fewer than the machine has in a container or under taskset."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def processor_words(key: str) -> frozenset[str]:
    """The words of an entry of Linux's description of the processor, such as its "flags"; elsewhere none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return next((frozenset(line.split()) for line in lines if line.startswith(key)), frozenset())
