"""Summaries for `roberta prepare`, `roberta finetune` and `roberta evaluate`; see `finetuning/benchmarks.py`.

Tasks: `summaries` reads own tables, `cnn_dailymail` that set as stories or tables (`reader`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roberta_plugin.finetuning.benchmarks import PaperRecipe
from roberta_plugin.finetuning.paper_settings import COMMON, schedule
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.finetuning.summaries.options import SummariesOptions
from roberta_plugin.finetuning.summaries.predictions import chosen_sentences, evaluate, write_predictions
from roberta_plugin.finetuning.summaries.prepare import prepare as prepare
from roberta_plugin.finetuning.summaries.prepare import raw_files as raw_files
from roberta_plugin.finetuning.summaries.prepare import settings as settings
from roberta_plugin.kinds.documents import Documents, check_rouge, sentence_probabilities
from roberta_plugin.kinds.outputs import RawOutputs

PAPER = {  # RoBERTa's paper has no summaries: Liu and Lapata 2019, Table 2, BERT base
    "cnn_dailymail": {
        "test": {
            "BertSumExt": {
                **{"rouge1": 43.25, "rouge2": 20.24, "rougeLsum": 39.63},
                **{"lead_rouge1": 40.42, "lead_rouge2": 17.62, "lead_rougeLsum": 36.67},
                **{"oracle_rouge1": 52.59, "oracle_rouge2": 31.24, "oracle_rougeLsum": 48.87},
            }
        }
    }
}
BATCH_SIZE, LRS = 36, ["1e-5", "2e-5", "3e-5"]
EPOCHS = {"cnn_dailymail": 6, "summaries": 10}
SEEDS = ("1", "2", "3")


def recipe(task: str, prepared: Prepared, *, epochs: int | None = None) -> PaperRecipe:
    """BertSumExt's settings where RoBERTa's paper has none, and the paper's Table 10 for GLUE otherwise.

    Liu and Lapata 2019 (sections 3.2 and 4.2): two layers over the sentences, 50,000 updates, and a rate of 2e-3 times
    min(step^-0.5, step * 10,000^-1.5), whose peak is 2e-5; with batches of about 36 documents (Liu 2019, arXiv
    1903.10318), they are 6 epochs of CNN/DailyMail's 287,227 documents.
    RoBERTa's Table 10: rates around it, a warm-up of 6 %, linear decay, weight decay of 0.1, 10 epochs of smaller
    sets. The checkpoint is chosen by the mean of ROUGE-1 and ROUGE-2 on the development set.
    """
    updates = schedule(len(prepared.split("train")), batch_size=BATCH_SIZE, epochs=epochs or EPOCHS[task])
    return PaperRecipe(
        train={
            "task": "roberta_summarization",
            "criterion": "roberta_summarization",
            **COMMON,
            "weight-decay": "0.1",
        },
        axes={"lr": ["2e-5"] if task == "cnn_dailymail" else LRS, "batch": {str(BATCH_SIZE): updates}},
        seeds=SEEDS,
        metric={"log": "valid", "value": "rouge", "goal": "max", "at": "best"},
        official="rouge1",
    )


def score(
    task: str,
    prepared: Prepared,
    split: str,
    members: Sequence[RawOutputs],
    *,
    folder: Path | None,
    options: SummariesOptions,
) -> dict[str, float]:
    """See `benchmarks.Benchmark.score`; the prediction file is SPLIT.predictions.jsonl.

    Returns:
        rouge1, rouge2, rougeL and rougeLsum of the chosen sentences; the same of the first sentences (lead_) and of the
        oracle's (oracle_); f1 of the choice against the oracle's, and the average precision of the probabilities, mean
        over documents.
    """
    check_rouge()
    documents = Documents(prepared.split(split))
    probabilities = sentence_probabilities(members)
    chosen = chosen_sentences(documents, probabilities, options)
    if folder is not None:
        write_predictions(folder / prediction_files(task, split)[0], documents, probabilities, chosen)
    return evaluate(documents, probabilities, chosen, options) if documents.is_labelled else {}


def prediction_files(task: str, split: str) -> tuple[str, ...]:
    """See `benchmarks.Benchmark.prediction_files`."""
    return (f"{split}.predictions.jsonl",)
