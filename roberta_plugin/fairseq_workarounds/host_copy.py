"""A copy of a training's state in host memory, from which a checkpoint can be written while training continues.

The copy keeps types (bf16 stays bf16) and shared memory of tensors: `torch.save` writes the same bytes as for tensors
that were on the CPU from the start. A copy from a GPU goes into page-locked memory, at the speed of the bus.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from fairseq import utils
from torch import Tensor

logger = logging.getLogger(__name__)

ALIGNMENT = 512  # bytes


class HostMemory:
    """Memory for one copy of a state at a time.

    It is kept from one copy to the next: the pages of new memory cost as much time as the copy, locking them more.
    """

    def __init__(self) -> None:
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self._is_locked = False

    @property
    def size(self) -> int:
        """Reserved bytes."""
        return self._bytes.numel()

    def _reserve(self, state: Any) -> None:
        """Make room for a copy of `state`, if there is not enough; this invalidates the previous copy."""
        storages = _storages(state)
        needed = sum(_rounded(storage.nbytes()) for storage in storages.values())
        if needed <= self.size:
            return
        if self._is_locked:
            _cuda("cudaHostUnregister", self._bytes.data_ptr())
        self._bytes = _allocate(needed)
        gpu = next((storage.device for storage in storages.values() if storage.device.type == "cuda"), None)
        if gpu is not None:
            with torch.cuda.device(gpu):  # a thread begins with the first one
                # `pin_memory` would take the next power of two of bytes
                self._is_locked = _cuda("cudaHostRegister", self._bytes.data_ptr(), needed, 0)

    def copy(self, state: Any) -> Any:
        """Copy all tensors in nested lists, tuples, sets and dicts to the host; the next copy overwrites this one.

        Returns:
            New containers with the copied tensors. Other values are those of `state`.

        Example:
            memory = HostMemory()
            copied = memory.copy({"weight": weight})    # weight.add_(1) does not change copied["weight"]
        """
        self._reserve(state)
        copies, pairs, end = {}, [], 0
        for key, storage in _storages(state).items():
            copies[key] = self._slice(end, storage.nbytes())
            source = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            pairs.append((copies[key], source))
            end += _rounded(storage.nbytes())
        _copy_all(pairs)

        hosts: dict[int, Tensor] = {}  # a tensor that is found twice is one, as in `state`

        def copied(tensor: Tensor) -> Tensor:
            if id(tensor) not in hosts:
                hosts[id(tensor)] = view(tensor) if _has_storage(tensor) else tensor.detach().cpu().clone()
            return hosts[id(tensor)]

        def view(tensor: Tensor) -> Tensor:
            storage = copies[tensor.untyped_storage()._cdata].untyped_storage()
            host = torch.empty(0, dtype=tensor.dtype)
            return host.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())

        return _apply(copied, state)

    def _slice(self, start: int, size: int) -> Tensor:
        """Some bytes as a separate storage, because `torch.save` writes whole storages."""
        if not size:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self._bytes.numpy(), dtype=torch.uint8, count=size, offset=start)


def _copy_all(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Copy bytes: pairs of target and source."""
    on_cpu = [(target.numpy(), source.numpy()) for target, source in pairs if source.device.type == "cpu"]
    on_gpu = [(target, source) for target, source in pairs if source.device.type != "cpu"]
    for target, source in on_gpu:
        target.copy_(source, non_blocking=True)
    # torch's own threads meet after each tensor, which takes long where other programs share the cores
    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        list(threads.map(lambda pair: np.copyto(*pair), sorted(on_cpu, key=lambda pair: -pair[0].size)))
    for device in {source.device for _, source in on_gpu}:
        torch.cuda.current_stream(device).synchronize()


def _apply(function: Callable[[Tensor], Any], state: Any) -> Any:
    return utils.apply_to_sample(function, state)


def _tensors(state: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _apply(found.append, state)
    return found


def _storages(state: Any) -> dict[int, Any]:
    """The storages of all tensors, each once, in order of appearance."""
    storages = [tensor.untyped_storage() for tensor in _tensors(state) if _has_storage(tensor)]
    return {storage._cdata: storage for storage in storages}


def _has_storage(tensor: Tensor) -> bool:
    """Whether the tensor is bytes in a row; others (sparse, on a TPU) are few and small, or not ours."""
    return tensor.layout is torch.strided and tensor.device.type in ("cpu", "cuda") and not tensor.is_quantized


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _allocate(size: int) -> Tensor:
    """Zeros in allocated pages, hidden from forked data-loader workers, because a fork copies page tables."""
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(
            f"Could not allocate {size / 1e9:.1f} GB of host memory for a copy of the training's state ({error}): "
            "leave out --background-checkpoints."
        ) from error
    for advice in ("MADV_HUGEPAGE", "MADV_DONTFORK"):
        with suppress(AttributeError, OSError):  # not every kernel has them
            memory.madvise(getattr(mmap, advice))
    return torch.frombuffer(memory, dtype=torch.uint8).zero_()


def _cuda(function: str, *arguments: int) -> bool:
    """Call a function of CUDA's runtime; without page-locked memory, copies are slower but still correct."""
    code = int(getattr(torch.cuda.cudart(), function)(*arguments))
    if code:
        logger.warning(f"{function} failed with CUDA error {code}: copying the state for a checkpoint takes longer")
    return code == 0
