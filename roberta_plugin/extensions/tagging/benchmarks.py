"""Tagging: `conll2003` and `wnut17` read the official files, `tagging` any CoNLL columns or JSON Lines.

Columns, records and arrays of the prepared folder are described in `layout`. The settings have `labels`, in
IOB2 (see `entities`), in whatever scheme and notation the files are (`notations`).

The grid is BERT's for fine-tuning under RoBERTa's schedule, because RoBERTa's paper has no tagging. Learning rates,
batch sizes, the (greatest) number of epochs and the dropout of 0.1 before the classifier are from Devlin et al. 2019,
appendix A.3; warm-up, decay, weight decay and the median of five seeds are from Liu et al. 2019, Table 10. The
checkpoint is chosen by the F1 of entities, or by accuracy if the tags are plain.

Predictions are in SPLIT.predictions.conll, which conlleval reads. SPLIT.report.txt is what conlleval prints for them.

    EU B-ORG B-ORG
    rejects O O

The columns are the word, the right tag if it is known, and the predicted tag, in IOB2. A blank line ends a sentence.
White space in a word becomes _, as does an empty word, because conlleval separates columns by spaces.

With the scheme `plain` the tags are labels as they are, in alphabetical order, such as parts of speech.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.text_inputs_compressed import COMPRESSIONS
from roberta_plugin.extensions.tagging.entities import (
    CORRECT,
    FOUND,
    GOLD,
    TagCounts,
    entity_labels,
    scores,
    split_tag,
)
from roberta_plugin.extensions.tagging.files import read_file
from roberta_plugin.extensions.tagging.layout import TaggingLayout
from roberta_plugin.extensions.tagging.notations import PLAIN, are_entity_tags, unify
from roberta_plugin.extensions.tagging.options import TaggingOptions
from roberta_plugin.finetuning.benchmarks.base import Benchmark, Entries, Files, Training, known_files, named_files
from roberta_plugin.finetuning.examples import Example, warn_of_look_alikes
from roberta_plugin.tables import without_compression

logger = logging.getLogger(__name__)

_READ = ("tokens_column", "tags_column", "scheme", "types")
_READ_IF_GIVEN = ("label_names",)
_LISTS = (".jsonl", ".ndjson", ".json", ".parquet", ".arrow", "")
_ENDINGS = (".conll", ".txt", ".tsv", ".bio", ".iob", ".iob2", ".conllu", ".conllup", *_LISTS)
# task -> split -> names that its file may have; the first one that exists is read
_FILES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "conll2003": {
        "train": ("eng.train", "train.txt"),
        "valid": ("eng.testa", "valid.txt", "dev.txt"),
        "test": ("eng.testb", "test.txt"),
    },
    "wnut17": {
        "train": ("wnut17train.conll",),
        "valid": ("emerging.dev.conll",),
        "test": ("emerging.test.annotated", "emerging.test.conll"),
    },
    "tagging": {
        "train": tuple(f"train{ending}" for ending in _ENDINGS),
        "valid": tuple(f"{name}{ending}" for name in ("valid", "dev", "validation") for ending in _ENDINGS),
        "test": tuple(f"test{ending}" for ending in _ENDINGS),
    },
}
TYPES: Mapping[str, tuple[str, ...]] = {  # types of entities in the official sets
    "conll2003": ("LOC", "MISC", "ORG", "PER"),
    "wnut17": ("corporation", "creative-work", "group", "location", "person", "product"),
}


def files(task: str, raw: Path, options: TaggingOptions) -> dict[str, list[Path]]:
    """The file of each split in the folder `raw`: as the options say, else a file with a known name."""
    if chosen := named_files(raw, options):
        return chosen
    splits = {split: _file(raw, names, has_any_name=task == "tagging") for split, names in _FILES[task].items()}
    if task == "tagging":
        wanted = f"train, valid (or dev, validation) and test, ending in {', '.join(filter(None, _ENDINGS))}"
    else:
        wanted = "; ".join(f"{split}: {' or '.join(names[:3])}" for split, names in _FILES[task].items())
    remedy = "Name the folder that has them, or its files: --train FILE --valid FILE --test FILE."
    return known_files(splits, task, raw, wanted=wanted, remedy=remedy)


def _file(raw: Path, names: Sequence[str], *, has_any_name: bool) -> list[Path]:
    """The first file with one of the names. If names may be any, also the parts of a table of the hub, or a file whose
    name ends with one of the names, such as en_ewt-ud-train.conllu.
    """
    for name in names:
        for suffix in ("", *COMPRESSIONS):
            path = raw / f"{name}{suffix}"
            if path.is_file() if Path(name).suffix else (path / "state.json").is_file():  # a folder of `datasets`
                return [path]
    for usual in map(Path, names if has_any_name else ()):
        parts = f"{usual.stem}-[0-9]*-of-[0-9]*{usual.suffix}"  # train-00000-of-00001.parquet
        if usual.suffix in _LISTS and (found := list(raw.glob(parts))):
            return found if len(found) == 1 else [raw / parts]
    ends = tuple(f"{mark}{name}" for name in names for mark in "-_." if Path(name).suffix)
    found = [path for path in sorted(raw.glob("*")) if has_any_name and without_compression(path).endswith(ends)]
    if len(found) > 1:
        raise ValueError(
            f"{raw} has several files with such a name: {', '.join(path.name for path in found[:4])}. Choose one of "
            "them by --train, --valid or --test."
        )
    return found


def records(
    task: str, files: Files, options: TaggingOptions, settings: Mapping[str, Any]
) -> tuple[dict[str, list[Example]], dict[str, Any]]:
    """`Benchmark.records`, with the labels of the model that are found in the files."""
    columns = (options.tokens_column, options.tags_column)
    splits = {
        split: read_file(
            path,
            columns=columns,
            needs_tags=split != "test",
            label_names=options.label_names,
            are_numbers=options.scheme == PLAIN,
        )
        for split, (path,) in files.items()
    }
    unified_splits, labels = tags_and_labels(task, splits, options)
    return unified_splits, {"labels": labels}


def tags_and_labels(
    task: str, splits: Mapping[str, Sequence[Example]], options: TaggingOptions
) -> tuple[dict[str, list[Example]], list[str]]:
    """The sentences with tags in the notation of `entities`, or plain ones, and the labels of the model."""
    sentences_of = unify(
        splits,
        scheme=options.scheme,
        option="--tags-column",
        strict=options.strict,
        needs_entities=task in TYPES,
    )
    tagged = {split: sentences for split, sentences in sentences_of.items() if sentences[0].target is not None}
    tags = {split: {tag for each in sentences for tag in each.target} for split, sentences in tagged.items()}
    are_entities = options.scheme != PLAIN and are_entity_tags(set().union(*tags.values()))
    _warn_of_spelling(tagged.values(), are_entities=are_entities)
    labels = _labels_of(task, tagged, tags, options) if are_entities else sorted(set().union(*tags.values()))
    if len(labels) < 2:
        raise ValueError(
            f"{next(iter(splits.values()))[0].path}: every word has the tag {''.join(labels) or 'O'!r}, so there is "
            "nothing to learn. Name the column of the tags by --tags-column."
        )
    return sentences_of, labels


def _labels_of(
    task: str, tagged: Mapping[str, Sequence[Example]], tags: Mapping[str, set[str]], options: TaggingOptions
) -> list[str]:
    """The labels of entities."""
    allowed = TYPES.get(task) or (
        None if options.types is None else tuple(type_.strip() for type_ in options.types.split(","))
    )
    for sentences in tagged.values():
        _check_types(sentences, allowed)
    used = {split: {split_tag(tag)[1] for tag in each} - {""} for split, each in tags.items()}
    types = allowed if allowed is not None else tuple(sorted(set().union(*used.values())))
    for split, of_split in used.items():
        if unseen := sorted(of_split - used.get("train", of_split)):
            logger.warning(f"{split} has the types {', '.join(unseen)}, which no entity of train has")
    return entity_labels(types)


def _warn_of_spelling(splits: Iterable[Sequence[Example]], *, are_entities: bool) -> None:
    """Warn of types, or plain tags, that differ only in their spelling."""
    places: dict[str, str] = {}
    for sentence in chain.from_iterable(splits):
        for word, tag in enumerate(sentence.target):
            name = split_tag(tag)[1] if are_entities else tag
            if name and name not in places:
                places[name] = sentence.place_of_word(word)
    warn_of_look_alikes(places, what="type" if are_entities else "tag")


def _check_types(sentences: Sequence[Example], types: tuple[str, ...] | None) -> None:
    """Refuse types of entities that the task does not have."""
    checked: set[str] = set()
    for sentence in sentences if types is not None else ():
        for place, tag in enumerate(sentence.target):
            if tag in checked:
                continue
            checked.add(tag)
            type_ = split_tag(tag)[1]
            if types is not None and type_ and type_ not in types:
                raise ValueError(
                    f"{sentence.place_of_word(place)}: the type of {tag!r} is none of {', '.join(types)}. Correct the "
                    "tag, or use the task tagging, which finds the types in the files."
                )


def settings(*, max_length: int, options: TaggingOptions) -> dict[str, Any]:
    """`Benchmark.settings`: the layout of the windows, and how the files are read."""
    layout = TaggingLayout.with_defaults(
        max_length, doc_stride=options.doc_stride, label_pieces=options.label_pieces, context=options.context
    )
    read = {name: getattr(options, name) for name in _READ}
    given = {name: list(value) for name in _READ_IF_GIVEN if (value := getattr(options, name))}
    return {**asdict(layout), **read, **given, "kind": "tagging"}


def predictions(split: str, entries: Entries) -> Mapping[str, Iterable[str]]:
    """`Benchmark.predictions`, and a report for entities whose right tags are known."""
    report = list(_report(entries))
    return {f"{split}.predictions.conll": _columns(entries), **({f"{split}.report.txt": report} if report else {})}


def _columns(entries: Entries) -> Iterator[str]:
    for entry in entries():
        tags = [entry[name] for name in ("label", "prediction") if name in entry]
        for word, *of_word in zip(entry["tokens"], *tags, strict=True):
            yield " ".join([shown(word), *of_word])
        yield ""


def shown(word: str) -> str:
    """A word without white space, for a column.

    Example: "New York" -> "New_York"; "" -> "_".
    """
    return "".join("_" if character.isspace() else character for character in word) or "_"


def _report(entries: Entries) -> Iterator[str]:
    """The lines that conlleval prints; nothing if right tags are missing, or the tags are not entities in IOB2."""
    tagged = [(entry["label"], entry["prediction"]) for entry in entries() if "label" in entry]
    right, predicted = ([tag for sentence in tagged for tag in sentence[place]] for place in (0, 1))
    types = sorted({tag.partition("-")[2] for tag in {*right, *predicted}} - {""})
    labels = {label: number for number, label in enumerate(entity_labels(types))}
    if not tagged or not {*right, *predicted} <= labels.keys():
        return
    is_first = np.array([place == 0 for sentence, _ in tagged for place in range(len(sentence))])
    numbers = [np.array([labels[tag] for tag in tags]) for tags in (right, predicted)]
    counts = TagCounts(numbers[0], numbers[1], is_first, types).entities.sum(axis=0)  # (K, 3)
    total = counts.sum(axis=0)
    accuracy = 100.0 * float((numbers[0] == numbers[1]).mean())
    yield (
        f"processed {len(right)} tokens with {total[GOLD]:.0f} phrases; found: {total[FOUND]:.0f} phrases; "
        f"correct: {total[CORRECT]:.0f}."
    )
    yield f"accuracy: {accuracy:6.2f}%; {_scores(total)}"
    for type_, row in zip(types, counts, strict=True):
        yield f"{type_:>17}: {_scores(row)}  {row[FOUND]:.0f}"


def _scores(counts: NDArray[np.float64]) -> str:
    precision, recall, f1 = scores(counts)
    return f"precision: {precision:6.2f}%; recall: {recall:6.2f}%; FB1: {f1:6.2f}"


def _row(name: str, **more: Any) -> Benchmark:
    return Benchmark(
        name=name,
        kind="tagging",
        same_head="tagging",
        files=partial(files, name),
        records=partial(records, name),
        settings=settings,
        training=Training(lrs=("2e-5", "3e-5", "5e-5"), epochs=4, options={"pooler-dropout": "0.1"}),
        predictions=predictions,
        **more,
    )


TASKS = {
    "conll2003": _row(
        "conll2003",
        on_hub=("eriktks/conll2003", None),
        paper={  # Devlin et al. 2019, Table 7
            "valid": {"BERT large": {"f1": 96.6}, "BERT base": {"f1": 96.4}},
            "test": {"BERT large": {"f1": 92.8}, "BERT base": {"f1": 92.4}},
        },
    ),
    "wnut17": _row("wnut17", on_hub=("leondz/wnut_17", None)),
    "tagging": _row("tagging"),
}
