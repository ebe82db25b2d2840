"""Files of tagged words -> a prepared folder: one example per window, with one sequence `<s> part </s>`.

Column `first_word`: the number of the first word that belongs to the window, counted over the split; the words up to
the next window's belong to it too.

Arrays, W words and S sentences of the split: `positions` (W,), where in its window the first token of each word is, 0
for a word without tokens; `tags` (W,), the labels of the words, where they are known; `sentences` (S + 1,), sentence i
has the words sentences[i] to sentences[i + 1]; `token_labels`, one for each token of the .bin file, -100 where nothing
is learned. Records: {"words"} of each sentence.

The settings have `labels`, in IOB2 (see `labels`), whichever scheme the files are in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.options import TaggingOptions
from roberta_plugin.finetuning.prepared_writer import DIVIDED, PreparedWriter, SplitWriter
from roberta_plugin.finetuning.raw_files import describe
from roberta_plugin.finetuning.tagging.inputs import (
    IGNORED,
    NUM_SPECIALS,
    TaggingLayout,
    WordEncoder,
    token_labels,
    windows_of,
)
from roberta_plugin.finetuning.tagging.labels import convert, types_of
from roberta_plugin.finetuning.tagging.reader import Sentence, find_files, read_file
from roberta_plugin.progress import terminal_bar

KIND = "tagging"
_TEXTS_PER_CHUNK = 1024


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
    layout = TaggingLayout.of(max_length, options)
    files = find_files(task, raw, options.files)
    splits = {name: read_file(path, options=options, needs_tags=name != "test") for name, path in files.items()}
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
    return {**asdict(TaggingLayout.of(max_length, options)), **read, "kind": KIND}


def raw_files(task: str, raw: Path, options: TaggingOptions) -> list[Path]:
    """See `benchmarks.Benchmark.raw_files`."""
    return list(find_files(task, raw, options.files).values())


class SplitOfWindows:
    """Writes the windows of the texts of a split."""

    def __init__(self, split: SplitWriter, layout: TaggingLayout, encoder: Encoder, labels: Sequence[str]) -> None:
        self._split, self._layout, self._labels = split, layout, labels
        self._words, self._vocabulary = WordEncoder(encoder), encoder.vocabulary
        self._continuing = None
        if layout.label_pieces == "all":
            is_entities = types_of(labels) is not None
            numbers = np.arange(len(labels))
            self._continuing = numbers + (is_entities & (numbers % 2 == 1))  # B-TYPE -> I-TYPE

    def write(
        self,
        sentences: Sequence[Sentence],
        labels: Sequence[Sequence[int]] | None,
        name: str,
        *,
        records: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Write a split.

        Args:
            sentences: of the split.
            labels: of the words of each sentence; None: they are not known.
            name: of the split.
            records: what the record of each sentence has besides its words.
        """
        positions, learned = [np.empty(0, np.int32)], [np.empty(0, np.int16)]
        texts = list(_texts(sentences, labels, self._layout.context))
        num_words = 0
        for start in terminal_bar(range(0, len(texts), _TEXTS_PER_CHUNK), name, unit=" chunks"):
            chunk = texts[start : start + _TEXTS_PER_CHUNK]
            for (words, tags), tokens in zip(
                chunk, self._words.tokens_of_all([words for words, _ in chunk]), strict=True
            ):
                num_tokens = sum(map(len, tokens)) + NUM_SPECIALS
                self._split.measure("texts", num_tokens, limit=self._layout.max_length, fate=DIVIDED)
                ids = {"bos_id": self._vocabulary.bos_id, "eos_id": self._vocabulary.eos_id}
                for window in windows_of(tokens, self._layout, **ids):
                    self._split.add([window.tokens], first_word=num_words + window.words.start)
                    positions.append(window.positions)
                    if tags is None:
                        learned.append(np.full(len(window.tokens), IGNORED, dtype=np.int16))
                    else:
                        learned.append(token_labels(window, tags, continuing=self._continuing))
                num_words += len(words)
        self._split.array("positions", np.concatenate(positions))
        self._split.array("token_labels", np.concatenate(learned))
        self._split.array("sentences", np.cumsum([0, *(len(each.words) for each in sentences)]))
        if labels is not None:
            self._split.array("tags", np.array([tag for tags in labels for tag in tags], dtype=np.int16))
        for each, more in zip(sentences, records or [{}] * len(sentences), strict=True):
            self._split.record({"words": each.words, **more})


def _texts(
    sentences: Sequence[Sentence], labels: Sequence[Sequence[int]] | None, context: str
) -> Iterator[tuple[list[str], list[int] | None]]:
    """Words and labels of what the model reads at once: a sentence, or all sentences of a document.

    Raises:
        ValueError: if documents are wanted and the file names none.
    """
    numbers = range(len(sentences))
    groups = [[number] for number in numbers]
    if context == "document":
        if (lost := next((each for each in sentences if each.document is None), None)) is not None:
            raise ValueError(
                f"{lost.where(0)}: --context document needs -DOCSTART- lines, or the field document in JSON Lines. "
                "Add them, or leave the option out."
            )
        groups = [list(group) for _, group in groupby(numbers, key=lambda number: sentences[number].document)]
    for group in groups:
        words = [word for number in group for word in sentences[number].words]
        yield words, None if labels is None else [label for number in group for label in labels[number]]
