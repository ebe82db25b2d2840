"""Rows of GLUE -> a prepared folder (`finetuning/prepared.py`), one split per file.

Columns by the kind of the task (`tasks.Kind`), in splits whose labels are known unless said otherwise:

    classification     label: id of the right label
    regression         label: the number
    pair_ranking       answer: which of the example's sentences is right, or their number if none is;
                       question: pairs of the same question have the same number (also without labels)
    phrase_ranking     label: 1 if the first sequence has the right phrase, else 0;
                       before, after: tokens in front of the phrase and behind it, in all sequences of the example
                       (also without labels)

An example has one sequence, with two exceptions: in the training split of pair_ranking it is a question with several
sentences, and in phrase_ranking the row's phrase comes first and its rivals follow. Each row of the file is one
example, in order, with a record of its id, except in the training splits of these two kinds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.glue.ranking import question_numbers, training_groups
from roberta_plugin.finetuning.glue.reader import GlueRow, read_rows
from roberta_plugin.finetuning.glue.tasks import TASKS, GlueTask, SplitSource
from roberta_plugin.finetuning.glue.wnli import find_schema, training_schemas
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.options import GlueOptions
from roberta_plugin.finetuning.prepared_writer import PreparedWriter, SplitWriter
from roberta_plugin.finetuning.raw_files import describe
from roberta_plugin.kinds.phrases import Schema, schema_inputs
from roberta_plugin.kinds.texts import sentence_inputs
from roberta_plugin.progress import terminal_bar

logger = logging.getLogger(__name__)

_SEED = 1  # for drawing rival sentences, so that the folder is reproducible


def prepare(
    task: str,
    raw: Path,
    output: Path,
    *,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    max_length: int,
    options: GlueOptions,
) -> None:
    """See `benchmarks.Benchmark.prepare`; `raw` is the folder of the task's files, or the one that holds it."""
    glue_task = TASKS[task]
    remembered = settings(task, max_length=max_length, options=options)
    found = _found(glue_task, raw)
    encoder = Encoder(tokenizer, vocabulary)
    rows = {split: read_rows(glue_task, source, path) for split, (source, path) in found.items()}
    with PreparedWriter(
        output,
        task=task,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        settings=remembered,
        source=describe([path for _, path in found.values()]),
    ) as writer:
        for split in rows:
            with writer.split(split) as writing:
                _Splits(glue_task, encoder, max_length).write(writing, rows[split], is_training=split == "train")
            logger.info(f"{task}, {split}: {len(rows[split]):,} rows of {found[split][1]}")


def settings(task: str, *, max_length: int, options: GlueOptions) -> dict[str, Any]:
    """See `benchmarks.Benchmark.settings`."""
    glue_task = TASKS[task]
    return {"kind": glue_task.kind, "labels": list(glue_task.labels), "max_length": max_length}


def raw_files(task: str, raw: Path, options: GlueOptions) -> list[Path]:
    """See `benchmarks.Benchmark.raw_files`."""
    return [path for _, path in _found(TASKS[task], raw).values()]


def _found(glue_task: GlueTask, raw: Path) -> dict[str, tuple[SplitSource, Path]]:
    return glue_task.found(raw / glue_task.folder if (raw / glue_task.folder).is_dir() else raw)


class _Splits:
    """Writes the splits of one task."""

    def __init__(self, glue_task: GlueTask, encoder: Encoder, max_length: int) -> None:
        self.glue_task, self.encoder, self.max_length = glue_task, encoder, max_length

    def write(self, split: SplitWriter, rows: Sequence[GlueRow], *, is_training: bool) -> None:
        """Write a split of any kind."""
        if is_training and self.glue_task.kind == "pair_ranking":
            self._write_groups(split, rows)
            return
        if is_training and self.glue_task.kind == "phrase_ranking":
            for schema in training_schemas(rows):
                self._write_schema(split, schema, label=1)
            return
        if self.glue_task.kind == "phrase_ranking":
            self._write_schemas(split, rows)
        else:
            self._write_rows(split, rows)
        for row in rows:
            split.record({"id": row.id})

    def _write_rows(self, split: SplitWriter, rows: Sequence[GlueRow]) -> None:
        """One sequence per row."""
        questions = question_numbers(rows) if self.glue_task.kind == "pair_ranking" else None
        sequences = sentence_inputs([row.sentences for row in rows], self.encoder, split, max_length=self.max_length)
        for index, (row, sequence) in enumerate(zip(rows, sequences, strict=True)):
            columns: dict[str, float] = {}
            if questions is not None:
                columns["question"] = int(questions[index])
                if row.label is not None:
                    columns["answer"] = 1 - int(row.label)
            elif row.label is not None:
                columns["label"] = row.label
            split.add([sequence], **columns)

    def _write_groups(self, split: SplitWriter, rows: Sequence[GlueRow]) -> None:
        """One example per question, one sequence per sentence."""
        groups = training_groups(rows, seed=_SEED)
        pairs = [(group.question, sentence) for group in groups for sentence in group.sentences]
        sequences = sentence_inputs(pairs, self.encoder, split, max_length=self.max_length)
        for number, group in enumerate(groups):
            split.add([next(sequences) for _ in group.sentences], answer=group.answer, question=number)

    def _write_schemas(self, split: SplitWriter, rows: Sequence[GlueRow]) -> None:
        """One sequence per phrase; a row whose pronoun is not found has one sequence with an empty phrase."""
        num_unaligned = 0
        for row in terminal_bar(rows, "noun phrases", unit="row"):
            schema = find_schema(row)
            label = {} if row.label is None else {"label": row.label}
            if schema is not None:
                self._write_schema(split, schema, **label)
            else:
                num_unaligned += 1
                (ids,) = sentence_inputs([row.sentences[:1]], self.encoder, split, max_length=self.max_length)
                split.add([ids], before=len(ids), after=0, **label)
        if num_unaligned:
            logger.warning(f"WNLI: in {num_unaligned} of {len(rows)} rows no pronoun was found; their answer will be 0")

    def _write_schema(self, split: SplitWriter, schema: Schema, **columns: float) -> None:
        """One sequence for each phrase."""
        inputs = schema_inputs(schema, self.encoder, max_length=self.max_length)
        split.measure("texts", inputs.num_tokens, limit=self.max_length)
        split.add(inputs.sequences, before=inputs.before, after=inputs.after, **columns)
