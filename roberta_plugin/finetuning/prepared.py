"""Read a prepared folder: a fine-tuning set ready for training, written once by `roberta prepare`.

    prepared.json  dict.txt  the tokenizer's files       and for each split, such as train and valid:

    SPLIT.bin/.idx     sequences: complete model inputs `<s> ... </s>`, in the format of `data/mmap_tokens.py`
    SPLIT.first.npy    (N + 1,) int64: example i has the sequences offsets[i] to offsets[i + 1]
    SPLIT.NAME.npy     a column, a number (N,) or several (N, ...) per example; or an array of any other shape
    SPLIT.jsonl        records that are needed after training: ids, texts, right answers

prepared.json lists what each split has, and the size and SHA-256 of every other file.

What columns and records mean is up to the benchmark. Example: RTE's 2,490 training pairs are 2,490 examples with one
sequence each, a column `label` and records with `id`; RACE's 87,866 questions are examples with four sequences each.

Shapes: N examples of a split, S sequences.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.mmap_tokens import MmapTokens, check_sizes
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning import prepared_files as checked
from roberta_plugin.finetuning.prepared_files import FORMAT
from roberta_plugin.finetuning.prepared_files import NAME as NAME
from roberta_plugin.finetuning.prepared_files import OFFSETS as OFFSETS
from roberta_plugin.json_files import sha256_of_json


@dataclass(frozen=True)
class PreparedSplit:
    """One split of a prepared folder; its arrays are memory-mapped."""

    folder: Path
    name: str
    facts: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]]
    """Size and SHA-256 of the folder's files."""
    num_labels: int | None = None
    """The numbers in a column `label` are smaller; None: they may be any."""

    def __len__(self) -> int:
        return int(self.facts["examples"])

    @cached_property
    def sequences(self) -> MmapTokens:
        """Model inputs of all examples, one after the other (S,)."""
        for ending in ("idx", "bin"):
            checked.check_size(self._path(ending), self.files)
        tokens = MmapTokens(self.folder / self.name)
        check_sizes(tokens)
        return tokens

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Example i has the sequences offsets[i] to offsets[i + 1] (N + 1,)."""
        offsets = self.array(OFFSETS)
        checked.check_offsets(self._path(f"{OFFSETS}.npy"), offsets, len(self), len(self.sequences))
        return offsets

    @cached_property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Numbers of the examples by name, each (N,) or (N, ...)."""
        columns = {name: self.array(name) for name in self.facts["columns"]}
        for name, values in columns.items():
            checked.check_column(self._path(f"{name}.npy"), values, len(self))
        if self.num_labels is not None and "label" in columns:
            checked.check_labels(self._path("label.npy"), columns["label"], self.num_labels)
        return columns

    def array(self, name: str) -> NDArray[Any]:
        """The array that was written under this name."""
        path = self._path(f"{name}.npy")
        checked.check_size(path, self.files)
        return checked.load_array(path)

    def records(self) -> Iterator[dict[str, Any]]:
        """The records in order."""
        path = self._path("jsonl")
        checked.check_size(path, self.files)
        yield from checked.read_records(path)

    def _path(self, ending: str) -> Path:
        return self.folder / f"{self.name}.{ending}"


@dataclass(frozen=True)
class Prepared:
    """A prepared folder, opened for reading."""

    folder: Path
    content: Mapping[str, Any]

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Prepared:
        """Read prepared.json.

        Raises:
            FileNotFoundError: if the folder is not a prepared one.
            ValueError: if prepared.json is damaged or of another version, or a file does not have the recorded size.
        """
        path = Path(folder) / NAME
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} does not exist: fine-tuning reads folders made by `roberta prepare TASK`, which starts from "
                "official files (GLUE, SQuAD, RACE, SuperGLUE, tagged words) or from your own tables (TASK custom)."
            )
        try:
            content = json.loads(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}): {checked.REMEDY}.") from error
        if isinstance(content, dict) and content.get("format", FORMAT) != FORMAT:
            raise ValueError(
                f"{path} has the format {content['format']!r}, and this version reads {FORMAT}: prepare again."
            )
        fault = checked.content_fault(content)
        if fault:
            raise ValueError(f"{path} is damaged: {fault}; {checked.REMEDY}.")
        prepared = cls(Path(folder), content)
        for name in prepared.common_files:
            checked.check_size(prepared.folder / name, prepared.files)
        return prepared

    @property
    def task(self) -> str:
        """The fine-tuning task, as `roberta prepare` names it."""
        return str(self.content["task"])

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the preparation."""
        return self.content["settings"]  # type: ignore[no-any-return]

    @property
    def files(self) -> Mapping[str, Mapping[str, Any]]:
        """Size and SHA-256 of every file."""
        return self.content["files"]  # type: ignore[no-any-return]

    @property
    def common_files(self) -> list[str]:
        """Names of the files that belong to no split: dict.txt and the tokenizer's."""
        return [name for name in self.files if not name.startswith(tuple(f"{split}." for split in self.splits))]

    def changed_files(self, split: str) -> list[str]:
        """One sentence for each file of a split that has changed since it was written; reads all its files."""
        of_split = [name for name in self.files if name.startswith(f"{split}.")]
        return checked.hash_faults(self.folder, self.files, [*self.common_files, *of_split])

    def sha256_of_inputs(self, split: str) -> str | None:
        """One hash of what a split gives to a training: its sequences, columns and arrays, but not its records.

        It is made of the recorded hashes, which `changed_files` compares with the files; None in folders without them.
        """
        of_inputs = {
            name: record["sha256"]
            for name, record in self.files.items()
            if name.startswith(f"{split}.") and not name.endswith(".jsonl")
        }
        return sha256_of_json(of_inputs) if of_inputs else None

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits."""
        return tuple(self.content["splits"])

    def split(self, name: str) -> PreparedSplit:
        """One split.

        Raises:
            ValueError: if it does not exist.
        """
        if name not in self.content["splits"]:
            raise ValueError(f"{self.folder} has no split {name!r}; it has {', '.join(self.splits) or 'none'}.")
        num_labels = len(self.settings.get("labels") or ()) or None
        return PreparedSplit(self.folder, name, self.content["splits"][name], self.files, num_labels)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary that made the ids."""
        return Vocabulary.load(self.folder / "dict.txt")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the ids."""
        return load_tokenizer(self.folder)
