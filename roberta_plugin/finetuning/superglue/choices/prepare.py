"""Rows of COPA, ReCoRD and CommonsenseQA -> a prepared folder: one example per row, one sequence per option.

Columns as `race/prepare.py` has them: `label`, -1 if it is not known, and `level`, always -1. Each example has a record
of its `id`, `options`, and all `right` answers of ReCoRD.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.options import ChoicesOptions
from roberta_plugin.finetuning.prepared_writer import PreparedWriter, SplitWriter
from roberta_plugin.finetuning.raw_files import describe, find_files
from roberta_plugin.finetuning.superglue.choices.rows import ChoiceExample
from roberta_plugin.finetuning.superglue.choices.tasks import TASKS
from roberta_plugin.kinds.choices import NO_LEVEL
from roberta_plugin.progress import terminal_bar

_AT_ONCE = 500  # rows in one call of the tokenizer


def prepare(
    task: str,
    raw: Path,
    output: Path,
    *,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    max_length: int,
    options: ChoicesOptions,
) -> None:
    """See `benchmarks.Benchmark.prepare`; `raw` is the folder of the task's files, or the one that holds it."""
    remembered = settings(task, max_length=max_length, options=options)
    files = find_files(task, raw, TASKS[task].files)
    encoder = Encoder(tokenizer, vocabulary)
    with PreparedWriter(
        output,
        task=task,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        settings=remembered,
        source=describe(list(files.values())),
    ) as writer:
        for name, path in files.items():
            rows = terminal_bar(TASKS[task].rows(name, path), f"{task} {name}", unit=" rows")
            with writer.split(name) as split:
                for row, inputs in inputs_of(iter(rows), encoder, split, task=task, max_length=max_length):
                    split.add(inputs, label=row.label, level=NO_LEVEL)
                    split.record({"id": row.id, "options": row.options, "right": row.right})
            if not split.num_records:
                raise ValueError(f"{path}: no row has wrong options beside a right one, so there is nothing to learn.")


def settings(task: str, *, max_length: int, options: ChoicesOptions) -> dict[str, Any]:
    """See `benchmarks.Benchmark.settings`."""
    return {"max_length": max_length}


def raw_files(task: str, raw: Path, options: ChoicesOptions) -> list[Path]:
    """See `benchmarks.Benchmark.raw_files`."""
    return list(find_files(task, raw, TASKS[task].files).values())


def inputs_of(
    rows: Iterator[ChoiceExample], encoder: Encoder, split: SplitWriter, *, task: str, max_length: int
) -> Iterator[tuple[ChoiceExample, list[NDArray[np.int32]]]]:
    """Each row with the model's input (T,) of each option; the split counts which are cut to `max_length`."""
    separators = TASKS[task].separators
    while part := list(islice(rows, _AT_ONCE)):
        texts = encoder.ids_of_all([row.text for row in part])
        seconds = iter(encoder.ids_of_all([second for row in part for second in row.seconds]))
        for row, text in zip(part, texts, strict=True):
            inputs = []
            for _ in row.seconds:
                second = next(seconds)
                split.measure("texts with an option", len(text) + len(second) + 2 + separators, limit=max_length)
                inputs.append(encoder.join(text, second, max_length=max_length, separators=separators))
            yield row, inputs
