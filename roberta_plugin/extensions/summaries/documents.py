"""Documents of a prepared split, the choice of sentences for their summaries, the sentences to learn, and ROUGE.

The most probable sentences come first. A sentence that shares three words in a row with a chosen one is left out
(trigram blocking; Paulus et al. 2018, and Liu and Lapata 2019, section 4.2). Trigrams do not reach from one sentence
into the next, and a sentence that was left out blocks no other. The summary is complete

    with `num_sentences`     when it has this many sentences (default: 3, BertSum's for CNN/DailyMail)
    with `length_share`      when it has this share of the document's words
    with `min_probability`   when no further sentence has this probability

and holds at least one sentence.

The sentences to learn are found by greedy ROUGE (`oracle`), as in BertSum (Liu and Lapata 2019, section 4.2): each step
takes the sentence that raises ROUGE-1 F + ROUGE-2 F of all chosen sentences most, until no sentence raises it or there
are enough. This is what BertSum's program does (greedy_selection in prepro/data_builder.py of BertSum and PreSumm),
while the paper names only ROUGE-2. As in the program, an n-gram counts once however often it occurs; bigrams do not
reach from one sentence of the document into the next; F = 2 p r / (p + r + 1e-8); the first of equal sentences is
taken; and there are at most 3. Words differ from the program, which takes CoreNLP's tokens and removes all but the
letters a to z, digits and spaces from them: here letters of all languages are read.

ROUGE is computed by the package rouge-score: rouge1 and rouge2 are the F of words and bigrams, rougeL is the F of the
longest common subsequence of both texts, and rougeLsum is the same by sentences, the ROUGE-L of papers on
CNN/DailyMail. Words are stemmed, as usual (-m of the ROUGE-1.5.5 program). The package only reads the letters a to z
and digits. This is kept for CNN/DailyMail; for other sets, words of all scripts are read (`words`), which are the same
words if the text is ASCII.

Shapes: N documents of a split, U sentences of all documents.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import regex  # type: ignore[import-untyped]
import scipy  # its modules are imported when they are first used
from numpy.typing import NDArray

from roberta_plugin.extras import require
from roberta_plugin.finetuning.kinds.metrics import average_precision
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.layouts.words import LETTERS, MARKS, UNSPACED
from roberta_plugin.finetuning.prepared import PreparedSplit

NUM_SENTENCES = 3
ORACLE_SENTENCES = 3  # as in BertSum's program
_SMALL = 1e-8
_ASCII = re.compile(r"[a-z0-9]+")
_RUN = regex.compile(rf"(?V1)(?:[[{LETTERS}]--[\p{{Pc}}]][{MARKS}]*)+")
_WORD = regex.compile(rf"(?V1)(?:[[{LETTERS}]--[{UNSPACED}\p{{Pc}}]][{MARKS}]*)+|(?=[{UNSPACED}])\X[{MARKS}]*")
Ngrams = frozenset[tuple[str, ...]]
OFFICIAL = "cnn_dailymail"  # the task whose numbers are compared with published ones
ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
FAST = ("rouge1", "rouge2")  # milliseconds for a hundred documents; the others take as long for one
_REMEMBERED = 100_000  # summaries: members of an ensemble often agree, and all models have the same baselines


class Documents:
    """Documents of a prepared split. The texts are read on first use, and training never uses them.

    Attributes:
        is_official: True if ROUGE reads words by the package's rules instead of words of all scripts.
    """

    def __init__(self, split: PreparedSplit, *, is_official: bool = False) -> None:
        self.split, self.is_official = split, is_official

    def __len__(self) -> int:
        return len(self.split)

    @cached_property
    def ids(self) -> list[str]:
        """Ids of the documents."""
        return [record["id"] for record in self._records]

    @cached_property
    def sentences(self) -> list[Sequence[str]]:
        """Sentences of each document."""
        return [record["sentences"] for record in self._records]

    @cached_property
    def summaries(self) -> list[Sequence[str] | None]:
        """Sentences of the summary of each document; None if the summary is not known."""
        return [record["summary"] for record in self._records]

    @cached_property
    def _records(self) -> list[dict[str, Any]]:
        return list(self.split.records())

    @property
    def is_labelled(self) -> bool:
        """True if the summaries of all documents are known."""
        return bool(self.split.columns["is_labelled"].all())

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """Document i has the sentences first[i] to first[i + 1] of the split (N + 1,)."""
        return self.split.array("first_sentence")

    @cached_property
    def labels(self) -> NDArray[Any]:
        """1 for the sentences to choose, 0 for all others (U,)."""
        return self.split.array("label")

    @property
    def oracles(self) -> list[list[int]]:
        """The numbers of the sentences to choose in each document."""
        return [np.flatnonzero(part).tolist() for part in np.split(self.labels, self.first[1:-1])]

    def chosen(self, numbers: Sequence[Sequence[int]]) -> list[list[str]]:
        """The sentences of each document with these numbers."""
        return [[texts[number] for number in chosen] for texts, chosen in zip(self.sentences, numbers, strict=True)]


class Length(NamedTuple):
    """How many sentences a summary has; see the head of this file."""

    num_sentences: int | None = None
    length_share: float | None = None
    """Share of the document's words, from 0 to 1."""
    min_probability: float | None = None
    no_trigram_blocking: bool = False
    """True if sentences may share three words in a row."""


def choose(probabilities: NDArray[np.floating[Any]], sentences: Sequence[str], length: Length) -> list[int]:
    """Numbers of the chosen sentences, ascending.

    Example: probabilities [0.2, 0.9, 0.4, 0.8], two sentences -> [1, 3]; if these share three words in a row, [1, 2].
    """
    tokens = [runs(sentence) for sentence in sentences]
    wanted = (length.length_share or 0.0) * sum(map(len, tokens))
    chosen: list[int] = []
    num_words = 0
    for number in _without_repetition(probabilities, tokens, is_blocking=not length.no_trigram_blocking):
        if length.min_probability is not None:
            is_complete = probabilities[number] < length.min_probability
        elif length.length_share is not None:
            is_complete = num_words >= wanted
        else:
            is_complete = len(chosen) == (length.num_sentences or NUM_SENTENCES)
        if is_complete and chosen:
            break
        chosen.append(number)
        num_words += len(tokens[number])
    return sorted(chosen)


def _without_repetition(
    probabilities: NDArray[np.floating[Any]], tokens: Sequence[Sequence[str]], *, is_blocking: bool
) -> Iterator[int]:
    """Numbers of the sentences, the most probable first, without those that share a trigram with an earlier one."""
    seen: set[tuple[str, ...]] = set()
    for number in np.argsort(-probabilities, kind="stable").tolist():
        trigrams = ngrams(tokens[number], 3)
        if is_blocking and not seen.isdisjoint(trigrams):
            continue
        seen |= trigrams
        yield number


def oracle(sentences: Sequence[str], summary: Sequence[str], *, most: int = ORACLE_SENTENCES) -> list[int]:
    """Numbers of the best sentences in the order of the text; empty if no sentence has a word of the summary.

    Example: the summary "the cat sat" and the sentences "a dog", "the cat sat down", "the cat" -> [1]: the third adds
    nothing to the second.
    """
    right = words(" ".join(summary))
    tokens = [words(sentence) for sentence in sentences]
    orders = [_NgramsOfOrder([ngrams(each, order) for each in tokens], ngrams(right, order)) for order in (1, 2)]
    chosen: list[int] = []
    best = 0.0
    while len(chosen) < most:
        gains = np.sum([order.scores() for order in orders], axis=0)
        gains[chosen] = -1.0
        number = int(gains.argmax()) if len(gains) else 0
        if not len(gains) or gains[number] <= best:
            break
        best = float(gains[number])
        chosen.append(number)
        for order in orders:
            order.take(number)
    return sorted(chosen)


class _NgramsOfOrder:
    """N-grams of one order in the sentences, in the summary, and in the sentences that were chosen."""

    def __init__(self, of_sentences: list[Ngrams], right: Ngrams) -> None:
        self._ngrams = of_sentences
        self._hits = [each & right for each in of_sentences]
        self._num_right = len(right)
        self._chosen: Ngrams = frozenset()
        self._chosen_hits: Ngrams = frozenset()

    def take(self, number: int) -> None:
        """Add a sentence to the chosen ones."""
        self._chosen |= self._ngrams[number]
        self._chosen_hits |= self._hits[number]

    def scores(self) -> NDArray[np.float64]:
        """F of the chosen sentences together with each single other one (number of sentences,)."""
        totals = np.array([len(each - self._chosen) for each in self._ngrams], dtype=np.float64) + len(self._chosen)
        hits = np.array([len(each - self._chosen_hits) for each in self._hits], dtype=np.float64)
        hits += len(self._chosen_hits)
        precision = hits / np.maximum(totals, 1.0)
        recall = hits / max(self._num_right, 1)
        scores: NDArray[np.float64] = 2.0 * (precision * recall) / (precision + recall + _SMALL)
        return scores


def lead(sentences: Sequence[str], length: Length) -> list[int]:
    """The first sentences of the document, as many as the options ask for (3 with `min_probability`): a baseline."""
    count = length.num_sentences or NUM_SENTENCES
    if length.length_share is None:
        return list(range(min(count, len(sentences))))
    return choose(
        -np.arange(len(sentences), dtype=np.float64),
        sentences,
        Length(length_share=length.length_share, no_trigram_blocking=True),
    )


def words(text: str) -> list[str]:
    """Runs of letters and digits with their marks, in lower case; single characters in scripts without spaces.

    Example: "It's 3.5%." -> ["it", "s", "3", "5"].
    """
    return _matches(_WORD, text)


def runs(text: str) -> list[str]:
    """As `words`, but a run in a script without spaces is one word: three characters in a row are not a repetition."""
    return _matches(_RUN, text)


def _matches(pattern: Any, text: str) -> list[str]:
    text = text.lower()
    matches: list[str] = (_ASCII if text.isascii() else pattern).findall(unicodedata.normalize("NFC", text))
    return matches


def ngrams(tokens: Sequence[str], order: int) -> Ngrams:
    """All n-grams of some words."""
    return frozenset(zip(*(tokens[start:] for start in range(order)), strict=False))


def check_rouge() -> None:
    """Refuse to continue without the package."""
    require("rouge_score", extra="summaries", purpose="Evaluating summaries")


def rouge(
    summary: Sequence[str], right: Sequence[str], *, kinds: Sequence[str] = ROUGE, is_official: bool = False
) -> dict[str, float]:
    """F of a summary, 0 to 1, by kind of ROUGE. Both texts are lists of sentences. See `Documents.is_official`.

    Example: rouge(["The cat."], ["A cat."])["rouge1"] is 0.5.
    """
    values = _rouge("\n".join(summary), "\n".join(right), tuple(kinds), is_official)
    return dict(zip(kinds, values, strict=True))


@lru_cache(maxsize=_REMEMBERED)
def _rouge(summary: str, right: str, kinds: tuple[str, ...], is_official: bool) -> tuple[float, ...]:
    scores = _scorer(kinds, is_official).score(target=right, prediction=summary)
    return tuple(float(scores[kind].fmeasure) for kind in kinds)


@cache
def _scorer(kinds: tuple[str, ...], is_official: bool) -> Any:
    check_rouge()
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(kinds, tokenizer=_StemmedWords(is_official))


class _StemmedWords:
    """Words and stems, each stemmed once: stemming takes most of the time of ROUGE-1 and ROUGE-2."""

    def __init__(self, is_official: bool) -> None:
        from nltk.stem.porter import PorterStemmer

        self._is_official = is_official
        self._stemmer = PorterStemmer()
        self.stem = lru_cache(maxsize=1_000_000)(self._stemmer.stem)  # the package calls it

    def tokenize(self, text: str) -> list[str]:
        """Words of a text."""
        if not self._is_official:  # Porter's rules are for English
            return [self.stem(word) if len(word) > 3 and word.isascii() else word for word in words(text)]
        from rouge_score.tokenize import tokenize

        tokens: list[str] = tokenize(text, self)
        return tokens


def mean_rouge(
    summaries: Iterable[Sequence[str]],
    right: Iterable[Sequence[str]],
    *,
    kinds: Sequence[str] = ROUGE,
    is_official: bool = False,
    weights: NDArray[np.float64] | None = None,
) -> dict[str, float]:
    """Mean of each kind over documents, 0 to 100. Each document counts `weights` (N,) times; None: once."""
    values = [
        list(rouge(one, other, kinds=kinds, is_official=is_official).values())
        for one, other in zip(summaries, right, strict=True)
    ]
    return {
        kind: 100.0 * float(mean) for kind, mean in zip(kinds, np.average(values, axis=0, weights=weights), strict=True)
    }


def measure_choice(
    documents: Documents,
    probabilities: Sequence[NDArray[np.float64]],
    chosen: Sequence[Sequence[int]],
    weights: NDArray[np.float64] | None = None,
) -> dict[str, float]:
    """`f1` of the chosen sentences against the oracle's, and the mean `average_precision` of probabilities; 0 to 100.

    Each document counts `weights` (N,) times; None: once.
    """
    weights = np.ones(len(documents)) if weights is None else weights
    oracles, labels = documents.oracles, np.split(documents.labels, documents.first[1:-1])
    both = [len(set(picked) & set(best)) for picked, best in zip(chosen, oracles, strict=True)]
    pairs = zip(probabilities, labels, strict=True)
    values = np.array([average_precision(right, part) if right.any() else 0.0 for part, right in pairs])
    counted = weights * [right.any() for right in labels]
    return {
        "f1": f1_of_choice(*(float(weights @ counts) for counts in (both, [*map(len, chosen)], [*map(len, oracles)]))),
        "average_precision": 100.0 * float(values @ counted) / float(counted.sum()) if counted.any() else 0.0,
    }


def f1_of_choice(num_both: float, num_chosen: float, num_right: float) -> float:
    """F1 of the chosen sentences of all documents against the oracle's, 0 to 100.

    Example: 3 chosen sentences that include both of 2 right ones -> 80.
    """
    return 200.0 * num_both / (num_chosen + num_right) if num_chosen + num_right else 0.0


def sentence_probabilities(members: Sequence[RawOutputs]) -> NDArray[np.float64]:
    """The mean of the members' probabilities that a sentence belongs to the summary (U,)."""
    logits = [member.sentence_logits for member in members if member.sentence_logits is not None]
    assert len(logits) == len(members) > 0, "these are not outputs of a sentence head"
    mean: NDArray[np.float64] = scipy.special.expit(np.array(logits, dtype=np.float64)).mean(axis=0)
    return mean


def summary_entry(
    sentences: Sequence[str], probabilities: NDArray[np.floating[Any]], chosen: Sequence[int]
) -> dict[str, object]:
    """The summary as text, and its sentences with their numbers in the document, in the order of the text."""
    return {
        "summary": " ".join(sentences[number] for number in chosen),
        "sentences": [
            {"sentence": number, "text": sentences[number], "probability": round(float(probabilities[number]), 6)}
            for number in chosen
        ],
        "num_sentences": len(sentences),
    }
