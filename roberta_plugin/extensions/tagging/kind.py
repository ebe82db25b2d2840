"""The words of a text -> a tag for each word: entities, or tags of another kind such as parts of speech.

An example of a table is a text. Its words come as a list in JSON Lines or Parquet, or one per line in CoNLL columns,
where --text-column and --label-column are numbers from 1 on, or names that the first line gives (`files`). Tags of
entities may be in any scheme of `entities` and any notation of `notations`, and become IOB2. Other tags are labels as
they are.

A text of a record is divided into words and punctuation marks, which the model reads as in training: with one space
between them. Positions of entities are characters of the text or, if the record has words, of the words joined by
single spaces. A text that is too long is read in overlapping windows.

Example: {"text": "I live in New York."} -> {"words": ["I", "live", "in", "New", "York", "."], "tags": ["O", "O", "O",
"B-LOC", "I-LOC", "O"], "entities": [{"type": "LOC", "text": "New York", "start": 10, "end": 18, "first_word": 3,
"last_word": 4, "score": 0.99}]}. The score is the mean probability of the words' tags.

Shapes: N texts of a split, W words of all texts, C labels, K types of entities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.extensions.tagging.entities import (
    CORRECT,
    FOUND,
    GOLD,
    OUTSIDE,
    Sentences,
    TagCounts,
    best_valid,
    entities_of,
    entity_labels,
    tags_of,
    types_of,
)
from roberta_plugin.extensions.tagging.files import (
    ENDINGS,
    LISTS,
    TAG_FIELDS,
    TOKEN_FIELDS,
    check_named,
    check_words,
    is_universal,
    read_file,
)
from roberta_plugin.extensions.tagging.layout import SplitOfWindows, TaggingLayout, WordEncoder, windows_of
from roberta_plugin.extensions.tagging.notations import PLAIN, are_entity_tags, types_among, unify
from roberta_plugin.finetuning.examples import Example, is_missing, number_of, order_labels
from roberta_plugin.finetuning.kinds import metrics
from roberta_plugin.finetuning.kinds.answering import Answer
from roberta_plugin.finetuning.kinds.base import HuggingFace, certain, rounded
from roberta_plugin.finetuning.kinds.outputs import PER_TOKEN, Decisions, Outcome, RawOutputs, Weights
from roberta_plugin.finetuning.kinds.score_names import of_label
from roberta_plugin.finetuning.kinds.tables import TableKind
from roberta_plugin.finetuning.kinds.usage import Exported, pipeline_block
from roberta_plugin.finetuning.label_names import OPTION
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.layouts.words import split_words, word_spans
from roberta_plugin.finetuning.prepared import PreparedSplit, SplitWriter
from roberta_plugin.finetuning.records import column_of, text_of, texts_of, values_of
from roberta_plugin.tables import Row, check_list, check_text, named_format, read_table, without_compression

_WORDS, _TAGS = "tokens", "tags"
_LAYOUT = ("doc_stride", "label_pieces", "context")


class TextOfWords(NamedTuple):
    """A text and its words."""

    text: str
    words: list[str]
    spans: list[tuple[int, int]]
    """Characters of each word."""


class Tagging(TableKind):
    """Cross-entropy of each word, at its first token."""

    name = "tagging"
    description = "gives each word of a text a tag, such as the entity that it belongs to"
    head = "token"
    default_head_name = "token_head"
    task = "roberta_tagging"
    has_labels = can_smooth = True
    numbers_labels = knows_no_label = True
    outputs = ("token_logits",)
    averages_labels = False  # entities of all types are counted together
    scoring = ("valid_sequences",)
    free_settings = (
        *("doc_stride", "label_pieces", "context"),
        *("tokens_column", "tags_column", "scheme", "types"),  # how tagged words were read
    )
    outputs_by: ClassVar[Mapping[str, str]] = {"token_logits": PER_TOKEN, "token_labels": PER_TOKEN}
    decides = "tags"
    validated_outputs = ("token_labels",)  # the logits of a large split would not fit into memory
    hugging_face = HuggingFace(
        suffix="ForTokenClassification",
        names={"out_proj": "classifier"},
        pipeline="token-classification",
        arguments=", ignore_labels=[]",
        has_pooler=False,
        least_outputs=2,  # with one output it is a multiple choice, whose class has the same names
        is_asked_by_words=True,
        peft_task="TOKEN_CLS",
        settings={"kind": "tagging"},
    )

    @override
    def usage(self, model: Exported) -> str:
        # The pipeline's aggregation_strategy takes a word mark or a space that is a token by itself for a word.
        code = pipeline_block(
            '"token-classification", "FOLDER", ignore_labels=[]',
            'text = "Ann lives in Oslo."',
            "",
            "# A word has the tag of its first token:",
            "tokens = pipe(text)",
            'for word in re.finditer(r"\\S+", text):',
            '    print(word.group(), next(each for each in tokens if each["start"] >= word.start())["entity"])',
            imports="import re\n\n",
        )
        of_words = (
            "For lists of words (`is_split_into_words=True`), open the tokenizer by "
            '`AutoTokenizer.from_pretrained("FOLDER", add_prefix_space=True)`. '
            "It also puts a space before the first word, which the model was trained without: only "
            "words that are joined by spaces, as above, get exactly the model's tags."
        )
        return f"{code}\n\n{of_words}" if model.is_byte_level else code

    @override
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy",) if types_of(self.labels) is None else ("f1", "precision", "recall", "accuracy")

    @override
    def keeps_rows(self, labels: Sequence[str]) -> bool:
        return any(label != OUTSIDE for label in labels)

    @override
    def label_metrics(self) -> dict[str, int]:
        """The F1 of each type of entities -> the number of the type."""
        return {of_label("f1", name): number for number, name in enumerate(types_of(self.labels) or ())}

    @override
    def constant(self, outputs: RawOutputs, train: PreparedSplit) -> RawOutputs:
        tag = np.bincount(Sentences(train).tags).argmax()
        return RawOutputs(token_logits=[certain(logits.shape, tag) for logits in outputs.token_logits or ()])

    @override
    def only_answer(self, outputs: RawOutputs, split: PreparedSplit) -> str | None:
        rows = Sentences(split).rows([logits.astype(np.float64) for logits in outputs.token_logits or ()])
        tags = np.unique(rows.argmax(axis=1))
        return f"the tag {self.labels[tags[0]]}" if len(tags) == 1 else None

    @override
    def lacks(self, split: PreparedSplit) -> str:
        return "" if Sentences(split).is_labelled else "has no tags"

    @override
    def label_numbers(self, split: PreparedSplit) -> NDArray[Any] | None:
        return split.array("tags") if "tags" in split.facts["arrays"] else None

    def labels_without_examples(self, split: PreparedSplit) -> list[str]:
        """The types of entities, or the labels, that no example has."""
        absent = super().labels_without_examples(split)
        if types_of(self.labels) is None:
            return absent
        return [label.removeprefix("B-") for label in absent if label.startswith("B-")]

    @override
    def reduced(self, outputs: Any) -> Any:
        """The most probable labels."""
        return outputs.argmax(dim=-1)

    @classmethod
    @override
    def settings_of(cls, options: Any, *, max_length: int) -> dict[str, Any]:
        """The layout of the windows, and the columns that options name."""
        return {
            **asdict(TaggingLayout.with_defaults(max_length, doc_stride=min(128, max(1, max_length // 4)))),
            "text_column": options.text_column,
            "label_column": list(options.label_column or ()),
            "scheme": options.scheme,
        }

    @property
    def selection(self) -> str:
        """F1 of the entities, or accuracy if the tags are not entities."""
        return "accuracy" if types_of(self.labels) is None else "f1"

    @property
    def _columns(self) -> tuple[str, str]:
        """The columns of words and tags in tables of lists."""
        return self.settings.get("text_column") or _WORDS, next(iter(self.settings.get("label_column") or ()), _TAGS)

    @override
    def check_name(self, path: Path) -> None:
        """Any name will do: a file whose name is not that of a table is read as columns."""

    @staticmethod
    @override
    def reads_alone(path: Path) -> bool:
        """True for files of columns."""
        return without_compression(path).endswith(ENDINGS)

    @override
    def rows(self, path: Path) -> Iterator[Row]:
        """The words and tags of each text, as lists."""
        if named_format(path) in LISTS:
            yield from read_table(path, delimiter=self.settings.get("delimiter"))
            return
        recorded = self.settings.get("text_column")
        if self.is_answering and is_universal(path) and recorded in (_WORDS, "words"):
            recorded = None  # the model learned from lists, whose columns CoNLL-U does not have
        named = (self.options.text_column if self.is_answering else None) or recorded
        columns = (named, next(iter(self.settings.get("label_column") or ()), None))
        words, tags = self._columns
        words = named or words
        called = ("--text-column", "--label-column")
        sentences = read_file(path, columns=columns, needs_tags=False, called=called, reads_tags=not self.is_answering)
        for sentence in sentences:
            values = {words: list(sentence.texts), tags: None if sentence.target is None else list(sentence.target)}
            yield Row(path, sentence.line, values)

    @override
    def label_columns(self, row: Row) -> list[str]:
        """The column of the tags: as --label-column says, or one of the names that data sets use."""
        usual = () if self.settings.get("label_column") else TAG_FIELDS
        return [next((name for name in usual if name in row.values), self._columns[1])]

    def _column_of_words(self, row: Row) -> str:
        """The column of the words: as --text-column says, or one of the names that data sets use."""
        usual = () if self.settings.get("text_column") else TOKEN_FIELDS
        return next((name for name in usual if name in row.values), self._columns[0])

    @override
    def is_labelled(self, row: Row) -> bool:
        return not is_missing(row.values.get(self.label_columns(row)[0]))

    @override
    def read_question(self, row: Row) -> TextOfWords:
        """The words of a row. A record may also have a text."""
        name = self._column_of_words(row)
        if self.is_answering:
            usual = (each for each in (name, "words", _WORDS) if each in row.values)
            name = self.options.text_column or next(usual, "text")
        value = row.values[column_of(row, (name,), option="--text-column")]
        may_be_text = self.is_answering and name in (self.options.text_column, "text")
        if may_be_text and not isinstance(value, list):
            text = text_of(row, (name,), option="--text-column", white_space="kept")
            words = split_words(text)
            if not words:
                raise ValueError(f"{row.where}: the column {name!r} has no words. Give a text, or leave the row out.")
            return TextOfWords(text, words, word_spans(text, words))
        check_words(row, name)
        words = texts_of(row, name, what="word", may_be_empty=True)
        if not words:
            raise ValueError(f"{row.where}: the column {name!r} is an empty list. Leave the row out.")
        ends = np.cumsum([len(word) + 1 for word in words]).tolist()
        spans = [(end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True)]
        return TextOfWords(" ".join(words), words, spans)

    @override
    def read_inputs(self, row: Row) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The words, as the texts of an example."""
        return tuple(self.read_question(row).words), ()

    @override
    def read(self, row: Row, *, is_labelled: bool) -> Example:
        example = super().read(row, is_labelled=is_labelled)
        if example.target is not None and len(example.target) != len(example.texts):
            raise ValueError(
                f"{row.where}: {len(example.texts)} words and {len(example.target)} tags. Give one tag to each word."
            )
        return example

    @override
    def read_target(self, row: Row, choices: tuple[str, ...]) -> tuple[str, ...]:
        """The tags as the file has them."""
        (column,) = self.label_columns(row)
        value = row.value(column, option="--label-column")
        if is_missing(value):
            raise ValueError(
                f"{row.where}: there are no tags, and only a test table may omit them. Add them, or name their column "
                "by --label-column."
            )
        found = values_of(row, column)
        values = check_list(value if found is None else found, f"the column {column!r}", row.where)
        tags = [self.numbering.name(each, f"{row.where}, the column {column!r}") for each in values]
        if self.settings.get("scheme") == PLAIN:
            tags = [str(tag) if type(tag) is int else tag for tag in tags]
        elif not self.numbering.names:
            check_named([each for each in tags if not isinstance(each, str)], row.where, column)
        return tuple(
            check_text(tag, f"tag {number} of the column {column!r}", row.where)
            for number, tag in enumerate(tags, start=1)
        )

    @override
    def split_labels(self, example: Example) -> tuple[str, ...]:
        labels: tuple[str, ...] = example.target
        return labels

    @override
    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        """The labels."""
        listed, path = self.settings.get("labels"), table[0].path
        source = self.numbering.source if listed is None else ""
        tags = {tag for each in table for tag in each.target}
        if self.settings.get("scheme") != PLAIN and are_entity_tags(tags):
            found = [(entity.type, each) for each in table for entity in entities_of(each.target)]
            types = self._listed_types({type_ for type_, _ in found})
            return {"labels": entity_labels(order_labels(found, types, path=path, least=1, source=source))}
        pairs = ((tag, each) for each in table for tag in each.target)
        return {"labels": order_labels(pairs, listed or self.numbering.names or None, path=path, source=source)}

    def _listed_types(self, found: set[str]) -> list[str] | None:
        """The types in the order of --labels, or of the names of tags that are numbers; None: in alphabetical order.

        Names that do not have all types that were `found` do not count: they may be the names of another column.
        """
        listed = self.settings.get("labels")
        if listed is None:
            types = types_among(self.numbering.names)
            return types if types is not None and found <= {*types} else None
        types = types_of(listed)
        if types is None:
            raise ValueError(
                f"--labels {' '.join(listed)}: the labels of entities are O, then B-TYPE and I-TYPE of each type, "
                f"such as O B-PER I-PER B-LOC I-LOC. {OPTION} names tags that are numbers."
            )
        return types

    @override
    def unified(self, splits: Mapping[str, list[Example]]) -> dict[str, list[Example]]:
        return unify(splits, scheme=self.settings.get("scheme"), option="--label-column")

    @override
    def columns(self, example: Example) -> dict[str, Any]:
        """Nothing: `write` adds the columns of each window."""
        return {}

    @override
    def record_of(self, example: Example) -> dict[str, Any]:
        """The id and the line of a sentence; sentences of official files have no ids."""
        return super().record_of(example) if self.official.is_own else {}

    @override
    def write(
        self, split: SplitWriter, examples: Iterable[Example], encoder: Encoder, *, max_length: int
    ) -> Sequence[Mapping[str, Any]]:
        """Write the files that `layout.py` describes."""
        examples = list(examples)
        layout = TaggingLayout(max_length=max_length, **{name: self.settings[name] for name in _LAYOUT})
        numbers = [self.numbers_of_tags(each) for each in examples] if examples[0].target is not None else None
        of_label = np.arange(len(self.labels))
        continuing = of_label + ((types_of(self.labels) is not None) & (of_label % 2 == 1))  # B-TYPE -> I-TYPE
        writer = SplitOfWindows(split, layout, encoder, continuing=continuing)
        writer.write(examples, numbers, map(self.record_of, examples))
        return ()

    def numbers_of_tags(self, example: Example) -> list[int]:
        """The numbers of the labels of an example's words."""
        types = types_of(self.labels)
        if types is None:
            return [number_of(tag, self.labels, example) for tag in example.target]
        entities = entities_of(example.target)
        for entity in entities:
            number_of(entity.type, types, example)
        return [self.labels.index(tag) for tag in tags_of(entities, len(example.target))]

    @override
    def open(self) -> None:
        super().open()
        stride = {"doc_stride": self.settings["doc_stride"]} if "doc_stride" in self.settings else {}
        self.layout = TaggingLayout.with_defaults(self.max_length, **stride)
        self.words = WordEncoder(self.hub.codec.encoder)
        self.names = self.known_labels(self.hub.num_classes(self.head_name), form="LABEL_{}")

    @override
    def answer(self, questions: Sequence[TextOfWords]) -> list[Answer]:
        probabilities = self._probabilities(questions)  # (W, C)
        offsets = np.cumsum([0, *(len(each.words) for each in questions)])
        if self.options.valid_sequences:
            labels = best_valid(probabilities, offsets, self.names)
        else:
            labels = probabilities.argmax(axis=1)
        scores = probabilities[np.arange(len(labels)), labels]
        return [
            self._entry(each, labels[first:stop], scores[first:stop])
            for each, first, stop in zip(questions, offsets[:-1], offsets[1:], strict=True)
        ]

    def _probabilities(self, questions: Sequence[TextOfWords]) -> NDArray[np.float64]:
        """Probabilities of the labels of all words (W, C). A word without a token has the label O, or the first one."""
        vocabulary = self.hub.vocabulary
        ids = {"bos_id": vocabulary.bos_id, "eos_id": vocabulary.eos_id}
        tokens = self.words.tokens_of_all([each.words for each in questions])
        windows = [window for words in tokens for window in windows_of(words, self.layout, **ids)]
        logits = self.hub.token_logits(
            [window.tokens for window in windows], self.head_name, max_tokens=self.options.batch_tokens
        )
        outside = np.eye(1, len(self.names), self.names.index("O") if "O" in self.names else 0)
        rows = []
        for window, of_window in zip(windows, logits, strict=True):
            of_words = of_window.double().softmax(dim=-1).numpy()[window.positions]
            rows.append(np.where(window.positions[:, None] > 0, of_words, outside))
        return np.concatenate(rows)

    def _entry(self, question: TextOfWords, labels: NDArray[np.int64], scores: NDArray[np.float64]) -> dict[str, Any]:
        tags = [self.names[label] for label in labels.tolist()]
        entry: dict[str, Any] = {"words": question.words, "tags": tags}
        try:
            entities = entities_of(tags)
        except ValueError:  # the tags are not entities, but perhaps parts of speech
            return entry
        spans = question.spans
        entry["entities"] = [
            {
                "type": entity.type,
                "text": question.text[spans[entity.start][0] : spans[entity.stop - 1][1]],
                "start": spans[entity.start][0],
                "end": spans[entity.stop - 1][1],
                "first_word": entity.start,
                "last_word": entity.stop - 1,
                "score": rounded(scores[entity.start : entity.stop].mean()),
            }
            for entity in entities
        ]
        return entry

    @override
    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        """Predict the most probable tag of each word. The probabilities of the members are averaged."""
        sentences, labels, types = Sentences(split), self.labels, types_of(self.labels)
        is_valid = bool(decisions.wish("valid_sequences")) and types is not None
        predictions = sentences.decide(members, labels, valid_sequences=is_valid)  # (W,)
        right = sentences.tags if sentences.is_labelled else None
        offsets = sentences.offsets.tolist()

        def entries() -> Iterator[dict[str, Any]]:
            for record, start, stop in zip(split.records(), offsets[:-1], offsets[1:], strict=True):
                id_ = {"id": record["id"]} if "id" in record else {}
                entry = {**id_, "tokens": record["words"], "prediction": _names(labels, predictions[start:stop])}
                yield entry if right is None else {**entry, "label": _names(labels, right[start:stop])}

        if right is None:
            return Outcome(entries=entries, num_examples=len(offsets) - 1)
        counts = TagCounts(right, predictions, sentences.is_first, types)
        tables: dict[str, Any]
        if types is not None:
            sums = counts.entities.sum(axis=0).T  # (N, K, 3) -> (3, K)
            tables = {"classes": metrics.class_table(sums[CORRECT], sums[FOUND], sums[GOLD], types)}
        else:
            of_words = metrics.confusion(right, predictions, np.ones(len(right)), num_classes=len(labels))
            parts = (of_words.diagonal(), of_words.sum(axis=0), of_words.sum(axis=1))
            table = {"labels": list(labels), "counts": of_words.astype(int).tolist()}
            tables = {"classes": metrics.class_table(*parts, labels), "confusion": table}

        def measure(weights: Weights) -> dict[str, float]:
            shown = counts.metrics(weights)
            is_own = self.official.is_own  # its `tables` have precision and recall of each type
            return {name: shown[name] for name in shown if not (is_own and name.startswith(("precision_", "recall_")))}

        return Outcome(entries=entries, num_examples=len(counts.num_words), measure=measure, tables=tables)


def _names(labels: Sequence[str], numbers: NDArray[np.int64]) -> list[str]:
    return [labels[number] for number in numbers.tolist()]
