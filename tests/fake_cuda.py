"""A CUDA device without values and without a GPU, on which whole training steps run on any machine.

On torch's fake tensors every operation checks types, shapes, strides and devices as on a GPU, runs no kernel, and takes
the paths of a GPU because the tensors say "cuda". torch without CUDA has neither the guard nor the hooks of that device,
which autograd asks for streams; here they are filled in. `Watch` adds what only kernels and drivers would notice.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.nn.attention import SDPBackend
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from roberta_plugin.models import attention_kernels, gelu, linear_cross_entropy

TRIED = ((2, 11), (2, 13))  # releases of torch
NUMBER_OF_CUDA = 1  # in c10::DeviceType
REGISTER = "_ZN3c104impl19registerDeviceGuardENS_10DeviceTypeEPKNS0_24DeviceGuardImplInterfaceE"
HOOKS = "_ZN2at6detail12getCUDAHooksEv"
HALF = (torch.float16, torch.bfloat16)


class WaitError(AssertionError):
    """The host would wait for the GPU."""


class KernelError(AssertionError):
    """A kernel would refuse these tensors, or read wrong memory."""


@contextmanager
def fake_cuda(
    *, capability: tuple[int, int] = (9, 0), name: str = "NVIDIA H200", memory: float = 140e9, is_compiled: bool = False
) -> Iterator[Any]:
    """Where tensors on "cuda" have no values; torch says that the GPU is of this kind. Yields the mode of torch.

    With `is_compiled`, torch's attention is left as it is, for torch.compile knows it by its object.
    """
    properties = SimpleNamespace(total_memory=memory, name=name, major=capability[0], minor=capability[1])
    answers = {
        "get_device_name": lambda device=None: name,
        "get_device_properties": lambda device=None: properties,
        "current_device": lambda: 0,
    }
    caches = (attention_kernels.is_exact, linear_cross_entropy.device_memory)
    with ExitStack() as stack:
        for function, answer in answers.items():
            stack.enter_context(patch.object(torch.cuda, function, answer))
        stack.enter_context(patch.object(torch.backends.cuda, "is_flash_attention_available", lambda: True))
        stack.enter_context(patch.object(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False))
        stack.enter_context(patch.object(torch.cuda, "is_bf16_supported", lambda *_, **__: True))
        stack.enter_context(patch.object(torch, "_fused_sdp_choice", _kernel))
        stack.enter_context(patch.object(gelu, "is_served", lambda *_: True))  # torch for a GPU brings Triton
        if not is_compiled:
            stack.enter_context(patch.object(torch.nn.functional, "scaled_dot_product_attention", _attention))
        for cache in caches:
            cache.cache_clear()
            stack.callback(cache.cache_clear)
        stack.enter_context(_streams())
        yield stack.enter_context(FakeTensorMode(allow_non_fake_inputs=False))


def _kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *_: Any, **__: Any) -> int:
    """What torch chooses on a Hopper GPU: flash attention in half precision without a mask, else the efficient one."""
    kind = SDPBackend.FLASH_ATTENTION if mask is None and q.dtype in HALF else SDPBackend.EFFICIENT_ATTENTION
    return int(kind.value)


def _attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0) -> Tensor:
    """The operator that this kernel has in torch, where torch without CUDA would take that of a CPU."""
    if _kernel(q, k, v, attn_mask) == SDPBackend.FLASH_ATTENTION.value:
        _require(q.size(-1) % 8 == 0, "torch pads such heads itself")
        found = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout_p)
    else:
        bias = None
        if attn_mask is not None:
            bias = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill(~attn_mask, float("-inf"))
            bias = bias.expand(q.size(0), q.size(1), q.size(2), k.size(2))
        found = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, bias, q.requires_grad, dropout_p)
    output: Tensor = found[0]
    return output


@contextmanager
def _streams() -> Iterator[None]:
    """Let autograd find one CUDA device with one stream, whatever torch was built with."""
    if torch.cuda.is_available():
        yield
        return
    release = tuple(map(int, torch.__version__.split(".")[:2]))
    if sys.platform != "linux" or not TRIED[0] <= release <= TRIED[1]:
        pytest.skip("needs Linux and a torch whose C++ interfaces were tried, 2.11 to 2.13, to make up a CUDA device")
    # autograd counts devices once, and would start a thread for this one, after which no test could fork any more.
    torch.ones((), requires_grad=True).backward()
    libraries = Path(torch.__file__).parent / "lib"
    register = getattr(ctypes.CDLL(str(libraries / "libc10.so")), REGISTER)
    register.argtypes, register.restype = [ctypes.c_int8, ctypes.c_void_p], None
    hooks = getattr(ctypes.CDLL(str(libraries / "libtorch_cpu.so")), HOOKS)
    hooks.restype = ctypes.c_void_p
    # A guard that counts no devices is one that torch replaces by its own guard that does nothing.
    guard, of_one = _answering(0), _answering(1)
    register(NUMBER_OF_CUDA, ctypes.addressof(guard.object))
    torch._C._ensureCUDADeviceGuardSet()
    methods = ctypes.c_void_p.from_address(hooks())
    before, methods.value = methods.value, of_one.object.value  # yes, there is CUDA; yes, the device is set up
    try:
        with torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        methods.value = before
        register(NUMBER_OF_CUDA, None)


def _answering(number: int) -> SimpleNamespace:
    """A C++ object all of whose virtual functions return this number."""
    function = ctypes.CFUNCTYPE(ctypes.c_long)(lambda: number)
    address = ctypes.cast(function, ctypes.c_void_p).value
    table = (ctypes.c_void_p * 256)(*itertools.repeat(address, 256))
    return SimpleNamespace(function=function, table=table, object=ctypes.c_void_p(ctypes.addressof(table)))


class Watch(TorchDispatchMode):
    """Raises where the host would wait for the GPU, and where a kernel would not take its arguments; counts kernels.

    Attributes:
        counts: how often each operator has run on the device.
    """

    READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2")

    def __init__(self, *, may_wait: bool = False) -> None:
        super().__init__()
        self.may_wait = may_wait
        self.counts: dict[str, int] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if not self.may_wait:
            self._check_waits(name, args, kwargs, tensors)
        checks = {
            "_flash_attention_forward": self._check_flash,
            "_scaled_mm": self._check_scaled_mm,
            "_fused_adamw_": self._check_adamw,
        }
        if name in checks:
            bound = dict(zip((argument.name for argument in function._schema.arguments), args, strict=False))
            checks[name](SimpleNamespace(**{**bound, **kwargs}))
        if any(tensor.device.type == "cuda" for tensor in tensors):
            self.counts[name] = self.counts.get(name, 0) + 1
        return function(*args, **kwargs)

    def _check_waits(self, name: str, args: Any, kwargs: Any, tensors: list[Tensor]) -> None:
        on_gpu = [tensor for tensor in tensors if tensor.device.type == "cuda"]
        if on_gpu and name in self.READS:
            raise WaitError(f"{name} reads a value of the GPU")
        if kwargs.get("non_blocking") or (name == "copy_" and args[2:] == (True,)):
            return  # what is pinned waits for nobody
        if name == "_to_copy" and kwargs.get("device") is not None and tensors[0].device != kwargs["device"]:
            raise WaitError(f"a copy from {tensors[0].device} to {kwargs['device']} waits")
        if name == "copy_" and tensors[0].device != tensors[1].device:
            raise WaitError(f"a copy from {tensors[1].device} to {tensors[0].device} waits")
        if name in ("index", "index_put", "index_put_", "_index_put_impl_") and on_gpu:
            for index in tree_leaves(args[1]):
                if isinstance(index, Tensor) and (index.dtype == torch.bool or index.device.type != "cuda"):
                    raise WaitError(f"{name} by {index.dtype} on {index.device} waits")

    @staticmethod
    def _check_flash(given: Any) -> None:
        q, k, v = given.query, given.key, given.value
        _require(q.dtype == k.dtype == v.dtype and q.dtype in HALF, f"flash attention in {q.dtype}")
        for bounds in (given.cum_seq_q, given.cum_seq_k):
            _require(bounds.dtype == torch.int32 and bounds.is_contiguous(), "bounds of sequences are int32 in a row")
            _require(bounds.device == q.device, f"bounds of sequences on {bounds.device}")
        _require(given.cum_seq_q.shape == given.cum_seq_k.shape, "as many sequences of keys as of queries")
        for x in (q, k, v):
            _require(x.dim() == 3 and x.stride(-1) == 1, "rows of heads without gaps")
            _require(x.size(-1) % 8 == 0 and x.size(-1) <= 256, f"head dimension {x.size(-1)}")
            # 16 bytes are read at a time
            _require(all(x.stride(at) % 8 == 0 for at in (0, 1)) and x.storage_offset() % 8 == 0, "alignment of heads")

    @staticmethod
    def _check_scaled_mm(given: Any) -> None:
        a, b = given.self, given.mat2
        _require(a.stride(1) == 1 and a.stride(0) == a.size(1), f"left factor with strides {a.stride()}")
        _require(b.stride(0) == 1 and b.stride(1) == b.size(0), f"right factor with strides {b.stride()}")
        _require(a.size(1) % 16 == b.size(1) % 16 == 0, f"sizes {tuple(a.shape)} and {tuple(b.shape)}")
        formats = (a.dtype, b.dtype)
        _require(torch.float8_e4m3fn in formats, f"no product of {formats[0]} and {formats[1]}")
        for scale, of_rows in ((given.scale_a, (a.size(0), 1)), (given.scale_b, (1, b.size(1)))):
            _require(scale.dtype == torch.float32 and scale.is_contiguous(), "scales in fp32, without gaps")
            _require(scale.numel() == 1 or scale.shape == of_rows, "a scale is one number, or one for each row")
            _require(scale.device == a.device, f"a scale on {scale.device}")

    @staticmethod
    def _check_adamw(given: Any) -> None:
        for name in ("grads", "exp_avgs", "exp_avg_sqs", "state_steps"):
            for parameter, tensor in zip(given.self, getattr(given, name), strict=True):
                _require(tensor.device == parameter.device, f"{name} on {tensor.device}")
                wanted = torch.float32 if name == "state_steps" else parameter.dtype
                _require(tensor.dtype == wanted, f"{name} in {tensor.dtype}")
                _require(name == "state_steps" or tensor.stride() == parameter.stride(), f"strides of {name}")
        for name in ("grad_scale", "found_inf"):
            number = getattr(given, name, None)
            if number is not None:
                _require(number.device == given.self[0].device and number.dtype == torch.float32, f"{name}: {number}")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise KernelError(what)


def moved(value: Any, mode: FakeTensorMode, dtype: torch.dtype | None = None) -> Any:
    """Tensors in dicts, or the parameters and buffers of a module, in place, on the fake device; numbers in `dtype`."""
    if isinstance(value, torch.nn.Module):
        _move_module(value, mode, dtype)
    elif isinstance(value, dict):
        return {name: moved(entry, mode, dtype) for name, entry in value.items()}
    elif isinstance(value, Tensor):
        return mode.from_tensor(value).to("cuda", dtype if value.is_floating_point() else None)
    return value


def _move_module(module: torch.nn.Module, mode: FakeTensorMode, dtype: torch.dtype | None) -> None:
    new: dict[int, Any] = {}  # tied parameters stay one
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in new:
                data = moved(parameter, mode, dtype).detach()
                found = torch.nn.Parameter(data, parameter.requires_grad)
                found.__dict__.update(parameter.__dict__)  # what tasks have written onto it
                new[id(parameter)] = found
            part._parameters[name] = new[id(parameter)]
        for name, buffer in part._buffers.items():
            part._buffers[name] = moved(buffer, mode, dtype)
