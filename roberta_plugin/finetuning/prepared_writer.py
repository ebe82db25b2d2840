"""Write a prepared folder (`prepared.py`): splits first, prepared.json last, then one rename.

    PreparedWriter --split("train")--> SplitWriter --add, record, array--> files of the split

Shapes: N examples of a split.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.mmap_tokens import MmapTokensWriter, best_dtype
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.prepared import FORMAT, NAME, OFFSETS, records_of_files
from roberta_plugin.json_files import json_text, write_json
from roberta_plugin.locks import is_locked_by_us

CUT, DIVIDED = "cut", "divided into windows"  # what happens to texts that are too long


class SplitWriter:
    """Writes one split; only its columns are kept in memory until the end."""

    def __init__(self, prefix: str, tokens: MmapTokensWriter, records: IO[str]) -> None:
        self._prefix, self._tokens, self._records = prefix, tokens, records
        self._offsets = [0]
        self._columns: dict[str, list[float | NDArray[Any]]] = {}
        self._arrays: dict[str, NDArray[Any]] = {}
        self._lengths: dict[tuple[str, int, str], list[int]] = {}
        self.num_records = 0

    @property
    def name(self) -> str:
        """Name of the split."""
        return Path(self._prefix).name

    def add(self, sequences: Sequence[NDArray[np.integer[Any]]], **columns: float | NDArray[Any]) -> None:
        """Append an example: its sequences, each (tokens,), and its columns: numbers, or arrays of the same shape.

        All examples have the same columns.
        """
        assert sequences, "an example has one sequence at least"
        assert self._offsets == [0] or columns.keys() == self._columns.keys(), "all examples have the same columns"
        sizes = np.array([len(sequence) for sequence in sequences])
        self._tokens.write(np.concatenate(sequences), sizes)
        self._offsets.append(self._offsets[-1] + len(sequences))
        for name, value in columns.items():
            self._columns.setdefault(name, []).append(value)

    def record(self, content: Mapping[str, Any]) -> None:
        """Append a record; records are numbered from 0, independently of examples."""
        self._records.write(json_text(content, ensure_ascii=False) + "\n")
        self.num_records += 1

    def array(self, name: str, values: NDArray[Any]) -> None:
        """Store an array under a name."""
        self._arrays[name] = values

    def measure(self, texts: str, num_tokens: int, *, limit: int, fate: str = CUT) -> None:
        """Count a text of `num_tokens` tokens where `limit` fit, for `inspection.remarks`."""
        counts = self._lengths.setdefault((texts, limit, fate), [0, 0, 0])
        counts[0] += 1
        counts[1] += num_tokens > limit
        counts[2] = max(counts[2], num_tokens)

    def finish(self) -> dict[str, Any]:
        """Write columns and arrays; return the entry of the split in prepared.json."""
        columns = {name: np.array(values) for name, values in self._columns.items()}
        assert len({OFFSETS, *columns, *self._arrays}) == 1 + len(columns) + len(self._arrays), "a name is used twice"
        for name, values in {**columns, **self._arrays, OFFSETS: np.array(self._offsets, dtype=np.int64)}.items():
            with atomic_write(f"{self._prefix}.{name}.npy") as file:
                np.save(file, values)
        return {
            "examples": len(self._offsets) - 1,
            "sequences": self._tokens.num_items,
            "tokens": self._tokens.num_tokens,
            "records": self.num_records,
            "columns": sorted(columns),
            "arrays": sorted(self._arrays),
            "lengths": [
                {"texts": texts, "limit": limit, "fate": fate, "number": number, "longer": longer, "longest": longest}
                for (texts, limit, fate), (number, longer, longest) in self._lengths.items()
            ],
        }


class PreparedWriter:
    """Writes a prepared folder, which appears only if the with-statement ends without an error.

    with PreparedWriter("data-bin/RTE", task="RTE", tokenizer=t, vocabulary=v, settings={...}) as writer:
        with writer.split("train") as split:
            split.add([ids], label=1)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        task: str,
        tokenizer: Tokenizer,
        vocabulary: Vocabulary,
        settings: Mapping[str, Any],
        source: Mapping[str, Any] | None = None,
    ) -> None:
        """Begin a folder.

        `settings` are plain JSON values, and `source` identifies the official files (`raw_files.describe`).

        Raises:
            FileExistsError: if the path exists and is not an empty folder; on entering, also if another process writes
                it now.
        """
        self.folder = Path(folder)
        self._task, self._tokenizer, self._vocabulary, self._settings = task, tokenizer, vocabulary, dict(settings)
        self._source = dict(source or {})
        self._partial = self.folder.with_name(f".{self.folder.name}.partial")
        self._splits: dict[str, Any] = {}
        self._lock = -1  # descriptor of the partial folder
        check_is_free(self.folder)

    def __enter__(self) -> PreparedWriter:
        self._partial.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._partial, os.O_RDONLY)
        if not is_locked_by_us(self._lock, self._partial):
            os.close(self._lock)
            raise FileExistsError(
                f"Another process is preparing {self.folder} now: run the command again when it has ended."
            )
        try:
            check_is_free(self.folder)  # another process may just have ended
        except FileExistsError:
            shutil.rmtree(self._partial)
            os.close(self._lock)
            raise
        for left in self._partial.iterdir():  # by a killed process
            left.unlink()
        return self

    @contextmanager
    def split(self, name: str) -> Iterator[SplitWriter]:
        """Begin a split; its files are complete when the with-statement ends."""
        assert name not in self._splits
        prefix = str(self._partial / name)
        with ExitStack() as stack:
            tokens = stack.enter_context(MmapTokensWriter(prefix, best_dtype(self._vocabulary.num_binarized)))
            records = stack.enter_context(atomic_write(f"{prefix}.jsonl", "w"))
            writer = SplitWriter(prefix, tokens, records)
            yield writer
            self._splits[name] = writer.finish()

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        try:
            if kind is None:
                self._finish()
            else:
                shutil.rmtree(self._partial, ignore_errors=True)
        finally:
            os.close(self._lock)

    def _finish(self) -> None:
        self._vocabulary.save(self._partial / "dict.txt")
        self._tokenizer.save(self._partial)
        content = {
            "format": FORMAT,
            "task": self._task,
            "settings": self._settings,
            "tokenizer": self._tokenizer.description(),
            "source": self._source,
            "splits": self._splits,
            "files": records_of_files(self._partial),
        }
        write_json(self._partial / NAME, content, ensure_ascii=False)
        self._partial.replace(self.folder)


def check_is_free(folder: Path) -> None:
    """Check that a prepared folder can be written here.

    Raises:
        FileExistsError: if the path exists and is not an empty folder.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        is_prepared = (folder / NAME).is_file()
        what = "holds a prepared set already: give --overwrite to replace it, or" if is_prepared else "exists:"
        raise FileExistsError(f"{folder} {what} name a folder that is empty or new.")
