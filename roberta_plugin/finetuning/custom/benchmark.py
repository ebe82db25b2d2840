"""Own data as a benchmark (`finetuning/benchmarks.py`): prepare, recipe, score and details."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roberta_plugin.finetuning.benchmarks import PaperRecipe
from roberta_plugin.finetuning.custom.bootstrap import intervals
from roberta_plugin.finetuning.custom.options import CustomOptions
from roberta_plugin.finetuning.custom.predictions import file_name, write_predictions
from roberta_plugin.finetuning.custom.prepare import prepare as prepare
from roberta_plugin.finetuning.custom.prepare import raw_files as raw_files
from roberta_plugin.finetuning.custom.prepare import settings as settings
from roberta_plugin.finetuning.custom.recipe import recipe_for
from roberta_plugin.finetuning.inspection import labels_without_examples
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.kinds import table_kind
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.tables import Outcome

PAPER: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]] = {}


def recipe(task: str, prepared: Prepared, *, epochs: int | None = None) -> PaperRecipe:
    """The grid for data of this size: see `recipe`."""
    kind = table_kind(prepared.settings)
    return recipe_for(
        len(prepared.split("train")),
        fairseq_task=kind.task,
        selection=kind.selection,
        epochs=epochs,
    )


def score(
    task: str,
    prepared: Prepared,
    split: str,
    members: Sequence[RawOutputs],
    *,
    folder: Path | None,
    options: CustomOptions,
) -> dict[str, float]:
    """See `benchmarks.Benchmark.score`; the metrics are those of the kind, and the `threshold`, if it has one.

    Raises:
        ValueError: if a threshold is given for a kind that has none.
    """
    outcome = _outcome(prepared, split, members, options)
    if folder is not None:
        write_predictions(folder / file_name(split), outcome.entries())
    if outcome.measure is None:
        return {}
    metrics = outcome.measure(np.ones(outcome.num_examples))
    return metrics if outcome.threshold is None else {**metrics, "threshold": outcome.threshold}


def details(
    task: str, prepared: Prepared, split: str, members: Sequence[RawOutputs], *, options: CustomOptions
) -> dict[str, Any]:
    """See `benchmarks.Benchmark.details`: intervals, baseline, and the tables of the kind (`kinds/tables.Outcome`)."""
    outcome = _outcome(prepared, split, members, options)
    if outcome.measure is None:
        return {}
    num_examples = outcome.num_examples
    found: dict[str, Any] = {"num_examples": num_examples, "intervals": intervals(outcome.measure, num_examples)}
    found["not_measured"] = list(outcome.not_measured)
    return {**found, "baseline": dict(outcome.baseline), **outcome.tables}


def prediction_files(task: str, split: str) -> tuple[str, ...]:
    """See `benchmarks.Benchmark.prediction_files`."""
    return (file_name(split),)


def _outcome(prepared: Prepared, split: str, members: Sequence[RawOutputs], options: CustomOptions) -> Outcome:
    kind = table_kind(prepared.settings)
    if options.threshold is not None and not kind.threshold:
        raise ValueError(
            f"--threshold goes with multi-label and question-answering, and {prepared.folder} is for {kind.name}."
        )
    part = prepared.split(split)
    outcome = kind.outcome(part, members, train=prepared.split("train"), threshold=options.threshold)
    return outcome.without_metrics_of_all_labels() if labels_without_examples(prepared, part) else outcome
