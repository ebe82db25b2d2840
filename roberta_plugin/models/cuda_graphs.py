"""`--cuda-graphs`: in training, replay the encoder's layers as CUDA graphs, one pair for each shape of a batch.

A short batch, as in fine-tuning, takes a GPU less time than Python needs to start its kernels one by one. A graph
starts all of them at once. Graphs read and write the same memory at every replay; what goes in is copied there, and
what comes out is copied from there, so that nothing that callers hold changes under their hands.

All graphs share their memory. So there may be one forward pass at a time that still waits for its backward pass; in the
meantime, others run as they are, without a graph. Random numbers are those that the layers would draw without graphs.

Shapes: B blocks, T positions, Q positions whose features are wanted, D model dimension.
"""

from __future__ import annotations

import logging
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

logger = logging.getLogger(__name__)

Layers = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
"""Embeddings (B, T, D), padding (B, T) or None, positions (B, Q) or None -> features (B, T, D), or (B, Q, D)."""

MOST_POSITIONS = 8192  # B x T; a larger batch keeps a GPU busy for longer than its kernels take to start
MOST_GRAPHS = 64
_WARM_UPS = 3  # as torch.cuda.make_graphed_callables: libraries allocate and choose algorithms in the first calls


class CudaRecorder:
    """Records kernels as CUDA graphs that share their memory."""

    device_type = "cuda"

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def warm_up(self, function: Callable[[], None]) -> None:
        """Call `function` a few times, beside the current stream, as a recording will."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                function()
        torch.cuda.current_stream().wait_stream(stream)

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        """Record the kernels that `function` starts; what is returned starts them again."""
        graph = torch.cuda.CUDAGraph()
        # By thread: others, as the one that pins batches, may allocate in the meantime.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            function()
        return graph.replay  # type: ignore[no-any-return]


class LayerGraphs:
    """Runs layers for shapes that come again by graphs, and others as they are.

    Args:
        modules: those whose parameters the layers use; the same ones throughout a training.
        recorder: makes what records; it has the type of its devices as `device_type`.
    """

    def __init__(self, modules: nn.Module, recorder: Callable[[], Any] = CudaRecorder) -> None:
        self._modules, self._new_recorder = modules, recorder
        self._params: tuple[nn.Parameter, ...] = ()
        self.forget()

    def forget(self) -> None:
        """Remove all graphs."""
        self._recorder: Any = None
        self._recordings: dict[Any, _Recording] = {}
        self._times_seen: Counter[Any] = Counter()
        self._addresses: tuple[int, ...] = ()
        self._waiting: Callable[[], _Pass | None] = lambda: None

    def __call__(self, layers: Layers, x: Tensor, is_padding: Tensor | None, positions: Tensor | None) -> Tensor:
        """`layers(x, is_padding, positions)`, by a graph if there is one for these shapes or it is time for one.

        Where parameters have moved, or others are frozen, graphs are made anew.

        Args:
            layers: what is to be run, with the parameters of `modules` alone; it must not wait for the GPU.
            x: embeddings (B, T, D).
            is_padding: (B, T), or None.
            positions: (B, Q), or None.
        """
        self._params = self._params or tuple(self._modules.parameters())  # to walk all modules takes 0.3 ms
        trained = tuple(parameter for parameter in self._params if parameter.requires_grad)
        waiting = self._waiting()
        if not trained or (waiting is not None and not waiting.is_over) or not self._serves(x):
            return layers(x, is_padding, positions)
        addresses = tuple(parameter.data_ptr() for parameter in trained)
        if addresses != self._addresses:
            self.forget()
            self._addresses = addresses
        inputs = (x, is_padding, positions)
        key = (x.dtype, x.requires_grad, *(None if tensor is None else tensor.shape for tensor in inputs))
        recording = self._recordings.get(key) or self._new_recording(key, layers, inputs, trained)
        if recording is None:
            return layers(x, is_padding, positions)
        recording.read(inputs)
        this_pass = _Pass()
        self._waiting = weakref.ref(this_pass)
        output: Tensor = _Replay.apply(this_pass, recording, x, *trained)  # type: ignore[no-untyped-call]
        return output

    def _serves(self, x: Tensor) -> bool:
        """Not under autocast either, which casts parameters once for several calls."""
        device_type = x.device.type
        is_plain = torch.is_grad_enabled() and not torch.is_autocast_enabled(device_type)
        is_short = x.size(0) * x.size(1) <= MOST_POSITIONS
        return is_plain and is_short and device_type == getattr(self._new_recorder, "device_type", None)

    def _new_recording(
        self, key: Any, layers: Layers, inputs: tuple[Tensor | None, ...], params: tuple[Tensor, ...]
    ) -> _Recording | None:
        """A recording for shapes that are seen for the second time; None for the first, and when there are enough."""
        self._times_seen[key] += 1
        if self._times_seen[key] == 1:
            return None
        if len(self._recordings) == MOST_GRAPHS:
            if self._times_seen[key] == 2:
                logger.warning(
                    f"--cuda-graphs: batches have more than {MOST_GRAPHS} shapes; those of further ones run without a "
                    "graph. Give batches fewer shapes: --pad-to-multiple 16, and --batch-size without --max-tokens."
                )
            return None
        if self._recorder is None:
            self._recorder = self._new_recorder()
        recording = _Recording(self._recorder, layers, inputs, params)
        self._recordings[key] = recording
        return recording

    def __len__(self) -> int:
        """Shapes that have a graph."""
        return len(self._recordings)

    def __getstate__(self) -> dict[str, Any]:
        """Graphs belong to a process and to a model's memory: copies begin without."""
        return {"modules": self._modules, "recorder": self._new_recorder}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


class _Pass:
    """A forward pass; `is_over` once its backward pass has begun. It ends without one when nobody holds its result."""

    is_over = False


class _Recording:
    """The graphs of one shape, forward and backward, with the memory that they read and write.

    Attributes:
        inputs: copies of the inputs, to be overwritten.
        output: features, rewritten by `forward`.
        output_gradient: to be overwritten before `backward`.
        x_gradient: rewritten by `backward`; None if x needs none.
        gradients: those of all parameters end to end, rewritten by `backward`.
        forward, backward: replay the graphs.
    """

    def __init__(
        self, recorder: Any, layers: Layers, inputs: tuple[Tensor | None, ...], params: tuple[Tensor, ...]
    ) -> None:
        x = inputs[0]
        assert x is not None
        self._x = x.detach().clone().requires_grad_(x.requires_grad)
        self.inputs = (self._x, *(None if tensor is None else tensor.clone() for tensor in inputs[1:]))
        self._layers, self._params = layers, params
        self._result: Tensor | None = None
        self.sizes = [parameter.numel() for parameter in params]
        self.gradients = torch.empty(sum(self.sizes), dtype=params[0].dtype, device=x.device)
        self._views = self.in_parts(self.gradients)
        self.x_gradient = torch.empty_like(x) if x.requires_grad else None
        # Nothing that is drawn here may change what a training draws, wherever in it the recording happens.
        with torch.random.fork_rng([x.device] if x.is_cuda else []):
            with torch.no_grad():
                self.output = layers(*self.inputs).clone()  # type: ignore[arg-type]
            self.output_gradient = torch.zeros_like(self.output)
            recorder.warm_up(self._forward_and_backward)
            self.forward = recorder.record(self._forward)
            self.backward = recorder.record(self._backward)

    @torch.no_grad()
    def read(self, inputs: tuple[Tensor | None, ...]) -> None:
        """Copy the values of the inputs; the gradient of x goes through `_Replay`."""
        for static, tensor in zip(self.inputs, inputs, strict=True):
            if static is not None and tensor is not None:
                static.copy_(tensor)

    def in_parts(self, gradients: Tensor) -> list[Tensor]:
        """The gradient of each parameter, in views of all of them."""
        parts = gradients.split(self.sizes)
        return [part.view_as(parameter) for part, parameter in zip(parts, self._params, strict=True)]

    @torch.enable_grad()
    def _forward(self) -> None:
        self._result = self._layers(*self.inputs)  # type: ignore[arg-type]
        self.output.copy_(self._result.detach())

    def _forward_and_backward(self) -> None:
        self._forward()
        self._backward()

    def _backward(self) -> None:
        result, self._result = self._result, None
        assert result is not None
        wanted = (self._x, *self._params) if self.x_gradient is not None else self._params
        gradients = list(torch.autograd.grad(result, wanted, self.output_gradient))
        if self.x_gradient is not None:
            self.x_gradient.copy_(gradients.pop(0))
        torch._foreach_copy_(self._views, gradients)


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, this_pass: _Pass, recording: _Recording, x: Tensor, *params: Tensor) -> Tensor:
        ctx.this_pass, ctx.recording = this_pass, recording
        recording.forward()
        return recording.output.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        recording: _Recording = ctx.recording
        if ctx.this_pass.is_over:
            raise RuntimeError(
                "--cuda-graphs: a second backward pass through the same forward pass is not possible, since graphs "
                "share their memory. Leave --cuda-graphs out, or run the model again."
            )
        ctx.this_pass.is_over = True
        recording.output_gradient.copy_(gradients[0])
        recording.backward()
        # Copied at once: each becomes a parameter's .grad, to which the next batch's may be added.
        parts = recording.in_parts(recording.gradients.clone())
        return (None, None, recording.x_gradient, *parts)
