"""Raw multiple-choice files -> a prepared folder: one example per question, one sequence per option.

Columns: `label`, the index of the right option (-1 if it is not known), and `level`, 0 = middle and 1 = high (-1 for
sets other than RACE). Each example has a record: `id` of the passage, `question`, its index among the passage's
questions, and the texts of its `options`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.options import RaceOptions
from roberta_plugin.finetuning.prepared_writer import PreparedWriter, SplitWriter
from roberta_plugin.finetuning.race.reader import Passage, find_splits, read_split
from roberta_plugin.finetuning.raw_files import describe
from roberta_plugin.kinds.choices import ChoiceLayout, one_line, question_with_option
from roberta_plugin.progress import terminal_bar

logger = logging.getLogger(__name__)

_PASSAGES_PER_CHUNK = 256


def prepare(
    task: str,
    raw: Path,
    output: Path,
    *,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    max_length: int,
    options: RaceOptions,
) -> None:
    """See `benchmarks.Benchmark.prepare`."""
    layout = ChoiceLayout.of(max_length, question_length=options.question_length, order=options.order)
    splits = find_splits(task, raw)
    encoder = Encoder(tokenizer, vocabulary)
    with PreparedWriter(
        output,
        task=task,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        settings=asdict(layout),
        source=describe([path for files in splits.values() for path in files]),
    ) as writer:
        for name, files in splits.items():
            passages = terminal_bar(read_split(task, name, files), f"{task} {name}", unit=" passages")
            with writer.split(name) as split:
                _write_split(split, passages, encoder, layout, name)


def settings(task: str, *, max_length: int, options: RaceOptions) -> dict[str, Any]:
    """See `benchmarks.Benchmark.settings`."""
    return asdict(ChoiceLayout.of(max_length, question_length=options.question_length, order=options.order))


def raw_files(task: str, raw: Path, options: RaceOptions) -> list[Path]:
    """See `benchmarks.Benchmark.raw_files`."""
    return [path for files in find_splits(task, raw).values() for path in files]


def _write_split(
    split: SplitWriter, passages: Iterable[Passage], encoder: Encoder, layout: ChoiceLayout, name: str
) -> None:
    """Write all questions of a split, and count what is cut."""
    remaining = iter(passages)
    num_bare = 0
    while chunk := list(islice(remaining, _PASSAGES_PER_CHUNK)):
        for passage, ids, questions in _encoded(chunk, encoder):
            num_bare += not questions
            for number, (question, choices) in enumerate(zip(passage.questions, questions, strict=True)):
                sequences = [layout.join(encoder.vocabulary, ids, choice) for choice in choices]
                split.add(sequences, label=question.answer, level=passage.level)
                split.record({"id": passage.id, "question": number, "options": question.options})
                for choice in choices:
                    layout.measure(split, len(ids), len(choice))
    if not split.num_records:
        raise ValueError(f"The split {name} holds no question: check its files, or leave the split out.")
    if num_bare:
        logger.warning(f"{name}: {num_bare:,} passages have no question and were left out")


def _encoded(
    passages: list[Passage], encoder: Encoder
) -> Iterator[tuple[Passage, NDArray[np.int32], list[list[NDArray[np.int32]]]]]:
    """Each passage, its ids, and for each of its questions the ids of question+option, one array per option."""
    texts = [one_line(passage.text) for passage in passages]
    texts += [
        question_with_option(question.text, option)
        for passage in passages
        for question in passage.questions
        for option in question.options
    ]
    ids = encoder.ids_of_all(texts)
    choices = iter(ids[len(passages) :])
    for passage, of_passage in zip(passages, ids, strict=False):
        yield passage, of_passage, [[next(choices) for _ in question.options] for question in passage.questions]
