"""torch.compile of the layers and, on a GPU, of the parts before and behind them: embeddings, LM head and loss.

A layer is compiled separately for training and validation, with padding and without, for packed rows, for the last
layer, and once more when a size changes from batch to batch. At the 9th graph torch would give up and run all further
kinds uncompiled, with a line on stderr that no log has. Layers share their code: 24 layers take as many graphs as one.

Where triton or a C compiler is missing, training goes on without compiling, after one line in the log
(`check_compiler`). So it does if the compiler fails for this model: in a forward or a backward graph, at any shape
(`Compiled`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

logger = logging.getLogger(__name__)

GRAPHS = 64
_has_reported: set[str] = set()


def compile_layers(layers: Iterable[nn.Module], *, backend: str = "inductor") -> Compiled:
    """Compile each layer in place: parameters keep their names. The first graph is for fixed sizes; a size that
    changes becomes a variable of the graph."""
    prepare_torch()
    compiled = Compiled(layers)
    for layer in compiled.modules:
        layer.compile(backend=backend)
        graph: Any = layer._compiled_call_impl
        layer._compiled_call_impl = partial(compiled.run, graph, layer._call_impl)
    return compiled


class Compiled:
    """Modules of a model that are compiled, and all run as they are once the compiler has failed for one of them.

    Attributes:
        modules: these.
        is_tried: whether a batch has run forward and backward.
        tries_new: whether each new graph is run backward at once, after the first batch.
        has_given_up: whether they run as they are.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self.modules = list(modules)
        self.is_tried = False
        self.tries_new = False
        self.has_given_up = False

    def run(self, compiled: Callable[..., Any], plain: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """The result of `compiled`, or of `plain`, which computes the same, if the compiler fails."""
        if self.has_given_up:
            return plain(*args, **options)
        known = num_graphs()
        try:
            result = compiled(*args, **options)
            if self.tries_new and num_graphs() > known and torch.is_grad_enabled():
                try_backward(compiled, plain, args, options)  # of a shape that the first batch did not have
            return result
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # of a compiler, of anything that it calls, or of the inputs
            self.undo()
            result = plain(*args, **options)  # raises the error of the inputs
            report_failure(error)
            return result

    def try_out(self, compute: Callable[[], Tensor], model: nn.Module) -> None:
        """Compute a loss and its gradients once, and keep nothing of it.

        Without this, what fails in a backward graph would fail in an update, when gradients have been added already.
        Random numbers, gradients and weights stay as they are.
        """
        start = time.monotonic()
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        devices = [parameters[0].device] if parameters[0].is_cuda else []
        with torch.random.fork_rng(devices), without_tracebacks():
            try:
                torch.autograd.grad(compute(), parameters, allow_unused=True)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                if not self.has_given_up:
                    self.undo()
                    report_failure(error)
        self.tries_new = True
        if not self.has_given_up:
            logger.info(f"compiled: {num_graphs()} graphs, in {time.monotonic() - start:.0f} seconds")

    def give_up(self) -> None:
        """Run as they are, because the compiler has failed on another rank."""
        if not self.has_given_up:
            self.undo()
            logger.warning("--compile-layers: torch.compile has failed on another rank; layers run as they are")

    def undo(self) -> None:
        """Let all of them run as they are."""
        self.has_given_up = True
        undo(self.modules)


def try_backward(compiled: Callable[..., Any], plain: Callable[..., Any], args: Any, options: Any) -> None:
    """Compute gradients by a new graph once, and keep nothing of them; raise what fails.

    The inputs are cut off from what has computed them, and random numbers stay as they are.
    """

    def cut(value: object) -> Any:
        return value.detach().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value

    args, options = tree_map(cut, (args, options))
    module: Any = getattr(plain, "__self__", None) or args[0]
    inputs = [*tree_leaves((args, options)), *module.parameters()]
    inputs = [value for value in inputs if isinstance(value, Tensor) and value.requires_grad]
    if not inputs:
        return
    devices = [inputs[0].device] if inputs[0].is_cuda else []
    with torch.random.fork_rng(devices), without_tracebacks():
        try:
            output: Tensor = compiled(*args, **options)
            if output.requires_grad:
                torch.autograd.grad(output, inputs, torch.ones_like(output), allow_unused=True)
        except torch.OutOfMemoryError:
            return  # it has room without the trial


@contextmanager
def without_tracebacks() -> Iterator[None]:
    """While entered, torch's compilers log no errors: what they raise is logged in one line."""
    loggers = [logging.getLogger(f"torch.{name}") for name in ("_dynamo", "_functorch", "_inductor")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


def undo(modules: Iterable[nn.Module]) -> None:
    """Let all modules run as they are again."""
    for module in modules:
        module._compiled_call_impl = None
        if isinstance(module, CompilesParts):
            module.backend = ""


class CompilesParts:
    """A module with methods that are compiled on a GPU."""

    backend = ""  # of torch.compile; none: methods run as they are
    compiled: Compiled | None = None
    """Those that are compiled together with it."""

    def graph_of(self, method: Callable[..., Tensor], *, device: torch.device) -> Callable[..., Tensor]:
        """The method of the class, compiled where that is wanted and the device is a GPU. (On a CPU the loss has paths
        of its own, which are faster.)"""
        if not self.backend or device.type != "cuda":
            return method
        if self.compiled is None:
            self.compiled = Compiled([self])  # type: ignore[list-item]
        return partial(self.compiled.run, _compile(method, self.backend), method)


@cache
def _compile(method: Callable[..., Tensor], backend: str) -> Callable[..., Tensor]:
    compiled: Callable[..., Tensor] = torch.compile(method, backend=backend, fullgraph=True)
    return compiled


def prepare_torch() -> None:
    """Let torch keep up to GRAPHS graphs of the same code; a higher limit of the user's stays.

    And let it compile a backward graph with the forward graph, whose error can still be replaced by a result.
    """
    import torch._functorch.config as functorch

    if hasattr(functorch, "force_non_lazy_backward_lowering"):
        functorch.force_non_lazy_backward_lowering = True
    raise_limit()


def raise_limit() -> None:
    """Let torch keep up to GRAPHS graphs of the same code."""
    config = torch._dynamo.config
    for name in ("recompile_limit", "cache_size_limit"):  # the second up to torch 2.6
        if hasattr(config, name):
            setattr(config, name, max(GRAPHS, getattr(config, name)))
            return


def check_compiler(device: torch.device, dtype: torch.dtype) -> str:
    """Why torch.compile does not work here, in one line; "" if it does. Takes seconds.

    A small graph, forward and backward, needs everything that a model's graphs need: triton or a C++ compiler, a driver
    that suits them, and a folder that can be written to.
    """
    x = torch.ones(64, 64, device=device, dtype=dtype, requires_grad=True)
    try:
        torch.compile(_small, fullgraph=True)(x).backward()
    except Exception as error:  # of a compiler, of anything that it calls
        return reason_of(error)
    return ""


def reason_of(error: BaseException) -> str:
    """A compiler's message in one line, without torch's advice around it."""
    error = getattr(error, "inner_exception", None) or error
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {said}"[:300]


def _small(x: Tensor) -> Tensor:
    return (torch.nn.functional.gelu(x) * 2).float().sum()


def report_no_compiler(reason: str) -> None:
    """Log why nothing is compiled, in one line."""
    logger.warning(
        f"--compile-layers: torch.compile does not work here ({reason}); layers run as they are: correct but slower. "
        "On a GPU it needs the package triton, which comes with torch, and a C compiler."
    )


def report_failure(error: BaseException) -> None:
    """Log why nothing is compiled any more, in one line."""
    logger.warning(
        f"--compile-layers: torch.compile has failed for this model ({reason_of(error)}); layers run as they are: "
        "correct but slower."
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
