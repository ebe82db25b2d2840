"""A prepared folder, read and written: a fine-tuning set ready for training, written once by `roberta prepare`.

    prepared.json  dict.txt  the tokenizer's files       and for each split, such as train and valid:

    SPLIT.bin/.idx     sequences: complete model inputs `<s> ... </s>`, in the format of `data/mmap_tokens.py`
    SPLIT.first.npy    (N + 1,) int64: example i has the sequences offsets[i] to offsets[i + 1]
    SPLIT.NAME.npy     a column with a number (N,) or several (N, ...) per example; or an array of any other shape
    SPLIT.jsonl        records that are needed after training: ids, texts, right answers

prepared.json lists the contents of each split, and the size and SHA-256 of every other file.

The benchmark defines the meaning of columns and records. Example: RTE's 2,490 training pairs are 2,490 examples with
one sequence each, a column `label` and records with `id`. RACE's 87,866 questions are examples with four sequences
each.

`PreparedWriter` writes the splits, then prepared.json, and then renames the folder:

    PreparedWriter --split("train")--> SplitWriter --add, record, array--> files of the split

Shapes: N examples of a split, S sequences.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.manifest import file_record, sha256_of_file
from roberta_plugin.data.mmap_tokens import MmapTokens, MmapTokensWriter, best_dtype
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.files import atomic_write
from roberta_plugin.json_files import json_text, parse_json, sha256_of_json, write_json
from roberta_plugin.locks import is_locked_by_us
from roberta_plugin.registry import check_installed

NAME = "prepared.json"
EXTENSIONS = "extensions"  # its key, also in checkpoints: the extensions of other packages that have the task
FORMAT = 2  # version of prepared.json
OFFSETS = "first"  # SPLIT.first.npy holds the offsets
REMEDY = "copy the folder again, or make it again with `roberta prepare --overwrite`"


@dataclass(frozen=True)
class PreparedSplit:
    """One split of a prepared folder; its arrays are memory-mapped."""

    folder: Path
    name: str
    facts: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]]
    """Size and SHA-256 of the folder's files."""

    def __len__(self) -> int:
        return int(self.facts["examples"])

    @cached_property
    def sequences(self) -> MmapTokens:
        """Model inputs of all examples, one after the other (S,)."""
        self._file("idx")
        self._file("bin", is_large=True)
        return MmapTokens(self.folder / self.name)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Example i has the sequences offsets[i] to offsets[i + 1] (N + 1,)."""
        offsets = self.array(OFFSETS)
        if len(offsets) != len(self) + 1:
            raise ValueError(
                f"{self.folder / NAME} is damaged: the split {self.name!r} has {len(offsets) - 1:,} examples, not "
                f"{len(self):,}; {REMEDY}."
            )
        return offsets

    @cached_property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Numbers of the examples by name, each (N,) or (N, ...)."""
        expected = {f"{self.name}.{name}.npy" for name in (OFFSETS, *self.facts["columns"], *self.facts["arrays"])}
        listed = {name for name in self.files if name.startswith(f"{self.name}.") and name.endswith(".npy")}
        if self.files and listed != expected:
            raise ValueError(
                f"{self.folder / NAME} is damaged: the columns and arrays of the split {self.name!r} differ from "
                f"'files'; {REMEDY}."
            )
        return {name: self.array(name) for name in self.facts["columns"]}

    def array(self, name: str) -> NDArray[Any]:
        """The array that was written under this name."""
        array: NDArray[Any] = np.load(self._file(f"{name}.npy"), mmap_mode="r", allow_pickle=False)
        return array

    def records(self) -> Iterator[dict[str, Any]]:
        """The records in order."""
        with open(self._file("jsonl", is_large=True), "rb") as lines:
            yield from map(json.loads, lines)

    def _file(self, ending: str, *, is_large: bool = False) -> Path:
        """A file of the split, after a check of its size and, if it is not large, of its hash."""
        path = self.folder / f"{self.name}.{ending}"
        check_size(path, self.files)
        if path.name in self.files and not is_large:
            for fault in hash_faults(self.folder, self.files, [path.name]):
                raise ValueError(fault)
        return path


_OF_FAIRSEQ = (
    "{folder} is a data-bin of fairseq's own fine-tuning (input0/, label/). Only fairseq-train reads it, with --task "
    "sentence_prediction, --user-dir and an --arch of fast_roberta. Here, give the texts and labels that it was made "
    "from as a table: --train FILE, without --data (TASK custom)."
)


@dataclass(frozen=True)
class Prepared:
    """A prepared folder, opened for reading."""

    folder: Path
    content: Mapping[str, Any]

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Prepared:
        """Read prepared.json.

        Raises:
            ValueError: if prepared.json is damaged or of another version, or a file does not have the recorded size.
        """
        path = Path(folder) / NAME
        if not path.is_file():
            if (path.parent / "input0").is_dir():
                raise FileNotFoundError(_OF_FAIRSEQ.format(folder=path.parent))
            raise FileNotFoundError(
                f"{path} does not exist: fine-tuning reads folders made by `roberta prepare TASK`, which starts from "
                "official files (GLUE, SQuAD, RACE, SuperGLUE, tagged words) or from your own tables (TASK custom)."
            )
        try:
            content = parse_json(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}): {REMEDY}.") from error
        if isinstance(content, dict) and content.get("format", FORMAT) != FORMAT:
            raise ValueError(
                f"{path} has the format {content['format']!r}, but this version reads {FORMAT}: prepare again."
            )
        fault = content_fault(content)
        if fault:
            raise ValueError(f"{path} is damaged: {fault}; {REMEDY}.")
        check_installed(content.get(EXTENSIONS, ()), what=f"{path.parent} was prepared with")
        prepared = cls(Path(folder), content)
        for name in prepared.common_files:
            check_size(prepared.folder / name, prepared.files)
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
        """Names of the files that do not belong to a split: dict.txt and the tokenizer's."""
        return [name for name in self.files if not name.startswith(tuple(f"{split}." for split in self.splits))]

    def changed_files(self, split: str) -> list[str]:
        """A sentence for each file of a split that has changed since it was written; all its files are read."""
        of_split = [name for name in self.files if name.startswith(f"{split}.")]
        return hash_faults(self.folder, self.files, [*self.common_files, *of_split])

    def sha256_of_inputs(self, split: str) -> str | None:
        """One hash of a split's inputs to training: its sequences, columns and arrays, but not its records.

        It is computed from the recorded hashes, which `changed_files` compares with the files; None if the folder has
        no recorded hashes.
        """
        of_inputs = {
            name: record["sha256"]
            for name, record in self.files.items()
            if name.startswith(f"{split}.") and not name.endswith(".jsonl")
        }
        return sha256_of_json(of_inputs) if of_inputs else None

    def hashes_of_examples(self, split: str, *, free: Collection[str]) -> dict[str, str]:
        """Hashes of a split by which two evaluations tell if they have judged the same examples.

        Where the hashes "made" are equal, texts become ids in the same way, and "inputs" compares the examples; else
        "records" compares their ids and lines. Settings that are `free` do not count.
        """
        made = {name: value for name, value in self.settings.items() if name not in free}
        hashes = {
            "made": sha256_of_json([made, self.vocabulary.sha256]),
            "inputs": self.sha256_of_inputs(split),
            "records": self.files.get(f"{split}.jsonl", {}).get("sha256"),
        }
        return {name: value for name, value in hashes.items() if value}

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits."""
        return tuple(self.content["splits"])

    def split(self, name: str) -> PreparedSplit:
        """One split."""
        if name not in self.content["splits"]:
            raise ValueError(f"{self.folder} has no split {name!r}; it has {', '.join(self.splits) or 'none'}.")
        return PreparedSplit(self.folder, name, self.content["splits"][name], self.files)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary that made the ids."""
        return Vocabulary.load(self.folder / "dict.txt")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the ids."""
        return load_tokenizer(self.folder)


def shown_texts(
    prepared: Prepared, split: PreparedSplit, examples: Sequence[int], *, most: int = 200, every: bool = False
) -> list[str]:
    """The texts of the first sequence of some examples, or of every one, as the model reads them, shortened."""
    back = prepared.vocabulary.model_to_tokenizer(prepared.tokenizer)
    eos_id = prepared.vocabulary.eos_id
    shown = []
    for index in examples:
        first = split.offsets[index]
        for number in range(first, split.offsets[index + 1] if every else first + 1):
            ids = split.sequences[number]
            parts = [back[part] for part in np.split(ids, np.flatnonzero(ids == eos_id))]
            texts = [prepared.tokenizer.decode([int(token) for token in part if token >= 0]) for part in parts]
            text = " | ".join(each for each in texts if each)
            shown.append(text if len(text) <= most else text[:most] + "...")
    return shown


def check_size(path: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Compare a file's size with prepared.json."""
    if not path.is_file():
        raise FileNotFoundError(_missing(path))
    record, size = files.get(path.name), path.stat().st_size
    if record is not None and size != record["bytes"]:
        raise ValueError(
            f"{path} has {size:,} bytes, but {record['bytes']:,} by prepared.json: it was cut off or replaced, "
            f"{REMEDY}."
        )


def hash_faults(folder: Path, files: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """A sentence for each file that is missing or was changed since the folder was made."""
    faults = []
    for name in names:
        if not (folder / name).is_file():
            faults.append(_missing(folder / name))
        elif sha256_of_file(folder / name) != files[name]["sha256"]:
            faults.append(f"{folder / name} was changed since it was made: its SHA-256 differs from prepared.json.")
    return faults


def _missing(path: Path) -> str:
    return f"{path} does not exist, but {path.parent / NAME} lists it: the folder is incomplete, {REMEDY}."


def content_fault(content: object) -> str | None:
    """A clause on the first fault in the content of prepared.json; None if it is well-formed."""
    if not isinstance(content, dict) or "format" not in content:
        return "it was not written by `roberta prepare`"
    for name, kind in (("task", str), ("settings", dict), ("splits", dict)):
        if not isinstance(content.get(name), kind):
            return f"{name!r} is missing or has another type"
    if not isinstance(content["settings"].get("max_length", 1), int):
        return "the setting 'max_length' is not a whole number"
    if not isinstance(content["settings"].get("labels") or [], list):
        return "the setting 'labels' is not a list"
    return (
        _extensions_fault(content.get(EXTENSIONS, []))
        or _splits_fault(content["splits"])
        or _files_fault(content.get("files"))
    )


def _extensions_fault(recorded: object) -> str | None:
    if not isinstance(recorded, list) or not all(
        isinstance(each, dict) and all(isinstance(each.get(name), str) and each[name] for name in ("name", "package"))
        for each in recorded
    ):
        return f"{EXTENSIONS!r} has no names or packages"
    return None


def _splits_fault(splits: dict[str, Any]) -> str | None:
    """The lengths of the binary files are compared with the counts, so these have to be there."""
    for split, facts in splits.items():
        if not isinstance(facts, dict) or not all(
            isinstance(facts.get(name), int) for name in ("examples", "sequences", "tokens", "records")
        ):
            return f"the counts of the split {split!r} are missing"
        if not all(isinstance(facts.get(name), list) for name in ("columns", "arrays", "lengths")):
            return f"the columns of the split {split!r} are missing"
    return None


def _files_fault(files: object) -> str | None:
    if not isinstance(files, dict) or not all(
        isinstance(record, dict) and isinstance(record.get("bytes"), int) and isinstance(record.get("sha256"), str)
        for record in files.values()
    ):
        return "'files' has no sizes or hashes"
    return None


CUT, DIVIDED = "cut", "divided into windows"  # the fate of texts that are too long


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
        """Count a text of `num_tokens` tokens, of which `limit` fit, for `preparation.remarks`."""
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
        extensions: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """Begin a folder.

        `settings` are plain JSON values, `source` identifies the official files (`benchmarks/base.describe_files`), and
        `extensions` are those of other packages without which the folder is of no use (`registry.owners_elsewhere`).

        Raises:
            FileExistsError: if the path exists and is not an empty folder; on entering, also if another process writes
                it now.
        """
        self.folder = Path(folder)
        self._task, self._tokenizer, self._vocabulary, self._settings = task, tokenizer, vocabulary, dict(settings)
        self._source, self._extensions = dict(source or {}), list(extensions)
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
            **({EXTENSIONS: self._extensions} if self._extensions else {}),
            "splits": self._splits,
            "files": {path.name: file_record(path) for path in sorted(self._partial.iterdir()) if path.is_file()},
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
