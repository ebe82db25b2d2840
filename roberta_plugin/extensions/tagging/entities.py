"""Tags <-> entities <-> labels of the model; precision, recall and F1 as conlleval defines them.

Schemes of tags, by example of the words "in New York City Paris" with the entities LOC 1 to 4 and LOC 4 to 5:

    iob1     O I-LOC I-LOC I-LOC B-LOC      B only between two entities of one type (CoNLL-2003 as distributed)
    iob2     O B-LOC I-LOC I-LOC B-LOC      B at every beginning (WNUT-17)
    iobes    O B-LOC I-LOC E-LOC S-LOC      also the last word, and single words; BIOES is the same
    bilou    O B-LOC I-LOC L-LOC U-LOC      the same with other letters
    ioe1     O I-LOC I-LOC E-LOC I-LOC      E only before another entity of the same type
    ioe2     O I-LOC I-LOC E-LOC E-LOC      E at every end

`notations` reads other notations, such as BMES, which is IOBES with M for I.

Every sequence of tags is read as conlleval reads it, in any scheme, valid or not: a word continues an entity if its tag
is I, E or L, the previous tag is B or I, and both have the same type. So I after O begins an entity. An entity is right
if its first word, its last word and its type are right.

Labels of the model are O, then B-TYPE and I-TYPE of each type, so that numbers follow a rule: the types LOC and PER
give O 0, B-LOC 1, I-LOC 2, B-PER 3, I-PER 4. Label 0 is outside of entities, an odd label begins one, an even label
continues one, and (label - 1) // 2 is the type.

In IOB2, I-TYPE follows only B-TYPE or I-TYPE. Viterbi's algorithm finds the most probable sequence under this rule, for
many sentences at once. Apart from the rule, words are independent of each other.

Shapes: W words, sentence after sentence; S sentences; K types; C labels; T_s tokens of window s; B sentences of a
batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy  # its modules are imported when they are first used
from numpy.typing import NDArray

from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.kinds.score_names import of_label
from roberta_plugin.finetuning.prepared import PreparedSplit

CORRECT, FOUND, GOLD = range(3)  # columns of counts

_IMPOSSIBLE = -1e9  # a label of probability 0: worse than any other, better than a sequence that is not valid
_MOST_NUMBERS = 1 << 22  # largest size of an array

OUTSIDE = "O"
NO_TYPE = "_"  # the type of a tag that is a letter alone, as in seqeval
# scheme -> letters of the first word of several, of the words within, of the last word, and of a single word
_LETTERS = {
    "iob2": ("B", "I", "I", "B"),
    "iob1": ("B", "I", "I", "B"),
    "iobes": ("B", "I", "E", "S"),
    "bilou": ("B", "I", "L", "U"),
    "ioe2": ("I", "I", "E", "E"),
    "ioe1": ("I", "I", "I", "I"),
}
SCHEMES = tuple(_LETTERS)
_OPEN, _CONTINUES = "BI", "IEL"


class Entity(NamedTuple):
    """An entity of a sentence, in words."""

    type: str
    start: int
    stop: int
    """The word after the last one."""


def split_tag(tag: str) -> tuple[str, str]:
    """A tag -> its letter and its type.

    Example: "B-creative-work" -> ("B", "creative-work"); "O" -> ("O", ""); "B" -> ("B", "_").
    """
    letter, _, type_ = tag.partition("-")
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if len(letter) != 1 or letter not in "BIESLU":
        raise ValueError(f"the tag {tag!r} is neither O nor B-TYPE, I-TYPE, E-TYPE, S-TYPE, L-TYPE or U-TYPE")
    return letter, type_ or NO_TYPE


def entities_of(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence, as conlleval reads its tags.

    Example: entities_of(["I-PER", "I-PER", "B-PER", "O", "E-LOC"])  ->  PER 0 to 2, PER 2 to 3, LOC 4 to 5
    """
    entities: list[Entity] = []
    before, start = (OUTSIDE, ""), 0
    for place, tag in enumerate([*tags, OUTSIDE]):
        letter, type_ = split_tag(tag)
        if letter in _CONTINUES and before[0] in _OPEN and before[1] == type_:
            before = (letter, type_)
            continue
        if before[0] != OUTSIDE:
            entities.append(Entity(before[1], start, place))
        before, start = (letter, type_), place
    return entities


def tags_of(entities: Iterable[Entity], num_words: int, scheme: str = "iob2") -> list[str]:
    """The tags of a sentence of `num_words` words with these entities, in their order; see the example of this file."""
    tags = [OUTSIDE] * num_words
    first, inside, last, single = _LETTERS[scheme]
    before: Entity | None = None
    for entity in entities:
        length = entity.stop - entity.start
        letters = single if length == 1 else first + inside * (length - 2) + last
        is_next = before is not None and before.stop == entity.start and before.type == entity.type
        if scheme == "iob1" and not is_next:
            letters = inside + letters[1:]
        if scheme == "ioe1" and is_next:
            tags[entity.start - 1] = f"E-{entity.type}"
        tags[entity.start : entity.stop] = [f"{letter}-{entity.type}" for letter in letters]
        before = entity
    return tags


def invalid_places(tags: Sequence[str], scheme: str) -> list[int]:
    """The words whose tags differ from the scheme's tags for the entities of the sentence.

    Example: invalid_places(["O", "I-PER", "I-PER"], "iob2")  ->  [1]
    """
    right = tags_of(entities_of(tags), len(tags), scheme)
    return [place for place, tag in enumerate(tags) if split_tag(tag) != split_tag(right[place])]


def scheme_of(sentences: Sequence[Sequence[str]]) -> str:
    """The scheme that the tags of a file violate least; the first of `SCHEMES` among equals."""
    letters = {split_tag(tag)[0] for tag in {tag for tags in sentences for tag in tags}}
    candidates = SCHEMES if letters & set("ESLU") else ("iob2", "iob1")
    return min(candidates, key=lambda scheme: sum(len(invalid_places(tags, scheme)) for tags in sentences))


def entity_labels(types: Iterable[str]) -> list[str]:
    """The labels for these types; see the example of this file."""
    return [OUTSIDE, *(f"{letter}-{type_}" for type_ in types for letter in "BI")]


def types_of(labels: Sequence[str]) -> list[str] | None:
    """The types of entities in labels, in their order; None if the labels are plain tags."""
    types = [label[2:] for label in labels[1::2]]
    return types if list(labels) == entity_labels(types) else None


def spans(labels: NDArray[np.int64], is_first: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first word of each entity, and the word after its last one.

    Example: with one type (0 O, 1 B, 2 I) and sentences of 3 and 2 words, the labels 2 2 1 | 2 0 have the entities 0 to
    2, 2 to 3 and 3 to 4.

    Args:
        labels: labels of all words (W,).
        is_first: True for the first word of each sentence (W,).
    """
    before = np.concatenate([[0], labels[:-1]])
    same_type = (before > 0) & ((before - 1) // 2 == (labels - 1) // 2)
    continues = (labels > 0) & (labels % 2 == 0) & same_type & ~is_first
    starts = np.flatnonzero((labels > 0) & ~continues)
    ends = np.append(np.flatnonzero(~continues), len(labels))
    return starts, ends[np.searchsorted(ends, starts, side="right")]


def entities_by_sentence(
    gold: NDArray[np.int64], predicted: NDArray[np.int64], is_first: NDArray[np.bool_], *, num_types: int
) -> NDArray[np.float64]:
    """The numbers of correct, predicted and right entities of each type in each sentence with words (S, K, 3).

    `gold` and `predicted` are the labels of all words (W,).
    """
    sentence: NDArray[np.int64] = np.maximum(np.cumsum(is_first) - 1, 0)  # (W,)
    shape = max(1, int(is_first.sum())), num_types
    counts = np.zeros((*shape, 3))
    (gold_starts, gold_stops), (starts, stops) = spans(gold, is_first), spans(predicted, is_first)
    stop_at = np.full(len(gold) + 1, -1)
    stop_at[gold_starts] = gold_stops
    types = (predicted[starts] - 1) // 2
    # the types are compared, not the labels: the first word may have B in one and I in the other
    is_correct = (stop_at[starts] == stops) & (types == (gold[starts] - 1) // 2)
    for column, first, chosen in (
        (CORRECT, starts[is_correct], types[is_correct]),
        (FOUND, starts, types),
        (GOLD, gold_starts, (gold[gold_starts] - 1) // 2),
    ):
        counts[:, :, column] = np.bincount(
            sentence[first] * num_types + chosen, minlength=counts[:, :, 0].size
        ).reshape(shape)
    return counts


def scores(counts: NDArray[np.float64]) -> tuple[float, float, float]:
    """Precision, recall and F1 (percent) from counts (3,); 0 where there is nothing to divide by.

    Example: 2 correct, 4 predicted, 8 right entities -> 50, 25, 33.3.
    """
    precision = 100.0 * counts[CORRECT] / counts[FOUND] if counts[FOUND] else 0.0
    recall = 100.0 * counts[CORRECT] / counts[GOLD] if counts[GOLD] else 0.0
    total = precision + recall
    return float(precision), float(recall), float(2 * precision * recall / total) if total else 0.0


class TagCounts:
    """Counts of right words and entities in each sentence, so that metrics can be computed for any weights of them."""

    def __init__(
        self,
        right: NDArray[np.int64],
        predicted: NDArray[np.int64],
        is_first: NDArray[np.bool_],
        types: list[str] | None,
    ) -> None:
        """Count.

        Args:
            right: right labels of all words (W,).
            predicted: predicted labels of all words (W,).
            is_first: True for the first word of each sentence (W,).
            types: types of the entities; None if the labels are plain tags, which only have an accuracy.
        """
        starts = np.flatnonzero(is_first)
        self.num_right = np.add.reduceat((right == predicted).astype(np.float64), starts)  # (S,)
        self.num_words = np.diff(np.append(starts, len(right)))  # (S,)
        self.types = types
        self.entities = np.zeros((len(starts), 0, 3))  # (S, K, 3)
        if types is not None:
            self.entities = entities_by_sentence(right, predicted, is_first, num_types=len(types))

    def metrics(self, weights: NDArray[np.float64] | None = None) -> dict[str, float]:
        """All metrics (percent); each sentence counts `weights` (S,) times, None: once.

        f1, precision and recall over all entities, accuracy of the words' tags, and f1_TYPE, precision_TYPE and
        recall_TYPE of each type that has right entities; other types cannot be measured.
        """
        weights = np.ones(len(self.num_words)) if weights is None else weights
        accuracy = 100.0 * float(weights @ self.num_right) / float(weights @ self.num_words)
        if self.types is None:
            return {"accuracy": accuracy}
        precision, recall, f1 = scores(weights @ self.entities.sum(axis=1))  # (S, K, 3) -> (3,)
        result = {"f1": f1, "precision": precision, "recall": recall, "accuracy": accuracy}
        for number, type_ in enumerate(self.types):
            if self.entities[:, number, GOLD].any():
                names = (of_label(score, type_) for score in ("precision", "recall", "f1"))
                result |= dict(zip(names, scores(weights @ self.entities[:, number]), strict=True))
        return result


class Sentences:
    """The words of a prepared split, as `prepare` has written them."""

    def __init__(self, split: PreparedSplit) -> None:
        self.split = split
        self.positions = np.asarray(split.array("positions"), dtype=np.int64)
        """Place of each word's first token in its window; 0 for a word without one (W,)."""
        self.offsets = np.asarray(split.array("sentences"), dtype=np.int64)
        """Sentence i has the words offsets[i] to offsets[i + 1] (S + 1,)."""
        self._first_word = np.append(np.asarray(split.columns["first_word"], dtype=np.int64), len(self))
        if self.offsets[0] != 0 or self.offsets[-1] != len(self) or (np.diff(self._first_word) < 0).any():
            raise ValueError(
                f"{split.folder}, {split.name}: the words are not divided among the windows: prepare again."
            )

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def is_labelled(self) -> bool:
        """True if the tags of the words are known."""
        return "tags" in self.split.facts["arrays"]

    @cached_property
    def tags(self) -> NDArray[np.int64]:
        """Labels of the words (W,); only a labelled split has them."""
        return np.asarray(self.split.array("tags"), dtype=np.int64)

    @cached_property
    def windows(self) -> NDArray[np.int64]:
        """The window that each word belongs to (W,)."""
        return np.repeat(np.arange(len(self.split)), np.diff(self._first_word))

    @cached_property
    def is_first(self) -> NDArray[np.bool_]:
        """True for the first word of each sentence (W,)."""
        is_first = np.zeros(len(self), dtype=np.bool_)
        is_first[self.offsets[:-1][np.diff(self.offsets) > 0]] = True
        return is_first

    def rows(self, outputs: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Probabilities of the tokens of each window (T_s, C) -> probabilities of the words (W, C).

        A word without a token has label 0.
        """
        rows = self._first_tokens(outputs)
        rows[self.positions == 0] = np.eye(1, rows.shape[1])
        return rows

    def _first_tokens(self, outputs: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Values of the tokens of each window (T_s, ...) -> values of the first token of each word (W, ...)."""
        starts = np.cumsum([0, *(len(each) for each in outputs)])
        first: NDArray[Any] = np.concatenate(outputs)[starts[self.windows] + self.positions]
        return first

    def decide(
        self, members: Sequence[RawOutputs], labels: Sequence[str], *, valid_sequences: bool = False
    ) -> NDArray[np.int64]:
        """The most probable label of each word (W,). The probabilities of several members are averaged."""
        if len(members) == 1 and members[0].token_labels is not None:
            return self._first_tokens(members[0].token_labels).astype(np.int64) * (self.positions > 0)
        logits = [member.token_logits for member in members if member.token_logits is not None]
        assert len(logits) == len(members) > 0, "these are not outputs of a tagging head"
        probabilities: NDArray[np.float64] = np.mean(
            [
                self.rows([scipy.special.softmax(each.astype(np.float64), axis=1) for each in outputs])
                for outputs in logits
            ],
            axis=0,
        )  # (W, C)
        if valid_sequences:
            return best_valid(probabilities, self.offsets, labels)
        best: NDArray[np.int64] = probabilities.argmax(axis=1)
        return best


def transitions(labels: Sequence[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The labels that may begin a sentence (C,), and the labels that may follow each other: [before, after] (C, C).

    A type without B-TYPE, as in IOB1, has no rule.

    Example: for O, B-X, I-X, all may follow each other except I-X after O, and I-X may not begin.
    """
    needs_before = [label[0] == "I" and f"B{label[1:]}" in labels for label in labels]
    follows = np.array(
        [
            [
                not needs or (before[0] in "BI" and before[1:] == after[1:])
                for after, needs in zip(labels, needs_before, strict=True)
            ]
            for before in labels
        ]
    )
    return ~np.array(needs_before), follows


def best_valid(
    probabilities: NDArray[np.float64], offsets: NDArray[np.int64], labels: Sequence[str]
) -> NDArray[np.int64]:
    """The most probable valid labels of all words (W,).

    Args:
        probabilities: probabilities of each word's labels (W, C).
        offsets: sentence i has the words offsets[i] to offsets[i + 1].
        labels: names of the labels.
    """
    with np.errstate(divide="ignore"):
        scores = np.maximum(np.log(probabilities), _IMPOSSIBLE)  # (W, C)
    begins, follows = transitions(labels)
    barred = np.where(follows, 0.0, -np.inf)
    result = np.zeros(len(scores), dtype=np.int64)
    for sentences in _batches(np.diff(offsets), len(labels)):
        first, counts = offsets[sentences], np.diff(offsets)[sentences]  # (B,), longest first
        best = np.where(begins, scores[first], -np.inf)  # (B, C)
        origins = []
        for place in range(1, counts[0]):
            active = int((counts > place).sum())
            paths = best[:active, :, None] + barred  # (B, C) -> (B, C before, C after)
            origins.append(paths.argmax(axis=1))  # (B, C)
            best[:active] = paths.max(axis=1) + scores[first[:active] + place]
        label = best.argmax(axis=1)  # (B,), the label of the last word of each sentence
        for place in range(counts[0] - 1, 0, -1):
            active = int((counts > place).sum())
            result[first[:active] + place] = label[:active]
            label[:active] = origins[place - 1][np.arange(active), label[:active]]
        result[first] = label
    return result


def _batches(counts: NDArray[np.int64], num_labels: int) -> Iterator[NDArray[np.int64]]:
    """Numbers of the sentences with words, the longest first, in batches of limited memory."""
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    start = 0
    while start < len(order):
        size = max(1, _MOST_NUMBERS // (num_labels * max(num_labels, int(counts[order[start]]))))
        yield order[start : start + size]
        start += size
