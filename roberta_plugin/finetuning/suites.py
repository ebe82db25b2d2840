"""Which suite serves which task: the one table of all fine-tuning tasks.

A suite is a package of this folder whose module `suite` has the names of `Suite`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from roberta_plugin.data.tokenizers.base import Tokenizer
    from roberta_plugin.data.vocabulary import Vocabulary
    from roberta_plugin.finetuning.prepared import Prepared

# suite -> its fairseq task, and the tasks it serves as the user calls them
SUITES: dict[str, tuple[str, tuple[str, ...]]] = {
    "glue": (
        "roberta_sentence_prediction",
        ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "QNLI-ranking", "RTE", "WNLI"),
    ),
    "squad": ("squad2", ("squad1", "squad2")),
    "race": ("race", ("race", "multiple_choice")),
}
TASKS = tuple(task for _, tasks in SUITES.values() for task in tasks)


class RawOutputs(NamedTuple):
    """What one model says of all sequences of a split, in the order of the split.

    Shapes: S sequences of the split, C classes, T_s tokens of sequence s.
    """

    scores: NDArray[np.float32] | None = None
    """Scores of a classification head (S, C)."""
    starts: Sequence[NDArray[np.float32]] | None = None
    """Scores of each token to begin the answer, (T_s,) a sequence."""
    ends: Sequence[NDArray[np.float32]] | None = None
    """Scores of each token to end it, (T_s,) a sequence."""
    answerable: NDArray[np.float32] | None = None
    """Score of there being an answer (S,)."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How the paper trains a task, as a grid file says it (`roberta_plugin/cluster/grid.py`): values are strings."""

    train: Mapping[str, Any]
    """Options of fairseq-train that all runs share; data, model and checkpoint are the caller's."""
    axes: Mapping[str, Any]
    """Axes of the grid."""
    seeds: Sequence[str]
    """One run a seed."""
    metric: Mapping[str, str]
    """What chooses the checkpoint and the cell."""
    starts_from: str = ""
    """The task whose fine-tuned model the paper starts from, where that is not the pretrained one."""


class Suite(Protocol):
    """What a suite's module `suite` offers."""

    PAPER: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]
    """Task -> split -> row of the paper -> metric -> number."""
    PREPARING_OPTIONS: Sequence[str]
    """Names that `options` of `prepare` may have."""
    SCORING_OPTIONS: Sequence[str]
    """Names that `options` of `score` may have."""

    def settings(self, task: str, *, max_length: int, options: Mapping[str, str]) -> dict[str, Any]:
        """What a folder remembers of its preparation with these options.

        Raises:
            ValueError: naming an option that is unknown or has a wrong value.
        """

    def raw_files(self, task: str, raw: Path, options: Mapping[str, str]) -> list[Path]:
        """The official files that are prepared, split by split.

        Raises:
            FileNotFoundError: if `raw` does not hold them.
        """

    def prepare(
        self,
        task: str,
        raw: Path,
        output: Path,
        *,
        tokenizer: Tokenizer,
        vocabulary: Vocabulary,
        max_length: int,
        options: Mapping[str, str],
    ) -> None:
        """Official files -> prepared folder."""

    def recipe(self, task: str, prepared: Prepared, *, epochs: int | None = None) -> Recipe:
        """The paper's settings for a prepared folder; `epochs` instead of the paper's number."""

    def score(
        self,
        task: str,
        prepared: Prepared,
        split: str,
        members: Sequence[RawOutputs],
        *,
        folder: Path | None,
        options: Mapping[str, str],
    ) -> dict[str, float]:
        """Official metrics, 0 to 100 and unrounded, of one model or of the average of several.

        With `folder`, the prediction files are written there. A split without labels has no metrics.
        """

    def prediction_files(self, task: str, split: str) -> Sequence[str]:
        """Names of the prediction files of a split, in the folder that `score` is given."""


def suite_name_of(task: str) -> str:
    """Which suite serves a task.

    Raises:
        ValueError: if none does.
    """
    for name, (_, tasks) in SUITES.items():
        if task in tasks:
            return name
    raise ValueError(f"There is no fine-tuning task {task!r}; there are {', '.join(TASKS)}.")


def suite_of(task: str) -> Suite:
    """The suite that serves a task, imported when it is asked for."""
    module = importlib.import_module(f"roberta_plugin.finetuning.{suite_name_of(task)}.suite")
    return cast(Suite, module)


def fairseq_task_of(task: str) -> str:
    """The name after --task for a prepared task."""
    return SUITES[suite_name_of(task)][0]
