"""Rows of GLUE -> a prepared folder (`finetuning/prepared.py`), one split a file.

Columns by the kind of the task (`tables.Kind`), in splits whose labels are known unless said otherwise:

    classification     label: id of the right label
    regression         label: the number
    pair_ranking       answer: which of the example's sentences is right, their number where none is;
                       question: the same number for the same question (also without labels)
    phrase_ranking     label: 1 if the first sequence has the right phrase, else 0;
                       before, after: tokens in front of the phrase and behind it, in all sequences of the example
                       (also without labels)

An example has one sequence, but for pair_ranking in training, where it is a question with several sentences, and for
phrase_ranking, where the row's phrase comes first and its rivals follow. Except in training for these two, there is
one example for each row, in the order of the file, and a record with its id.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.glue.ranking import question_numbers, training_groups
from roberta_plugin.finetuning.glue.reader import Row, read_rows
from roberta_plugin.finetuning.glue.tables import TABLES, Source, Table
from roberta_plugin.finetuning.glue.wnli import Schema, find_schema, training_schemas
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.prepared import PreparedWriter, SplitWriter
from roberta_plugin.finetuning.raw_files import describe

logger = logging.getLogger(__name__)

_AT_ONCE = 10_000  # texts that are encoded together
_SEED = 1  # of the sentences that are drawn as rivals: the folder is the same whenever it is made


def prepare(
    task: str,
    raw: Path,
    output: Path,
    *,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    max_length: int,
    options: Mapping[str, str],
) -> None:
    """Official files -> prepared folder.

    Args:
        task: name in `tables.TABLES`.
        raw: the folder of the task's files, or the one that holds it under its official name.
        output: the folder to write.
        tokenizer: of the pretrained model.
        vocabulary: the same.
        max_length: tokens of a sequence at most.
        options: none.

    Raises:
        FileNotFoundError: if train or dev is missing.
        ValueError: naming file, line and remedy, if a file is not as it should be; or if an option is given.
    """
    table = TABLES[task]
    remembered = settings(task, max_length=max_length, options=options)
    found = _found(table, raw)
    encoder = Encoder(tokenizer, vocabulary)
    rows = {split: read_rows(table, source, path) for split, (source, path) in found.items()}
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
                _Splits(table, encoder, max_length).write(writing, rows[split], is_training=split == "train")
            logger.info(f"{task}, {split}: {len(rows[split]):,} rows of {found[split][1]}")


def settings(task: str, *, max_length: int, options: Mapping[str, str]) -> dict[str, Any]:
    """See `suites.Suite.settings`; GLUE's tasks have no options."""
    if options:
        raise ValueError(f"Preparing {task} takes no options, got {', '.join(sorted(options))}.")
    table = TABLES[task]
    return {"kind": table.kind, "labels": list(table.labels), "max_length": max_length}


def raw_files(task: str, raw: Path, options: Mapping[str, str]) -> list[Path]:
    """See `suites.Suite.raw_files`."""
    return [path for _, path in _found(TABLES[task], raw).values()]


def _found(table: Table, raw: Path) -> dict[str, tuple[Source, Path]]:
    return table.found(raw / table.folder if (raw / table.folder).is_dir() else raw)


class _Splits:
    """Writes the splits of one task."""

    def __init__(self, table: Table, encoder: Encoder, max_length: int) -> None:
        self.table, self.encoder, self.max_length = table, encoder, max_length

    def write(self, split: SplitWriter, rows: Sequence[Row], *, is_training: bool) -> None:
        """Write a split of any kind."""
        if is_training and self.table.kind == "pair_ranking":
            self._write_groups(split, rows)
            return
        if is_training and self.table.kind == "phrase_ranking":
            for schema in training_schemas(rows):
                self._write_schema(split, schema, label=1)
            return
        if self.table.kind == "phrase_ranking":
            self._write_schemas(split, rows)
        else:
            self._write_rows(split, rows)
        for row in rows:
            split.record({"id": row.id})

    def _write_rows(self, split: SplitWriter, rows: Sequence[Row]) -> None:
        """One sequence a row."""
        questions = question_numbers(rows) if self.table.kind == "pair_ranking" else None
        sequences = self._sequences([row.sentences for row in rows])
        for index, (row, sequence) in enumerate(zip(rows, sequences, strict=True)):
            columns: dict[str, float] = {}
            if questions is not None:
                columns["question"] = int(questions[index])
                if row.label is not None:
                    columns["answer"] = 1 - int(row.label)
            elif row.label is not None:
                columns["label"] = row.label
            split.add([sequence], **columns)

    def _write_groups(self, split: SplitWriter, rows: Sequence[Row]) -> None:
        """One question an example, its sentences the sequences."""
        groups = training_groups(rows, seed=_SEED)
        pairs = [(group.question, sentence) for group in groups for sentence in group.sentences]
        sequences = self._sequences(pairs)
        for number, group in enumerate(groups):
            split.add([next(sequences) for _ in group.sentences], answer=group.answer, question=number)

    def _write_schemas(self, split: SplitWriter, rows: Sequence[Row]) -> None:
        """One sequence a phrase; a row without a pronoun has one sequence and no place, and loses without rivals."""
        num_unaligned = 0
        for row in tqdm(rows, desc="noun phrases", unit="row", leave=False):
            schema = find_schema(row)
            label = {} if row.label is None else {"label": row.label}
            if schema is not None:
                self._write_schema(split, schema, **label)
            else:
                num_unaligned += 1
                ids = self.encoder.join(self.encoder.ids(row.sentences[0]), max_length=self.max_length)
                split.add([ids], before=len(ids), after=0, **label)
        if num_unaligned:
            logger.warning(f"WNLI: in {num_unaligned} of {len(rows)} rows no pronoun was found; their answer will be 0")

    def _write_schema(self, split: SplitWriter, schema: Schema, **columns: float) -> None:
        """The text with each phrase in the place of the pronoun; in a text that is too long, both ends are cut."""
        text = schema.before.rstrip()
        space = schema.before[len(text) :]  # byte-level BPE: it belongs to the word that follows
        before, after = self.encoder.ids(text), self.encoder.ids(schema.after)
        phrases = [self.encoder.ids(space + phrase) for phrase in (schema.phrase, *schema.rivals)]
        room = self.max_length - 2 - max(map(len, phrases))
        after = after[: max(room - len(before), room // 2)]
        before = before[max(0, len(before) + len(after) - room) :]
        split.add(
            [self.encoder.join(np.concatenate([before, ids, after]), max_length=self.max_length) for ids in phrases],
            before=len(before) + 1,
            after=len(after) + 1,
            **columns,
        )

    def _sequences(self, texts: Sequence[tuple[str, ...]]) -> Iterator[NDArray[np.int32]]:
        """The model's input of each text or pair, in order."""
        for start in tqdm(range(0, len(texts), _AT_ONCE), desc="encoding", unit="10k", leave=False):
            part = texts[start : start + _AT_ONCE]
            sides = [self.encoder.ids_of_all(side) for side in zip(*part, strict=True)]
            for ids in zip(*sides, strict=True):
                yield self.encoder.join(*ids, max_length=self.max_length)
