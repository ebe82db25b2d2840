"""A checkpoint file -> what it holds: tensors and plain values alone, whoever wrote it.

A file of another format, or a damaged one, is refused in one sentence that names it. What may be built from the values
is decided in `checkpoint_model.py`.
"""

from __future__ import annotations

import argparse
import os
import pickle
import re
from pathlib import Path
from typing import Any

import torch

_ADVICE = "Give a .pt file that fairseq-train wrote."


def load_state(checkpoint: str | os.PathLike[str]) -> dict[str, Any]:
    """What a checkpoint file holds, its tensors on the CPU; nothing in the file is run.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a whole checkpoint of fairseq's layout.
    """
    path = Path(checkpoint)
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint {path}: give the path of a .pt file that fairseq-train wrote.")
    with open(path, "rb") as file:
        head = file.read(9)
    if not head:
        raise ValueError(f"{path} is empty: writing or copying it was broken off. {_ADVICE}")
    if head[8:] == b"{":
        raise ValueError(f"{path} is a safetensors file, which holds no options of the model. {_ADVICE}")
    try:
        # Not the context manager, which takes the class from the list again for the whole process when it ends.
        torch.serialization.add_safe_globals([argparse.Namespace])
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(_refusal(path, str(error))) from error
    except (
        Exception
    ) as error:  # torch raises whatever the damage leads to: KeyError, EOFError, RuntimeError, OSError...
        found = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise ValueError(
            f"{path} cannot be read as a checkpoint ({found}): it is cut off, damaged or of another format. {_ADVICE}"
        ) from error
    _check_content(path, state)
    return dict(state)


def _refusal(path: Path, error: str) -> str:
    """torch's refusal in a sentence; its own advice is to switch the protection off."""
    unlisted = re.search(r"(?:GLOBAL|class|function|type) ([\w.]+\.[\w.]+)", error)
    if unlisted is None:
        return f"{path} cannot be read as a checkpoint: it is damaged or of another format. {_ADVICE}"
    return (
        f"{path} holds the Python object {unlisted[1]}, and reading it could run code of the file: it is not opened. "
        "Checkpoints of fairseq-train hold tensors and plain values alone."
    )


def _check_content(path: Path, state: Any) -> None:
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        is_foreign = isinstance(state, dict) and any(str(name).startswith(("roberta.", "lm_head.")) for name in state)
        what = "is a state dict of Hugging Face" if is_foreign else "has no entry `model`"
        raise ValueError(f"{path} {what}, not a checkpoint in fairseq's layout. {_ADVICE}")
    strange = [name for name, value in state["model"].items() if not isinstance(value, torch.Tensor)]
    if strange:
        raise ValueError(f"{path}: the entry {strange[0]!r} of `model` is no tensor: the file is damaged. {_ADVICE}")
