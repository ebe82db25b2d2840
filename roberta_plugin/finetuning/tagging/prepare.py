"""Files of tagged words -> a prepared folder, whose columns, records and arrays `kinds/words.py` describes.

The settings have `labels`, in IOB2 (see `kinds/entities.py`), whichever scheme the files are in.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.options import TaggingOptions
from roberta_plugin.finetuning.prepared_writer import PreparedWriter
from roberta_plugin.finetuning.raw_files import describe
from roberta_plugin.finetuning.tagging.labels import convert
from roberta_plugin.finetuning.tagging.reader import find_files, read_file
from roberta_plugin.kinds.words import (
    SplitOfWindows,
    TaggingLayout,
)

KIND = "tagging"


def prepare(
    task: str,
    raw: Path,
    output: Path,
    *,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    max_length: int,
    options: TaggingOptions,
) -> None:
    """See `benchmarks.Benchmark.prepare`."""
    layout = TaggingLayout.of(
        max_length, doc_stride=options.doc_stride, label_pieces=options.label_pieces, context=options.context
    )
    files = find_files(task, raw, options.files)
    columns = (options.tokens_column, options.tags_column)
    splits = {name: read_file(path, columns=columns, needs_tags=name != "test") for name, path in files.items()}
    labels, numbers = convert(task, splits, options)
    encoder = Encoder(tokenizer, vocabulary)
    with PreparedWriter(
        output,
        task=task,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        settings={**settings(task, max_length=max_length, options=options), "labels": labels},
        source=describe(list(files.values())),
    ) as writer:
        for name, sentences in splits.items():
            with writer.split(name) as split:
                SplitOfWindows(split, layout, encoder, labels).write(sentences, numbers[name], name)


def settings(task: str, *, max_length: int, options: TaggingOptions) -> dict[str, Any]:
    """See `benchmarks.Benchmark.settings`; the labels depend on the files."""
    read = {name: getattr(options, name) for name in ("tokens_column", "tags_column", "scheme", "types")}
    return {
        **asdict(
            TaggingLayout.of(
                max_length, doc_stride=options.doc_stride, label_pieces=options.label_pieces, context=options.context
            )
        ),
        **read,
        "kind": KIND,
    }


def raw_files(task: str, raw: Path, options: TaggingOptions) -> list[Path]:
    """See `benchmarks.Benchmark.raw_files`."""
    return list(find_files(task, raw, options.files).values())
