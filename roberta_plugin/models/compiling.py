"""torch.compile of the encoder's layers: enough graphs for all kinds of batches, and a warning when they run out.

A layer is compiled separately for training and validation, with padding and without, for packed rows, for the last
layer, and once more when a size changes from batch to batch. At the 9th graph torch would give up and run all further
kinds uncompiled, with a line on stderr that no log has.

Layers share their code, so that 24 of them take as many graphs as one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch
from torch import nn

logger = logging.getLogger(__name__)

GRAPHS = 64
_has_reported: set[str] = set()


def compile_layers(layers: Iterable[nn.Module], *, backend: str = "inductor") -> None:
    """Compile each layer in place: parameters keep their names. The first graph is for fixed sizes; a size that
    changes becomes a variable of the graph."""
    raise_limit()
    for layer in layers:
        layer.compile(backend=backend)


def raise_limit() -> None:
    """Let torch keep up to GRAPHS graphs of the same code; a higher limit of the user's stays."""
    config = torch._dynamo.config
    for name in ("recompile_limit", "cache_size_limit"):  # the second up to torch 2.6
        if hasattr(config, name):
            setattr(config, name, max(GRAPHS, getattr(config, name)))
            return


def report_eager() -> None:
    """Called by a compiled layer that runs as it is, outside of a graph: warn, once per process."""
    if "eager" not in _has_reported:
        _has_reported.add("eager")
        logger.warning(
            f"--compile-layers: torch has given up compiling after {num_graphs()} graphs, and a layer now runs as it "
            "is: correct but slower. Give batches fewer shapes: --pad-to-multiple, or --pack-sequences with "
            "--max-tokens N --pad-to-multiple N; TORCH_LOGS=recompiles shows what changes."
        )


def num_graphs() -> int:
    """Graphs that torch.compile has made in this process so far."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])
