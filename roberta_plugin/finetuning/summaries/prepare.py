"""Raw files -> a prepared folder: one example per document, a sequence `<s> one </s> <s> two </s> ...` per window.

Columns: `sentences`, their number, and `is_labelled`, whether the summary is known. Each document has a record: `id`,
its `sentences`, and the sentences of its `summary`, or null.

Arrays, for all sentences of all documents one after the other: `label`, 1 for those to choose (`oracle`); `window`,
which sequence of the document scores it, and `position`, where its <s> is there. Document i has those from
`first_sentence[i]` to `first_sentence[i + 1]`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.prepared_writer import DIVIDED, PreparedWriter, SplitWriter
from roberta_plugin.finetuning.raw_files import describe
from roberta_plugin.finetuning.summaries.options import SummariesOptions
from roberta_plugin.finetuning.summaries.oracle import ORACLE_SENTENCES, oracle
from roberta_plugin.finetuning.summaries.reader import Document, field_names, find_files, read_split
from roberta_plugin.kinds.sentences import NUM_SPECIALS, SummaryLayout, windows_of
from roberta_plugin.progress import terminal_bar

logger = logging.getLogger(__name__)

_DOCUMENTS_PER_CHUNK = 64
_MANY_WINDOWS = 128  # of 512 tokens: 65,536 positions in one batch


def prepare(
    task: str,
    raw: Path,
    output: Path,
    *,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    max_length: int,
    options: SummariesOptions,
) -> None:
    """See `benchmarks.Benchmark.prepare`; documents without a sentence or with an empty summary are left out."""
    files = find_files(task, raw, options)
    recorded = settings(task, max_length=max_length, options=options)
    layout = SummaryLayout.of(max_length, **{name: recorded[name] for name in ("sentence_length", "doc_stride")})
    encoder = Encoder(tokenizer, vocabulary)
    with PreparedWriter(
        output,
        task=task,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        settings=recorded,
        source=describe([path for paths in files.values() for path in paths]),
    ) as writer:
        for name, paths in files.items():
            documents = terminal_bar(read_split(task, name, paths, options), f"{task} {name}", unit=" documents")
            with writer.split(name) as split:
                _write_split(split, documents, encoder, name, layout, recorded)


def settings(task: str, *, max_length: int, options: SummariesOptions) -> dict[str, Any]:
    """See `benchmarks.Benchmark.settings`."""
    found: dict[str, Any] = asdict(
        SummaryLayout.of(max_length, sentence_length=options.sentence_length, doc_stride=options.doc_stride)
    )
    found["oracle_sentences"] = options.oracle_sentences or ORACLE_SENTENCES
    return {**found, **(field_names(options) if task == "summaries" else {})}


def raw_files(task: str, raw: Path, options: SummariesOptions) -> list[Path]:
    """See `benchmarks.Benchmark.raw_files`."""
    return [path for paths in find_files(task, raw, options).values() for path in paths]


def _write_split(
    split: SplitWriter,
    documents: Iterable[Document],
    encoder: Encoder,
    name: str,
    layout: SummaryLayout,
    recorded: dict[str, Any],
) -> None:
    """Write all documents of a split, and count what is cut."""
    arrays: dict[str, list[np.ndarray[Any, Any]]] = {"label": [], "window": [], "position": []}
    counts: Counter[str] = Counter()
    remaining = iter(documents)
    while chunk := list(islice(remaining, _DOCUMENTS_PER_CHUNK)):
        whole = [document for document in chunk if document.sentences and document.summary != ()]
        counts["left out"] += len(chunk) - len(whole)
        ids = iter(encoder.ids_of_all([sentence for document in whole for sentence in document.sentences]))
        for document in whole:
            sentences = [next(ids) for _ in document.sentences]
            found, _ = windows_of(
                sentences, layout=layout, bos_id=encoder.vocabulary.bos_id, eos_id=encoder.vocabulary.eos_id
            )
            for ids_of_sentence in sentences:
                split.measure("sentences", len(ids_of_sentence), limit=layout.sentence_length)
            num_tokens = sum(min(len(each), layout.sentence_length) + NUM_SPECIALS for each in sentences)
            split.measure("documents", num_tokens, limit=layout.max_length, fate=DIVIDED)
            labels = np.zeros(len(sentences), dtype=np.int8)
            labels[oracle(document.sentences, document.summary or (), most=recorded["oracle_sentences"])] = 1
            for key, values in (("label", labels), ("window", found.window), ("position", found.position)):
                arrays[key].append(values)
            split.add(found.sequences, sentences=len(sentences), is_labelled=int(document.summary is not None))
            split.record({"id": document.id, "sentences": document.sentences, "summary": document.summary})
            counts["nothing to learn"] += document.summary is not None and not labels.any()
            counts["without a summary"] += document.summary is None
            if len(found.sequences) > _MANY_WINDOWS and name == "train":
                logger.warning(
                    f"{name}: the document {document.id!r} has {len(found.sequences):,} windows, which are trained at "
                    "once and may not fit into the memory: divide it, or leave it out"
                )
    if not split.num_records:
        raise ValueError(f"The split {name} holds no document: check its files, or leave the split out.")
    if name == "train" and counts["nothing to learn"] == split.num_records:
        raise ValueError(
            f"The split {name}: none of its {split.num_records:,} documents shares a word with its summary, so there "
            "is nothing to learn. Check which columns hold the text and the summary."
        )
    if 0 < counts["without a summary"] < split.num_records:
        logger.warning(
            f"{name}: {counts['without a summary']:,} of {split.num_records:,} documents have no summary, so the split "
            "is predicted and not evaluated: leave these out for metrics"
        )
    for key, parts in arrays.items():
        split.array(key, np.concatenate(parts))
    split.array("first_sentence", np.cumsum([0, *map(len, arrays["label"])]))
    if counts["left out"]:
        logger.warning(f"{name}: {counts['left out']:,} documents without text or with an empty summary are left out")
    if counts["nothing to learn"]:
        logger.warning(f"{name}: {counts['nothing to learn']:,} documents share no word with their summary")
