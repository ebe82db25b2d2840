"""Summaries: `summaries` reads your own tables, `cnn_dailymail` that set as stories or tables (`reader`).

An example is a document, with a sequence `<s> one </s> <s> two </s> ...` per window. Columns: `sentences`, their
number, and `is_labelled`, whether the summary is known. Each document has a record: `id`, its `sentences`, and the
sentences of its `summary`, or null.

Arrays, for all sentences of all documents one after the other: `label`, 1 for those to choose (`oracle`); `window`,
which sequence of the document scores it, and `position`, where its <s> is there. Document i has those from
`first_sentence[i]` to `first_sentence[i + 1]`.

The grid has BertSumExt's settings where RoBERTa's paper has none, and the paper's Table 10 for GLUE otherwise. Liu and
Lapata 2019 (sections 3.2 and 4.2): two layers over the sentences, 50,000 updates, and a rate of 2e-3 times
min(step^-0.5, step * 10,000^-1.5), whose peak is 2e-5; with batches of about 36 documents (Liu 2019, arXiv 1903.10318),
they are 6 epochs of CNN/DailyMail's 287,227 documents. RoBERTa's Table 10: rates around it, a warm-up of 6 %, linear
decay, weight decay of 0.1, 10 epochs of smaller sets. The checkpoint is chosen by the mean of ROUGE-1 and ROUGE-2 on
the development set.

Shapes: N documents of the split, U sentences of all of them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.benchmark import Training, as_json
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.old_benchmark import Judged, OldBenchmark
from roberta_plugin.finetuning.options import SummariesOptions
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit
from roberta_plugin.finetuning.prepared_writer import DIVIDED, SplitWriter
from roberta_plugin.finetuning.summaries.oracle import ORACLE_SENTENCES, oracle
from roberta_plugin.finetuning.summaries.reader import Document, field_names, find_files, read_split
from roberta_plugin.kinds.documents import (
    OFFICIAL,
    Documents,
    check_rouge,
    choose,
    lead,
    mean_rouge,
    of_choice,
    sentence_probabilities,
    summary_entry,
)
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.sentences import NUM_SPECIALS, SummaryLayout, windows_of
from roberta_plugin.progress import terminal_bar

logger = logging.getLogger(__name__)

_DOCUMENTS_PER_CHUNK = 64
_MANY_WINDOWS = 128  # of 512 tokens: 65,536 positions in one batch


@dataclass(frozen=True, kw_only=True)
class SummariesTask(OldBenchmark):
    """One set of documents."""

    selection: str = "rouge"
    official: str = "rouge1"

    def files(self, raw: Path, options: SummariesOptions) -> dict[str, list[Path]]:
        """See `OldBenchmark.files`."""
        return find_files(self.name, raw, options)

    def settings(self, *, max_length: int, options: SummariesOptions) -> dict[str, Any]:
        """See `OldBenchmark.settings`."""
        found: dict[str, Any] = asdict(
            SummaryLayout.of(max_length, sentence_length=options.sentence_length, doc_stride=options.doc_stride)
        )
        found["oracle_sentences"] = options.oracle_sentences or ORACLE_SENTENCES
        return {**found, **(field_names(options) if self.name == "summaries" else {})}

    def read_split(self, split: str, paths: list[Path], options: SummariesOptions) -> Iterator[Document]:
        """See `OldBenchmark.read_split`; `write` leaves out documents without text."""
        documents = read_split(self.name, split, paths, options)
        yield from terminal_bar(documents, f"{self.name} {split}", unit=" documents")

    def write(
        self, split: SplitWriter, content: Iterator[Document], encoder: Encoder, settings: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        """See `OldBenchmark.write`."""
        writing = _Writing(split, encoder, settings)
        while chunk := list(islice(content, _DOCUMENTS_PER_CHUNK)):
            writing.add(chunk)
        writing.finish()
        return ()

    def judge(
        self, prepared: Prepared, part: PreparedSplit, members: Sequence[RawOutputs], options: SummariesOptions
    ) -> Judged:
        """See `OldBenchmark.judge`.

        The metrics are rouge1, rouge2, rougeL and rougeLsum of the chosen sentences; the same of the first sentences
        (lead_) and of the oracle's (oracle_); f1 of the choice against the oracle's, and the average precision of the
        probabilities, mean over documents.
        """
        check_rouge()
        documents = Documents(part, is_official=self.name == OFFICIAL)
        probabilities = sentence_probabilities(members)  # (U,)
        parts = np.split(probabilities, documents.first[1:-1])
        chosen = [choose(each, sentences, options) for each, sentences in zip(parts, documents.sentences, strict=True)]
        entries = (
            {"id": id_, **summary_entry(sentences, each, own)}
            for id_, sentences, each, own in zip(documents.ids, documents.sentences, parts, chosen, strict=True)
        )
        metrics = evaluate(documents, parts, chosen, options) if documents.is_labelled else {}
        return Judged(metrics, {name: as_json(entries) for name in self.prediction_files(part.name)})


def evaluate(
    documents: Documents,
    probabilities: Sequence[NDArray[np.float64]],
    chosen: Sequence[Sequence[int]],
    options: SummariesOptions,
) -> dict[str, float]:
    """The metrics of `SummariesTask.judge`, of labelled documents."""
    right = [summary for summary in documents.summaries if summary is not None]
    leads = [lead(each, options) for each in documents.sentences]
    numbers = {"": chosen, "lead_": leads, "oracle_": documents.oracles}
    found: dict[str, float] = {}
    for prefix, of_documents in numbers.items():
        texts = documents.chosen(of_documents)
        found |= {
            f"{prefix}{kind}": value
            for kind, value in mean_rouge(texts, right, is_official=documents.is_official).items()
        }
    return found | of_choice(documents, probabilities, chosen)


class _Writing:
    """Writes the documents of a split, and counts what is cut."""

    def __init__(self, split: SplitWriter, encoder: Encoder, settings: Mapping[str, Any]) -> None:
        self.split, self.encoder, self.most = split, encoder, settings["oracle_sentences"]
        self.layout = SummaryLayout(
            **{name: settings[name] for name in ("max_length", "sentence_length", "doc_stride")}
        )
        self.arrays: dict[str, list[NDArray[Any]]] = {"label": [], "window": [], "position": []}
        self.counts: Counter[str] = Counter()

    def add(self, documents: Sequence[Document]) -> None:
        """Write some documents."""
        whole = [document for document in documents if document.sentences and document.summary != ()]
        self.counts["left out"] += len(documents) - len(whole)
        ids = iter(self.encoder.ids_of_all([sentence for document in whole for sentence in document.sentences]))
        for document in whole:
            self._add_one(document, [next(ids) for _ in document.sentences])

    def _add_one(self, document: Document, sentences: list[NDArray[np.int32]]) -> None:
        split, layout, vocabulary = self.split, self.layout, self.encoder.vocabulary
        found, _ = windows_of(sentences, layout=layout, bos_id=vocabulary.bos_id, eos_id=vocabulary.eos_id)
        for ids_of_sentence in sentences:
            split.measure("sentences", len(ids_of_sentence), limit=layout.sentence_length)
        num_tokens = sum(min(len(each), layout.sentence_length) + NUM_SPECIALS for each in sentences)
        split.measure("documents", num_tokens, limit=layout.max_length, fate=DIVIDED)
        labels = np.zeros(len(sentences), dtype=np.int8)
        labels[oracle(document.sentences, document.summary or (), most=self.most)] = 1
        for key, values in (("label", labels), ("window", found.window), ("position", found.position)):
            self.arrays[key].append(values)
        split.add(found.sequences, sentences=len(sentences), is_labelled=int(document.summary is not None))
        split.record({"id": document.id, "sentences": document.sentences, "summary": document.summary})
        self.counts["nothing to learn"] += document.summary is not None and not labels.any()
        self.counts["without a summary"] += document.summary is None
        if len(found.sequences) > _MANY_WINDOWS and split.name == "train":
            logger.warning(
                f"{split.name}: the document {document.id!r} has {len(found.sequences):,} windows, which are trained "
                "at once and may not fit into the memory: divide it, or leave it out"
            )

    def finish(self) -> None:
        """Write what belongs to all documents."""
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
                "split is predicted and not evaluated: leave these out for metrics"
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


TASKS = {
    "summaries": SummariesTask(name="summaries", training=Training(batches=(36,), num_seeds=3)),
    "cnn_dailymail": SummariesTask(
        name="cnn_dailymail",
        training=Training(lrs=("2e-5",), batches=(36,), epochs=6, num_seeds=3),
        paper={  # Liu and Lapata 2019, Table 2, BERT base
            "test": {
                "BertSumExt": {
                    **{"rouge1": 43.25, "rouge2": 20.24, "rougeLsum": 39.63},
                    **{"lead_rouge1": 40.42, "lead_rouge2": 17.62, "lead_rougeLsum": 36.67},
                    **{"oracle_rouge1": 52.59, "oracle_rouge2": 31.24, "oracle_rougeLsum": 48.87},
                }
            }
        },
    ),
}
