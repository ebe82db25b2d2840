"""A model's raw outputs for a split: collected from batches, stored beside a run's result, and loaded.

    CELL/seed-N/outputs/SPLIT.npz    the arrays of `RawOutputs`, and a checksum of the sequences that they are for

With them, medians and ensembles need no weights afterwards. Logits of QQP's 390,965 test pairs take 3 MB a run, those
of SQuAD 2.0's development set about 40 MB.

Shapes: S sequences of a split or a batch, T positions, T_s tokens of sequence s, C classes, V sentences of a batch;
D model dimension.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.prepared import PreparedSplit

_SEQUENCES = ("bin", "idx", "first.npy")  # files of a split that decide what the model reads


class RawOutputs(NamedTuple):
    """Outputs of one model for all sequences of a split, in the order of the split.

    Shapes: S sequences of the split, C classes, T_s tokens of sequence s.
    """

    logits: NDArray[np.float32] | None = None
    """A classification head's (S, C), or (N, C) where it reads windows; a regression's numbers (S, 1) or (N, 1)."""
    start_logits: Sequence[NDArray[np.float32]] | None = None
    """Logits of each token to start the answer: (T_s,) for each sequence."""
    end_logits: Sequence[NDArray[np.float32]] | None = None
    """Logits of each token to end the answer: (T_s,) for each sequence."""
    answerable_logits: NDArray[np.float32] | None = None
    """Logits that the sequence holds the answer (S,)."""
    token_logits: Sequence[NDArray[np.float32]] | None = None
    """A token head's logits: (T_s, C) for each sequence."""
    token_labels: Sequence[NDArray[np.float32]] | None = None
    """Instead of `token_logits`, the most probable label of each token: (T_s,) for each sequence."""
    sentence_logits: NDArray[np.float32] | None = None
    """Logits that a sentence belongs to the summary: all sentences of all documents, in order."""
    vectors: NDArray[np.float32] | None = None
    """One vector for each sequence (S, D)."""


PER_TOKEN = ("start_logits", "end_logits", "token_logits", "token_labels")  # a list, of each sequence (T_s, ...)
PER_SENTENCE = ("sentence_logits",)


class Collected:
    """Outputs of batches in any order, some of which may come twice, stored in the order of the split."""

    def __init__(self, split: PreparedSplit, names: Sequence[str], *, pools_windows: bool = False) -> None:
        """Collect the fields `names` of `RawOutputs`, those of a kind; `pools_windows`: one for each example."""
        self._split, self._names = split, names
        self._offsets = np.arange(len(split) + 1) if pools_windows else np.asarray(split.offsets)
        self._found: dict[str, Any] = {name: [None] * len(split.sequences) for name in names if name in PER_TOKEN}
        self._is_there = np.zeros(len(split), dtype=np.bool_)

    def add(self, batch: Mapping[str, Any], output: Any) -> None:
        """Keep the outputs of a batch, tensors (S, ...), of tokens (S, T, ...) or of sentences (V,), one for a name."""
        self.put(self.part(batch, output))

    def part(self, batch: Mapping[str, Any], output: Any) -> dict[str, NDArray[Any]]:
        """The outputs of a batch in arrays, those of tokens end to end: "id" (B,), "lengths" (S,), and one for a name.

        Those of tokens may be of a packed row (1, P, ...).
        """
        lengths = batch["net_input"]["src_lengths"].cpu().numpy()
        found = {"id": batch["id"].cpu().numpy(), "lengths": lengths}
        for name, tensor in zip(self._names, output if isinstance(output, tuple) else (output,), strict=True):
            values = tensor.detach().float().cpu().numpy()
            if name in PER_TOKEN:
                is_packed = "packing" in batch["net_input"]
                is_token = np.arange(values.shape[1]) < (lengths.sum() if is_packed else lengths[:, None])
                values = values[is_token[None] if is_packed else is_token]
            found[name] = values
        return found

    def put(self, part: Mapping[str, NDArray[Any]]) -> None:
        """Keep what `part` has made of a batch."""
        examples = part["id"].tolist()
        self._is_there[examples] = True
        for name in self._names:
            values = part[name]
            bounds = self._split.array("first_sentence") if name in PER_SENTENCE else self._offsets
            rows = np.concatenate([np.arange(bounds[example], bounds[example + 1]) for example in examples])
            if name in PER_TOKEN:
                each = np.split(values, np.cumsum(part["lengths"])[:-1])
                for row, value in zip(rows.tolist(), each, strict=True):
                    self._found[name][row] = value
                continue
            if name not in self._found:
                self._found[name] = np.full((bounds[-1], *values.shape[1:]), np.nan, dtype=np.float32)
            self._found[name][rows] = values

    @property
    def is_complete(self) -> bool:
        """Whether the outputs of all examples are there."""
        return bool(self._is_there.all())

    def outputs(self) -> RawOutputs:
        """The outputs of the whole split; every sequence must have been added."""
        assert self.is_complete, "a sequence was left out"
        assert not self.has_nan, "the model has diverged"
        return RawOutputs(**self._found)

    @property
    def has_nan(self) -> bool:
        """Whether the model has diverged."""
        return any(
            any(np.isnan(each).any() for each in values) if name in PER_TOKEN else bool(np.isnan(values).any())
            for name, values in self._found.items()
        )


def write_outputs(folder: Path, outputs: RawOutputs, split: PreparedSplit) -> None:
    """Store the outputs of one model for a split.

    Example:
        start_logits [(3,), (2,)]  ->  start_logits (5,), lengths [3, 2]
    """
    arrays: dict[str, NDArray[Any]] = {"of": np.array(_checksum(split))}
    for name, value in outputs._asdict().items():
        if value is None:
            continue
        if name in PER_TOKEN:
            arrays["lengths"] = np.array([len(each) for each in value])
        arrays[name] = np.concatenate(value) if name in PER_TOKEN else value  # (sum of T_s, ...)
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
    found: dict[str, Any] = {name: arrays[name] for name in RawOutputs._fields if name in arrays}
    found |= {name: np.split(found[name], borders) for name in PER_TOKEN if name in found}
    return RawOutputs(**found)


def _checksum(split: PreparedSplit) -> str:
    """A checksum of what the model reads."""
    sizes = [split.facts.get(name) for name in ("examples", "sequences", "tokens")]
    files = [split.files[f"{split.name}.{ending}"]["sha256"] for ending in _SEQUENCES]
    return hashlib.sha256(json.dumps([sizes, files]).encode()).hexdigest()
