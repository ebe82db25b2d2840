"""A text or a pair -> one of several labels. `--kind pair` is this kind with two texts.

Columns: `label`, the number of the right label, and, where several texts answer one question, `question`, its number.

Example: {"text": "A fine film."} -> {"label": "1", "probability": 0.98, "probabilities": {"0": 0.02, "1": 0.98}}

A model that was trained for many updates is overconfident: its labels are right less often than its probabilities say.
Dividing its logits by one number, the temperature, corrects the probabilities and does not change the labels (Guo et
al. 2017, arXiv 1706.04599, sections 3 and 4.2).

Shapes: N examples of a split, C labels.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.finetuning.examples import (
    Example,
    balanced_weights,
    given_weights,
    label_of,
    number_of,
    order_labels,
    with_positive,
)
from roberta_plugin.finetuning.kinds import metrics
from roberta_plugin.finetuning.kinds.base import SEQUENCE_CLASSIFICATION, HuggingFace, certain, logits_of, rounded
from roberta_plugin.finetuning.kinds.outputs import Decisions, Outcome, RawOutputs, Weights, class_probabilities, ids_of
from roberta_plugin.finetuning.kinds.score_names import of_label, untuned
from roberta_plugin.finetuning.kinds.tables import TableKind
from roberta_plugin.finetuning.kinds.texts import TextKind
from roberta_plugin.finetuning.kinds.usage import Exported
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.finetuning.records import alone, parse_cell
from roberta_plugin.tables import Row, short

_OF_POSITIVE = ("f1", "acc_and_f1", "average_precision")  # scores of the positive one of two labels


class Classification(TextKind, TableKind):
    """Cross-entropy over the labels."""

    name = "classification"
    description = "chooses a class for a text or a pair of texts"
    has_labels = can_smooth = is_compared_with_words = True
    unreported = ("acc_and_f1",)
    of_all_labels = (*TableKind.of_all_labels, *_OF_POSITIVE)
    numbers_labels = knows_no_label = True
    decides_by = MappingProxyType({"threshold": "tune_threshold", "temperature": "calibrate"})
    free_settings = ("positive_label",)
    scoring = ("threshold", "tune_threshold", "temperature", "calibrate")
    hugging_face = HuggingFace(
        **SEQUENCE_CLASSIFICATION, problem_type="single_label_classification", settings={"kind": "classification"}
    )

    @override
    def usage_of(self, model: Exported, call: str) -> tuple[str, str, list[str]]:
        numbers = model.decides_by
        if not numbers:
            return super().usage_of(model, call)
        label = "max(probabilities, key=probabilities.get)"
        divided = f" / {numbers['temperature']!r}" if "temperature" in numbers else ""
        if "threshold" in numbers:
            no, yes = (json.dumps(name, ensure_ascii=False) for name in model.labels or ("LABEL_0", "LABEL_1"))
            label = f"{yes} if probabilities[{yes}] >= {numbers['threshold']!r} else {no}"
        lines = [
            f"for scores in {call}:",
            f'    weights = {{each["label"]: math.exp(each["score"]{divided}) for each in scores}}',
            "    probabilities = {label: weight / sum(weights.values()) for label, weight in weights.items()}",
            f"    label = {label}",
            "    print(label, probabilities[label])",
        ]
        return "import math\n\n", ', top_k=None, function_to_apply="none"', lines

    @override
    def decision(self, model: Exported) -> dict[str, str]:
        rules, numbers = {}, model.decides_by
        if "temperature" in numbers:
            rule = "Logits are divided by the temperature before the softmax."
            rules[f"the temperature {numbers['temperature']:.6g}"] = rule
        if "threshold" in numbers:
            of_label = f" of {model.labels[1]}" if model.labels else ""
            rule = "A label is given if its probability reaches the threshold."
            rules[f"the threshold {numbers['threshold']:.6g}{of_label}"] = rule
        return rules

    @override
    def metrics(self) -> tuple[str, ...]:
        of_two = ("f1", "acc_and_f1", *metrics.OF_SCORES) if len(self.labels) == 2 else ()
        return ("accuracy", "macro_f1", "mcc", *of_two)

    @override
    def label_metrics(self) -> dict[str, int]:
        others = self.labels[:1] if len(self.labels) == 2 else self.labels  # f1 is that of the positive one
        return {of_label("f1", label): number for number, label in enumerate(others)}

    @override
    def metric_named(self, name: str) -> str:
        is_positive = len(self.labels) == 2 and name == of_label("f1", self.labels[1])
        return "f1" if is_positive else super().metric_named(name)

    @override
    def labels_needed(self, metric: str, labels: Sequence[str]) -> list[str]:
        is_positive = metric == "f1" and self.labels[1] in labels
        return [self.labels[1]] if is_positive else super().labels_needed(metric, labels)

    @override
    def words_on_scores(self, scores: Collection[str]) -> str:
        of_positive = [name for name in scores if untuned(name) in _OF_POSITIVE]
        of_one = f"{' and '.join(of_positive)} {'is that' if len(of_positive) == 1 else 'are those'}"
        return f"{of_one} of the label {self.labels[1]!r}" if of_positive and self.official.is_own else ""

    @override
    def constant(self, outputs: RawOutputs, train: PreparedSplit) -> RawOutputs:
        label = np.bincount(np.asarray(train.columns["label"])).argmax()
        return RawOutputs(logits=certain(logits_of([outputs])[0].shape, label))

    @override
    def only_answer(self, outputs: RawOutputs, split: PreparedSplit) -> str | None:
        (logits,) = logits_of([outputs])
        classes = np.unique(logits.argmax(axis=1))
        return f"the label {self.labels[classes[0]]}" if len(classes) == 1 and len(logits) > 1 else None

    @property
    def selection(self) -> str:
        """Accuracy, or macro-F1 if the labels are weighted, because rare labels then matter."""
        return "accuracy" if self.settings.get("class_weights", "none") == "none" else "macro_f1"

    @override
    def open(self) -> None:
        super().open()
        self.temperature, self.limit = self.number("temperature"), self.number("threshold")
        if self.options.threshold is not None:
            check_two(self.known_labels(self.hub.num_classes(self.head_name)), "threshold")

    @override
    def decode(self, members: Sequence[RawOutputs]) -> list[dict[str, Any]]:
        """The most probable label of each example. The probabilities of the members are averaged."""
        probabilities = class_probabilities(logits_of(members))  # (N, C)
        if self.temperature is not None:
            probabilities = apply_temperature(probabilities, self.temperature)
        return _entries(probabilities, self.known_labels(probabilities.shape[1]), self.limit)

    @override
    def read_target(self, row: Row, choices: tuple[str, ...]) -> str:
        """The label as text. It may be in a list of one, as annotation programs write it."""
        place = f"{row.where}, the column {self.label_column!r}"
        value = alone(row.value(self.label_column, option="--label-column"), place)
        written = parse_cell(value, place) if isinstance(value, str) else value
        if isinstance(written, list | dict):
            raise ValueError(
                f"{row.where}: the column {self.label_column!r} must hold one label, found {short(value)}. Write the "
                "label alone; --kind multi-label learns several, or vectors of 0 and 1."
            )
        return label_of(self.numbering.name(value, row.where), self.label_column, row.where)

    @override
    def split_labels(self, example: Example) -> tuple[str, ...]:
        return (example.target,)

    @override
    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        """The labels and their weights."""
        pairs = ((example.target, example) for example in table)
        given = self.settings.get("labels")
        listed, source = given or self.numbering.names or None, "" if given else self.numbering.source
        labels = order_labels(pairs, listed, path=table[0].path, source=source)
        labels = with_positive(labels, self.settings.get("positive_label"))
        settings: dict[str, Any] = {"labels": labels}
        weights = self.settings["class_weights"]
        if weights == "balanced":
            settings["weights"] = balanced_weights(labels, Counter(example.target for example in train))
        elif weights != "none":
            settings["weights"] = given_weights(labels, weights)
        return settings

    @override
    def remarks_on_rows(self, train: Sequence[Example]) -> Iterator[str]:
        counts = Counter(example.target for example in train)
        for label in self.labels:
            if not counts[label]:
                yield f"No row of the training set has the label {label!r}: the model cannot learn it."

    @override
    def columns(self, example: Example) -> dict[str, Any]:
        return {"label": number_of(example.target, self.labels, example)}

    @override
    def check_scoring(self, options: Any, split: PreparedSplit) -> None:
        """Refuse thresholds unless there are two labels, and a search unless the development set has several labels."""
        super().check_scoring(options, split)
        has_one_label = split.name == "valid" and len(np.unique(np.asarray(split.columns["label"]))) < 2
        for name in options.given("score"):
            if name in ("threshold", "tune_threshold"):
                check_two(self.labels, name)
            if name in ("tune_threshold", "calibrate") and has_one_label:
                raise ValueError(
                    f"--{name.replace('_', '-')} needs a development set with examples of several labels, and all "
                    f"examples of {split.folder} have the same. Leave it out, or give a larger development set."
                )

    @override
    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        """Predict the most probable label or, with a threshold, the second label if its probability reaches it."""
        labels, answers = self.labels, split.columns.get("label")
        right: Any = None if answers is None else np.asarray(answers)
        raw = probabilities = class_probabilities(logits_of(members))  # (N, C)
        temperature, threshold = decisions.given("temperature"), decisions.given("threshold")
        is_labelled = right is not None
        if decisions.wish("calibrate"):
            temperature = decisions.find("temperature", lambda: fit_temperature(raw, right), is_labelled=is_labelled)
        if temperature is not None:
            probabilities = apply_temperature(raw, temperature)
        if metric := decisions.wish("tune_threshold"):
            check_two(labels, "tune_threshold")
            threshold = decisions.find(
                "threshold",
                lambda: metrics.tuned_threshold(probabilities[:, 1], right, metric),
                is_labelled=is_labelled,
            )

        def entries() -> Iterator[dict[str, Any]]:
            for index, (id_, answer) in enumerate(
                zip(ids_of(split), _entries(probabilities, labels, threshold), strict=True)
            ):
                entry = {"id": id_, "prediction": answer.pop("label"), "probability": answer.pop("probability")}
                yield {**entry, **({} if right is None else {"label": labels[int(right[index])]}), **answer}

        if right is None:
            return Outcome(entries=entries, num_examples=len(split))
        predictions = _decide(probabilities, threshold)
        counts = metrics.confusion(right, predictions, np.ones(len(right)), num_classes=len(labels))
        return Outcome(
            entries=entries,
            num_examples=len(split),
            measure=partial(
                self._measure,
                right,
                predictions,
                _scores(raw) if len(labels) == 2 else None,
                split.columns.get("question"),
            ),
            losses=losses(probabilities, right),
            tables={
                "classes": metrics.class_table(counts.diagonal(), counts.sum(axis=0), counts.sum(axis=1), labels),
                "confusion": {"labels": labels, "counts": counts.astype(int).tolist()},
                "calibration": {
                    "temperature": temperature,
                    "before": reliability(raw, right),
                    **({} if temperature is None else {"after": reliability(probabilities, right)}),
                },
            },
        )

    def _measure(
        self,
        right: NDArray[Any],
        predictions: NDArray[np.int64],
        scores: NDArray[np.float64] | None,
        questions: NDArray[Any] | None,
        weights: Weights,
    ) -> dict[str, float]:
        """The metrics of weighted examples; `scores` are of the second of two labels."""
        values = metrics.measure_classes(right, predictions, weights, num_classes=len(self.labels))
        weighted = metrics.confusion(right, predictions, weights, num_classes=len(self.labels))
        if scores is not None:
            values |= {name: 100 * metrics.OF_COUNTS[name](weighted) for name in ("f1", "acc_and_f1")}
            values["roc_auc"] = 100 * metrics.roc_auc(right, scores, weights)  # the same for both labels
            values["average_precision"] = 100 * metrics.average_precision(right, scores, weights)
        if not self.official.is_own:  # SuperGLUE's baseline counts the F1 of a label without examples as 0
            values["macro_f1"] = 100 * float(metrics.class_f1s(weighted).mean())
        if questions is not None:  # each with several answers, as in MultiRC
            values["exact_match"] = 100 * metrics.exact_match(right, predictions, questions)
        f1s = 100 * metrics.class_f1s(weighted)
        return values | {name: float(f1s[number]) for name, number in self.label_metrics().items()}


def check_two(labels: Sequence[str], option: str) -> None:
    """Refuse an option of the threshold between two labels, if there are more."""
    if len(labels) != 2:
        raise ValueError(
            f"--{option.replace('_', '-')} goes with two labels, and there are {len(labels)}: "
            f"{', '.join(labels[:10])}. Leave it out: the most probable label is predicted."
        )


def _decide(probabilities: NDArray[np.float64], threshold: float | None) -> NDArray[np.int64]:
    """The number of the label of each example (N,)."""
    if threshold is None:
        return np.asarray(probabilities.argmax(axis=1))
    return np.asarray(probabilities[:, 1] >= threshold, dtype=np.int64)


def _entries(
    probabilities: NDArray[np.float64], labels: Sequence[str], threshold: float | None
) -> list[dict[str, Any]]:
    """The label of each example, its probability, and the probabilities of all labels."""
    answers = []
    for row, best in zip(probabilities.tolist(), _decide(probabilities, threshold).tolist(), strict=True):
        shown = dict(zip(labels, map(rounded, row), strict=True))
        limit = {} if threshold is None else {"threshold": rounded(threshold)}
        answers.append({"label": labels[best], "probability": rounded(row[best]), **limit, "probabilities": shown})
    return answers


def _scores(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """The log-odds of the second label (N,), which differ where its probabilities are all rounded to 1."""
    logs = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    return np.asarray(logs[:, 1] - logs[:, 0])


NUM_BINS = 15  # section 5
_LIMITS = (0.05, 20.0)  # smallest and largest temperature
_STEPS = 60  # steps of the bisection, which is then more exact than float64
Numbers = NDArray[Any]


def apply_temperature(probabilities: Numbers, temperature: float) -> NDArray[np.float64]:
    """The probabilities (N, C) of logits that are divided by the temperature."""
    logits = _logs(probabilities) / temperature
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    scaled: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return scaled


def fit_temperature(probabilities: Numbers, answers: Numbers) -> float:
    """Find the temperature with the smallest cross-entropy, from 0.05 to 20.

    It is 1 if every right label is the most probable one. Without an error, the smallest temperature would always have
    the smallest loss, and would make the model overconfident on other data.

    Args:
        probabilities: the probabilities of a model or an ensemble (N, C).
        answers: the numbers of the right labels (N,).
    """
    logits = _logs(probabilities)
    right = logits[np.arange(len(answers)), answers]
    if (right >= logits.max(axis=1)).all():
        return 1.0
    low, high = np.log(_LIMITS)
    for _ in range(_STEPS):  # the derivative by 1 / temperature grows with it, so it has one zero at most
        middle = (low + high) / 2
        mean = (apply_temperature(probabilities, np.exp(middle)) * logits).sum(axis=1)
        low, high = (middle, high) if (mean - right).mean() > 0 else (low, middle)
    return float(np.exp((low + high) / 2))


def losses(probabilities: Numbers, answers: Numbers) -> NDArray[np.float64]:
    """Cross-entropy of each example (N,) in nats."""
    return -_logs(probabilities)[np.arange(len(answers)), answers]


def reliability(probabilities: Numbers, answers: Numbers) -> dict[str, float]:
    """Measure how close the probability of the most probable label is to how often that label is right.

    Returns:
        `ece`, the expected calibration error in percent: the distance between the accuracy and the mean probability in
        each of 15 bins of equal width, averaged over the examples. `loss`, the mean cross-entropy in nats.
    """
    best = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == answers
    place = np.minimum((best * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    surest, right = (np.bincount(place, weights, minlength=NUM_BINS) for weights in (best, is_right))
    return {
        "ece": 100 * float(np.abs(surest - right).sum() / len(best)),
        "loss": float(losses(probabilities, answers).mean()),
    }


def _logs(probabilities: Numbers) -> NDArray[np.float64]:
    logs: NDArray[np.float64] = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    return logs
