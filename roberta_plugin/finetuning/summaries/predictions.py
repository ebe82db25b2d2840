"""Raw outputs -> a summary of each document, its metrics beside lead and oracle, and the prediction file.

Shapes: N documents of the split, U sentences of all of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.summaries.options import SummariesOptions
from roberta_plugin.kinds.documents import (
    Documents,
    average_precision,
    choose,
    f1_of_choice,
    lead,
    mean_rouge,
    summary_entry,
)


def chosen_sentences(
    documents: Documents, probabilities: NDArray[np.float64], options: SummariesOptions
) -> list[list[int]]:
    """Numbers of the sentences of each document's summary."""
    parts = np.split(probabilities, documents.first[1:-1])
    return [choose(part, sentences, options) for part, sentences in zip(parts, documents.sentences, strict=True)]


def evaluate(
    documents: Documents, probabilities: NDArray[np.float64], chosen: Sequence[Sequence[int]], options: SummariesOptions
) -> dict[str, float]:
    """The metrics of `benchmark.score`, of labelled documents."""
    right = [summary for summary in documents.summaries if summary is not None]
    labels = np.split(documents.labels, documents.first[1:-1])
    oracle = [np.flatnonzero(part).tolist() for part in labels]
    numbers = {"": chosen, "lead_": [lead(each, options) for each in documents.sentences], "oracle_": oracle}
    found: dict[str, float] = {}
    for prefix, of_documents in numbers.items():
        texts = [
            [sentences[number] for number in own]
            for sentences, own in zip(documents.sentences, of_documents, strict=True)
        ]
        found |= {f"{prefix}{kind}": value for kind, value in mean_rouge(texts, right).items()}
    both = sum(len(set(own) & set(best)) for own, best in zip(chosen, oracle, strict=True))
    found["f1"] = f1_of_choice(both, sum(map(len, chosen)), sum(map(len, oracle)))
    parts = np.split(probabilities, documents.first[1:-1])
    precisions = [average_precision(part, own) for part, own in zip(parts, labels, strict=True)]
    known = [value for value in precisions if value is not None]
    found["average_precision"] = 100.0 * float(np.mean(known)) if known else 0.0
    return found


def write_predictions(
    path: Path, documents: Documents, probabilities: NDArray[np.float64], chosen: Sequence[Sequence[int]]
) -> None:
    """Write a line for each document: its id, the summary, and the chosen sentences with their probabilities."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = np.split(probabilities, documents.first[1:-1])
    with atomic_write(path, "w") as file:
        for id_, sentences, part, own in zip(documents.ids, documents.sentences, parts, chosen, strict=True):
            entry = {"id": id_, **summary_entry(sentences, part, own)}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
