"""Tagging: `conll2003` and `wnut17` read the official files, `tagging` any CoNLL columns or JSON Lines.

Columns, records and arrays of the prepared folder are described in `kinds/words.py`. The settings have `labels`, in
IOB2 (see `kinds/entities.py`), whichever scheme the files are in.

The grid is BERT's for fine-tuning under RoBERTa's schedule, because RoBERTa's paper has no tagging. Learning rates,
batch sizes, the (greatest) number of epochs and the dropout of 0.1 before the classifier are those of Devlin et al.
2019, appendix A.3; warm-up, decay, weight decay and the median of five seeds those of Liu et al. 2019, Table 10. The
checkpoint is chosen by the F1 of entities, or by accuracy if the tags are plain.

Predictions are in SPLIT.predictions.conll, which conlleval reads; SPLIT.report.txt is what conlleval prints of them.

    EU B-ORG B-ORG
    rejects O O

The columns are the word, the right tag if it is known, and the given tag, in IOB2; a blank line ends a sentence. White
space in a word becomes _, as does an empty word, because conlleval separates columns by spaces.

Shapes: W words of the split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.benchmark import Training
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.old_benchmark import Judged, OldBenchmark
from roberta_plugin.finetuning.options import TaggingOptions
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit
from roberta_plugin.finetuning.prepared_writer import SplitWriter
from roberta_plugin.finetuning.tagging.labels import convert
from roberta_plugin.finetuning.tagging.reader import Sentence, find_files, read_file
from roberta_plugin.kinds.entities import CORRECT, FOUND, GOLD, count_entities, evaluate, scores, types_of
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.tags import Sentences
from roberta_plugin.kinds.words import SplitOfWindows, TaggingLayout

_LAYOUT = ("max_length", "doc_stride", "label_pieces", "context")
_READ = ("tokens_column", "tags_column", "scheme", "types")
_BERT = Training(lrs=("2e-5", "3e-5", "5e-5"), epochs=4, options={"pooler-dropout": "0.1"})


@dataclass(frozen=True, kw_only=True)
class TaggingTask(OldBenchmark):
    """One set of tagged words."""

    training: Training = field(default_factory=lambda: _BERT)

    def files(self, raw: Path, options: TaggingOptions) -> dict[str, list[Path]]:
        """See `OldBenchmark.files`."""
        return {split: [path] for split, path in find_files(self.name, raw, options.files).items()}

    def settings(self, *, max_length: int, options: TaggingOptions) -> dict[str, Any]:
        """See `OldBenchmark.settings`; the labels depend on the files."""
        layout = TaggingLayout.of(
            max_length, doc_stride=options.doc_stride, label_pieces=options.label_pieces, context=options.context
        )
        return {**asdict(layout), **{name: getattr(options, name) for name in _READ}, "kind": "tagging"}

    def read(
        self, files: Mapping[str, list[Path]], options: TaggingOptions, settings: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `OldBenchmark.read`: sentences, and the labels of their words; the labels of the model are found."""
        columns = (options.tokens_column, options.tags_column)
        splits = {name: read_file(path, columns=columns, needs_tags=name != "test") for name, (path,) in files.items()}
        labels, numbers = convert(self.name, splits, options)
        return {name: (sentences, numbers[name]) for name, sentences in splits.items()}, {"labels": labels}

    def write(
        self,
        split: SplitWriter,
        content: tuple[Sequence[Sentence], Sequence[Sequence[int]] | None],
        encoder: Encoder,
        settings: Mapping[str, Any],
    ) -> Sequence[Mapping[str, Any]]:
        """See `OldBenchmark.write`."""
        layout = TaggingLayout(**{name: settings[name] for name in _LAYOUT})
        SplitOfWindows(split, layout, encoder, settings["labels"]).write(*content, split.name)
        return ()

    def selection_of(self, prepared: Prepared) -> str:
        """See `OldBenchmark.selection_of`."""
        return "accuracy" if types_of(prepared.settings["labels"]) is None else "f1"

    def judge(
        self, prepared: Prepared, part: PreparedSplit, members: Sequence[RawOutputs], options: TaggingOptions
    ) -> Judged:
        """See `OldBenchmark.judge`; the report is written for entities whose right tags are known."""
        sentences, labels = Sentences(part), prepared.settings["labels"]
        types = types_of(labels)
        found = sentences.decided(members, labels, valid_sequences=options.valid_sequences and types is not None)
        files = {name: _lines(sentences, found, labels) for name in self.prediction_files(part.name)}
        if not sentences.is_labelled:
            return Judged({}, files)
        if types is not None:
            files[f"{part.name}.report.txt"] = report(sentences.tags, found, sentences.is_first, types)
        return Judged(evaluate(sentences.tags, found, sentences.is_first, types), files)

    def prediction_files(self, split: str) -> tuple[str, ...]:
        """See `OldBenchmark.prediction_files`."""
        return (f"{split}.predictions.conll",)


def _lines(sentences: Sentences, predicted: NDArray[np.int64], labels: Sequence[str]) -> Iterator[str]:
    """The words of a split with their right and given tags."""
    given = [labels[label] for label in predicted.tolist()]
    right = [labels[label] for label in sentences.tags.tolist()] if sentences.is_labelled else None
    place = 0
    for record in sentences.split.records():
        for word in record["words"]:
            yield " ".join([shown(word), *([right[place]] if right else []), given[place]])
            place += 1
        yield ""


def shown(word: str) -> str:
    """A word without white space, for a column.

    Example: "New York" -> "New_York"; "" -> "_".
    """
    return "".join("_" if character.isspace() else character for character in word) or "_"


def report(
    gold: NDArray[np.int64], found: NDArray[np.int64], is_first: NDArray[np.bool_], types: Sequence[str]
) -> Iterator[str]:
    """The lines that conlleval prints for labels of words (W,)."""
    counts = count_entities(gold, found, is_first, num_types=len(types))
    total = counts.sum(axis=0)
    accuracy = 100.0 * float((gold == found).mean())
    yield (
        f"processed {len(gold)} tokens with {total[GOLD]:.0f} phrases; found: {total[FOUND]:.0f} phrases; "
        f"correct: {total[CORRECT]:.0f}."
    )
    yield f"accuracy: {accuracy:6.2f}%; {_scores(total)}"
    for type_, row in zip(types, counts, strict=True):
        if row[FOUND] or row[GOLD]:
            yield f"{type_:>17}: {_scores(row)}  {row[FOUND]:.0f}"


def _scores(counts: NDArray[np.float64]) -> str:
    precision, recall, f1 = scores(counts)
    return f"precision: {precision:6.2f}%; recall: {recall:6.2f}%; FB1: {f1:6.2f}"


TASKS = {
    "conll2003": TaggingTask(
        name="conll2003",
        paper={  # BERT's: Devlin et al. 2019, Table 7
            "valid": {"BERT large": {"f1": 96.6}, "BERT base": {"f1": 96.4}},
            "test": {"BERT large": {"f1": 92.8}, "BERT base": {"f1": 92.4}},
        },
    ),
    "wnut17": TaggingTask(name="wnut17"),
    "tagging": TaggingTask(name="tagging"),
}
