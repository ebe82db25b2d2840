"""Tagging for `roberta prepare`, `roberta finetune` and `roberta evaluate`; see `finetuning/benchmarks.py`.

Tasks: `conll2003` and `wnut17` read the official files, `tagging` any CoNLL columns or JSON Lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.benchmarks import PaperRecipe
from roberta_plugin.finetuning.options import TaggingOptions
from roberta_plugin.finetuning.paper_settings import COMMON, schedule
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.finetuning.tagging.predictions import report, write_predictions
from roberta_plugin.finetuning.tagging.prepare import prepare as prepare
from roberta_plugin.finetuning.tagging.prepare import raw_files as raw_files
from roberta_plugin.finetuning.tagging.prepare import settings as settings
from roberta_plugin.kinds.entities import evaluate, types_of
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.tags import Sentences

PAPER = {  # RoBERTa's paper has no tagging; these are of BERT's: Devlin et al. 2019, Table 7
    "conll2003": {
        "valid": {"BERT large": {"f1": 96.6}, "BERT base": {"f1": 96.4}},
        "test": {"BERT large": {"f1": 92.8}, "BERT base": {"f1": 92.4}},
    }
}
RATES, BATCH_SIZES, EPOCHS = ("2e-5", "3e-5", "5e-5"), (16, 32), 4
SEEDS = ("1", "2", "3", "4", "5")


def recipe(task: str, prepared: Prepared, *, epochs: int | None = None) -> PaperRecipe:
    """BERT's grid for fine-tuning under RoBERTa's schedule, because RoBERTa's paper has no tagging.

    Learning rates, batch sizes, the (greatest) number of epochs and the dropout of 0.1 before the classifier are those
    of Devlin et al. 2019, appendix A.3; warm-up, decay, weight decay and the median of five seeds those of Liu et al.
    2019, Table 10. The checkpoint is chosen by the F1 of entities, or by accuracy if the tags are plain.
    """
    num_examples = len(prepared.split("train"))
    sizes = {str(size): schedule(num_examples, batch_size=size, epochs=epochs or EPOCHS) for size in BATCH_SIZES}
    metric = "accuracy" if types_of(prepared.settings["labels"]) is None else "f1"
    name = "roberta_tagging"
    return PaperRecipe(
        train={"task": name, "criterion": name, **COMMON, "weight-decay": "0.1", "pooler-dropout": "0.1"},
        axes={"lr": list(RATES), "batch": sizes},
        seeds=SEEDS,
        metric={"log": "valid", "value": metric, "goal": "max", "at": "best"},
    )


def score(
    task: str,
    prepared: Prepared,
    split: str,
    members: Sequence[RawOutputs],
    *,
    folder: Path | None,
    options: TaggingOptions,
) -> dict[str, float]:
    """See `benchmarks.Benchmark.score`; the probabilities of several members are averaged for each word.

    With `folder`, SPLIT.predictions.conll and, for entities whose right tags are known, SPLIT.report.txt are written.
    """
    sentences = Sentences(prepared.split(split))
    labels = prepared.settings["labels"]
    types = types_of(labels)
    found = sentences.decided(members, labels, valid_sequences=options.valid_sequences and types is not None)
    if folder is not None:
        write_predictions(folder / prediction_files(task, split)[0], sentences, found, labels)
    if not sentences.is_labelled:
        return {}
    if folder is not None and types is not None:
        with atomic_write(folder / f"{split}.report.txt", "w") as file:
            file.write(report(sentences.tags, found, sentences.is_first, types))
    return evaluate(sentences.tags, found, sentences.is_first, types)


def prediction_files(task: str, split: str) -> tuple[str, ...]:
    """See `benchmarks.Benchmark.prediction_files`."""
    return (f"{split}.predictions.conll",)
