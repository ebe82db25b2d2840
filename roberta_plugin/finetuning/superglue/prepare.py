"""Rows of SuperGLUE -> a prepared folder (`finetuning/prepared.py`), one split per file.

Columns as `glue/prepare.py` has them for the same kind: `label` where labels are known; of phrase_ranking also `before`
and `after`. MultiRC has `question`, too: the answers of a question have the same number.

Each row is one example, in order, with a record of its id; but the training split of phrase_ranking has only the rows
to learn from (`winograd.training_rows`), without records.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.options import SuperGlueOptions
from roberta_plugin.finetuning.prepared_writer import PreparedWriter, SplitWriter
from roberta_plugin.finetuning.raw_files import describe
from roberta_plugin.finetuning.superglue.tasks import SIZES, TASKS, Example
from roberta_plugin.finetuning.superglue.texts import TextExample
from roberta_plugin.finetuning.superglue.winograd import SchemaExample, answer_list, training_rows
from roberta_plugin.kinds.phrases import Schema, schema_inputs
from roberta_plugin.kinds.texts import sentence_inputs

logger = logging.getLogger(__name__)


def prepare(
    task: str,
    raw: Path,
    output: Path,
    *,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    max_length: int,
    options: SuperGlueOptions,
) -> None:
    """See `benchmarks.Benchmark.prepare`; `raw` is the folder of the task's files, or the one that holds it."""
    remembered = settings(task, max_length=max_length, options=options)
    files = TASKS[task].found(raw, size=options.size)
    rows = {split: TASKS[task].rows(split, path) for split, path in files.items()}
    writing = _Splits(task, Encoder(tokenizer, vocabulary), max_length)
    with PreparedWriter(
        output,
        task=task,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        settings=remembered,
        source=describe(raw_files(task, raw, options)),
    ) as writer:
        for name, path in files.items():
            with writer.split(name) as split:
                writing.write(split, rows[name], name=name)
            logger.info(f"{task}, {name}: {len(rows[name]):,} rows of {path}")


def settings(task: str, *, max_length: int, options: SuperGlueOptions) -> dict[str, Any]:
    """See `benchmarks.Benchmark.settings`."""
    size = {"size": options.size or SIZES[-1]} if task == "WinoGrande" else {}
    return {"kind": TASKS[task].kind, "labels": list(TASKS[task].labels), "max_length": max_length, **size}


def raw_files(task: str, raw: Path, options: SuperGlueOptions) -> list[Path]:
    """See `benchmarks.Benchmark.raw_files`."""
    files = list(TASKS[task].found(raw, size=options.size).values())
    lists = [listed for path in files if task == "WinoGrande" and (listed := answer_list(path)) is not None]
    return files + lists


class _Splits:
    """Writes the splits of one task."""

    def __init__(self, task: str, encoder: Encoder, max_length: int) -> None:
        self.task, self.encoder, self.max_length = task, encoder, max_length

    def write(self, split: SplitWriter, rows: Sequence[Example], *, name: str) -> None:
        """Write a split of either kind.

        Raises:
            ValueError: if it is a training split without anything to learn from.
        """
        schemas = [row for row in rows if isinstance(row, SchemaExample)]
        if schemas and name == "train":
            learned = training_rows(schemas, are_rivals_options=self.task == "WinoGrande")
            if not learned:
                raise ValueError(f"{self.task}: no row of the training file has a right phrase with rivals.")
            for schema in learned:
                self._write_schema(split, schema, label=1)
            logger.info(f"{self.task}, {name}: {len(learned):,} of {len(rows):,} rows are learned from")
            return
        for schema_row in schemas:
            self._write_schema(split, schema_row.schema, **_label(schema_row))
        self._write_texts(split, [row for row in rows if isinstance(row, TextExample)])
        for row in rows:
            split.record({"id": row.id})

    def _write_texts(self, split: SplitWriter, rows: Sequence[TextExample]) -> None:
        numbers: dict[tuple[int, ...], int] = {}
        sequences = sentence_inputs([row.texts for row in rows], self.encoder, split, max_length=self.max_length)
        for row, sequence in zip(rows, sequences, strict=True):
            columns = _label(row)
            if self.task == "MultiRC":
                columns["question"] = numbers.setdefault(tuple(row.id[:2]), len(numbers))
            split.add([sequence], **columns)

    def _write_schema(self, split: SplitWriter, schema: Schema, **columns: int) -> None:
        inputs = schema_inputs(schema, self.encoder, max_length=self.max_length)
        split.measure("texts", inputs.num_tokens, limit=self.max_length)
        split.add(inputs.sequences, before=inputs.before, after=inputs.after, **columns)


def _label(row: Example) -> dict[str, int]:
    return {} if row.label is None else {"label": row.label}
