"""Multiple choice for `roberta prepare`, `roberta finetune` and `roberta evaluate`; see `finetuning/benchmarks.py`.

Tasks: `race` reads RACE's official folders, `multiple_choice` our JSON Lines (`reader`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from roberta_plugin.finetuning.benchmarks import PaperRecipe
from roberta_plugin.finetuning.options import RaceOptions
from roberta_plugin.finetuning.paper_settings import COMMON, schedule
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.finetuning.race.metrics import accuracies
from roberta_plugin.finetuning.race.predictions import write_predictions
from roberta_plugin.finetuning.race.prepare import prepare as prepare
from roberta_plugin.finetuning.race.prepare import raw_files as raw_files
from roberta_plugin.finetuning.race.prepare import settings as settings
from roberta_plugin.kinds.choices import answers, option_probabilities
from roberta_plugin.kinds.outputs import RawOutputs

PAPER = {
    "race": {
        "test": {"RoBERTa large": {"accuracy": 83.2, "accuracy_middle": 86.5, "accuracy_high": 81.3}},  # Table 7
        "valid": {"RoBERTa base, 16 GB of text": {"accuracy": 65.6}},  # Table 2, DOC-SENTENCES
    }
}
BATCH_SIZE, EPOCHS = 16, 4  # Table 10
SEEDS = ("1", "2", "3", "4", "5")


def recipe(task: str, prepared: Prepared, *, epochs: int | None = None) -> PaperRecipe:
    """The paper's settings (Table 10): 1e-5 after a warm-up of 6 %, linear decay, 4 epochs of batches of 16.

    A batch of 16 questions is 64 sequences of up to 512 tokens; if they do not fit into
    the GPU, `roberta finetune` accumulates smaller batches with `--set batch-size=4`.
    """
    updates = schedule(len(prepared.split("train")), batch_size=BATCH_SIZE, epochs=epochs or EPOCHS)
    return PaperRecipe(
        train={"task": "race", "criterion": "race", **COMMON, "weight-decay": "0.1"},
        axes={"lr": ["1e-5"], "batch": {str(BATCH_SIZE): updates}},
        seeds=SEEDS,
        metric={"log": "valid", "value": "accuracy", "goal": "max", "at": "best"},
    )


def score(
    task: str,
    prepared: Prepared,
    split: str,
    members: Sequence[RawOutputs],
    *,
    folder: Path | None,
    options: RaceOptions,
) -> dict[str, float]:
    """See `benchmarks.Benchmark.score`; the prediction file is SPLIT.predictions.jsonl."""
    opened = prepared.split(split)
    offsets = np.asarray(opened.offsets)
    probabilities = option_probabilities(members, offsets)
    given = answers(probabilities, offsets)
    if folder is not None:
        write_predictions(
            folder / prediction_files(task, split)[0], opened, given, probabilities, letters=task == "race"
        )
    return accuracies(given, opened.columns["label"], opened.columns["level"])


def prediction_files(task: str, split: str) -> tuple[str, ...]:
    """See `benchmarks.Benchmark.prediction_files`."""
    return (f"{split}.predictions.jsonl",)
