"""SuperGLUE and WinoGrande as a benchmark (`finetuning/benchmarks.py`): prepare, recipe, score.

COPA, ReCoRD and CommonsenseQA, where options compete, are the benchmark of `superglue/choices/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from roberta_plugin.finetuning.benchmarks import PaperRecipe
from roberta_plugin.finetuning.options import SuperGlueOptions
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.finetuning.superglue.metrics import scores
from roberta_plugin.finetuning.superglue.predictions import file_name, write_predictions
from roberta_plugin.finetuning.superglue.prepare import prepare as prepare
from roberta_plugin.finetuning.superglue.prepare import raw_files as raw_files
from roberta_plugin.finetuning.superglue.prepare import settings as settings
from roberta_plugin.finetuning.superglue.tasks import PAPER as PAPER
from roberta_plugin.finetuning.superglue.tasks import TASKS
from roberta_plugin.kinds import kind_class
from roberta_plugin.kinds.outputs import RawOutputs


def recipe(task: str, prepared: Prepared, *, epochs: int | None = None) -> PaperRecipe:
    """The grid of the table in `tasks.py`, where its sources stand."""
    row = TASKS[task]
    return row.training.recipe(
        "roberta_sentence_prediction",
        num_examples=len(prepared.split("train")),
        selection=row.selection,
        official=row.metrics[0],
        starts_from=row.starts_from,
        epochs=epochs,
    )


def score(
    task: str,
    prepared: Prepared,
    split: str,
    members: Sequence[RawOutputs],
    *,
    folder: Path | None,
    options: SuperGlueOptions,
) -> dict[str, float]:
    """See `benchmarks.Benchmark.score`."""
    row, part = TASKS[task], prepared.split(split)
    predictions = kind_class(row.kind)({}).decide(members, part)
    if folder is not None:
        ids = (record["id"] for record in part.records())
        labels = [row.labels[prediction] for prediction in predictions.tolist()]
        write_predictions(folder / file_name(task, split), task, ids, labels)
    answers = part.columns.get("label")
    if answers is None:
        return {}
    questions = part.columns.get("question")
    found = scores(
        row.metrics,
        np.asarray(answers),
        predictions,
        num_classes=len(row.labels),
        questions=None if questions is None else np.asarray(questions),
    )
    return {name: 100 * value for name, value in found.items()}


def prediction_files(task: str, split: str) -> tuple[str, ...]:
    """See `benchmarks.Benchmark.prediction_files`."""
    return (file_name(task, split),)
