"""ROUGE by the package rouge-score, and how well the choice agrees with the oracle.

rouge1 and rouge2 are F of words and bigrams, rougeL that of the longest common subsequence of both texts, rougeLsum the
same by sentences, which is the ROUGE-L of papers on CNN/DailyMail. Words are stemmed, as usual (-m of the ROUGE-1.5.5
program). The package reads the letters a to z and digits only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.extras import require

ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
FAST = ("rouge1", "rouge2")  # milliseconds for a hundred documents; the others take as long for one
_REMEMBERED = 100_000  # summaries: members of an ensemble often agree, and the baselines are those of every model


def check_rouge() -> None:
    """Refuse to go on without the package.

    Raises:
        ValueError: naming the command that installs it.
    """
    require("rouge_score", extra="summaries", purpose="Evaluating summaries")


def rouge(given: Sequence[str], right: Sequence[str], *, kinds: Sequence[str] = ROUGE) -> dict[str, float]:
    """F of a summary, 0 to 1, by kind of ROUGE; both are lists of sentences.

    Example: rouge(["The cat."], ["A cat."])["rouge1"] is 0.5.
    """
    values = _rouge("\n".join(given), "\n".join(right), tuple(kinds))
    return dict(zip(kinds, values, strict=True))


@lru_cache(maxsize=_REMEMBERED)
def _rouge(given: str, right: str, kinds: tuple[str, ...]) -> tuple[float, ...]:
    found = _scorer(kinds).score(target=right, prediction=given)
    return tuple(float(found[kind].fmeasure) for kind in kinds)


@cache
def _scorer(kinds: tuple[str, ...]) -> Any:
    check_rouge()
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(kinds, tokenizer=_StemmedWords())


class _StemmedWords:
    """The package's words and stems, each stemmed once: stemming takes most of the time of ROUGE-1 and ROUGE-2."""

    def __init__(self) -> None:
        from nltk.stem.porter import PorterStemmer

        self._stemmer = PorterStemmer()
        self.stem = lru_cache(maxsize=1_000_000)(self._stemmer.stem)  # what the package calls

    def tokenize(self, text: str) -> list[str]:
        """Words of a text."""
        from rouge_score.tokenize import tokenize

        words: list[str] = tokenize(text, self)
        return words


def mean_rouge(given: Iterable[Sequence[str]], right: Iterable[Sequence[str]]) -> dict[str, float]:
    """Mean of each kind over documents, 0 to 100."""
    values = [list(rouge(one, other).values()) for one, other in zip(given, right, strict=True)]
    return {kind: 100.0 * float(mean) for kind, mean in zip(ROUGE, np.mean(values, axis=0), strict=True)}


def f1_of_choice(num_both: float, num_chosen: float, num_right: float) -> float:
    """F1 of the chosen sentences of all documents against those of the oracle, 0 to 100.

    Example: 3 chosen and 2 right, of which 2 are in both -> 80.
    """
    return 200.0 * num_both / (num_chosen + num_right) if num_chosen + num_right else 0.0


def average_precision(scores: NDArray[np.floating[Any]], labels: NDArray[Any]) -> float | None:
    """Mean, over the sentences of the oracle, of the share of such sentences among those scored as high, 0 to 1.

    None for a document without such sentences.

    Example: scores [3, 2, 1], labels [1, 0, 1] -> (1/1 + 2/3) / 2.
    """
    if not labels.any():
        return None
    order = np.argsort(-scores, kind="stable")
    last_of_equals = np.searchsorted(-scores[order], -scores[order], side="right")  # (U,), sentences scored as high
    hits = np.cumsum(labels[order], dtype=np.int64)
    precision = hits[last_of_equals - 1] / last_of_equals
    return float(precision[labels[order] == 1].mean())
