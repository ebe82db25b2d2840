"""A text of any length -> the sentences that sum it up, in the order of the text.

The text is split into sentences, which are scored in windows as in fine-tuning (`sentences`) and chosen as in the
evaluation (`documents`). It may also be a list of sentences.

Example: {"text": "It rained. We stayed. Then it stopped."} with one sentence -> {"summary": "It rained.", "sentences":
[{"sentence": 0, "text": "It rained.", "probability": 0.9}], "num_sentences": 3}

An example is a document, with a sequence `<s> one </s> <s> two </s> ...` per window. Columns: `sentences`, their
number, and `is_labelled`, 1 if the summary is known. Each document has a record: `id`, its `sentences`, and the
sentences of its `summary`, or null.

Arrays, for all sentences of all documents one after the other: `label`, 1 for the sentences to choose
(`documents.oracle`); `window`, the sequence of the document that scores the sentence; and `position`, the place of its
<s> there. Document i has the sentences `first_sentence[i]` to `first_sentence[i + 1]`.

Shapes: N documents of a split, U sentences of all documents.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import scipy  # its modules are imported when they are first used
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.extensions.summaries.documents import (
    FAST,
    OFFICIAL,
    Documents,
    Length,
    check_rouge,
    choose,
    lead,
    mean_rouge,
    measure_choice,
    oracle,
    sentence_probabilities,
    summary_entry,
)
from roberta_plugin.extensions.summaries.layout import NUM_SPECIALS, SummaryLayout, sentences_of, windows_of
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds.answering import Answer, marked
from roberta_plugin.finetuning.kinds.base import Kind
from roberta_plugin.finetuning.kinds.outputs import Decisions, Outcome, RawOutputs, Weights
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.prepared import DIVIDED, PreparedSplit, SplitWriter
from roberta_plugin.finetuning.records import column_of, one_line, text_of, texts_in, texts_of
from roberta_plugin.tables import Row

logger = logging.getLogger(__name__)

_DOCUMENTS_PER_CHUNK = 64
_MANY_WINDOWS = 128  # with 512 tokens each, 65,536 positions in one batch


class Summary(Kind):
    """Binary cross-entropy of each sentence of a document."""

    name = "summary"
    description = "chooses the sentences of a text that sum it up"
    head = "sentence"
    default_head_name = "summary_head"
    task = "roberta_summarization"
    outputs = ("sentence_logits",)
    outputs_by: ClassVar[Mapping[str, str]] = {"sentence_logits": "first_sentence"}
    scoring = Length._fields
    free_settings = (
        *("doc_stride", "sentence_length", "oracle_sentences"),
        *("id_field", "text_field", "summary_field"),  # how documents were read
    )

    @override
    def metrics(self) -> tuple[str, ...]:
        return ("rouge", "rouge1", "rouge2", "f1", "average_precision", "accuracy")

    @override
    def lacks(self, split: PreparedSplit) -> str:
        """What a split does not have for a loss; empty: nothing.

        Raises:
            ValueError: if the package that computes ROUGE is missing, for a validation.
        """
        is_labelled = Documents(split).is_labelled
        if is_labelled and split.name != "train":
            check_rouge()
        return "" if is_labelled else "has documents without a summary"

    @override
    def write(
        self, split: SplitWriter, examples: Iterable[Example], encoder: Encoder, *, max_length: int
    ) -> Sequence[Mapping[str, Any]]:
        """Write a split. Documents without a sentence or with an empty summary are left out."""
        lengths = {name: self.settings[name] for name in ("sentence_length", "doc_stride")}
        layout = SummaryLayout(max_length=max_length, **lengths)
        writing, left = _Writing(split, encoder, layout, most=self.settings["oracle_sentences"]), iter(examples)
        while chunk := list(islice(left, _DOCUMENTS_PER_CHUNK)):
            writing.add(chunk)
        writing.finish()
        return ()

    def _chosen(
        self, split: PreparedSplit, members: Sequence[RawOutputs], length: Length
    ) -> tuple[Documents, list[NDArray[np.float64]], list[list[int]]]:
        """The documents, the probabilities of each document's sentences, and the numbers of the chosen sentences."""
        documents = Documents(split, is_official=self.task_name == OFFICIAL)
        parts = np.split(sentence_probabilities(members), documents.first[1:-1])
        chosen = [choose(each, sentences, length) for each, sentences in zip(parts, documents.sentences, strict=True)]
        return documents, parts, chosen

    @override
    def validated(self, split: PreparedSplit, outputs: RawOutputs, options: Mapping[str, Any]) -> Mapping[str, float]:
        """The metrics of a validation, with the fast kinds of ROUGE only."""
        documents, parts, chosen = self._chosen(split, [outputs], _length(Decisions(split.name, options)))
        right = [summary or () for summary in documents.summaries]
        scores = mean_rouge(documents.chosen(chosen), right, kinds=FAST, is_official=documents.is_official)
        accuracy = 100.0 * float(((np.concatenate(parts) > 0.5) == documents.labels.astype(bool)).mean())
        both = {"rouge": sum(scores.values()) / len(FAST), "accuracy": accuracy}
        return {**scores, **both, **measure_choice(documents, parts, chosen)}

    @override
    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        """Choose the sentences of each summary.

        The metrics are rouge1, rouge2, rougeL and rougeLsum of the chosen sentences, of the first sentences (lead_) and
        of the oracle's sentences (oracle_); f1 of the chosen sentences against the oracle's; and the average precision
        of the probabilities, as a mean over documents.
        """
        check_rouge()
        length = _length(decisions)
        documents, parts, chosen = self._chosen(split, members, length)

        def entries() -> Iterator[dict[str, Any]]:
            for id_, sentences, each, numbers in zip(documents.ids, documents.sentences, parts, chosen, strict=True):
                yield {"id": id_, **summary_entry(sentences, each, numbers)}

        def measure(weights: Weights) -> dict[str, float]:
            leads = [lead(each, length) for each in documents.sentences]
            values: dict[str, float] = {}
            for prefix, numbers in {"": chosen, "lead_": leads, "oracle_": documents.oracles}.items():
                texts, right = documents.chosen(numbers), [summary or () for summary in documents.summaries]
                means = mean_rouge(texts, right, is_official=documents.is_official, weights=weights)
                values |= {f"{prefix}{kind}": value for kind, value in means.items()}
            return values | measure_choice(documents, parts, chosen, weights)

        is_labelled = documents.is_labelled
        return Outcome(entries=entries, num_examples=len(documents), measure=measure if is_labelled else None)

    @override
    def open(self) -> None:
        super().open()
        lengths: dict[str, Any] = {
            name: self.settings[name] for name in ("sentence_length", "doc_stride") if name in self.settings
        }
        if "sentence_length" in lengths:
            lengths["sentence_length"] = max(1, min(lengths["sentence_length"], self.max_length - NUM_SPECIALS))
        options = self.options
        self.length = Length(options.num_sentences, options.length_share, None, options.no_trigram_blocking)
        self.layout = SummaryLayout.with_defaults(self.max_length, **lengths)

    @override
    def read_question(self, row: Row) -> list[str]:
        """The sentences of a text."""
        column = self.options.text_column
        recorded = self.settings.get("text_field")
        names = (column,) if column else ((recorded, "text") if recorded else ("text", "article"))
        name = column_of(row, names, option="--text-column")
        if texts_in(row.values[name], f"{row.where}, the column {name!r}") is None:
            return sentences_of(text_of(row, (name,), option="--text-column"))
        sentences = [one_line(each) for each in texts_of(row, name, what="sentence")]
        if not sentences:
            raise ValueError(f"{row.where}: the column {name!r} has no sentence. Fill it in, or leave the record out.")
        return sentences

    @override
    def answer(self, questions: Sequence[list[str]]) -> list[Answer]:
        """The summaries of texts. Sentences that are too long are cut as in fine-tuning."""
        encoder = self.hub.codec.encoder
        ids = iter(encoder.ids_of_all([sentence for sentences in questions for sentence in sentences]))
        bos_id, eos_id = encoder.vocabulary.bos_id, encoder.vocabulary.eos_id
        inputs = [
            windows_of([next(ids) for _ in each], layout=self.layout, bos_id=bos_id, eos_id=eos_id)
            for each in questions
        ]
        outputs = self.hub.sentence_logits(
            [windows for windows, _ in inputs], self.head_name, max_tokens=self.options.batch_tokens
        )
        answers: list[Answer] = []
        for sentences, logits, (_, num_cut) in zip(questions, outputs, inputs, strict=True):
            probabilities = scipy.special.expit(logits.astype(np.float64))
            entry = summary_entry(sentences, probabilities, choose(probabilities, sentences, self.length))
            answers.append(marked(entry, is_cut=num_cut > 0))
        return answers


def _length(decisions: Decisions) -> Length:
    """The length of a summary that the options ask for."""
    return Length(**{name: value for name in Length._fields if (value := decisions.wish(name)) is not None})


class _Writing:
    """Writes the documents of a split, and counts cut sentences and documents."""

    def __init__(self, split: SplitWriter, encoder: Encoder, layout: SummaryLayout, *, most: int) -> None:
        self.split, self.encoder, self.layout, self.most = split, encoder, layout, most
        self.arrays: dict[str, list[NDArray[Any]]] = {"label": [], "window": [], "position": []}
        self.counts: Counter[str] = Counter()

    def add(self, documents: Sequence[Example]) -> None:
        """Write some documents."""
        whole = [document for document in documents if document.texts and document.target != ()]
        self.counts["left out"] += len(documents) - len(whole)
        ids = iter(self.encoder.ids_of_all([sentence for document in whole for sentence in document.texts]))
        for document in whole:
            self._add_one(document, [next(ids) for _ in document.texts])

    def _add_one(self, document: Example, sentences: list[NDArray[np.int32]]) -> None:
        split, layout, vocabulary = self.split, self.layout, self.encoder.vocabulary
        windows, _ = windows_of(sentences, layout=layout, bos_id=vocabulary.bos_id, eos_id=vocabulary.eos_id)
        for ids_of_sentence in sentences:
            split.measure("sentences", len(ids_of_sentence), limit=layout.sentence_length)
        num_tokens = sum(min(len(each), layout.sentence_length) + NUM_SPECIALS for each in sentences)
        split.measure("documents", num_tokens, limit=layout.max_length, fate=DIVIDED)
        labels = np.zeros(len(sentences), dtype=np.int8)
        labels[oracle(document.texts, document.target or (), most=self.most)] = 1
        for key, values in (("label", labels), ("window", windows.window), ("position", windows.position)):
            self.arrays[key].append(values)
        split.add(windows.sequences, sentences=len(sentences), is_labelled=int(document.target is not None))
        split.record({"id": document.id, "sentences": document.texts, "summary": document.target})
        self.counts["nothing to learn"] += document.target is not None and not labels.any()
        self.counts["without a summary"] += document.target is None
        if len(windows.sequences) > _MANY_WINDOWS and split.name == "train":
            logger.warning(
                f"{split.name}: the document {document.id!r} has {len(windows.sequences):,} windows, which are trained "
                "at once and may not fit into the memory: divide it, or leave it out"
            )

    def finish(self) -> None:
        """Write the arrays of all documents, and warn of documents that are left out or have nothing to learn."""
        split, counts, name = self.split, self.counts, self.split.name
        if not split.num_records:
            raise ValueError(f"The split {name} holds no document: check its files, or leave the split out.")
        if name == "train" and counts["nothing to learn"] == split.num_records:
            raise ValueError(
                f"The split {name}: none of its {split.num_records:,} documents shares a word with its summary, so "
                "there is nothing to learn. Check which columns hold the text and the summary."
            )
        if 0 < counts["without a summary"] < split.num_records:
            logger.warning(
                f"{name}: {counts['without a summary']:,} of {split.num_records:,} documents have no summary, so the "
                "split is predicted and not evaluated. Leave these documents out for metrics"
            )
        for key, parts in self.arrays.items():
            split.array(key, np.concatenate(parts))
        split.array("first_sentence", np.cumsum([0, *map(len, self.arrays["label"])]))
        if counts["left out"]:
            logger.warning(
                f"{name}: {counts['left out']:,} documents without text or with an empty summary are left out"
            )
        if counts["nothing to learn"]:
            logger.warning(f"{name}: {counts['nothing to learn']:,} documents share no word with their summary")
