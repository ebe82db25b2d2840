"""A model's raw outputs for a split, stored and loaded; thresholds and temperatures; the results from both.

    CELL/seed-N/outputs/SPLIT.npz    the arrays of `RawOutputs`, and checksums of the sequences that they are for and of
                                     the checkpoint that made them

With stored outputs, medians and ensembles do not need the weights; outputs of another checkpoint are computed again.
The logits of QQP's 390,965 test pairs take 3 MB a run, those of SQuAD 2.0's development set about 40 MB. An ensemble's
probabilities are the mean of its members' (section 5.1).

Answers depend on the weights, and in some kinds also on thresholds and temperatures (`Decisions`). Such a number is
given by an option, or found with the right answers of the development set. On another split it would be found with the
same answers that score it, so this is refused. A kind names its numbers (`Kind.decides_by`), and its `judged` gets them
only from here.

The results are an `Outcome`: entries for the file of predictions, metrics, tables for the report.

Shapes: N examples of a split; S sequences of a split or a batch, T positions, T_s tokens of sequence s, C classes, V
sentences of a batch; D model dimension; offsets (N + 1,): example i has the sequences offsets[i] to offsets[i + 1].
"""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.checkpoint_files import sha256_of_parameters
from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.kinds import deciding_numbers
from roberta_plugin.finetuning.kinds.metrics import measure_two_classes
from roberta_plugin.finetuning.kinds.score_names import untuned
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.runs import FILES

Values = NDArray[np.float32] | Sequence[NDArray[np.float32]]
_BESIDE_OUTPUTS = ("of", "checkpoint", "file_of_checkpoint", "lengths")  # arrays of a file that are not outputs
_SEQUENCES = ("bin", "idx", "first.npy")  # files of a split that the model's inputs come from


class RawOutputs:
    """Outputs of one model for all sequences of a split, in the order of the split.

    The outputs are attributes with the names of `Kind.outputs`; other names are None. An array has a row for each
    sequence (S, ...), for each example (N, ...) if the head pools windows, or as in `Kind.outputs_by`. Outputs for
    tokens are lists, with an array (T_s, ...) for each sequence.
    """

    def __init__(self, **values: Values | None) -> None:
        """Outputs by name; None: the model has no such output."""
        self._values = {name: value for name, value in values.items() if value is not None}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy asks for them before _values exists
            raise AttributeError(name)
        return self._values.get(name)

    def values(self) -> Mapping[str, Values]:
        """The outputs that the model has, by name."""
        return self._values


PER_TOKEN = "token"
"""In `Kind.outputs_by`: the output is a list with an array (T_s, ...) for each sequence."""


class OutputCollector:
    """Outputs of batches, stored in the order of the split; batches come in any order, and some may come twice."""

    def __init__(
        self, split: PreparedSplit, names: Sequence[str], *, by: Mapping[str, str], pools_windows: bool = False
    ) -> None:
        """Collect the outputs `names` of a kind; `by` is `Kind.outputs_by`.

        With `pools_windows`, there is one row for each example.
        """
        self._split, self._names, self._by = split, names, by
        self._offsets = np.arange(len(split) + 1) if pools_windows else np.asarray(split.offsets)
        self._arrays: dict[str, Any] = {
            name: [None] * len(split.sequences) for name in filter(self._is_of_tokens, names)
        }
        self._is_there = np.zeros(len(split), dtype=np.bool_)

    def _is_of_tokens(self, name: str) -> bool:
        return self._by.get(name) == PER_TOKEN

    def add(self, batch: Mapping[str, Any], output: Any) -> None:
        """Keep the outputs of a batch: a tensor (S, ...), of tokens (S, T, ...) or of sentences (V,), for each name."""
        self.put(self.part(batch, output))

    def part(self, batch: Mapping[str, Any], output: Any) -> dict[str, NDArray[Any]]:
        """The outputs of a batch as arrays: "id" (B,), "lengths" (S,), and one for each name.

        Outputs of tokens are concatenated over the sequences; in `output` they may be of a packed row (1, P, ...).
        """
        lengths = batch["net_input"]["src_lengths"].cpu().numpy()
        arrays = {"id": batch["id"].cpu().numpy(), "lengths": lengths}
        for name, tensor in zip(self._names, output if isinstance(output, tuple) else (output,), strict=True):
            values = tensor.detach().float().cpu().numpy()
            if self._is_of_tokens(name):
                is_packed = "packing" in batch["net_input"]
                is_token = np.arange(values.shape[1]) < (lengths.sum() if is_packed else lengths[:, None])
                values = values[is_token[None] if is_packed else is_token]
            arrays[name] = values
        return arrays

    def put(self, part: Mapping[str, NDArray[Any]]) -> None:
        """Keep what `part` has made of a batch."""
        examples = part["id"].tolist()
        self._is_there[examples] = True
        for name in self._names:
            values = part[name]
            is_of_tokens = self._is_of_tokens(name)
            bounds = self._split.array(self._by[name]) if name in self._by and not is_of_tokens else self._offsets
            rows = np.concatenate([np.arange(bounds[example], bounds[example + 1]) for example in examples])
            if is_of_tokens:
                each = np.split(values, np.cumsum(part["lengths"])[:-1])
                for row, value in zip(rows.tolist(), each, strict=True):
                    self._arrays[name][row] = value
                continue
            if name not in self._arrays:
                self._arrays[name] = np.full((bounds[-1], *values.shape[1:]), np.nan, dtype=np.float32)
            self._arrays[name][rows] = values

    @property
    def is_complete(self) -> bool:
        """Whether the outputs of all examples are there."""
        return bool(self._is_there.all())

    def outputs(self) -> RawOutputs:
        """The outputs of the whole split; every sequence must have been added."""
        assert self.is_complete, "a sequence was left out"
        assert not self.has_nan, "the model has diverged"
        return RawOutputs(**self._arrays)

    @property
    def has_nan(self) -> bool:
        """True if an output is NaN: the model has diverged."""
        return any(
            any(np.isnan(each).any() for each in values) if self._is_of_tokens(name) else bool(np.isnan(values).any())
            for name, values in self._arrays.items()
        )


def write_outputs(folder: Path, outputs: RawOutputs, split: PreparedSplit, *, checkpoint: Path | None = None) -> None:
    """Store the outputs of one model for a split; `checkpoint` is its file.

    Example:
        start_logits [(3,), (2,)]  ->  start_logits (5,), lengths [3, 2]
    """
    arrays: dict[str, NDArray[Any]] = {"of": np.array(_checksum(split))}
    if checkpoint is not None:
        arrays["checkpoint"] = np.array(sha256_of_parameters(checkpoint))
        arrays["file_of_checkpoint"] = np.array(_file_of(checkpoint))
    for name, value in outputs.values().items():
        if isinstance(value, np.ndarray):
            arrays[name] = value
        else:
            arrays["lengths"] = np.array([len(each) for each in value])
            arrays[name] = np.concatenate(value)  # (sum of T_s, ...)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / f"{split.name}.npz") as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_outputs(folder: Path, split: PreparedSplit, *, checkpoint: Path | None = None) -> RawOutputs | None:
    """The stored outputs; None if there are none or the file is damaged, or if they are of another checkpoint or for
    other sequences."""
    try:
        with np.load(folder / f"{split.name}.npz", allow_pickle=False) as file:
            arrays = dict(file)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    if str(arrays.get("of")) != _checksum(split) or not (checkpoint is None or _is_made_by(arrays, checkpoint)):
        return None
    borders = np.cumsum(arrays.get("lengths", ())).astype(np.int64)
    values: dict[str, Any] = {name: value for name, value in arrays.items() if name not in _BESIDE_OUTPUTS}
    for name, value in values.items():
        if len(borders) and len(value) == borders[-1]:  # of tokens, which are more than the sequences
            values[name] = np.split(value, borders[:-1])
    return RawOutputs(**values)


def _file_of(checkpoint: Path) -> list[str]:
    """Name, size and time of a checkpoint; as long as they are the same, its parameters are not read again."""
    stat = checkpoint.stat()
    return [checkpoint.name, str(stat.st_size), str(stat.st_mtime_ns)]


def _is_made_by(arrays: Mapping[str, NDArray[Any]], checkpoint: Path) -> bool:
    """True if stored outputs were made by a checkpoint; if it was deleted since, its name must be the same."""
    if "file_of_checkpoint" not in arrays:  # of an earlier version, which did not evaluate the last one
        return checkpoint.name != FILES["last"]
    if not checkpoint.is_file():
        return str(arrays["file_of_checkpoint"][0]) == checkpoint.name
    is_same_file = arrays["file_of_checkpoint"].tolist() == _file_of(checkpoint)
    return is_same_file or str(arrays["checkpoint"]) == sha256_of_parameters(checkpoint)


def _checksum(split: PreparedSplit) -> str:
    """A checksum of the model's inputs."""
    sizes = [split.facts.get(name) for name in ("examples", "sequences", "tokens")]
    files = [split.files[f"{split.name}.{ending}"]["sha256"] for ending in _SEQUENCES]
    return hashlib.sha256(json.dumps([sizes, files]).encode()).hexdigest()


def probabilities(logits: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Logits (S,) -> probabilities (S,) that sum to 1 over the options of each example."""
    counts = np.diff(offsets)
    values = logits.astype(np.float64)
    weights = np.exp(values - np.repeat(np.maximum.reduceat(values, offsets[:-1]), counts))
    result: NDArray[np.float64] = weights / np.repeat(np.add.reduceat(weights, offsets[:-1]), counts)
    return result


def mean_probabilities(members: Sequence[NDArray[Any]], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Logits (S,) of each member -> the mean of their probabilities (S,)."""
    mean: NDArray[np.float64] = np.mean([probabilities(logits, offsets) for logits in members], axis=0)
    return mean


def class_probabilities(members: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """Logits (N, C) of each member -> the mean of their probabilities (N, C)."""
    num_examples, num_classes = members[0].shape
    offsets = np.arange(0, members[0].size + 1, num_classes)
    return mean_probabilities([each.reshape(-1) for each in members], offsets).reshape(num_examples, num_classes)


DEVELOPMENT = "valid"  # the split that checkpoints and thresholds are chosen on
HELD_OUT = "held_out"  # a fold that scores the choice made on an inner development set


class Decisions:
    """The thresholds and temperatures for the outputs of a split."""

    def __init__(self, split: str, options: Mapping[str, Any] | None = None) -> None:
        """Numbers of a split; `options` are those of the scoring, by name."""
        self._split, self._options = split, options or {}
        self.used: dict[str, float] = {}
        """The numbers that were applied, by name."""

    def wish(self, option: str) -> Any:
        """The value of an option on how to find a number; None if it is not given."""
        return self._options.get(option)

    def given(self, name: str) -> float | None:
        """The number that an option gives."""
        number: float | None = self._options.get(name)
        if number is not None:
            self.used[name] = number
        return number

    def find(self, name: str, search: Callable[[], float], *, is_labelled: bool) -> float:
        """The number that an option gives, or that `search` finds on the development set.

        Raises:
            ValueError: if none is given, and the split is another one or has no right answers.
        """
        number = self.given(name)
        if number is None:
            what, flag = name.replace("_", " "), f"--{name.replace('_', '-')}"
            if self._split != DEVELOPMENT:
                raise ValueError(
                    f"The {what} is found on the development set, not on the split {self._split}: evaluate "
                    f"`{DEVELOPMENT}` too, or give {flag}."
                )
            if not is_labelled:
                raise ValueError(
                    f"The {what} is found with right answers, but the development set has none: give {flag}."
                )
            number = self.used[name] = search()
        return number


def is_number(name: str, value: Any) -> bool:
    """True if a value is possible for the threshold or temperature of this name."""
    is_finite = name in deciding_numbers() and isinstance(value, float) and math.isfinite(value)
    return is_finite and (value > 0 if name == "temperature" else 0 <= value <= 1)


Weights = NDArray[Any]
Measure = Callable[[Weights], dict[str, float]]
"""How often each example counts (N,) -> metrics in percent; all ones give the metrics themselves."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of a model, or of an ensemble, on a split."""

    entries: Callable[[], Iterator[dict[str, Any]]]
    """The entry of each example in the file of predictions, in order."""
    num_examples: int
    """N."""
    measure: Measure | None = None
    """The metrics; None if the right answers are not known."""
    baseline: Mapping[str, float] = field(default_factory=dict)
    """Metrics of always giving the same answer: the most frequent label of the training set, or a guess."""
    tables: Mapping[str, Any] = field(default_factory=dict)
    """For the report: `classes`, one row per label; `confusion`, counts by right and predicted label; `errors`."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """The thresholds and temperatures that were applied (`Decisions`)."""
    losses: NDArray[Any] | None = None
    """The loss of each example (N,), by the probabilities or numbers in the entries; None: an example has none."""
    not_measured: tuple[str, ...] = ()
    """Metrics that cannot be measured on the split."""

    def renamed(self, name_of: Callable[[str], str]) -> Outcome:
        """The same outcome with other names of the metrics."""
        assert self.measure is not None
        measure = self.measure

        def rename(values: Mapping[str, float]) -> dict[str, float]:
            return {name_of(name): value for name, value in values.items()}

        return replace(self, measure=lambda weights: rename(measure(weights)), baseline=rename(self.baseline))

    def without(self, scores: Sequence[str]) -> Outcome:
        """The same outcome without wrong scores of the split, such as macro-F1 if a label has no examples."""
        if self.measure is None:
            return self
        measure = self.measure

        def select(values: Mapping[str, float]) -> dict[str, float]:
            return {name: value for name, value in values.items() if untuned(name) not in scores}

        return replace(
            self,
            measure=lambda weights: select(measure(weights)),
            baseline=select(self.baseline),
            not_measured=tuple(name for name in measure(np.ones(self.num_examples)) if untuned(name) in scores),
        )


def judge_two_labels(
    split: PreparedSplit, labels: Sequence[str], predictions: NDArray[np.int64], right: NDArray[Any] | None
) -> Outcome:
    """The outcome for decisions without probabilities: one of two labels for each example (N,)."""

    def entries() -> Iterator[dict[str, Any]]:
        for id_, label in zip(ids_of(split), predictions.tolist(), strict=True):
            yield {"id": id_, "prediction": labels[label]}

    measure = None if right is None else partial(measure_two_classes, np.asarray(right), predictions)
    return Outcome(entries=entries, num_examples=len(predictions), measure=measure)


def ids_of(split: PreparedSplit) -> Iterator[Any]:
    """The ids of the examples of a split, in order."""
    return (record["id"] for record in split.records())
