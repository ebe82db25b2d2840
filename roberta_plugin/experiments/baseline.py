"""A constant answer as the baseline of every task, and a sentence for each model that is no better than one.

The baseline is scored by the task's own benchmark, as the outputs of a model that gives every input the same answer:
the most frequent label or tag of the training set, its mean number, the first option, or no answer (SQuAD 2.0). Own
data bring theirs along (`benchmarks.Benchmark.details`); that of summaries is the first sentences of the text.

Shapes: S sequences of a split, C classes, T_s tokens of sequence s, W words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roberta_plugin.finetuning.benchmarks import SMALLER_IS_BETTER, benchmark_of
from roberta_plugin.finetuning.options import TaskOptions
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.tags import Sentences

_LEAD = "lead_"  # in the names of the metrics of summaries
_NUMBERS_DIFFER = 0.01  # standard deviation; the model's numbers are on a scale of about 1
_REMEDY = (
    "It is of no use as it is: try a higher learning rate (--only lr=...), more --epochs, or a model that was "
    "pretrained for longer."
)


def shown(metric: str, value: float) -> str:
    """A metric for a table: percent with one digit, errors in units of the label with four.

    Example: shown("accuracy", 81.234) -> "81.2"; shown("mae", 0.0123456) -> "0.01235".
    """
    return f"{value:.4g}" if metric in SMALLER_IS_BETTER else f"{value:.1f}"


def baseline_of(
    prepared: Prepared,
    split: str,
    outputs: RawOutputs,
    *,
    metrics: Mapping[str, float],
    details: Mapping[str, Any],
    options: TaskOptions,
) -> dict[str, float]:
    """The metrics of the constant answer on a split; empty if the split has no labels, or the task no such answer.

    Args:
        prepared: the data.
        split: which split of it.
        outputs: those of a model, whose shapes the constant has too.
        metrics: those of the model.
        details: those of the benchmark, which may hold a baseline.
        options: the options of the scoring.
    """
    if not metrics or details.get("baseline"):
        return dict(details.get("baseline") or {}) if metrics else {}
    if any(name.startswith(_LEAD) for name in metrics):
        return {name.removeprefix(_LEAD): value for name, value in metrics.items() if name.startswith(_LEAD)}
    constant = constant_outputs(prepared, outputs)
    if constant is None:
        return {}
    return benchmark_of(prepared.task).score(prepared.task, prepared, split, [constant], folder=None, options=options)


def constant_outputs(prepared: Prepared, outputs: RawOutputs) -> RawOutputs | None:
    """Outputs shaped as those of a model, which mean the same answer for every input; None if there is none."""
    if "train" not in prepared.splits:
        return None
    train = prepared.split("train")
    if outputs.token_logits is not None:
        tag = np.bincount(Sentences(train).tags).argmax()
        return RawOutputs(token_logits=[_one_hot(logits.shape, tag) for logits in outputs.token_logits])
    if outputs.logits is not None and outputs.logits.shape[1] > 1:
        label = np.bincount(np.asarray(train.columns["label"])).argmax()
        return RawOutputs(logits=_one_hot(outputs.logits.shape, label))
    if outputs.logits is not None:  # a number, or one of several options, of which equal ones mean the first
        value = np.mean(train.columns["label"]) if prepared.settings.get("kind") == "regression" else 0.0
        return RawOutputs(logits=np.full_like(outputs.logits, value))
    if outputs.answerable_logits is not None and prepared.task == "squad2":
        assert outputs.start_logits is not None
        nowhere = [np.zeros_like(logits) for logits in outputs.start_logits]
        never = np.full_like(outputs.answerable_logits, -100.0)
        return RawOutputs(start_logits=nowhere, end_logits=nowhere, answerable_logits=never)
    return None


def _one_hot(shape: tuple[int, ...], column: Any) -> Any:
    """Logits (S, C) or (T_s, C) by which one class is certain."""
    logits = np.zeros(shape, dtype=np.float32)
    logits[:, column] = 100.0
    return logits


def same_answer(prepared: Prepared, split: PreparedSplit, outputs: RawOutputs) -> str | None:
    """The label, tag or number that a model gives to every input of a split; None if its answers differ."""
    labels = prepared.settings.get("labels") or []
    kind = prepared.settings.get("kind")
    if outputs.token_logits is not None:
        found = np.unique(
            Sentences(split).rows([logits.astype(np.float64) for logits in outputs.token_logits]).argmax(1)
        )
        return f"the tag {labels[found[0]]}" if len(found) == 1 else None
    if outputs.logits is None or kind == "multi_label":
        return None
    if outputs.logits.shape[1] > 1:
        found = np.unique(outputs.logits.argmax(axis=1))
        return f"the label {labels[found[0]]}" if len(found) == 1 and len(outputs.logits) > 1 else None
    is_number = kind == "regression" and len(outputs.logits) > 1
    return "the same number" if is_number and outputs.logits.std() < _NUMBERS_DIFFER else None


def findings(
    prepared: Prepared,
    split: str,
    answers: Sequence[str | None],
    metrics: Mapping[str, float],
    baseline: Mapping[str, float],
    *,
    selection: str | None = None,
) -> list[str]:
    """Sentences about models that have learned nothing.

    Args:
        prepared: the data.
        split: which split of it.
        answers: of each model, its one answer, or None (`same_answer`).
        metrics: those of the ensemble.
        baseline: those of the constant answer.
        selection: the metric that has selected the models; None: that of the recipe.
    """
    selection = selection or benchmark_of(prepared.task).recipe(prepared.task, prepared).metric["value"]
    found = []
    stuck = [answer for answer in answers if answer]
    if stuck:
        who = "the model gives" if len(answers) == 1 else f"{len(stuck)} of {len(answers)} models give"
        found.append(f"{split}: {who} {' or '.join(dict.fromkeys(stuck))} to every input. {_REMEDY}")
    worse = [name for name in _deciding(selection, metrics, baseline) if not _is_better(name, metrics, baseline)]
    if worse and len(stuck) < len(answers):
        numbers = ", ".join(f"{name} {shown(name, metrics[name])} and {shown(name, baseline[name])}" for name in worse)
        found.append(f"{split}: the model is no better than the baseline, a constant answer ({numbers}). {_REMEDY}")
    return found


def _deciding(selection: str, metrics: Mapping[str, float], baseline: Mapping[str, float]) -> list[str]:
    """The metric that selects checkpoints, or else the first one; and the errors, if all of them are no better."""
    selection = selection.removeprefix("tuned_")
    known = [name for name in metrics if name in baseline]
    first = [selection] if selection in known else known[:1]
    errors = [name for name in known if name in SMALLER_IS_BETTER]
    return first + ([] if any(_is_better(name, metrics, baseline) for name in errors) else errors)


def _is_better(name: str, metrics: Mapping[str, float], baseline: Mapping[str, float]) -> bool:
    difference = metrics[name] - baseline[name]
    return (-difference if name in SMALLER_IS_BETTER else difference) > 1e-9
