"""torch.compile of the layers and, on a GPU, of what stands before and behind them: embeddings, LM head and loss.

A layer is compiled separately for training and validation, with padding and without, for packed rows, for the last
layer, and once more when a size changes from batch to batch. At the 9th graph torch would give up and run all further
kinds uncompiled, with a line on stderr that no log has. Layers share their code, so that 24 of them take as many graphs
as one.

Where the compiler does not work, for want of triton or of a C compiler, training goes on without it, after one line
(`check_compiler`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import cache

import torch
from torch import Tensor, nn

logger = logging.getLogger(__name__)

GRAPHS = 64
_has_reported: set[str] = set()


def compile_layers(layers: Iterable[nn.Module], *, backend: str = "inductor") -> None:
    """Compile each layer in place: parameters keep their names. The first graph is for fixed sizes; a size that
    changes becomes a variable of the graph."""
    raise_limit()
    for layer in layers:
        layer.compile(backend=backend)


def undo(modules: Iterable[nn.Module]) -> None:
    """Let all modules run as they are again."""
    for module in modules:
        module._compiled_call_impl = None
        if isinstance(module, CompilesParts):
            module.backend = ""


class CompilesParts:
    """A module with methods that are compiled on a GPU."""

    backend = ""  # of torch.compile; none: methods run as they are

    def graph_of(self, method: Callable[..., Tensor], *, device: torch.device) -> Callable[..., Tensor]:
        """The method of the class, compiled where that is wanted and the device is a GPU. (On a CPU the loss has paths
        of its own, which are faster.)"""
        return _compiled(method, self.backend) if self.backend and device.type == "cuda" else method


@cache
def _compiled(method: Callable[..., Tensor], backend: str) -> Callable[..., Tensor]:
    compiled: Callable[..., Tensor] = torch.compile(method, backend=backend, fullgraph=True)
    return compiled


def raise_limit() -> None:
    """Let torch keep up to GRAPHS graphs of the same code; a higher limit of the user's stays."""
    config = torch._dynamo.config
    for name in ("recompile_limit", "cache_size_limit"):  # the second up to torch 2.6
        if hasattr(config, name):
            setattr(config, name, max(GRAPHS, getattr(config, name)))
            return


def check_compiler(device: torch.device, dtype: torch.dtype) -> str:
    """Why torch.compile does not work here, in one line; "" if it does. Takes seconds.

    A small graph, forward and backward, needs all that those of a model need: triton or a C++ compiler, a driver that
    suits them, and a folder that can be written to.
    """
    x = torch.ones(64, 64, device=device, dtype=dtype, requires_grad=True)
    try:
        torch.compile(_small, fullgraph=True)(x).backward()
    except Exception as error:  # of a compiler, of anything that it calls
        said = (str(error).strip().splitlines() or [""])[0]
        return f"{type(error).__name__}: {said}"[:300]
    return ""


def _small(x: Tensor) -> Tensor:
    return (torch.nn.functional.gelu(x) * 2).float().sum()


def report_no_compiler(reason: str) -> None:
    """Log why nothing is compiled, in one line."""
    logger.warning(
        f"--compile-layers: torch.compile does not work here ({reason}); layers run as they are: correct but slower. "
        "On a GPU it needs the package triton, which comes with torch, and a C compiler."
    )


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
