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

from roberta_plugin.models.cuda_recording import CudaRecorder, Gradients, Inputs, Layers, Place, Recording

logger = logging.getLogger(__name__)

MOST_POSITIONS = 8192  # B x T; a larger batch keeps a GPU busy for longer than its kernels take to start
MOST_GRAPHS = 64
# A recording takes about five passes' time; a replay may save half a pass (an estimate: no GPU has measured it). So a
# shape is recorded once it has come as often as its recording would have to be replayed to pay.
TIMES_AS_IT_IS = 8


def why_no_graphs(device: torch.device, *, is_packed: bool) -> str:
    """Why --cuda-graphs has no effect on a training that begins like this; "" if it has."""
    if device.type != CudaRecorder.device_type:
        return f"on {device.type}: it needs a GPU"
    if torch.is_autocast_enabled(device.type):
        return "under --amp: use --bf16 or --fp16"
    return "on packed rows: pad them, with --no-pack-sequences or without --pack-sequences" if is_packed else ""


class LayerGraphs:
    """Runs layers for shapes that come again by graphs, and others as they are.

    Args:
        modules: those whose parameters the layers use; the same ones throughout a training.
        recorder: makes what records on a device; it has the type of its devices as `device_type`.
    """

    def __init__(self, modules: nn.Module, recorder: Callable[[torch.device], Any] = CudaRecorder) -> None:
        self._modules, self._new_recorder = modules, recorder
        self._places: list[Place] = []
        self._hooks: list[dict[int, Any]] = []
        self._is_given_up = self._has_warned = False
        self.forget()

    def forget(self) -> None:
        """Remove all graphs."""
        self._recorder: Any = None
        self._recordings: dict[Any, Recording] = {}
        self._gradients: Gradients | None = None
        self._times_seen: Counter[Any] = Counter()
        self._state: tuple[tuple[int, bool], ...] = ()
        self._waiting: Callable[[], _Pass | None] = lambda: None

    def __call__(self, layers: Layers, x: Tensor, is_padding: Tensor | None, positions: Tensor | None) -> Tensor:
        """`layers(x, is_padding, positions)`, by a graph if there is one for these shapes or it is time for one.

        Where parameters have moved, or others are frozen, graphs are made anew. Without a graph run: passes outside of
        training, under autocast or torch.compile, long ones, and those of modules with hooks, which a replay would not
        call.

        Args:
            layers: what is to be run, with the parameters of `modules` alone; it must not wait for the GPU.
            x: embeddings (B, T, D).
            is_padding: (B, T), or None.
            positions: (B, Q), or None.

        Raises:
            RuntimeError: if CUDA refuses to record the layers.
        """
        inputs = Inputs(x, is_padding, positions)
        params = self._trained_params() if self._serves(x) else []
        recording = self._recording_for(layers, inputs, params) if params else None
        if recording is None:
            return layers(x, is_padding, positions)
        recording.read(inputs)
        this_pass = _Pass()
        self._waiting = weakref.ref(this_pass)
        output: Tensor = _Replay.apply(this_pass, recording, x, *params)  # type: ignore[no-untyped-call]
        return output

    def _serves(self, x: Tensor) -> bool:
        """Not under autocast, which casts parameters once for several calls."""
        device_type = x.device.type
        if torch.compiler.is_compiling() or self._is_given_up or not torch.is_grad_enabled():
            return False
        if device_type != getattr(self._new_recorder, "device_type", None) or torch.is_autocast_enabled(device_type):
            return False
        if not self._places:  # to walk all modules takes 0.3 ms
            for module in self._modules.modules():
                self._places += [(module._parameters, name) for name, _ in module.named_parameters(recurse=False)]
                self._hooks += [module._forward_pre_hooks, module._forward_hooks]
                self._hooks += [module._backward_pre_hooks, module._backward_hooks]
        waiting = self._waiting()
        is_free = waiting is None or waiting.is_over
        return is_free and x.size(0) * x.size(1) <= MOST_POSITIONS and not any(self._hooks)

    def _trained_params(self) -> list[Tensor]:
        """Those that need a gradient; graphs that do not know where all parameters are now are forgotten."""
        params = [owner[name] for owner, name in self._places]
        state = tuple((parameter.data_ptr(), parameter.requires_grad) for parameter in params)
        if state != self._state:
            self.forget()
            self._state = state
        return [parameter for parameter in params if parameter.requires_grad]

    def _recording_for(self, layers: Layers, inputs: Inputs, params: list[Tensor]) -> Recording | None:
        """That of these shapes, made now if it is time for it; None if there is none."""
        x = inputs.x
        key = (x.dtype, x.requires_grad, *(None if tensor is None else tensor.shape for tensor in inputs))
        if (found := self._recordings.get(key)) is not None:
            return found
        self._times_seen[key] += 1
        if self._times_seen[key] <= TIMES_AS_IT_IS:
            return None
        if len(self._recordings) == MOST_GRAPHS:
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    f"--cuda-graphs: batches have more than {MOST_GRAPHS} shapes; those of further ones run without a "
                    "graph. Give batches fewer shapes: --pad-to-multiple 16, and --batch-size without --max-tokens."
                )
            return None
        recording = self._new_recording(layers, inputs, params)
        if recording is None:
            self._give_up()
        else:
            self._recordings[key] = recording
        return recording

    def _new_recording(self, layers: Layers, inputs: Inputs, params: list[Tensor]) -> Recording | None:
        """None if there is not enough memory."""
        x = inputs.x
        if not self._recordings:
            logger.info(
                f"--cuda-graphs: recording the layers, first for batches of {x.size(0)} x {x.size(1)} positions"
            )
        try:
            self._recorder = self._recorder or self._new_recorder(x.device)
            self._gradients = self._gradients or Gradients(params)
            return Recording(self._recorder, layers, inputs, self._places, self._gradients)
        except torch.OutOfMemoryError:
            return None
        except RuntimeError as error:
            raise RuntimeError(
                f"--cuda-graphs: the layers cannot be recorded for a batch of {x.size(0)} x {x.size(1)} positions. "
                f"Leave --cuda-graphs out. The error was: {error}"
            ) from error

    def _give_up(self) -> None:
        """Free the memory of all graphs, for passes without: nothing else can use what they have reserved."""
        self.forget()
        self._is_given_up = True
        logger.warning(
            "--cuda-graphs: the GPU's memory is not enough to record the layers, which run without graphs from now on. "
            "Give batches fewer shapes (--pad-to-multiple 16) or fewer sequences, or leave --cuda-graphs out."
        )

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


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, this_pass: _Pass, recording: Recording, x: Tensor, *params: Tensor) -> Tensor:
        ctx.this_pass, ctx.recording = this_pass, recording
        recording.forward()
        return recording.output.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        recording: Recording = ctx.recording
        if ctx.this_pass.is_over:
            raise RuntimeError(
                "--cuda-graphs: a second backward pass through the same forward pass is not possible, since graphs "
                "share their memory. Leave --cuda-graphs out, or run the model again."
            )
        ctx.this_pass.is_over = True
        recording.output_gradient.copy_(gradients[0])
        recording.backward()
        # Copied at once: each becomes a parameter's .grad, to which the next batch's may be added.
        x_gradient = None if recording.x_gradient is None else recording.x_gradient.clone()
        return (None, None, x_gradient, *recording.gradients.copies())
