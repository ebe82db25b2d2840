"""SQuAD files -> a prepared folder, whose columns, records and arrays `kinds/passages.py` describes."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.options import SquadOptions
from roberta_plugin.finetuning.prepared_writer import PreparedWriter
from roberta_plugin.finetuning.raw_files import describe
from roberta_plugin.finetuning.squad.reader import find_files, read_file
from roberta_plugin.kinds.passages import NO_PLACE, SplitMaker
from roberta_plugin.kinds.windows import WindowLayout

logger = logging.getLogger(__name__)


def prepare(
    task: str,
    raw: Path,
    output: Path,
    *,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    max_length: int,
    options: SquadOptions,
) -> None:
    """See `benchmarks.Benchmark.prepare`.

    An answer that is not at its `answer_start` is searched for; an answer that the passage does not contain is left out
    of training. SPLIT.doubtful.jsonl in the folder lists these answers, and those that start or end within a
    token, whose tokens hold more than the answer.
    """
    layout = WindowLayout.of(max_length, question_length=options.question_length, doc_stride=options.doc_stride)
    files = find_files(task, raw, options.files)
    encoder = Encoder(tokenizer, vocabulary)
    doubtful = {}
    with PreparedWriter(
        output,
        task=task,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        settings=asdict(layout),
        source=describe(list(files.values())),
    ) as writer:
        for name, path in files.items():
            content = read_file(task, path, needs_answers=name != "test", strict=options.strict)
            with writer.split(name) as split:
                maker = SplitMaker(split, content, encoder, layout, is_train=name == "train")
                maker.run(f"{task} {name}")
            doubtful[name] = maker.doubtful
    for name, answers in doubtful.items():
        _list_doubtful(output / f"{name}.doubtful.jsonl", answers)


def settings(task: str, *, max_length: int, options: SquadOptions) -> dict[str, Any]:
    """See `benchmarks.Benchmark.settings`."""
    return asdict(WindowLayout.of(max_length, question_length=options.question_length, doc_stride=options.doc_stride))


def raw_files(task: str, raw: Path, options: SquadOptions) -> list[Path]:
    """See `benchmarks.Benchmark.raw_files`."""
    return list(find_files(task, raw, options.files).values())


def _list_doubtful(path: Path, answers: list[dict[str, Any]]) -> None:
    if not answers:
        return
    with atomic_write(path, "w") as file:
        for answer in answers:
            file.write(json.dumps(answer, ensure_ascii=False) + "\n")
    nowhere = sum(answer["found_at"] == NO_PLACE for answer in answers)
    inexact = sum("tokens" in answer for answer in answers)
    logger.warning(
        f"{path} lists doubtful answers: {len(answers) - nowhere - inexact:,} that are not at their answer_start but "
        f"elsewhere in the passage, {nowhere:,} that are nowhere in it, {inexact:,} that start or end within a token"
    )
