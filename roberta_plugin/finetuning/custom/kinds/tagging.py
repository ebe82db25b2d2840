"""The words of a text -> a tag for each word: entities, or tags of another kind such as parts of speech.

Inputs, files, head and loss are those of `finetuning/tagging`. An example is a text, whose words come as a list in JSON
Lines or Parquet, or one per line in CoNLL columns, of which --text-column and --label-column are numbers from 1 on, or
names that the first line gives.

Tags of entities may be in any scheme that `kinds/entities.py` knows, and become IOB2. Tags are taken for
entities if all of them can be read so; if none has the form B-TYPE, they are labels as they are.

Shapes: N texts of a split, W words of all of them, C labels, K types of entities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.custom.kinds.base import CustomKind, Outcome, Weights, ids_of
from roberta_plugin.finetuning.custom.options import CustomOptions
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.options import TaggingOptions
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.finetuning.prepared_writer import SplitWriter
from roberta_plugin.finetuning.tagging.reader import read_file
from roberta_plugin.kinds import own_metrics as metrics
from roberta_plugin.kinds.entities import (
    CORRECT,
    FOUND,
    GOLD,
    entities_by_sentence,
    entities_of,
    entity_labels,
    scores,
    split_tag,
    tags_of,
    types_of,
)
from roberta_plugin.kinds.examples import Example, is_missing
from roberta_plugin.kinds.labels import found_labels, number_of
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.tags import Sentences
from roberta_plugin.kinds.words import Sentence, SplitOfWindows, TaggingLayout
from roberta_plugin.tables import Row, check_list, check_text, named_format, read_table

_WORDS, _TAGS = "tokens", "tags"
_LISTS = ("jsonl", "parquet")  # formats with lists of words
_NAMES = ("precision", "recall", "f1")


class Tagging(CustomKind):
    """Cross-entropy of each word, at its first token."""

    name = "tagging"

    @classmethod
    def settings_of(cls, options: CustomOptions, *, max_length: int) -> dict[str, Any]:
        """See `CustomKind.settings_of`: the layout of the windows, and the columns that are not the usual ones."""
        stride = min(128, max(1, max_length // 4))
        return {
            **asdict(TaggingLayout.of(max_length, doc_stride=stride)),
            "text_column": options.text_column,
            "label_column": list(options.label_column or ()),
        }

    @property
    def selection(self) -> str:
        """F1 of the entities; accuracy if the tags are none."""
        return "accuracy" if types_of(self.labels) is None else "f1"

    @property
    def _columns(self) -> tuple[str, str]:
        """The columns of words and tags in tables of lists."""
        return self.settings["text_column"] or _WORDS, next(iter(self.settings["label_column"]), _TAGS)

    def check_name(self, path: Path) -> None:
        """See `CustomKind.check_name`; all but CSV can be read."""
        if named_format(path) == "csv":
            raise ValueError(
                f"{path}: tagged words are read from JSON Lines and Parquet, or from columns with a word per line and "
                "an empty line between texts (.conll, .txt, .tsv). Write one of these."
            )

    def rows(self, path: Path) -> Iterator[Row]:
        """See `CustomKind.rows`: the words and tags of each text, as lists."""
        if named_format(path) in _LISTS:
            yield from read_table(path)
            return
        named = TaggingOptions(
            tokens_column=self.settings["text_column"], tags_column=next(iter(self.settings["label_column"]), None)
        )
        words, tags = self._columns
        called = ("--text-column", "--label-column")
        for sentence in read_file(path, options=named, needs_tags=False, called=called):
            values = {words: list(sentence.words), tags: None if sentence.tags is None else list(sentence.tags)}
            yield Row(path, sentence.line, values)

    def is_labelled(self, row: Row) -> bool:
        """See `CustomKind.is_labelled`."""
        return not is_missing(row.values.get(self._columns[1]))

    def read(self, row: Row, *, is_labelled: bool) -> Example:
        """See `CustomKind.read`: the texts are the words."""
        column = self._columns[0]
        words = check_list(row.value(column, option="--text-column"), f"the column {column!r}", row.where)
        if not words:
            raise ValueError(f"{row.where}: the column {column!r} is an empty list. Leave the row out.")
        texts = tuple(
            check_text(word, f"word {number} of the column {column!r}", row.where, may_be_empty=True)
            for number, word in enumerate(words, start=1)
        )
        target = self.read_target(row, ()) if is_labelled else None
        if target is not None and len(target) != len(texts):
            raise ValueError(f"{row.where}: {len(texts)} words and {len(target)} tags. Give one tag to each word.")
        return Example(path=row.path, line=row.line, id=self._id(row), texts=texts, target=target)

    def read_target(self, row: Row, choices: tuple[str, ...]) -> tuple[str, ...]:
        """See `CustomKind.read_target`: the tags as the file has them."""
        column = self._columns[1]
        value = row.value(column, option="--label-column")
        if is_missing(value):
            raise ValueError(
                f"{row.where}: there are no tags, which only a test table may lack. Add them, or name their column by "
                "--label-column."
            )
        tags = check_list(value, f"the column {column!r}", row.where)
        return tuple(
            check_text(tag, f"tag {number} of the column {column!r}", row.where)
            for number, tag in enumerate(tags, start=1)
        )

    def split_labels(self, example: Example) -> tuple[str, ...]:
        """See `CustomKind.split_labels`."""
        labels: tuple[str, ...] = example.target
        return labels

    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        """See `CustomKind.discover`: the labels, for entities O, B-TYPE and I-TYPE of each type."""
        given, path = self.settings.get("labels"), table[0].path
        if self._are_entities(table):
            types = None if given is None else types_of(given)
            if given is not None and types is None:
                raise ValueError(
                    f"--labels {' '.join(given)}: the labels of entities are O, then B-TYPE and I-TYPE of each type, "
                    "such as O B-PER I-PER B-LOC I-LOC."
                )
            pairs = ((entity.type, each) for each in table for entity in entities_of(each.target))
            return {"labels": entity_labels(found_labels(pairs, types, path=path, least=1))}
        return {"labels": found_labels(((tag, each) for each in table for tag in each.target), given, path=path)}

    @staticmethod
    def _are_entities(table: Sequence[Example]) -> bool:
        """Whether the tags are those of entities; see the head of this file."""
        first: dict[str, Example] = {}
        for example in table:
            for tag in example.target:
                first.setdefault(tag, example)
        others = [tag for tag in first if not _is_entity_tag(tag)]
        named = [tag for tag in first if _is_entity_tag(tag) and "-" in tag]
        if others and named:
            raise ValueError(
                f"{first[others[0]].where}: the tag {others[0]!r} is neither O nor B-TYPE, I-TYPE, E-TYPE or S-TYPE, "
                f"as {named[0]!r} is. Correct the tag, or name another --label-column."
            )
        return not others

    def columns(self, example: Example) -> dict[str, Any]:
        """See `CustomKind.columns`: those of each window are written by `write`."""
        return {}

    def write(self, split: SplitWriter, examples: Sequence[Example], encoder: Encoder, *, max_length: int) -> None:
        """See `CustomKind.write`: the files of `finetuning/tagging/prepare.py`."""
        is_labelled = examples[0].target is not None
        layout = TaggingLayout(
            max_length=max_length, **{name: self.settings[name] for name in ("doc_stride", "label_pieces", "context")}
        )
        sentences = [
            Sentence(path=each.path, line=each.line, words=each.texts, tags=each.target, document=None)
            for each in examples
        ]
        SplitOfWindows(split, layout, encoder, self.labels).write(
            sentences,
            [self._numbers(each) for each in examples] if is_labelled else None,
            split.name,
            records=[{"id": each.id, "line": each.line} for each in examples],
        )

    def _numbers(self, example: Example) -> list[int]:
        """The numbers of the labels of an example's words."""
        types = types_of(self.labels)
        if types is None:
            return [number_of(tag, self.labels, example) for tag in example.target]
        for tag in example.target:
            if not _is_entity_tag(tag):
                raise ValueError(
                    f"{example.where}: the tag {tag!r} is neither O nor B-TYPE, I-TYPE, E-TYPE or S-TYPE, as those of "
                    "the training table are. Correct the tag."
                )
        entities = entities_of(example.target)
        for entity in entities:
            number_of(entity.type, types, example)
        return [self.labels.index(tag) for tag in tags_of(entities, len(example.target))]

    def outcome(
        self,
        split: PreparedSplit,
        members: Sequence[RawOutputs],
        *,
        train: PreparedSplit,
        threshold: float | None = None,
    ) -> Outcome:
        """See `CustomKind.outcome`: the most probable tag of each word; probabilities of members are averaged."""
        sentences, labels = Sentences(split), self.labels
        found = sentences.decided(members, labels)  # (W,)
        right = sentences.tags if sentences.is_labelled else None
        offsets = sentences.offsets.tolist()

        def entries() -> Iterator[dict[str, Any]]:
            for record, id_, start, stop in zip(split.records(), ids_of(split), offsets[:-1], offsets[1:], strict=True):
                entry = {"id": id_, "tokens": record["words"], "prediction": _names(labels, found[start:stop])}
                yield entry if right is None else {**entry, "label": _names(labels, right[start:stop])}

        if right is None:
            return Outcome(entries=entries, num_examples=len(offsets) - 1)
        measured = _Measured(right, found, sentences.is_first, labels)
        most_frequent = np.full_like(right, np.bincount(Sentences(train).tags).argmax())
        constant = _Measured(right, most_frequent, sentences.is_first, labels)
        return Outcome(
            entries=entries,
            num_examples=len(offsets) - 1,
            measure=measured.metrics,
            baseline=constant.metrics(np.ones(len(offsets) - 1)),
            tables=measured.tables(),
        )


class _Measured:
    """What of each text is right, so that metrics follow from how often each text counts."""

    def __init__(
        self, right: NDArray[np.int64], found: NDArray[np.int64], is_first: NDArray[np.bool_], labels: Sequence[str]
    ) -> None:
        starts = np.flatnonzero(is_first)
        self.num_right = np.add.reduceat((right == found).astype(np.float64), starts)  # (N,)
        self.num_words = np.diff(np.append(starts, len(right)))  # (N,)
        self.labels, self.types = labels, types_of(labels)
        self.words = (right, found)
        if self.types is not None:
            self.entities = entities_by_sentence(right, found, is_first, num_types=len(self.types))  # (N, K, 3)

    def metrics(self, weights: Weights) -> dict[str, float]:
        """Of entities `f1`, `precision` and `recall`; `accuracy` of the words' tags."""
        accuracy = {"accuracy": 100 * float(weights @ self.num_right / (weights @ self.num_words))}
        if self.types is None:
            return accuracy
        of_all = dict(zip(_NAMES, scores(weights @ self.entities.sum(axis=1)), strict=True))  # (N, K, 3) -> (3,)
        return {name: of_all[name] for name in ("f1", "precision", "recall")} | accuracy

    def tables(self) -> Mapping[str, Any]:
        """A row per type of entities; of other tags a row per tag, and the confusion matrix."""
        if self.types is not None:
            counts = self.entities.sum(axis=0).T  # (N, K, 3) -> (3, K)
            return {"classes": metrics.class_table(counts[CORRECT], counts[FOUND], counts[GOLD], self.types)}
        right, found = self.words
        of_words = metrics.confusion(right, found, np.ones(len(right)), num_classes=len(self.labels))
        sums = (of_words.diagonal(), of_words.sum(axis=0), of_words.sum(axis=1))
        return {
            "classes": metrics.class_table(*sums, self.labels),
            "confusion": {"labels": list(self.labels), "counts": of_words.astype(int).tolist()},
        }


def _is_entity_tag(tag: str) -> bool:
    try:
        split_tag(tag)
    except ValueError:
        return False
    return True


def _names(labels: Sequence[str], numbers: NDArray[np.int64]) -> list[str]:
    return [labels[number] for number in numbers.tolist()]
