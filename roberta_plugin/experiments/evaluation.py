"""Fine-tuned checkpoints and a prepared split -> official metrics: of each, their median, and of their ensemble.

Beside them stand the metrics of a constant answer, the baseline of every task, and a sentence for each model that is
no better. The task's own benchmark scores the baseline, as the outputs of a model that gives every input one answer:
the most frequent label or tag of the training set, its mean number, the first option, or no answer (SQuAD 2.0). Own
data bring theirs along (`Benchmark.judge`); that of summaries is the first sentences of the text.

Shapes: S sequences of a split, C classes, T_s tokens of sequence s, W words.

Example:
    from roberta_plugin.experiments.evaluation import EvaluateSettings, evaluate

    settings = EvaluateSettings(data=Path("data-bin/RTE"), checkpoints=[Path("best.pt")], output_dir=Path("results"))
    for evaluation in evaluate(settings):
        print(evaluation.split, evaluation.median, evaluation.predictions)
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from roberta_plugin.experiments.settings import EvaluateSettings as EvaluateSettings
from roberta_plugin.finetuning.benchmarks import (
    SMALLER_IS_BETTER,
    benchmark_of,
    checked_options,
    option_fields,
    options_for,
)
from roberta_plugin.finetuning.benchmarks.base import Benchmark
from roberta_plugin.finetuning.kinds.base import Kind
from roberta_plugin.finetuning.kinds.metrics import base_name
from roberta_plugin.finetuning.kinds.outputs import DEVELOPMENT, NUMBERS, RawOutputs, read_outputs, write_outputs
from roberta_plugin.finetuning.kinds.similarity import NAME as WORDS
from roberta_plugin.finetuning.kinds.similarity import BagOfWords
from roberta_plugin.finetuning.options import TaskOptions
from roberta_plugin.finetuning.preparation import remarks
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.json_files import parse_json, write_json

PREFIX = "evaluation_"
_BASELINE_KINDS = ("classification", "multi_label")  # kinds of texts with labels
_LEAD = "lead_"  # in the names of the metrics of summaries
_REMEDY = (
    "It is of no use as it is: try a higher learning rate (--only lr=...), more --epochs, or a model that was "
    "pretrained for longer."
)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The results on a split, as evaluation_SPLIT.json holds them.

    Metrics are from 0 to 100, errors in units of the label; without labels there are none.
    """

    task: str
    split: str
    data: str = ""  # the prepared folder
    options: Mapping[str, str] = field(default_factory=dict)  # options of the scoring, named as on the command line
    predictions: Sequence[str] = field(default_factory=list)
    """The prediction files: those of the ensemble, if there are several checkpoints."""
    members: Sequence[Mapping[str, Any]]  # the "checkpoint" and the "metrics" of each model
    median: Mapping[str, float]  # median of the members' metrics
    ensemble: Mapping[str, float]  # metrics of the averaged outputs
    details: Mapping[str, Any] = field(default_factory=dict)  # further results of the benchmark (`Benchmark.judge`)
    remarks: Sequence[str] = field(default_factory=list)
    """Texts that were cut, labels without examples, and models that have learned nothing."""
    baseline: Mapping[str, float] = field(default_factory=dict)  # metrics of a constant answer (`baseline`)
    tf_idf: Mapping[str, float] = field(default_factory=dict)
    """Metrics of TF-IDF with logistic regression (`finetuning/kinds/similarity.py`), where texts get labels."""
    selection: str = ""  # the metric that has selected the models; empty: that of the recipe
    precision: str = "fp32"  # of the models' products (`models/precision.py`)

    @classmethod
    def read(cls, path: Path) -> Evaluation:
        """Read evaluation_SPLIT.json."""
        try:
            content = parse_json(path.read_text(encoding="utf-8"))
            names = {item.name for item in fields(cls)}
            evaluation = cls(**{name: value for name, value in content.items() if name in names})
            benchmark_of(evaluation.task)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not an evaluation of `roberta evaluate` ({error}): delete it.") from error
        return evaluation

    def write(self, folder: Path) -> None:
        """Write evaluation_SPLIT.json."""
        write_json(folder / f"{PREFIX}{self.split}.json", asdict(self))


def evaluate(settings: EvaluateSettings) -> list[Evaluation]:
    """Evaluate checkpoints on several splits, the development set first.

    A threshold or a temperature that is found on the development set, now or before (`_earlier_decisions`), as for "no
    answer" in SQuAD 2.0 and for several labels, is applied to the other splits, unless the options give one: to each
    model its own, and to the ensemble that of the ensemble.

    Raises:
        FileNotFoundError: if a checkpoint does not exist and its outputs are not stored.
        ValueError: if a file of the prepared folder has changed since it was made, a checkpoint does not fit it, or a
            number is neither given nor found.
    """
    prepared = Prepared.open(settings.data)
    benchmark, options = benchmark_of(prepared.task), checked_options(prepared.task, settings.options)
    kind = benchmark.kind_for(prepared.settings)
    selection = settings.selection or benchmark.selection or kind.selection
    splits = _splits(prepared, settings)
    decisions = Decisions({}, [{}] * len(settings.checkpoints))
    if DEVELOPMENT not in splits:
        wishes = [wish.replace("_", "-") for wish in kind.decides_by.values()]
        wished = {name: text for name, text in as_text(options).items() if name in wishes}
        decisions = _earlier_decisions(settings, wished, options.given("score").keys())
    has_words = kind.name in _BASELINE_KINDS and "train" in prepared.splits
    words = bag_of_words(prepared.folder, prepared.sha256_of_inputs("train")) if has_words else None
    evaluations: list[Evaluation] = []
    for split in splits:
        evaluation = evaluate_split(
            prepared,
            benchmark,
            settings,
            split=split,
            selection=selection,
            options=_with_decisions(kind, options, decisions.ensemble),
            member_options=[_with_decisions(kind, options, member) for member in decisions.members],
        )
        if words is not None and evaluation.ensemble:
            scoring = _with_decisions(kind, options, decisions.words or decisions.ensemble)
            evaluation = with_bag_of_words(evaluation, prepared, benchmark, words, selection=selection, options=scoring)
            evaluation.write(settings.output_dir)
        evaluations.append(evaluation)
        if split == DEVELOPMENT:
            decisions = Decisions.read_from(evaluation)
    return evaluations


class Decisions(NamedTuple):
    """Thresholds and temperatures, chosen on the development set (`kinds/outputs.py`), among its metrics."""

    ensemble: Mapping[str, float]
    members: Sequence[Mapping[str, float]]
    words: Mapping[str, float] = MappingProxyType({})  # of TF-IDF with logistic regression

    @classmethod
    def read_from(cls, evaluation: Evaluation) -> Decisions:
        """Those of an evaluation of the development set."""
        return cls(evaluation.ensemble, [member["metrics"] for member in evaluation.members], evaluation.tf_idf)


def _earlier_decisions(settings: EvaluateSettings, wishes: Mapping[str, str], fixed: Set[str]) -> Decisions:
    """The numbers of an earlier evaluation of the same checkpoints and data in the output folder, or of a single
    checkpoint's own fine-tuning; none where they were chosen by other options than `wishes`. `fixed` are given ones.
    """
    from roberta_plugin.conversion.model_files import own_results

    path = settings.output_dir / f"{PREFIX}{DEVELOPMENT}.json"
    if path.is_file():
        evaluation = Evaluation.read(path)
        theirs = [Path(member["checkpoint"]).resolve() for member in evaluation.members]
        is_of_data = Path(evaluation.data).resolve() == settings.data.resolve()
        is_of_models = theirs == [checkpoint.resolve() for checkpoint in settings.checkpoints]
        if is_of_data and is_of_models and wishes.items() <= evaluation.options.items():
            return Decisions.read_from(evaluation)
    if len(settings.checkpoints) == 1:
        results = own_results(settings.checkpoints[0], DEVELOPMENT)
        if wishes.items() <= results.options.items():
            return Decisions(results.metrics, [results.metrics], results.tf_idf)
    elif any(set(NUMBERS) & own_results(each, DEVELOPMENT).metrics.keys() - fixed for each in settings.checkpoints):
        raise ValueError(
            "The models of an ensemble have thresholds or temperatures of their own, and the ensemble's are found on "
            f"the development set: evaluate `{DEVELOPMENT}` too."
        )
    return Decisions({}, [{}] * len(settings.checkpoints))


def _with_decisions(kind: Kind, options: TaskOptions, chosen: Mapping[str, float]) -> TaskOptions:
    """The options with all thresholds and temperatures that were `chosen`, in place of the options that would choose
    them; given ones stay. All of them, because a threshold holds at one temperature only."""
    scoring = options.given("score")
    names = {item.name for item in option_fields(kind.task_name, stages=("score",))}
    for name in (name for name in NUMBERS if name in names and name in chosen):
        scoring.pop(kind.decides_by.get(name, ""), None)
        scoring.setdefault(name, chosen[name])
    return options_for(kind.task_name, {**options.given("prepare"), **scoring})


@lru_cache(maxsize=1)
def bag_of_words(folder: Path, digest: str | None) -> BagOfWords:
    """The bag of words of a prepared folder, fitted once for all models that are compared with it."""
    return BagOfWords(Prepared.open(folder))


def with_bag_of_words(
    evaluation: Evaluation,
    prepared: Prepared,
    benchmark: Benchmark,
    words: BagOfWords,
    *,
    selection: str,
    options: TaskOptions,
) -> Evaluation:
    """The evaluation beside that of TF-IDF with logistic regression, and a remark if that is no worse."""
    if reason := words.skipped():
        return replace(evaluation, remarks=[*evaluation.remarks, reason])
    part = prepared.split(evaluation.split)
    theirs = benchmark.score(prepared, part.name, [words.outputs(part)], folder=None, options=options)
    theirs = {name: value for name, value in theirs.items() if name in evaluation.ensemble}
    worse = [
        f"{name} {shown(name, theirs[name])}; the model {shown(name, evaluation.ensemble[name])}"
        for name in _deciding(selection, evaluation.ensemble, theirs)
        if not _is_better(name, evaluation.ensemble, theirs)
    ]
    remarks = [f"{part.name}: {WORDS} is as good or better ({', '.join(worse)})."] if worse else []
    return replace(evaluation, tf_idf=theirs, remarks=[*remarks, *evaluation.remarks])


def evaluate_split(
    prepared: Prepared,
    benchmark: Benchmark,
    settings: EvaluateSettings,
    *,
    split: str,
    selection: str,
    options: TaskOptions,
    member_options: Sequence[TaskOptions],
) -> Evaluation:
    """Evaluate the checkpoints on one split, and write evaluation_SPLIT.json and the prediction files.

    `selection` is the metric by which the checkpoints were chosen, or would be. `options` are those of the ensemble, or
    of the only checkpoint, `member_options` those of each.

    The predictions are those of the ensemble: the outputs of all checkpoints are averaged, as the paper does for GLUE's
    test sets (section 5.1).
    """
    kind, folder = benchmark.kind_for(prepared.settings), settings.output_dir
    for fault in prepared.changed_files(split):
        raise ValueError(fault)  # else the numbers would be those of other data
    folder.mkdir(parents=True, exist_ok=True)
    outputs = list(_outputs(prepared, settings, split=split))
    kept = partial(_without_labels, kind, (settings.selection, getattr(settings.options, "tune_threshold", None)))
    scores, details = benchmark.judge(prepared, split, outputs, folder=folder, options=options)
    ensemble = kept(scores)
    metrics = [ensemble]
    if len(outputs) > 1:
        metrics = [
            kept(benchmark.score(prepared, split, [one], folder=None, options=scoring))
            for one, scoring in zip(outputs, member_options, strict=True)
        ]
    details |= {name: kept(details[name]) for name in ("intervals", "baseline") if name in details}
    constant = constant_baseline(
        prepared, benchmark, split, outputs[0], metrics=ensemble, details=details, options=options
    )
    answers = [kind.only_answer(each, prepared.split(split)) for each in outputs]
    evaluation = Evaluation(
        task=prepared.task,
        split=split,
        data=str(prepared.folder),
        options=as_text(options),
        predictions=[str(folder / name) for name in benchmark.prediction_files(split)],
        members=[
            {"checkpoint": str(checkpoint), "metrics": each}
            for checkpoint, each in zip(settings.checkpoints, metrics, strict=True)
        ],
        median={name: statistics.median(each[name] for each in metrics) for name in metrics[0]},
        ensemble=ensemble,
        details=details,
        baseline=constant,
        selection=settings.selection or "",
        precision=settings.precision,
        remarks=[
            *no_better_than_constant(
                split, answers, ensemble, constant, selection=selection, baseline_name=kind.baseline_name
            ),
            *remarks(prepared, [name for name in ("train", split) if name in prepared.splits]),
        ],
    )
    evaluation.write(folder)
    return evaluation


def _without_labels(kind: Kind, chosen: Sequence[str | None], values: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of own data without the F1 of single labels, which reports have in their tables of labels, and without
    the mean of accuracy and F1; but with those that were chosen by."""
    hidden = {"acc_and_f1", *kind.label_metrics()} - set(chosen) if kind.task_name == "custom" else ()
    return {name: value for name, value in values.items() if base_name(name) not in hidden}


def as_text(options: TaskOptions) -> dict[str, str]:
    """The options of the scoring that are given, named as on the command line.

    Example:
        as_text(SquadOptions(n_best=5))  ->  {"n-best": "5"}
    """
    return {name.replace("_", "-"): str(value) for name, value in options.given("score").items()}


def store_outputs(settings: EvaluateSettings) -> None:
    """Store the raw outputs of the checkpoints for all splits, without scoring them.

    Raises:
        FileNotFoundError: if a checkpoint does not exist and its outputs are not stored.
    """
    assert settings.stored is not None
    prepared = Prepared.open(settings.data)
    for split in _splits(prepared, settings):
        for _ in _outputs(prepared, settings, split=split):
            pass


def _splits(prepared: Prepared, settings: EvaluateSettings) -> list[str]:
    """The splits to evaluate, the development set first."""
    names = settings.splits or [name for name in prepared.splits if name != "train"]
    return sorted(names, key=lambda name: name != DEVELOPMENT)


def _outputs(prepared: Prepared, settings: EvaluateSettings, *, split: str) -> Iterator[RawOutputs]:
    """The raw outputs of each checkpoint for a split: the stored ones, or else what the model computes now."""
    from roberta_plugin.experiments.inference import load_model, run_model
    from roberta_plugin.hub.running import usable_device

    part = prepared.split(split)
    folders: Sequence[Path | None] = settings.stored or [None] * len(settings.checkpoints)
    for checkpoint, folder in zip(settings.checkpoints, folders, strict=True):
        outputs = read_outputs(folder, part) if folder else None
        if outputs is None:
            if folder and not checkpoint.is_file():
                raise FileNotFoundError(
                    f"{checkpoint} does not exist, and {folder} does not hold its outputs for the split {split!r} of "
                    f"{prepared.folder}. To train this run again, delete {folder.parent / 'result.json'} and run the "
                    "same command again."
                )
            model, task = load_model(checkpoint, prepared)
            outputs = run_model(
                model,
                task,
                part,
                max_tokens=settings.max_tokens,
                device=usable_device(settings.device),
                precision=settings.precision,
                show_progress=settings.show_progress,
            )
            if folder:
                write_outputs(folder, outputs, part)
        yield outputs


def shown(metric: str, value: float) -> str:
    """A metric for a table: percent with one digit, errors in units of the label with four.

    Example: shown("accuracy", 81.234) -> "81.2"; shown("mae", 0.0123456) -> "0.01235".
    """
    return f"{value:.4g}" if metric in SMALLER_IS_BETTER else f"{value:.1f}"


def constant_baseline(
    prepared: Prepared,
    benchmark: Benchmark,
    split: str,
    outputs: RawOutputs,
    *,
    metrics: Mapping[str, float],
    details: Mapping[str, Any],
    options: TaskOptions,
) -> dict[str, float]:
    """The metrics of the constant answer on a split; empty if the split has no labels, or the task no such answer.

    It has the shapes of a model's `outputs`; the benchmark's `details` may hold one.
    """
    if not metrics or details.get("baseline"):
        return dict(details.get("baseline") or {}) if metrics else {}
    if any(name.startswith(_LEAD) for name in metrics):
        return {name.removeprefix(_LEAD): value for name, value in metrics.items() if name.startswith(_LEAD)}
    if "train" not in prepared.splits:
        return {}
    constant = benchmark.kind_for(prepared.settings).constant(outputs, prepared.split("train"))
    if constant is None:
        return {}
    return benchmark.score(prepared, split, [constant], folder=None, options=options)


def no_better_than_constant(
    split: str,
    answers: Sequence[str | None],
    metrics: Mapping[str, float],
    baseline: Mapping[str, float],
    *,
    selection: str,
    baseline_name: str,
) -> list[str]:
    """Sentences about models that give every input one answer, or are no better than a constant answer.

    `answers` holds each model's one answer, or None (`Kind.only_answer`); `metrics` are those of the ensemble, and
    `selection` is the metric that has selected the models.
    """
    sentences = []
    # With a threshold, the most probable label is not always the answer.
    stuck = [] if "threshold" in metrics else [answer for answer in answers if answer]
    if stuck:
        who = "the model gives" if len(answers) == 1 else f"{len(stuck)} of {len(answers)} models give"
        sentences.append(f"{split}: {who} {' or '.join(dict.fromkeys(stuck))} to every input. {_REMEDY}")
    worse = [name for name in _deciding(selection, metrics, baseline) if not _is_better(name, metrics, baseline)]
    if worse and len(stuck) < len(answers):
        numbers = ", ".join(f"{name} {shown(name, metrics[name])} and {shown(name, baseline[name])}" for name in worse)
        sentences.append(f"{split}: the model is no better than the baseline, {baseline_name} ({numbers}). {_REMEDY}")
    return sentences


def _deciding(selection: str, metrics: Mapping[str, float], baseline: Mapping[str, float]) -> list[str]:
    """The metric that selects checkpoints, or else the first one; and the errors, if all of them are no better."""
    shared = [name for name in metrics if name in baseline]
    chosen = [name for name in shared if base_name(name) == base_name(selection)]
    first = chosen[:1] or shared[:1]
    errors = [name for name in shared if name in SMALLER_IS_BETTER]
    return first + ([] if any(_is_better(name, metrics, baseline) for name in errors) else errors)


def _is_better(name: str, metrics: Mapping[str, float], baseline: Mapping[str, float]) -> bool:
    difference = metrics[name] - baseline[name]
    return (-difference if name in SMALLER_IS_BETTER else difference) > 1e-9
