"""A forward and a backward pass of layers, recorded as two CUDA graphs, for `cuda_graphs`.

Shapes: B blocks, T positions, Q positions whose features are wanted, D model dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Layers = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
"""Embeddings (B, T, D), padding (B, T) or None, positions (B, Q) or None -> features (B, T, D), or (B, Q, D)."""


class Inputs(NamedTuple):
    """Of layers."""

    x: Tensor
    """Embeddings (B, T, D)."""
    is_padding: Tensor | None
    """(B, T), or None."""
    positions: Tensor | None
    """(B, Q), or None."""


Place = tuple[dict[str, Any], str]
"""Where a module keeps a parameter: its dict, and the name in it."""

_WARM_UPS = 3  # as torch.cuda.make_graphed_callables: libraries allocate and choose algorithms in the first calls


class CudaRecorder:
    """Records kernels as CUDA graphs that share their memory.

    Once all graphs of a recorder are gone, torch refuses to record another one into their memory: take a new recorder.
    """

    device_type = "cuda"

    def __init__(self, device: torch.device) -> None:
        self._device, self._pool = device, torch.cuda.graph_pool_handle()
        # The same ones for all recordings: cuBLAS keeps 32 MiB for each stream that it has ever run on.
        self._warm_up_stream, self._stream = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def warm_up(self, function: Callable[[], None]) -> None:
        """Call `function` a few times, beside the current stream, as a recording will."""
        with torch.cuda.device(self._device):
            stream = torch.cuda.current_stream()
            self._warm_up_stream.wait_stream(stream)
            try:
                with torch.cuda.stream(self._warm_up_stream):
                    for _ in range(_WARM_UPS):
                        function()
            finally:  # also when memory runs out: kernels still write to what is then freed
                stream.wait_stream(self._warm_up_stream)

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        """Record the kernels that `function` starts; what is returned starts them again."""
        with torch.cuda.device(self._device):
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
            try:
                # By thread: others, as the one that pins batches, may allocate in the meantime.
                with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                    function()
            finally:  # torch stays on its stream when it cannot end a recording
                torch.cuda.set_stream(stream)
        return graph.replay  # type: ignore[no-any-return]


class Gradients:
    """One memory for the gradients of all trained parameters, end to end: each backward pass overwrites them.

    Shared by all recordings: for each of 64 shapes a copy of its own would take 39 GB for RoBERTa large in bf16.
    """

    def __init__(self, params: Sequence[Tensor]) -> None:
        self._params = params
        self._sizes = [parameter.numel() for parameter in params]
        dtype = reduce(torch.promote_types, (parameter.dtype for parameter in params))
        self._flat = torch.empty(sum(self._sizes), dtype=dtype, device=params[0].device)
        self._parts = self._in_parts(self._flat)

    def write(self, gradients: Sequence[Tensor]) -> None:
        """Overwrite the gradients."""
        torch._foreach_copy_(self._parts, list(gradients))

    def copies(self) -> list[Tensor]:
        """A copy of each gradient, of its parameter's shape; all of them are one tensor."""
        return self._in_parts(self._flat.clone())

    def _in_parts(self, flat: Tensor) -> list[Tensor]:
        parts = flat.split(self._sizes)
        return [part.view_as(parameter) for part, parameter in zip(parts, self._params, strict=True)]


class Recording:
    """The graphs of one shape, forward and backward, with the memory that they read and write.

    Args:
        recorder: records on the device of the inputs.
        layers: what is recorded.
        inputs: of `layers`; their shapes and types are recorded, and which of them are None.
        places: where the modules of the layers keep their parameters.
        gradients: where the backward pass writes those of the trained parameters.

    Attributes:
        inputs: copies of the inputs, to be overwritten.
        output: features, rewritten by `forward`.
        output_gradient: to be overwritten before `backward`.
        x_gradient: rewritten by `backward`; None if x needs none.
        gradients: rewritten by `backward`.
        forward, backward: replay the graphs.
    """

    def __init__(
        self,
        recorder: Any,
        layers: Layers,
        inputs: Inputs,
        places: Sequence[Place],
        gradients: Gradients,
    ) -> None:
        x = inputs.x
        self._x = x.detach().clone().requires_grad_(x.requires_grad)
        self.inputs = Inputs(self._x, *(None if tensor is None else tensor.clone() for tensor in inputs[1:]))
        self._layers, self._places, self.gradients = layers, places, gradients
        self._stand_ins = [_same_memory(owner[name]) for owner, name in places]
        self._trained = [parameter for parameter in self._stand_ins if parameter.requires_grad]
        self._result: Tensor | None = None
        self.x_gradient = torch.empty_like(x) if x.requires_grad else None
        # Nothing that is drawn here may change what a training draws, wherever in it the recording happens.
        with torch.random.fork_rng([x.device] if x.is_cuda else []):
            with torch.no_grad():
                self.output = layers(*self.inputs).clone()
            self.output_gradient = torch.zeros_like(self.output)
            recorder.warm_up(self._forward_and_backward)
            self.forward = recorder.record(self._forward)
            self.backward = recorder.record(self._backward)

    @torch.no_grad()
    def read(self, inputs: Inputs) -> None:
        """Copy the values of the inputs; the gradient of x is the caller's business."""
        for static, tensor in zip(self.inputs, inputs, strict=True):
            if static is not None and tensor is not None:
                static.copy_(tensor)

    @torch.enable_grad()
    def _forward(self) -> None:
        with _in_places(self._places, self._stand_ins):
            self._result = self._layers(*self.inputs)
        self.output.copy_(self._result.detach())

    def _forward_and_backward(self) -> None:
        self._forward()
        self._backward()

    def _backward(self) -> None:
        result, self._result = self._result, None
        assert result is not None
        wanted = (self._x, *self._trained) if self.x_gradient is not None else self._trained
        gradients = list(torch.autograd.grad(result, wanted, self.output_gradient))
        if self.x_gradient is not None:
            self.x_gradient.copy_(gradients.pop(0))
        self.gradients.write(gradients)


def _same_memory(parameter: nn.Parameter) -> nn.Parameter:
    """A parameter with the memory of another one, but without its hooks and its node in graphs of autograd.

    torch's DistributedDataParallel keeps the nodes of the model's own parameters, which belong to the stream that it
    was made on. That stream would have to wait for the one that is recorded, which CUDA refuses.
    """
    return nn.Parameter(parameter.detach(), requires_grad=parameter.requires_grad)


@contextmanager
def _in_places(places: Sequence[Place], others: Sequence[nn.Parameter]) -> Iterator[None]:
    """Where modules use other parameters than their own."""
    own = [owner[name] for owner, name in places]
    try:
        for (owner, name), other in zip(places, others, strict=True):
            owner[name] = other
        yield
    finally:
        for (owner, name), parameter in zip(places, own, strict=True):
            owner[name] = parameter
