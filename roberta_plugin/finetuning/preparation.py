"""Official files -> a prepared folder; comparison of a folder with the settings of a command; contents of a folder.

Example:
    from roberta_plugin.finetuning.options import SquadOptions
    from roberta_plugin.finetuning.preparation import PrepareSettings, prepare

    prepared = prepare(
        PrepareSettings(
            task="squad2",
            raw=Path("squad"),
            tokenizer=Path("gpt2_bpe"),
            output_dir=Path("data-bin/squad2"),
            options=SquadOptions(doc_stride=64),
        )
    )
    print(prepared.splits, len(prepared.split("train")))

The last functions describe a folder and its faults in words, for `roberta inspect`.

Shapes: N examples of a split, S their sequences.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.whitespace import is_meant
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.files import remove_leftovers, replace_folder
from roberta_plugin.finetuning.benchmarks import (
    all_tasks,
    benchmark_of,
    checked_options,
    kind_of,
    kind_of_task,
    option_fields,
    options_for,
)
from roberta_plugin.finetuning.benchmarks.base import MAX_LENGTH, SMALLEST_LENGTH, describe_files
from roberta_plugin.finetuning.kinds import KINDS, kind_class
from roberta_plugin.finetuning.kinds.metrics import OF_SCORES
from roberta_plugin.finetuning.options import TaskOptions
from roberta_plugin.finetuning.prepared import NAME, OFFSETS, Prepared, PreparedSplit, shown_texts
from roberta_plugin.record import differences, option_name, refuse
from roberta_plugin.settings import REQUIRED, Checked, setting


@dataclass(frozen=True, kw_only=True)
class DataSettings(Checked):
    """The task of the data, and their source; `roberta prepare` and `roberta finetune` have these options."""

    task: str = setting(REQUIRED, f"one of {', '.join(all_tasks())}", flag="task", metavar="TASK", choices=all_tasks)
    raw: Path | None = setting(None, "folder with the official files of the task (custom: the current folder)")
    tokenizer: Path | None = setting(
        None,
        "folder with the tokenizer's files and dict.txt, a model's name (org/name), or whitespace: the symbols of "
        "dict.txt are the words of the text",
        gives="tokenizer",
    )
    max_length: int | None = setting(
        None,
        "most tokens of a sequence; longer texts are cut, and counted",
        default_text=f"{MAX_LENGTH}; in `roberta finetune` the length of a fine-tuned model, or its positions if fewer",
        smallest=SMALLEST_LENGTH,
    )
    options: TaskOptions | None = None
    """Options of the task (`options.py`); None: the paper's values. `__post_init__` completes them."""

    def __post_init__(self) -> None:
        """Complete the options; tables of your own are searched in the current folder.

        Raises:
            ValueError: if the options belong to another task, or a value is too small.
        """
        options = checked_options(self.task, self.options)
        object.__setattr__(self, "options", options)
        if self.raw is None:
            object.__setattr__(self, "raw", options.usual_raw)
        super().__post_init__()

    @property
    def nothing_given(self) -> str:
        """The message if there is nothing to prepare."""
        option, what = self.task_options.source
        return f"{option} is missing: give {what}."

    @property
    def task_options(self) -> TaskOptions:
        """The options of the task, complete."""
        assert self.options is not None
        return self.options


@dataclass(frozen=True, kw_only=True)
class PrepareSettings(DataSettings):
    """The arguments of `prepare`; the tokenizer must be the one of the pretrained model."""

    dictionary: Path | None = setting(None, "dict.txt to use (default: that of the tokenizer)", flag="--dict")
    output_dir: Path = setting(REQUIRED, "folder to write to")
    overwrite: bool = setting(False, "replace a prepared folder that exists already, once the new one is complete")


def prepare(settings: PrepareSettings) -> Prepared:
    """Write a prepared folder, and open it.

    Raises:
        FileExistsError: if the folder exists and is not to be overwritten.
    """
    raw, tokenizer, output_dir = settings.raw, settings.tokenizer, settings.output_dir
    if raw is None:
        raise ValueError(settings.nothing_given)
    if tokenizer is None:
        raise ValueError("--tokenizer is missing: give the tokenizer's folder.")
    if not raw.exists():
        raise FileNotFoundError(
            f"--raw {raw} does not exist: give the folder with the official files of {settings.task}."
        )
    if output_dir.resolve() == Path.cwd():
        raise FileExistsError(
            f"--output-dir {output_dir} is the current folder, which cannot be replaced: name another."
        )
    is_replaced = settings.overwrite and (output_dir / NAME).is_file()
    if is_meant(tokenizer) and settings.dictionary is None:
        raise ValueError(f"--tokenizer {tokenizer} needs a dict.txt for its words: give the model's as --dict.")
    listed = Vocabulary.load(settings.dictionary) if settings.dictionary else None
    folder = output_dir.with_name(f".{output_dir.name}.new") if is_replaced else output_dir
    if is_replaced:
        shutil.rmtree(folder, ignore_errors=True)
    benchmark_of(settings.task).prepare(
        raw,
        folder,
        tokenizer=load_tokenizer(tokenizer, symbols=listed.symbols if listed else None),
        vocabulary=listed or Vocabulary.from_tokenizer(tokenizer),
        max_length=MAX_LENGTH if settings.max_length is None else settings.max_length,
        options=settings.task_options,
    )
    if is_replaced:
        replace_folder(output_dir, by=folder)
    remove_leftovers(output_dir)
    shutil.rmtree(output_dir.with_name(f".{output_dir.name}.new"), ignore_errors=True)
    return Prepared.open(output_dir)


def prepared_folder(data: DataSettings, folder: Path, *, dictionary: Path | None = None) -> Prepared:
    """A prepared folder, made from the official files if it does not exist.

    `dictionary` is the dict.txt to prepare it with, by default the tokenizer's.

    Raises:
        ValueError: if the files cannot be used; or if the folder is for another task, or was prepared with other
            settings.
    """
    if data.raw is not None and not (folder / NAME).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        sources = {item.name: getattr(data, item.name) for item in fields(DataSettings)}
        return prepare(PrepareSettings(**sources, dictionary=dictionary, output_dir=folder))
    prepared = Prepared.open(folder)
    check_same(prepared, data)
    return prepared


def check_same(prepared: Prepared, wanted: DataSettings) -> None:
    """Refuse a prepared folder for another task, or made from other files, with another tokenizer or other settings.

    With `raw`, the settings describe a whole preparation, so their defaults are compared too. Without it, only given
    settings are compared.
    """
    if prepared.task != wanted.task:
        raise ValueError(
            f"{prepared.folder} is prepared for {prepared.task}, not for {wanted.task}: give another --data."
        )
    before, now = dict(prepared.settings), dict(_settings(prepared, wanted))
    names = {"dictionary": "dict.txt"}
    if wanted.tokenizer is not None:
        before["tokenizer"] = prepared.content.get("tokenizer") or {}
        vocabulary = prepared.vocabulary if is_meant(wanted.tokenizer) else Vocabulary.from_tokenizer(wanted.tokenizer)
        now["tokenizer"] = load_tokenizer(wanted.tokenizer, symbols=vocabulary.symbols).description()
        before["dictionary"], now["dictionary"] = prepared.vocabulary.sha256, vocabulary.sha256
    if wanted.raw is not None and prepared.content.get("source"):
        benchmark = benchmark_of(prepared.task)
        wanted_source = describe_files(benchmark.source_files(benchmark.files(wanted.raw, wanted.task_options)))
        before["raw"], now["raw"] = (
            f"{source['files']} file{'s' * (source['files'] != 1)} with {source['bytes']:,} bytes "
            f"(SHA-256 {source.get('sha256')})"
            for source in (prepared.content["source"], wanted_source)
        )
        if wanted.task_options.own_kind is not None:  # tables of your own are given without --raw
            names["raw"] = f"the content of {', '.join(wanted_source['names'])}"
    changes = differences(
        before,
        now,
        free=lambda name: name not in now,
        named=lambda name: names.get(name) or option_name(name),
    )
    refuse(
        f"{prepared.folder} was prepared with other settings than this command gives",
        changes,
        "Leave these options out to use the folder as it is. To prepare it again, delete it (rm -r "
        f"{prepared.folder}) and everything trained on it, or give another --output-dir.",
    )


def _settings(prepared: Prepared, wanted: DataSettings) -> Iterator[tuple[str, Any]]:
    """The settings that a prepared folder must have."""
    has, options = prepared.settings, wanted.task_options
    given_names = {"max_length", *options.given("prepare")}
    recorded = {item.name: has.get(item.name) for item in option_fields(prepared.task, stages=("prepare",))}
    if wanted.raw is None:  # what is not given is as in the folder
        options = options_for(prepared.task, {**recorded, **options.given("prepare")})
    length = has["max_length"] if wanted.max_length is None else wanted.max_length
    for name, value in benchmark_of(prepared.task).settings(max_length=length, options=options).items():
        if name not in has and name not in recorded:
            continue  # a setting without an option, which earlier versions did not record
        if wanted.raw is not None or name in given_names:
            yield name, value


def num_unknown(prepared: Prepared, split: str) -> int:
    """The number of <unk> in a split."""
    return int(np.count_nonzero(prepared.split(split).sequences.tokens == prepared.vocabulary.unk_id))


_MOST_VALUES = 8  # a column with more different values is shown as a range
_MOST_LABELS = 10  # labels in a message
_UNDEFINED = ("macro_f1", "mcc", "pearson", "spearman", *OF_SCORES)  # metrics that may not be defined on a split


def settings_faults(prepared: Prepared) -> list[str]:
    """Faults in the settings of prepared.json, which `roberta prepare` cannot have written, one sentence each."""
    path, has = prepared.folder / NAME, prepared.settings
    try:
        names = {item.name for item in option_fields(prepared.task, stages=("prepare",))}
        options = options_for(prepared.task, {name: value for name, value in has.items() if name in names})
        wanted = benchmark_of(prepared.task).settings(max_length=int(has.get("max_length", 0)), options=options)
    except (ValueError, TypeError) as error:
        return [f"{path}: {error}"]
    lacking = [name for name, value in wanted.items() if value is not None and name not in has]
    faults = [f"{path} has no setting {name!r}, which {prepared.task} needs." for name in lacking]
    if has.get("kind") in KINDS and kind_class(str(has["kind"])).has_labels and not has.get("labels"):
        faults.append(f"{path} has no setting 'labels'.")
    unknown = [name for name in prepared.common_files if name.endswith((".bin", ".idx", ".npy", ".jsonl"))]
    faults += [f"{path} lists {name}, but not the split it belongs to." for name in unknown]
    for name in ("kind", "labels"):
        if name in wanted and name in has and has[name] != wanted[name]:
            faults.append(f"{path}: the setting {name!r} is {has[name]}, but {prepared.task} has {wanted[name]}.")
    return faults


def find_faults(prepared: Prepared, split: PreparedSplit) -> list[str]:
    """Faults of a split, one sentence each."""
    faults = prepared.changed_files(split.name)
    arrays = [OFFSETS, *split.facts["columns"], *split.facts["arrays"]]
    expected = {f"{split.name}.{end}" for end in ("bin", "idx", "jsonl", *(f"{name}.npy" for name in arrays))}
    listed = {name for name in prepared.files if name.startswith(f"{split.name}.")}
    if wrong := sorted(expected ^ listed):
        faults.append(
            f"{prepared.folder / NAME}: the files and the columns of the split {split.name!r} do not agree on "
            f"{', '.join(wrong)}."
        )
    return faults


def remarks(prepared: Prepared, splits: Sequence[str] | None = None) -> list[str]:
    """Remarks for the user: on texts that were cut or divided, one for each kind of text, and on labels that a split
    has no examples of.

    Example: "train: 501 of 501 texts are longer than 32 tokens and were cut (longest 1,204)"
    """
    return [
        f"{name}: {remark}"
        for name in (prepared.splits if splits is None else splits)
        for remark in _remarks(prepared, prepared.split(name))
    ]


def _remarks(prepared: Prepared, split: PreparedSplit) -> Iterator[str]:
    for counts in split.facts["lengths"]:
        if counts["longer"]:
            yield (
                f"{counts['longer']:,} of {counts['number']:,} {counts['texts']} are longer than {counts['limit']:,} "
                f"tokens and were {counts['fate']} (longest {counts['longest']:,})"
            )
    if kind_of_task(prepared.task) or prepared.settings.get("kind") in KINDS:
        yield from kind_of(prepared).remarks(split)
    lacking = labels_without_examples(prepared, split)
    if lacking:
        shown = ", ".join(map(repr, lacking[:_MOST_LABELS])) + (", ..." if len(lacking) > _MOST_LABELS else "")
        labels, it = (
            ("the label", "it is") if len(lacking) == 1 else (f"any of the {len(lacking):,} labels", "they are")
        )
        of_all = ", nor are averages over all labels" if kind_of(prepared).averages_labels else ""
        consequence = "not learned" if split.name == "train" else f"not measured{of_all}"
        yield f"no example has {labels} {shown}, so {it} {consequence}"
    if is_constant(prepared, split):
        yield (
            "all examples have the same number, so there is nothing to learn"
            if split.name == "train"
            else "all examples have the same number: correlations are not defined and count as 0"
        )


def is_constant(prepared: Prepared, split: PreparedSplit) -> bool:
    """True if a split has two or more examples, and all have the same number to learn."""
    kind = prepared.settings.get("kind")
    return kind in KINDS and kind_class(str(kind))(prepared.settings).is_constant(split)


def labels_without_examples(prepared: Prepared, split: PreparedSplit) -> list[str]:
    """The labels (for entities, the types) of the settings that no example of a labelled split has."""
    kind = prepared.settings.get("kind")
    return kind_class(str(kind))(prepared.settings).labels_without_examples(split) if kind in KINDS else []


def check_measurable(prepared: Prepared, split: str, metric: str, *, option: str) -> None:
    """Refuse to choose checkpoints by a metric that is not defined on a split because a label has no examples."""
    kind, lacking = kind_of(prepared), labels_without_examples(prepared, prepared.split(split))
    if lacking and (needed := kind.labels_needed(kind.metric_named(metric), lacking)):
        raise ValueError(
            f"{option} {metric}: no example of the split {split!r} has the label {needed[0]!r}, so it cannot be "
            "measured. Add some, or choose by another metric."
        )


def selection_remarks(prepared: Prepared, metric: str) -> list[str]:
    """A warning if checkpoints are chosen by a metric that this development set cannot measure.

    Example: "checkpoint and cell are chosen by macro_f1, here the mean over the other labels, for no example of the
    development set has the label 'rare': ..."
    """
    valid = prepared.split("valid")
    others = ", ".join(name for name in kind_of(prepared).selectable() if not name.startswith(_UNDEFINED))
    remedy = f"add examples to it, or choose by another metric (--select: {others})"
    lacking = labels_without_examples(prepared, valid)
    if metric in ("macro_f1", "mcc") and lacking:
        missing = f"label{'s' * (len(lacking) > 1)} {', '.join(map(repr, lacking))}"
        return [
            f"Checkpoint and setting are chosen by {metric}, which here is of the other labels only: no example of the "
            f"development set has the {missing}. To measure all labels, {remedy}."
        ]
    if metric.startswith(("pearson", "spearman")) and is_constant(prepared, valid):
        return [
            f"Checkpoint and setting are chosen by {metric}, which is not defined here and counts as 0: all examples "
            f"of the development set have the same number. To choose by a score, {remedy}."
        ]
    return []


def describe(prepared: Prepared, split: PreparedSplit) -> Iterator[str]:
    """Lines of text: counts, remarks on cut texts, the values of columns, and the first example."""
    sequences = split.sequences
    yield f"{len(split):,} examples, {len(sequences):,} sequences, {sequences.num_tokens:,} tokens"
    if not len(split):
        return
    yield from _remarks(prepared, split)
    labels = prepared.settings.get("labels") or []
    for name, values in sorted(split.columns.items()):
        if values.ndim == 2:  # several labels for an example: how many examples have each label
            names = labels if len(labels) == values.shape[1] else range(values.shape[1])
            counts = zip(names, (values != 0).sum(axis=0).tolist(), strict=True)
            yield f"{name}: {', '.join(f'{label} {count:,}' for label, count in counts)}"
        else:
            yield f"{name}: {_values(values, labels if name == 'label' else [])}"
    for text in shown_texts(prepared, split, [0], every=True):
        yield f"example 0: {text}"


def _values(values: NDArray[np.generic], labels: Sequence[str]) -> str:
    """How often each value occurs, or the range if there are many values."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) > _MOST_VALUES:
        return f"{distinct[0]} to {distinct[-1]}"
    names = [labels[int(value)] if 0 <= value < len(labels) else str(value) for value in distinct.tolist()]
    return ", ".join(f"{name} {count:,}" for name, count in zip(names, counts.tolist(), strict=True))
