"""A run's raw outputs for a split, stored beside its result: medians and ensembles need no weights afterwards.

    CELL/seed-N/outputs/SPLIT.npz    the arrays of `RawOutputs`, and a checksum of the sequences that they are for

Logits of QQP's 390,965 test pairs take 3 MB a run, those of SQuAD 2.0's development set about 40 MB.

Shapes: S sequences of the split, T_s tokens of sequence s, C classes.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.kinds.outputs import RawOutputs

_PER_TOKEN = ("start_logits", "end_logits", "token_logits")  # of each sequence (T_s, ...)
_SEQUENCES = ("bin", "idx", "first.npy")  # files of a split that decide what the model reads


def write_outputs(folder: Path, outputs: RawOutputs, split: PreparedSplit) -> None:
    """Store the outputs of one model for a split.

    Example:
        start_logits [(3,), (2,)]  ->  start_logits (5,), lengths [3, 2]
    """
    arrays: dict[str, NDArray[Any]] = {"of": np.array(_checksum(split))}
    for name, value in outputs._asdict().items():
        if name in _PER_TOKEN and value is not None:
            arrays["lengths"] = np.array([len(each) for each in value])
            arrays[name] = np.concatenate(value)  # (sum of T_s, ...)
        elif value is not None:
            arrays[name] = value
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / f"{split.name}.npz") as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_outputs(folder: Path, split: PreparedSplit) -> RawOutputs | None:
    """The stored outputs; None if there are none, if they are for other sequences, or if the file is damaged."""
    try:
        with np.load(folder / f"{split.name}.npz", allow_pickle=False) as file:
            arrays = dict(file)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    if str(arrays.get("of")) != _checksum(split):
        return None
    borders = np.cumsum(arrays.get("lengths", ()))[:-1].astype(np.int64)
    found = {name: arrays[name] for name in RawOutputs._fields if name in arrays}
    return RawOutputs(**{k: np.split(v, borders) if k in _PER_TOKEN else v for k, v in found.items()})  # type: ignore[arg-type]


def _checksum(split: PreparedSplit) -> str:
    """A checksum of what the model reads."""
    sizes = [split.facts.get(name) for name in ("examples", "sequences", "tokens")]
    files = [split.files[f"{split.name}.{ending}"]["sha256"] for ending in _SEQUENCES]
    return hashlib.sha256(json.dumps([sizes, files]).encode()).hexdigest()
