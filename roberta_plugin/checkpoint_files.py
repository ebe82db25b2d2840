"""Checkpoint files: read them safely, find damage, explain refusals, remove the remains of killed processes.

Two places read checkpoints and share these checks and messages: fairseq's own loading
(`fairseq_workarounds/checkpoints.py`), and `load_state` for files from unknown sources. Both read with
`weights_only=True`: tensors, plain values and argparse.Namespace, nothing that can run. What may be built from the
values is decided in `models/checkpoints.py`.

Since torch 1.6 a checkpoint is a zip archive with a CRC-32 of every tensor, which `torch.load` does not compare.
Checking them all costs 0.3 s of CPU time per GB (measured with zlib of CPython 3.11), and no extra reading, as loading
reads the file anyway: less than a second for a base model with Adam's state, two seconds for a large one.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import os
import pickle
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_plugin.locks import is_locked_by_us, try_lock

if TYPE_CHECKING:
    from torch import Tensor

_ZIP_START = b"PK\x03\x04"
_OPTIMIZER = "last_optimizer_state"
_ADVICE = "Give a .pt file that fairseq-train wrote."
_IMPORT = "Turn its folder into a checkpoint with `roberta import`."
REMEDY = "Use another checkpoint, or bring this one back from a copy."


def load_state(checkpoint: str | os.PathLike[str], *, for_use: bool = False) -> dict[str, Any]:
    """The content of a checkpoint file, with tensors on the CPU; no code of the file runs.

    With `for_use`, the optimizer's state, two thirds of a file, is left out and not read.

    Raises:
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
        raise ValueError(f"{path} is a safetensors file, which does not hold the options of the model. {_IMPORT}")
    is_mapped = for_use and head.startswith(_ZIP_START)  # files before torch 1.6 cannot be mapped
    state = read_tensors(path, advice=_ADVICE, is_mapped=is_mapped)
    is_partial = is_mapped and isinstance(state, dict)
    if is_partial:
        state = {name: value for name, value in state.items() if name != _OPTIMIZER}
    check_checkpoint(path, _bytes_of_tensors(state) if is_partial else None)
    _check_content(path, state)
    if for_use:
        state.pop(_OPTIMIZER, None)
        state["model"] = _copied(state["model"]) if is_mapped else state["model"]
    return dict(state)


def read_tensors(path: Path, *, advice: str, is_mapped: bool = False) -> Any:
    """The tensors and plain values in a file of `torch.save`, on the CPU; no code of the file runs.

    `advice` says in a sentence what to do about another file. Mapped tensors are read when they are used.

    Raises:
        ValueError: if it holds other objects, is damaged or of another format.
    """
    import torch

    try:
        # Not torch's context manager: it removes the class from the process-wide list at its end.
        torch.serialization.add_safe_globals([argparse.Namespace])
        content = torch.load(str(path), map_location="cpu", weights_only=True, mmap=is_mapped)
    except Exception as error:  # damage raises nearly anything: KeyError, EOFError, RuntimeError, OSError ...
        raise ValueError(f"{explain_refusal(path, error)} {advice}") from error
    check_claims(path, content)
    return content


def sha256_of_parameters(checkpoint: Path, parameters: Mapping[str, Any] | None = None) -> str:
    """A hash of all parameters of a checkpoint with their names, which stays if the optimizer's state is dropped.

    `parameters` are the file's, if it was read already.
    """
    import torch

    if parameters is None:
        parameters = read_tensors(checkpoint, advice=_ADVICE, is_mapped=zipfile.is_zipfile(checkpoint))["model"]
    digest = hashlib.sha256()
    for name, value in sorted(parameters.items()):
        if torch.is_tensor(value):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
            digest.update(value.detach().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def updates_of(path: Path) -> int | None:
    """The number of updates of a checkpoint, None if it cannot be read; the tensors stay on disk."""
    try:
        state = read_tensors(path, advice="", is_mapped=True)
        return int(state["optimizer_history"][-1]["num_updates"])
    except Exception:  # any error means that the file cannot be read
        return None


def _bytes_of_tensors(content: object) -> Iterator[Any]:
    """The bytes of all tensors in nested dictionaries and lists, of each storage once, as arrays of uint8."""
    import torch

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


def _copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy the tensors into new memory; shared ones stay shared.

    A process that uses mapped memory dies of SIGBUS once the file is overwritten, as by saving the model again.
    """
    copies: dict[Any, Tensor] = {}
    result = {}
    for name, tensor in tensors.items():
        key = tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
        if key not in copies or not tensor.numel():
            copies[key] = tensor.clone()
        result[name] = copies[key]
    return result


def _check_content(path: Path, state: Any) -> None:
    import torch

    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        is_foreign = isinstance(state, dict) and any(str(name).startswith(("roberta.", "lm_head.")) for name in state)
        what = "is a state dict of Hugging Face" if is_foreign else "has no entry `model`"
        advice = _IMPORT if is_foreign else _ADVICE
        raise ValueError(f"{path} {what}, not a checkpoint in fairseq's layout. {advice}")
    strange = [name for name, value in state["model"].items() if not isinstance(value, torch.Tensor)]
    if strange:
        raise ValueError(f"{path}: the entry {strange[0]!r} of `model` is not a tensor: the file is damaged. {_ADVICE}")
    check_numbers(path, state["model"])


class DivergedError(ValueError):
    """A model that answers nothing but NaN."""


def check_numbers(path: Path, parameters: Mapping[str, Tensor]) -> None:
    """Refuse parameters that make every answer NaN, or that no model has; 0.01 s for a base model.

    Raises:
        DivergedError: if a number is NaN or infinite.
        ValueError: if numbers are complex, or a tensor is sparse.
    """
    import torch

    for name, value in parameters.items():
        if value.is_complex() or value.layout != torch.strided:
            kind = "complex numbers" if value.is_complex() else "a sparse tensor"
            raise ValueError(f"{path}: {name} holds {kind}, as no RoBERTa does: the file is damaged. {REMEDY}")
        if not value.is_floating_point() or not value.numel():
            continue
        # The extremes are NaN if any number is; ten times as fast as `isfinite` of all.
        if not torch.stack(torch.aminmax(value if value.element_size() > 1 else value.float())).isfinite().all():
            raise DivergedError(
                f"{path}: {name} holds NaN or infinite values: its training has diverged. Use another one, such as an "
                "earlier checkpoint."
            )


def fault_of(path: str | os.PathLike[str], used: Iterable[Any] | None = None) -> str | None:
    """Describe the damage of a checkpoint file; None if the checksum of every part matches.

    Files of torch < 1.6, such as the released models of fairseq, are plain pickles without checksums: only an empty
    one is detected.

    Args:
        path: the file.
        used: the bytes of the tensors in use, as arrays; the others are then neither checked nor read.

    Raises:
        OSError: if there is no such file, or it cannot be read.
    """
    with open(path, "rb") as file:
        start = file.read(len(_ZIP_START))
        if not start:
            return "it is empty"
        if start != _ZIP_START and not zipfile.is_zipfile(file):
            return None
        try:
            with zipfile.ZipFile(file) as archive:
                wrong = archive.testzip() if used is None else _wrong_part(archive, used)
        except Exception as error:  # damage raises nearly anything: BadZipFile, EOFError, EINVAL of a seek ...
            if isinstance(error, OSError) and error.errno != errno.EINVAL:
                raise
            return f"it was cut off or overwritten ({error})"
    return None if wrong is None else f"the checksum of its part {wrong} is wrong"


def _wrong_part(archive: zipfile.ZipFile, used: Iterable[Any]) -> str | None:
    """The first damaged part that is not a tensor, or the size of the first used tensor that no checksum matches."""
    tensors = set()
    for entry in archive.infolist():
        if "/data/" in entry.filename:
            tensors.add((entry.file_size, entry.CRC))
        else:
            archive.read(entry)  # compares the checksum
    sums = ((content.nbytes, zlib.crc32(content)) for content in used)
    wrong = next((size for size, checksum in sums if (size, checksum) not in tensors), None)
    return None if wrong is None else f"of {wrong:,} bytes"


def check_checkpoint(path: str | os.PathLike[str], used: Iterable[Any] | None = None) -> None:
    """Refuse a damaged checkpoint before any of it is used; `used` as in `fault_of`.

    Raises:
        OSError: if there is no such file, or it cannot be read.
    """
    fault = fault_of(path, used)
    if fault is not None:
        raise ValueError(f"The checkpoint {os.fspath(path)} is damaged: {fault}. {REMEDY}")


def check_claims(path: str | os.PathLike[str], content: Any) -> None:
    """Refuse a tensor that claims more memory than its file has bytes, as `torch.zeros(1).expand(10**9, 32)` does."""
    num_bytes = os.path.getsize(path)
    remaining, seen = [content], set()
    while remaining:
        value = remaining.pop()
        if id(value) in seen:  # a file may hold a list that holds itself
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            remaining += value.values()
        elif isinstance(value, list | tuple):
            remaining += value
        elif hasattr(value, "element_size") and value.numel() * value.element_size() > num_bytes:
            raise ValueError(
                f"{os.fspath(path)} has {num_bytes:,} bytes, and a tensor in it of shape {tuple(value.shape)} claims "
                f"{value.numel() * value.element_size():,} bytes of memory: no training wrote it. {REMEDY}"
            )


def unlisted_class(error: Exception) -> str | None:
    """The class or function for which torch refused to read a file; None if `error` has another cause."""
    match = re.search(r"(?:GLOBAL|class|function|type) ([\w.]+\.[\w.]+)", str(error))
    return match[1] if match and isinstance(error, pickle.UnpicklingError) else None


def explain_refusal(path: str | os.PathLike[str], error: Exception) -> str:
    """Explain in a sentence why `torch.load` failed; torch's own message advises to read the file unsafely."""
    name = unlisted_class(error)
    if name is not None:
        return (
            f"{os.fspath(path)} holds the Python object {name}, and reading it could run code of the file: it is not "
            "opened. Checkpoints of fairseq-train hold tensors and plain values only."
        )
    detail = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    detail = "" if isinstance(error, pickle.UnpicklingError) else f" ({detail})"
    return f"{os.fspath(path)} cannot be read as a checkpoint{detail}: it is cut off, damaged or of another format."


def lock_unfinished(file: int) -> None:
    """Lock an open temporary file (its descriptor), until it is closed or the process ends."""
    with contextlib.suppress(OSError):  # without locks, `remove_unfinished` cannot see that the file is in use
        try_lock(file)


def remove_unfinished(save_dir: Path) -> list[str]:
    """Remove partial checkpoints left by killed processes; return the names.

    Their names are temporary: ours are hidden, fairseq's own end in .pt.tmp. A file that another process is still
    writing stays.
    """
    removed = []
    for path in sorted({*save_dir.glob(".*.pt.*.tmp"), *save_dir.glob("*.pt.tmp")}):
        with open(path, "r+b") as file:
            if is_locked_by_us(file.fileno(), path):
                path.unlink()
                removed.append(path.name)
    return removed
