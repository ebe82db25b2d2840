"""A checkpoint file -> its content: tensors and plain values only, also from untrusted files.

A file that is damaged or of another format is refused with a sentence that names it (see `checkpoint_files`). What may
be built from the values is decided in `building`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from roberta_plugin.checkpoint_files import check_checkpoint, check_claims, explain_refusal

_ADVICE = "Give a .pt file that fairseq-train wrote."
_IMPORT = "Turn its folder into a checkpoint with `roberta import`."


_OPTIMIZER = "last_optimizer_state"


def load_state(checkpoint: str | os.PathLike[str], *, for_use: bool = False) -> dict[str, Any]:
    """The content of a checkpoint file, with tensors on the CPU; no code of the file runs.

    Args:
        checkpoint: its path.
        for_use: skip the optimizer's state, two thirds of a file, without reading it.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a complete checkpoint in fairseq's layout.
    """
    path = Path(checkpoint)
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint {path}: give the path of a .pt file that fairseq-train wrote.")
    with open(path, "rb") as file:
        head = file.read(9)
    if not head:
        raise ValueError(f"{path} is empty: it was not written or copied to the end. {_ADVICE}")
    if head[8:] == b"{":
        raise ValueError(f"{path} is a safetensors file, which lacks the options of the model. {_IMPORT}")
    try:
        # Not torch's context manager: it removes the class from the process-wide list at its end.
        torch.serialization.add_safe_globals([argparse.Namespace])
        is_mapped = for_use and head.startswith(b"PK\x03\x04")  # files before torch 1.6 cannot be mapped
        state = torch.load(str(path), map_location="cpu", weights_only=True, mmap=is_mapped)
    except Exception as error:  # damage raises nearly anything: KeyError, EOFError, RuntimeError, OSError ...
        raise ValueError(f"{explain_refusal(path, error)} {_ADVICE}") from error
    check_claims(path, state)
    is_partial = is_mapped and isinstance(state, dict)
    if is_partial:
        state = {name: value for name, value in state.items() if name != _OPTIMIZER}
    check_checkpoint(path, _bytes_of_tensors(state) if is_partial else None)
    _check_content(path, state)
    if for_use:
        state.pop(_OPTIMIZER, None)
        state["model"] = _copied(state["model"]) if is_mapped else state["model"]
    return dict(state)


def _bytes_of_tensors(content: Any) -> Iterator[NDArray[np.uint8]]:
    """The bytes of all tensors in nested dictionaries and lists, of each storage once."""
    seen: set[int] = set()
    remaining = [content]
    while remaining:
        value = remaining.pop()
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            if storage.nbytes() and storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                yield torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        elif isinstance(value, dict):
            remaining += value.values()
        elif isinstance(value, list | tuple):
            remaining += value


def _copied(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copy the tensors into new memory; shared ones stay shared.

    A process that uses mapped memory dies of SIGBUS once the file is overwritten, as by saving the model again.
    """
    copies: dict[Any, torch.Tensor] = {}
    result = {}
    for name, tensor in tensors.items():
        key = tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
        if key not in copies or not tensor.numel():
            copies[key] = tensor.clone()
        result[name] = copies[key]
    return result


def _check_content(path: Path, state: Any) -> None:
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        is_foreign = isinstance(state, dict) and any(str(name).startswith(("roberta.", "lm_head.")) for name in state)
        what = "is a state dict of Hugging Face" if is_foreign else "has no entry `model`"
        advice = _IMPORT if is_foreign else _ADVICE
        raise ValueError(f"{path} {what}, not a checkpoint in fairseq's layout. {advice}")
    strange = [name for name, value in state["model"].items() if not isinstance(value, torch.Tensor)]
    if strange:
        raise ValueError(f"{path}: the entry {strange[0]!r} of `model` is not a tensor: the file is damaged. {_ADVICE}")
