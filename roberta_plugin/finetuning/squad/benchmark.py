"""SQuAD for `roberta prepare`, `roberta finetune` and `roberta evaluate`; see `finetuning/benchmarks.py`.

Tasks: `squad1` is SQuAD 1.1, `squad2` is SQuAD 2.0, where a question may have no answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roberta_plugin.finetuning.benchmarks import PaperRecipe
from roberta_plugin.finetuning.options import SquadOptions
from roberta_plugin.finetuning.paper_settings import COMMON, schedule
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.finetuning.squad.predictions import write_predictions
from roberta_plugin.finetuning.squad.prepare import prepare as prepare
from roberta_plugin.finetuning.squad.prepare import raw_files as raw_files
from roberta_plugin.finetuning.squad.prepare import settings as settings
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.questions import MAX_ANSWER_LENGTH, N_BEST, Questions, decode
from roberta_plugin.kinds.span_metrics import evaluate

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


def recipe(task: str, prepared: Prepared, *, epochs: int | None = None) -> PaperRecipe:
    """The paper's settings (Table 10): 1.5e-5 after a warm-up of 6 %, linear decay, 2 epochs of batches of 48 windows.

    The checkpoint is chosen by F1, with SQuAD 2.0 at the best threshold.
    """
    updates = schedule(len(prepared.split("train")), batch_size=BATCH_SIZE, epochs=epochs or EPOCHS)
    return PaperRecipe(
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
    options: SquadOptions,
) -> dict[str, float]:
    """See `benchmarks.Benchmark.score`.

    With squad2, a question whose probability of no answer is above a threshold gets no answer. The threshold is
    `options.null_threshold`, or else the one with the best F1 on this split, as is usual for the development set. A
    split without labels needs the option.

    With `folder`, three files are written to FOLDER/SPLIT: predictions.json (id -> text, "" for no answer),
    nbest_predictions.json (id -> candidates, the best first) and, for squad2, null_odds.json (id -> probability of no
    answer, which the official script takes as --na-prob-file).

    Returns:
        exact and f1 of predictions.json. For squad2 also the same for the questions with and without an answer
        (HasAns_, NoAns_); the best that any threshold gives and that threshold, from 0 to 1 (best_exact,
        best_exact_thresh, best_f1, best_f1_thresh); and null_threshold, the threshold that was applied.

    Raises:
        ValueError: if the threshold is needed and not given.
    """
    threshold = options.null_threshold
    questions = Questions(prepared.split(split), task)
    decoded = decode(
        questions,
        members,
        n_best=options.n_best or N_BEST,
        max_answer_length=options.max_answer_length or MAX_ANSWER_LENGTH,
    )
    best = {id_: found.candidates[0].text for id_, found in zip(questions.ids, decoded, strict=True)}
    null = {id_: found.null_probability for id_, found in zip(questions.ids, decoded, strict=True)}
    metrics: dict[str, float] = {}
    if task == "squad2":
        if questions.is_labelled:
            metrics = evaluate(task, questions.right, best, null=null)
            threshold = metrics["best_f1_thresh"] if threshold is None else threshold
        elif threshold is None:
            raise ValueError(
                f"The split {split} has no right answers to find the threshold by: give --null-threshold, the "
                "best_f1_thresh of the development set."
            )
        best = {id_: "" if null[id_] > threshold else text for id_, text in best.items()}
        metrics |= {"null_threshold": threshold} if metrics else {}
    if questions.is_labelled:
        metrics |= evaluate(task, questions.right, best)
    if folder is not None:
        write_predictions(folder / split, task, questions, decoded, best, null)
    return metrics


def prediction_files(task: str, split: str) -> tuple[str, ...]:
    """See `benchmarks.Benchmark.prediction_files`."""
    names = ("predictions.json", "nbest_predictions.json", *(["null_odds.json"] if task == "squad2" else []))
    return tuple(f"{split}/{name}" for name in names)
