"""A text of any length -> the sentences that sum it up, in the order of the text.

The text is split into sentences, which are scored in windows as in fine-tuning (`sentences`) and chosen as in the
evaluation (`documents`). It may also be a list of sentences.

Example: {"text": "It rained. We stayed. Then it stopped."} with one sentence -> {"summary": "It rained.", "sentences":
[{"sentence": 0, "text": "It rained.", "probability": 0.9}], "num_sentences": 3}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy  # its modules are imported when they are first used

from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.kinds.base import Answer, Kind, marked
from roberta_plugin.kinds.cells import texts_in
from roberta_plugin.kinds.documents import (
    FAST,
    OFFICIAL,
    Documents,
    Length,
    check_rouge,
    choose,
    mean_rouge,
    of_choice,
    sentence_probabilities,
    summary_entry,
)
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.records import column_of, one_line, text_of, texts_of
from roberta_plugin.kinds.sentences import NUM_SPECIALS, SummaryLayout, sentences_of, windows_of
from roberta_plugin.tables import Row


class Summary(Kind):
    """Binary cross-entropy of each sentence of a document."""

    name = "summary"
    description = "chooses the sentences of a text that sum it up"
    head = "sentence"
    default_head_name = "summary_head"
    task = "roberta_summarization"
    outputs = ("sentence_logits",)

    def metrics(self) -> tuple[str, ...]:
        """See `Kind.metrics`."""
        return ("rouge", "rouge1", "rouge2", "f1", "average_precision", "accuracy")

    def lacks(self, split: PreparedSplit) -> str:
        """See `Kind.lacks`.

        Raises:
            ValueError: if the package that computes ROUGE is missing, for a validation.
        """
        is_labelled = Documents(split).is_labelled
        if is_labelled and split.name != "train":
            check_rouge()
        return "" if is_labelled else "has documents without a summary"

    def validated(self, split: PreparedSplit, outputs: RawOutputs, options: Mapping[str, Any]) -> Mapping[str, float]:
        """See `Kind.validated`; the kinds of ROUGE are those that are fast."""
        documents = Documents(split, is_official=self.task_name == OFFICIAL)
        probabilities = sentence_probabilities([outputs])  # (U,)
        parts = np.split(probabilities, documents.first[1:-1])
        chosen = [
            choose(part, sentences, options["length"])
            for part, sentences in zip(parts, documents.sentences, strict=True)
        ]
        right = [summary or () for summary in documents.summaries]
        found = mean_rouge(documents.chosen(chosen), right, kinds=FAST, is_official=documents.is_official)
        accuracy = 100.0 * float(((probabilities > 0.5) == documents.labels.astype(bool)).mean())
        both = {"rouge": sum(found.values()) / len(FAST), "accuracy": accuracy}
        return {**found, **both, **of_choice(documents, parts, chosen)}

    def open(self) -> None:
        """See `Kind.open`."""
        super().open()
        known: dict[str, Any] = {
            name: self.settings[name] for name in ("sentence_length", "doc_stride") if name in self.settings
        }
        if "sentence_length" in known:
            known["sentence_length"] = max(1, min(known["sentence_length"], self.max_length - NUM_SPECIALS))
        options = self.options
        self.length = Length(options.num_sentences, options.length_share, None, options.no_trigram_blocking)
        self.layout = SummaryLayout.of(self.max_length, **known)

    def read_question(self, row: Row) -> list[str]:
        """See `Kind.read_question`: the sentences."""
        given = self.options.text_column
        names = (given,) if given else ("text", self.settings.get("text_field") or "article")
        name = column_of(row, names, option="--text-column")
        if texts_in(row.values[name]) is None:
            return sentences_of(text_of(row, (name,), option="--text-column"))
        sentences = [one_line(each) for each in texts_of(row, name, what="sentence")]
        if not sentences:
            raise ValueError(f"{row.where}: the column {name!r} has no sentence. Fill it in, or leave the record out.")
        return sentences

    def answer(self, questions: Sequence[list[str]]) -> list[Answer]:
        """See `Kind.answer`; sentences that are too long are cut as in fine-tuning."""
        encoder = self.hub.codec.encoder
        ids = iter(encoder.ids_of_all([sentence for sentences in questions for sentence in sentences]))
        bos_id, eos_id = encoder.vocabulary.bos_id, encoder.vocabulary.eos_id
        inputs = [
            windows_of([next(ids) for _ in each], layout=self.layout, bos_id=bos_id, eos_id=eos_id)
            for each in questions
        ]
        found = self.hub.sentence_logits(
            [windows for windows, _ in inputs], self.head_name, max_tokens=self.options.batch_tokens
        )
        answers: list[Answer] = []
        for sentences, logits, (_, num_cut) in zip(questions, found, inputs, strict=True):
            probabilities = scipy.special.expit(logits.astype(np.float64))
            entry = summary_entry(sentences, probabilities, choose(probabilities, sentences, self.length))
            answers.append(marked(entry, is_cut=num_cut > 0))
        return answers
