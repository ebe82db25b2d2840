"""Labels of words -> SPLIT.predictions.conll, which conlleval reads, and SPLIT.report.txt, as conlleval prints it.

    EU B-ORG B-ORG
    rejects O O

The columns are the word, the right tag if it is known, and the given tag, in IOB2; a blank line ends a sentence.
White space in a word becomes _, as does an empty word, because conlleval separates
columns by spaces.

Shapes: W words of the split.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.files import atomic_write
from roberta_plugin.kinds.entities import CORRECT, FOUND, GOLD, count_entities, scores
from roberta_plugin.kinds.tags import Sentences


def write_predictions(path: Path, sentences: Sentences, found: NDArray[np.int64], labels: Sequence[str]) -> None:
    """Write the words of a split with their right and given tags."""
    path.parent.mkdir(parents=True, exist_ok=True)
    given = [labels[label] for label in found.tolist()]
    right = [labels[label] for label in sentences.tags.tolist()] if sentences.is_labelled else None
    place = 0
    with atomic_write(path, "w") as file:
        for record in sentences.split.records():
            for word in record["words"]:
                columns = [shown(word), *([right[place]] if right else []), given[place]]
                file.write(" ".join(columns) + "\n")
                place += 1
            file.write("\n")


def shown(word: str) -> str:
    """A word without white space, for a column.

    Example: "New York" -> "New_York"; "" -> "_".
    """
    return "".join("_" if character.isspace() else character for character in word) or "_"


def report(gold: NDArray[np.int64], found: NDArray[np.int64], is_first: NDArray[np.bool_], types: Sequence[str]) -> str:
    """What conlleval prints for labels of words (W,)."""
    counts = count_entities(gold, found, is_first, num_types=len(types))
    total = counts.sum(axis=0)
    accuracy = 100.0 * float((gold == found).mean())
    head = (
        f"processed {len(gold)} tokens with {total[GOLD]:.0f} phrases; found: {total[FOUND]:.0f} phrases; "
        f"correct: {total[CORRECT]:.0f}.\n"
    )
    rows = [f"accuracy: {accuracy:6.2f}%; {_scores(total)}\n"]
    for type_, row in zip(types, counts, strict=True):
        if row[FOUND] or row[GOLD]:
            rows.append(f"{type_:>17}: {_scores(row)}  {row[FOUND]:.0f}\n")
    return head + "".join(rows)


def _scores(counts: NDArray[np.float64]) -> str:
    precision, recall, f1 = scores(counts)
    return f"precision: {precision:6.2f}%; recall: {recall:6.2f}%; FB1: {f1:6.2f}"
