"""Raw outputs of one model or several -> predictions for a split, and the file that the leaderboard wants.

Shapes: N examples of a split, S its sequences, C classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.glue.tasks import GlueTask
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.kinds import kind_class
from roberta_plugin.kinds.metrics import as_written
from roberta_plugin.kinds.outputs import RawOutputs

HEADER = "index\tprediction"


def predict(glue_task: GlueTask, members: Sequence[RawOutputs], split: PreparedSplit) -> NDArray[Any]:
    """Predictions for a split (N,): ids of labels, or for STS-B numbers.

    The probabilities of the members of an ensemble are averaged: of labels, of a pair being right, or of a phrase among
    its rivals. Numbers are averaged as they are, then clipped to the task's limits and rounded to three decimals.
    """
    predictions = kind_class(glue_task.kind)({}).decide(members, split)
    return as_written(predictions, glue_task.limits) if glue_task.kind == "regression" else predictions


def file_name(glue_task: GlueTask, split: str) -> str:
    """Name of the file of predictions for a split: the leaderboard's, or TASK.SPLIT.tsv where it has none."""
    source = glue_task.submission(split)
    return f"{source.submission}.tsv" if source else f"{glue_task.name}.{split}.tsv"


def write_predictions(path: Path, glue_task: GlueTask, ids: Iterable[str], predictions: NDArray[Any]) -> None:
    """Write the predictions for one split: ids of labels, or numbers (`metrics.as_written`)."""
    if glue_task.labels:
        words = [glue_task.labels[int(prediction)] for prediction in predictions]
    else:
        words = [f"{prediction:.3f}" for prediction in as_written(predictions, glue_task.limits)]
    with atomic_write(path, "w") as file:
        file.write(f"{HEADER}\n")
        file.writelines(f"{row_id}\t{word}\n" for row_id, word in zip(ids, words, strict=True))
