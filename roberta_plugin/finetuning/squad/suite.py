"""SQuAD for `roberta prepare`, `roberta finetune` and `roberta evaluate`; see `finetuning/suites.py`.

Tasks: `squad1` is SQuAD 1.1, `squad2` is SQuAD 2.0, where a question may have no answer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.data.atomic_files import atomic_write
from roberta_plugin.finetuning.paper_settings import COMMON, schedule
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.finetuning.squad.decoding import MAX_ANSWER_LENGTH, N_BEST, Decoded, decode
from roberta_plugin.finetuning.squad.metric import evaluate
from roberta_plugin.finetuning.squad.prepare import OPTIONS
from roberta_plugin.finetuning.squad.prepare import prepare as prepare
from roberta_plugin.finetuning.squad.prepare import raw_files as raw_files
from roberta_plugin.finetuning.squad.prepare import settings as settings
from roberta_plugin.finetuning.squad.questions import Questions
from roberta_plugin.finetuning.suites import RawOutputs, Recipe

TASKS = ("squad1", "squad2")
PAPER = {
    "squad1": {
        "valid": {
            "RoBERTa large": {"exact": 88.9, "f1": 94.6},  # Table 6, dev
            "RoBERTa base, 16 GB of text": {"f1": 90.6},  # Table 2, DOC-SENTENCES, dev
        }
    },
    "squad2": {
        "valid": {
            "RoBERTa large": {"exact": 86.5, "f1": 89.4},
            "RoBERTa base, 16 GB of text": {"f1": 79.7},
        }
    },
}
BATCH_SIZE, EPOCHS = 48, 2  # Table 10
SEEDS = ("1", "2", "3", "4", "5")
PREPARING_OPTIONS = OPTIONS
SCORING_OPTIONS = ("n-best", "max-answer-length", "null-threshold")


def recipe(task: str, prepared: Prepared, *, epochs: int | None = None) -> Recipe:
    """The paper's settings (Table 10): 1.5e-5 after a warm-up of 6 %, linear decay, 2 epochs of batches of 48 windows.

    The checkpoint is chosen by F1, with SQuAD 2.0 at the best threshold.
    """
    updates = schedule(len(prepared.split("train")), batch_size=BATCH_SIZE, epochs=epochs or EPOCHS)
    return Recipe(
        train={"task": "squad2", "criterion": "squad2", **COMMON, "weight-decay": "0.01"},
        axes={"lr": ["1.5e-5"], "batch": {str(BATCH_SIZE): updates}},
        seeds=SEEDS,
        metric={"log": "valid", "value": "tuned_f1" if task == "squad2" else "f1", "goal": "max", "at": "best"},
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
    """Official metrics of one model or of the mean of several models' probabilities.

    Without an answer (SQuAD 2.0) counts a question whose probability of that is above a threshold: the option
    `null-threshold`, or else the one that makes F1 best on this split, as is usual for the development set. A split
    without labels needs the option, and has no metrics.

    With `folder`, three files are written to FOLDER/SPLIT: predictions.json (id -> text, "" for no answer),
    nbest_predictions.json (id -> candidates, the best first) and, for SQuAD 2.0, null_odds.json (id -> probability of
    no answer, which the official script takes as --na-prob-file).

    Args:
        task: "squad1" or "squad2".
        prepared: the data.
        split: which split of it.
        members: raw outputs of each model.
        folder: where to write, or None.
        options: `n-best` (20) candidates of a question, `max-answer-length` (30) tokens, `null-threshold` (0 to 1).

    Returns:
        exact and f1 of predictions.json; for SQuAD 2.0 also those of questions with and without an answer (HasAns_,
        NoAns_), the best that a threshold can give (best_exact, best_f1, and best_exact_thresh, best_f1_thresh: these
        two are 0 to 1), and null_threshold, which was applied.

    Raises:
        ValueError: if an option cannot be used or is missing.
    """
    n_best, max_answer_length, threshold = _read(task, options)
    questions = Questions(prepared.split(split), task)
    decoded = decode(questions, members, n_best=n_best, max_answer_length=max_answer_length)
    best = {id_: found.candidates[0].text for id_, found in zip(questions.ids, decoded, strict=True)}
    null = {id_: found.null_probability for id_, found in zip(questions.ids, decoded, strict=True)}
    metrics: dict[str, float] = {}
    if task == "squad2":
        if questions.is_labelled:
            metrics = evaluate(task, questions.right, best, null=null)
            threshold = metrics["best_f1_thresh"] if threshold is None else threshold
        elif threshold is None:
            raise ValueError(
                f"The split {split} has no right answers to find the threshold by: give the option null-threshold, "
                "best_f1_thresh of the development set."
            )
        best = {id_: "" if null[id_] > threshold else text for id_, text in best.items()}
        metrics |= {"null_threshold": threshold} if metrics else {}
    if questions.is_labelled:
        metrics |= evaluate(task, questions.right, best)
    if folder is not None:
        _write(folder / split, task, questions, decoded, best, null)
    return metrics


def prediction_files(task: str, split: str) -> tuple[str, ...]:
    """See `suites.Suite.prediction_files`."""
    names = ("predictions.json", "nbest_predictions.json", *(["null_odds.json"] if task == "squad2" else []))
    return tuple(f"{split}/{name}" for name in names)


def _read(task: str, options: Mapping[str, str]) -> tuple[int, int, float | None]:
    """n-best, max-answer-length and null-threshold."""
    known = SCORING_OPTIONS if task == "squad2" else SCORING_OPTIONS[:2]
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise ValueError(f"Evaluating {task} has the options {', '.join(known)}, not {unknown[0]!r}.")
    numbers = {"n-best": str(N_BEST), "max-answer-length": str(MAX_ANSWER_LENGTH), **options}
    for name in SCORING_OPTIONS[:2]:
        if not numbers[name].isdecimal() or int(numbers[name]) < 1:
            raise ValueError(f"{name} must be a whole number from 1 on, got {numbers[name]!r}.")
    threshold = None
    if "null-threshold" in options:
        try:
            threshold = float(options["null-threshold"])
        except ValueError:
            threshold = math.nan
        if not 0.0 <= threshold <= 1.0:
            raise ValueError(f"null-threshold must be a probability, 0 to 1, got {options['null-threshold']!r}.")
    return int(numbers["n-best"]), int(numbers["max-answer-length"]), threshold


def _write(
    folder: Path,
    task: str,
    questions: Questions,
    decoded: Sequence[Decoded],
    predictions: Mapping[str, str],
    null: Mapping[str, float],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "predictions.json", predictions)
    n_best = {id_: _candidates(task, found) for id_, found in zip(questions.ids, decoded, strict=True)}
    _write_json(folder / "nbest_predictions.json", n_best)
    if task == "squad2":
        _write_json(folder / "null_odds.json", null)


def _candidates(task: str, found: Decoded) -> list[dict[str, Any]]:
    """Texts with their probabilities and characters of the passage; with SQuAD 2.0, no answer is among them."""
    entries: list[dict[str, Any]] = [
        {"text": text, "probability": math.exp(value), "start": start, "end": stop}
        for text, value, start, stop in found.candidates
    ]
    if task == "squad2":
        entries.append({"text": "", "probability": found.null_probability})
    return sorted(entries, key=lambda entry: -entry["probability"])


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(path, "w") as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
