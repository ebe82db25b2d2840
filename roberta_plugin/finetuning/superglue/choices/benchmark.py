"""COPA, ReCoRD and CommonsenseQA as a benchmark (`finetuning/benchmarks.py`): prepare, recipe, score."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from roberta_plugin.finetuning.benchmarks import PaperRecipe
from roberta_plugin.finetuning.options import ChoicesOptions
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.finetuning.superglue.choices.predictions import file_name, scores_of_texts, write_predictions
from roberta_plugin.finetuning.superglue.choices.prepare import prepare as prepare
from roberta_plugin.finetuning.superglue.choices.prepare import raw_files as raw_files
from roberta_plugin.finetuning.superglue.choices.prepare import settings as settings
from roberta_plugin.finetuning.superglue.choices.tasks import PAPER as PAPER
from roberta_plugin.finetuning.superglue.choices.tasks import TASKS
from roberta_plugin.kinds.choices import answers, option_probabilities
from roberta_plugin.kinds.outputs import RawOutputs


def recipe(task: str, prepared: Prepared, *, epochs: int | None = None) -> PaperRecipe:
    """The grid of the table in `tasks.py`, where its sources stand.

    The checkpoint is chosen by accuracy; for ReCoRD that of the first right answer of each query.
    """
    row, num_examples = TASKS[task], len(prepared.split("train"))
    return row.training.recipe(
        "race", num_examples=num_examples, selection="accuracy", official=row.metrics[0], epochs=epochs
    )


def score(
    task: str,
    prepared: Prepared,
    split: str,
    members: Sequence[RawOutputs],
    *,
    folder: Path | None,
    options: ChoicesOptions,
) -> dict[str, float]:
    """See `benchmarks.Benchmark.score`."""
    part = prepared.split(split)
    offsets = np.asarray(part.offsets)
    given = answers(option_probabilities(members, offsets), offsets)
    if folder is not None:
        write_predictions(folder / file_name(task, split), task, part, given.tolist())
    labels = np.asarray(part.columns["label"])
    if (labels < 0).any():
        return {}
    found = scores_of_texts(part, given.tolist()) if task == "ReCoRD" else {"accuracy": float(np.mean(given == labels))}
    return {name: 100 * found[name] for name in TASKS[task].metrics}


def prediction_files(task: str, split: str) -> tuple[str, ...]:
    """See `benchmarks.Benchmark.prediction_files`."""
    return (file_name(task, split),)
