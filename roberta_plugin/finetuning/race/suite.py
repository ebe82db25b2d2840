"""Multiple choice for `roberta prepare`, `roberta finetune` and `roberta evaluate`; see `finetuning/suites.py`.

Tasks: `race` reads RACE's official folders, `multiple_choice` our JSON Lines (`reader`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from roberta_plugin.finetuning.averaging import mean_probabilities
from roberta_plugin.finetuning.paper_settings import COMMON, schedule
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.finetuning.race.inputs import OPTIONS
from roberta_plugin.finetuning.race.prepare import prepare as prepare
from roberta_plugin.finetuning.race.prepare import raw_files as raw_files
from roberta_plugin.finetuning.race.prepare import settings as settings
from roberta_plugin.finetuning.race.scoring import accuracies, answers, write_predictions
from roberta_plugin.finetuning.suites import RawOutputs, Recipe

TASKS = ("race", "multiple_choice")
PAPER = {
    "race": {
        "test": {"RoBERTa large": {"accuracy": 83.2, "accuracy_middle": 86.5, "accuracy_high": 81.3}},  # Table 7
        "valid": {"RoBERTa base, 16 GB of text": {"accuracy": 65.6}},  # Table 2, DOC-SENTENCES
    }
}
PREPARING_OPTIONS, SCORING_OPTIONS = OPTIONS, ()
BATCH_SIZE, EPOCHS = 16, 4  # Table 10
SEEDS = ("1", "2", "3", "4", "5")


def recipe(task: str, prepared: Prepared, *, epochs: int | None = None) -> Recipe:
    """The paper's settings (Table 10): 1e-5 after a warm-up of 6 %, linear decay, 4 epochs of batches of 16.

    A batch of 16 questions is 64 sequences of up to 512 tokens; where the GPU has no room for them, `roberta finetune`
    accumulates smaller ones with `--set batch-size=4`.
    """
    updates = schedule(len(prepared.split("train")), batch_size=BATCH_SIZE, epochs=epochs or EPOCHS)
    return Recipe(
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
    options: Mapping[str, str],
) -> dict[str, float]:
    """Accuracies in percent, unrounded, of one model or of the mean of several models' probabilities.

    With `folder`, SPLIT.predictions.jsonl is written there: see `scoring.write_predictions`.

    Raises:
        ValueError: if an option is given; there are none.
    """
    if options:
        raise ValueError(f"Evaluating {task} takes no options, got {', '.join(sorted(options))}.")
    opened = prepared.split(split)
    first = np.asarray(opened.first)
    scores = [member.scores[:, 0] for member in members if member.scores is not None]
    assert len(scores) == len(members) > 0, "multiple choice has a classification head"
    chances = mean_probabilities(scores, first)
    given = answers(chances, first)
    if folder is not None:
        write_predictions(folder / prediction_files(task, split)[0], opened, given, chances, letters=task == "race")
    return accuracies(given, opened.columns["label"], opened.columns["level"])


def prediction_files(task: str, split: str) -> tuple[str, ...]:
    """See `suites.Suite.prediction_files`."""
    return (f"{split}.predictions.jsonl",)
