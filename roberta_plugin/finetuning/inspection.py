"""The contents of a prepared folder in words, and whether they are valid, as `roberta inspect` shows them.

Shapes: N examples of a split, S their sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.benchmarks import benchmark_of, option_fields, options_for
from roberta_plugin.finetuning.kinds import KINDS, kind_class
from roberta_plugin.finetuning.kinds.base import Kind
from roberta_plugin.finetuning.kinds.metrics import OF_SCORES
from roberta_plugin.finetuning.prepared import NAME, OFFSETS, Prepared, PreparedSplit, shown_texts

_MOST_VALUES = 8  # a column with more different values is shown as a range
_MOST_LABELS = 10  # that are named
_UNDEFINED = ("macro_f1", "mcc", "pearson", "spearman", *OF_SCORES)  # metrics that a development set may not tell


def settings_faults(prepared: Prepared) -> list[str]:
    """What of prepared.json cannot be as `roberta prepare` wrote it, one sentence each."""
    path, has = prepared.folder / NAME, prepared.settings
    try:
        names = {item.name for item in option_fields(prepared.task, stages=("prepare",))}
        options = options_for(prepared.task, {name: value for name, value in has.items() if name in names})
        wanted = benchmark_of(prepared.task).settings(max_length=int(has.get("max_length", 0)), options=options)
    except (ValueError, TypeError) as error:
        return [f"{path}: {error}"]
    lacking = [name for name, value in wanted.items() if value is not None and name not in has]
    faults = [f"{path} lacks the setting {name!r} of {prepared.task}." for name in lacking]
    if has.get("kind") in KINDS and kind_class(str(has["kind"])).has_labels and not has.get("labels"):
        faults.append(f"{path} lacks the setting 'labels'.")
    unknown = [name for name in prepared.common_files if name.endswith((".bin", ".idx", ".npy", ".jsonl"))]
    faults += [f"{path} lists {name}, but no split that it belongs to." for name in unknown]
    for name in ("kind", "labels"):
        if name in wanted and name in has and has[name] != wanted[name]:
            faults.append(f"{path}: the setting {name!r} is {has[name]}, and that of {prepared.task} {wanted[name]}.")
    return faults


def find_faults(prepared: Prepared, split: PreparedSplit) -> list[str]:
    """What is wrong with a split, one sentence each; empty if nothing is."""
    faults = prepared.changed_files(split.name)
    arrays = [OFFSETS, *split.facts["columns"], *split.facts["arrays"]]
    expected = {f"{split.name}.{end}" for end in ("bin", "idx", "jsonl", *(f"{name}.npy" for name in arrays))}
    listed = {name for name in prepared.files if name.startswith(f"{split.name}.")}
    if wrong := sorted(expected ^ listed):
        faults.append(
            f"{prepared.folder / NAME}: the files and the columns of the split {split.name!r} do not agree about "
            f"{', '.join(wrong)}."
        )
    return faults


def remarks(prepared: Prepared, splits: Sequence[str] | None = None) -> list[str]:
    """What a user must know before trusting a training: one sentence for each kind of text that was cut or divided, and
    for labels that a split lacks.

    Example: "train: 501 of 501 texts are longer than 32 tokens and were cut (longest 1,204)"
    """
    return [
        f"{name}: {remark}"
        for name in (prepared.splits if splits is None else splits)
        for remark in _remarks(prepared, prepared.split(name))
    ]


def _remarks(prepared: Prepared, split: PreparedSplit) -> Iterator[str]:
    for found in split.facts["lengths"]:
        if found["longer"]:
            yield (
                f"{found['longer']:,} of {found['number']:,} {found['texts']} are longer than {found['limit']:,} "
                f"tokens and were {found['fate']} (longest {found['longest']:,})"
            )
    lacking = labels_without_examples(prepared, split)
    if lacking:
        named = ", ".join(map(repr, lacking[:_MOST_LABELS])) + (", ..." if len(lacking) > _MOST_LABELS else "")
        labels, it = (
            ("the label", "it is") if len(lacking) == 1 else (f"any of the {len(lacking):,} labels", "they are")
        )
        of_all = "" if prepared.settings["kind"] == "tagging" else ", nor are metrics of all labels"
        consequence = "not learned" if split.name == "train" else f"not measured{of_all}"
        yield f"no example has {labels} {named}, so {it} {consequence}"
    if is_constant(prepared, split):
        yield (
            "all examples have the same number, so there is nothing to learn"
            if split.name == "train"
            else "all examples have the same number: correlations are not defined and count as 0"
        )


def is_constant(prepared: Prepared, split: PreparedSplit) -> bool:
    """Whether all examples of a regression's split, of two or more, have the same number."""
    if prepared.settings.get("kind") != "regression" or len(split) < 2 or "label" not in split.columns:
        return False
    return bool(np.ptp(split.columns["label"]) == 0)


def labels_without_examples(prepared: Prepared, split: PreparedSplit) -> list[str]:
    """The labels of the settings that no example of a labelled split has; of entities, their types."""
    kind = prepared.settings.get("kind")
    return kind_class(str(kind))(prepared.settings).labels_without_examples(split) if kind in KINDS else []


def check_measurable(prepared: Prepared, split: str, metric: str, *, option: str) -> None:
    """Refuse to choose checkpoints by a metric that is not defined on a split, for want of examples of a label."""
    if metric not in OF_SCORES and not metric.startswith("f1_"):
        return
    lacking = labels_without_examples(prepared, prepared.split(split))
    needed = lacking if metric in OF_SCORES else [label for label in lacking if metric == f"f1_{label}"]
    if needed:
        raise ValueError(
            f"{option} {metric}: no example of the split {split!r} has the label {needed[0]!r}, so it cannot be "
            "measured. Add some, or choose by another metric."
        )


def selection_remarks(prepared: Prepared, kind: Kind, metric: str) -> list[str]:
    """A warning if checkpoints are chosen by a metric that this development set cannot measure.

    Example: "checkpoint and cell are chosen by macro_f1, here the mean over the other labels, for no example of the
    development set has the label 'rare': ..."
    """
    valid = prepared.split("valid")
    others = ", ".join(name for name in kind.selectable() if not name.startswith(_UNDEFINED))
    remedy = f"add examples to it, or choose by another metric (--select: {others})"
    lacking = labels_without_examples(prepared, valid)
    if metric in ("macro_f1", "mcc") and lacking:
        named = f"label{'s' * (len(lacking) > 1)} {', '.join(map(repr, lacking))}"
        return [
            f"Checkpoint and setting are chosen by {metric}, which here is that of the other labels: no example of the "
            f"development set has the {named}. To judge all labels, {remedy}."
        ]
    if metric.startswith(("pearson", "spearman")) and is_constant(prepared, valid):
        return [
            f"Checkpoint and setting are chosen by {metric}, which is not defined here and counts as 0: all examples "
            f"of the development set have the same number. To choose at all, {remedy}."
        ]
    return []


def describe(prepared: Prepared, split: PreparedSplit) -> Iterator[str]:
    """Lines of text: counts, what was cut, the values of columns, and the first example."""
    sequences = split.sequences
    yield f"{len(split):,} examples, {len(sequences):,} sequences, {sequences.num_tokens:,} tokens"
    if not len(split):
        return
    yield from _remarks(prepared, split)
    labels = prepared.settings.get("labels") or []
    for name, values in sorted(split.columns.items()):
        if values.ndim == 2:  # of several labels: how many examples have each
            named = labels if len(labels) == values.shape[1] else range(values.shape[1])
            counts = zip(named, (values != 0).sum(axis=0).tolist(), strict=True)
            yield f"{name}: {', '.join(f'{label} {count:,}' for label, count in counts)}"
        else:
            yield f"{name}: {_values(values, labels if name == 'label' else [])}"
    for text in shown_texts(prepared, split, [0], every=True):
        yield f"example 0: {text}"


def _values(values: NDArray[np.generic], labels: Sequence[str]) -> str:
    """How often each value occurs, or the range if there are many values."""
    found, counts = np.unique(values, return_counts=True)
    if len(found) > _MOST_VALUES:
        return f"{found[0]} to {found[-1]}"
    names = [labels[int(value)] if 0 <= value < len(labels) else str(value) for value in found.tolist()]
    return ", ".join(f"{name} {count:,}" for name, count in zip(names, counts.tolist(), strict=True))
