"""Fine-tuned checkpoints and a prepared split -> official metrics of each, their median, and the ensemble's metrics.

Beside them are the metrics of a constant answer, the baseline of every task, and a sentence for each model that is
no better. The task's own benchmark scores the baseline, as the outputs of a model that gives every input one answer:
the most frequent label or tag of the training set, its mean number, the first option, or no answer (SQuAD 2.0). Own
data bring theirs along (`Benchmark.judge`); the baseline of summaries is the first sentences of the text.

Shapes: S sequences of a split, C classes, T_s tokens of sequence s, W words.

Example:
    from roberta_plugin.experiments.evaluation import EvaluateSettings, evaluate

    settings = EvaluateSettings(data=Path("data-bin/RTE"), checkpoints=[Path("best.pt")], output_dir=Path("results"))
    for evaluation in evaluate(settings):
        print(evaluation.split, evaluation.median, evaluation.predictions)
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from roberta_plugin.checkpoint_files import read_tensors
from roberta_plugin.experiments.settings import EvaluateSettings as EvaluateSettings
from roberta_plugin.finetuning.benchmarks import (
    all_tasks,
    benchmark_of,
    brought_by,
    checked_options,
    option_fields,
    options_for,
    unknown_task,
)
from roberta_plugin.finetuning.benchmarks.base import Benchmark
from roberta_plugin.finetuning.kinds import deciding_numbers, error_metrics
from roberta_plugin.finetuning.kinds.bag_of_words import NAME as WORDS
from roberta_plugin.finetuning.kinds.bag_of_words import BagOfWords
from roberta_plugin.finetuning.kinds.base import Kind
from roberta_plugin.finetuning.kinds.outputs import DEVELOPMENT, RawOutputs, read_outputs, write_outputs
from roberta_plugin.finetuning.kinds.score_names import current_evaluation, find_score, untuned
from roberta_plugin.finetuning.options import TaskOptions
from roberta_plugin.finetuning.preparation import remarks
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit
from roberta_plugin.json_files import parse_json, write_json
from roberta_plugin.registry import check_installed

PREFIX = "evaluation_"
_LEAD = "lead_"  # in the names of the metrics of summaries
_HIGH_RATE = 1e-3  # above the rates at which models are fine-tuned; some small ones at this one


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
    """The prediction files, of the ensemble if there are several checkpoints."""
    members: Sequence[Mapping[str, Any]]  # the "checkpoint" and the "metrics" of each model
    median: Mapping[str, float]  # median of the members' metrics
    ensemble: Mapping[str, float]  # metrics of the averaged outputs
    details: Mapping[str, Any] = field(default_factory=dict)  # further results of the benchmark (`Benchmark.judge`)
    remarks: Sequence[str] = field(default_factory=list)
    """Texts that were cut, labels without examples, and models that have learned nothing."""
    baseline: Mapping[str, float] = field(default_factory=dict)  # metrics of a constant answer (`baseline`)
    tf_idf: Mapping[str, float] = field(default_factory=dict)
    """Metrics of TF-IDF with logistic regression (`finetuning/kinds/bag_of_words.py`), where texts get labels."""
    selection: str = ""  # the metric that has selected the models; empty: the recipe's
    precision: str = "fp32"  # of the models' products (`models/precision.py`)
    extensions: Sequence[Mapping[str, str]] = field(default_factory=list)
    """Extensions of other packages that have the task (`registry.owners_elsewhere`)."""
    examples: Mapping[str, str] = field(default_factory=dict)  # `Prepared.hashes_of_examples`
    folder: str = field(default="", compare=False)  # where it was read from; the file does not have it

    def has_same_examples(self, other: Evaluation) -> bool:
        """False if another evaluation has judged other examples, as far as both say it."""
        is_made_alike = self.examples.get("made") == other.examples.get("made")
        name = "inputs" if is_made_alike else "records"
        ours, theirs = self.examples.get(name), other.examples.get(name)
        return ours is None or theirs is None or ours == theirs

    @classmethod
    def read(cls, path: Path) -> Evaluation:
        """Read evaluation_SPLIT.json."""
        try:
            content = current_evaluation(parse_json(path.read_text(encoding="utf-8")))
            names = {item.name for item in fields(cls)}
            found = {name: value for name, value in content.items() if name in names}
            evaluation = cls(**found | {"folder": str(path.parent)})
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise ValueError(f"{path} is not an evaluation of `roberta evaluate` ({error}): delete it.") from error
        check_installed(evaluation.extensions, what=f"{path} was made with")
        if evaluation.task not in all_tasks():
            raise ValueError(f"{path}: {unknown_task(evaluation.task)}")
        return evaluation

    def write(self, folder: Path) -> None:
        """Write evaluation_SPLIT.json."""
        content = {name: value for name, value in asdict(self).items() if name != "folder"}
        write_json(folder / f"{PREFIX}{self.split}.json", content)


def evaluate(settings: EvaluateSettings) -> list[Evaluation]:
    """Evaluate checkpoints on several splits, the development set first; write evaluation_SPLIT.json and predictions.

    A threshold or a temperature that is found on the development set, now or before (`earlier_decisions`), as for "no
    answer" in SQuAD 2.0 and for several labels, is applied to the other splits, unless the options give one: to each
    model its own, and to the ensemble the ensemble's.

    Raises:
        FileNotFoundError: if a checkpoint does not exist and its outputs are not stored.
        ValueError: if a file of the prepared folder has changed since it was made, a checkpoint does not fit it, or a
            number is neither given nor found.
    """
    judge = Judge.open(settings)
    decisions = Decisions({}, [{}] * len(settings.checkpoints), {})
    if DEVELOPMENT not in judge.splits:
        decisions = earlier_decisions(judge) or decisions
    evaluations: list[Evaluation] = []
    for split in judge.splits:
        evaluation = evaluate_split(judge, split, decisions)
        evaluation.write(settings.output_dir)
        evaluations.append(evaluation)
        if split == DEVELOPMENT:
            decisions = Decisions.read_from(evaluation)
    return evaluations


def store_outputs(settings: EvaluateSettings) -> None:
    """Store the raw outputs of the checkpoints for all splits, without scoring them.

    Raises:
        FileNotFoundError: if a checkpoint does not exist and its outputs are not stored.
    """
    assert settings.stored is not None
    judge = Judge.open(settings)
    for split in judge.splits:
        for _ in raw_outputs(settings, judge.prepared, judge.prepared.split(split)):
            pass


@dataclass(frozen=True)
class Judge:
    """The data of an evaluation, with the benchmark and the kind that judge a model's outputs for them."""

    settings: EvaluateSettings
    prepared: Prepared
    benchmark: Benchmark
    kind: Kind
    options: TaskOptions  # complete

    @classmethod
    def open(cls, settings: EvaluateSettings) -> Judge:
        """Open the prepared folder of an evaluation."""
        prepared = Prepared.open(settings.data)
        benchmark, options = benchmark_of(prepared.task), checked_options(prepared.task, settings.options)
        return cls(settings, prepared, benchmark, benchmark.kind_for(prepared.settings), options)

    @property
    def selection(self) -> str:
        """The metric by which the checkpoints were chosen, or would be."""
        return self.kind.metric_named(self.settings.selection or self.benchmark.selection or self.kind.selection)

    @property
    def splits(self) -> list[str]:
        """The splits to evaluate, the development set first."""
        names = self.settings.splits or [name for name in self.prepared.splits if name != "train"]
        return sorted(names, key=lambda name: name != DEVELOPMENT)

    def deciding(self, chosen: Mapping[str, float]) -> TaskOptions:
        """The options with all thresholds and temperatures that were `chosen`, in place of the options that would
        choose them; given ones stay. All of them, because a threshold holds at one temperature only."""
        scoring = self.options.given("score")
        names = {item.name for item in option_fields(self.prepared.task, stages=("score",))}
        for name in (name for name in deciding_numbers() if name in names and name in chosen):
            scoring.pop(self.kind.decides_by.get(name, ""), None)
            scoring.setdefault(name, chosen[name])
        return options_for(self.prepared.task, {**self.options.given("prepare"), **scoring})

    def score(self, split: str, outputs: RawOutputs, options: TaskOptions) -> dict[str, float]:
        """The metrics of one model's outputs."""
        return self.benchmark.score(self.prepared, split, [outputs], folder=None, options=options)

    def reported(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Metrics of own data without the F1 of single labels, which reports have in their tables of labels, and
        without `Kind.unreported`; but with those that were chosen by."""
        if not self.kind.official.is_own:
            return dict(values)
        chosen = {self.selection, *map(str, self.options.given("score").values())}
        hidden = {*self.kind.unreported, *map(untuned, self.kind.label_metrics())} - set(map(untuned, chosen))
        return {name: value for name, value in values.items() if untuned(name) not in hidden}


class Decisions(NamedTuple):
    """Thresholds and temperatures, chosen on the development set (`kinds/outputs.py`), among its metrics."""

    ensemble: Mapping[str, float]
    members: Sequence[Mapping[str, float]]
    words: Mapping[str, float]  # of TF-IDF with logistic regression

    @classmethod
    def read_from(cls, evaluation: Evaluation) -> Decisions:
        """The decisions of an evaluation of the development set."""
        return cls(evaluation.ensemble, [member["metrics"] for member in evaluation.members], evaluation.tf_idf)


def earlier_decisions(judge: Judge) -> Decisions | None:
    """The numbers of an earlier evaluation of the same checkpoints and data in the output folder, or of a single
    checkpoint's own fine-tuning; None where they were chosen by other options than the present ones.
    """
    from roberta_plugin.conversion.model_files import own_results

    settings, by = judge.settings, [wish.replace("_", "-") for wish in judge.kind.decides_by.values()]
    wishes = {name: text for name, text in as_text(judge.options).items() if name in by}
    path = settings.output_dir / f"{PREFIX}{DEVELOPMENT}.json"
    if path.is_file():
        evaluation = Evaluation.read(path)
        theirs = [Path(member["checkpoint"]).resolve() for member in evaluation.members]
        is_of_data = Path(evaluation.data).resolve() == settings.data.resolve()
        is_of_models = theirs == [checkpoint.resolve() for checkpoint in settings.checkpoints]
        if is_of_data and is_of_models and wishes.items() <= evaluation.options.items():
            return Decisions.read_from(evaluation)
    results = [own_results(checkpoint, DEVELOPMENT) for checkpoint in settings.checkpoints]
    if len(results) == 1:
        (own,) = results
        return Decisions(own.metrics, [own.metrics], own.tf_idf) if wishes.items() <= own.options.items() else None
    if any(set(deciding_numbers()) & own.metrics.keys() - judge.options.given("score").keys() for own in results):
        raise ValueError(
            "The models of an ensemble have thresholds or temperatures of their own, and the ensemble's are found on "
            f"the development set: evaluate `{DEVELOPMENT}` too."
        )
    return None


def evaluate_split(judge: Judge, split: str, decisions: Decisions) -> Evaluation:
    """Evaluate the checkpoints on one split, and write the prediction files.

    The predictions come from the ensemble: the outputs of all checkpoints are averaged, as the paper does for GLUE's
    test sets (section 5.1).
    """
    settings, prepared, part = judge.settings, judge.prepared, judge.prepared.split(split)
    for fault in prepared.changed_files(split):
        raise ValueError(fault)  # else the numbers would belong to other data
    settings.output_dir.mkdir(parents=True, exist_ok=True)
    outputs, options = list(raw_outputs(settings, prepared, part)), judge.deciding(decisions.ensemble)
    scores, details = judge.benchmark.judge(prepared, split, outputs, folder=settings.output_dir, options=options)
    ensemble = judge.reported(scores)
    metrics = [ensemble]
    if len(outputs) > 1:
        metrics = [
            judge.reported(judge.score(split, one, judge.deciding(own)))
            for one, own in zip(outputs, decisions.members, strict=True)
        ]
    details |= {name: judge.reported(details[name]) for name in ("intervals", "baseline") if name in details}
    constant = constant_baseline(judge, split, outputs[0], metrics=ensemble, details=details, options=options)
    tf_idf, skipped = bag_of_words_baseline(judge, part, ensemble, decisions)
    answers = [judge.kind.only_answer(each, part) for each in outputs]
    return Evaluation(
        task=prepared.task,
        split=split,
        data=str(prepared.folder),
        options=as_text(options),
        predictions=[str(settings.output_dir / name) for name in judge.benchmark.prediction_files(split)],
        members=[
            {"checkpoint": str(checkpoint), "metrics": each}
            for checkpoint, each in zip(settings.checkpoints, metrics, strict=True)
        ],
        median={name: statistics.median(each[name] for each in metrics) for name in metrics[0]},
        ensemble=ensemble,
        details=details,
        baseline=constant,
        tf_idf=tf_idf,
        selection=judge.selection if settings.selection else "",
        precision=settings.precision,
        extensions=brought_by(prepared.task, prepared.settings),
        examples=prepared.hashes_of_examples(split, free=judge.kind.cut_settings),
        remarks=[
            *no_better_than_words(split, ensemble, tf_idf, selection=judge.selection),
            *no_better_than_constant(
                split,
                answers,
                ensemble,
                constant,
                selection=judge.selection,
                baseline_name=judge.kind.baseline_name,
                rate=max(filter(None, map(peak_rate, settings.checkpoints)), default=None),
            ),
            *([f"{split}: {words}"] if (words := judge.kind.words_on_scores(ensemble)) else []),
            *remarks(prepared, [name for name in ("train", split) if name in prepared.splits]),
            *skipped,
        ],
    )


def as_text(options: TaskOptions) -> dict[str, str]:
    """The options of the scoring that are given, named as on the command line.

    Example:
        as_text(SquadOptions(n_best=5))  ->  {"n-best": "5"}
    """
    return {name.replace("_", "-"): str(value) for name, value in options.given("score").items()}


def raw_outputs(settings: EvaluateSettings, prepared: Prepared, part: PreparedSplit) -> Iterator[RawOutputs]:
    """The outputs of each checkpoint for a split: the stored ones, or else what the model computes now."""
    from roberta_plugin.experiments.inference import load_model, run_model
    from roberta_plugin.hub.running import usable_device

    folders: Sequence[Path | None] = settings.stored or [None] * len(settings.checkpoints)
    for checkpoint, folder in zip(settings.checkpoints, folders, strict=True):
        outputs = read_outputs(folder, part, checkpoint=checkpoint) if folder else None
        if outputs is None:
            if folder and not checkpoint.is_file():
                raise FileNotFoundError(
                    f"{checkpoint} does not exist, and {folder} does not hold its outputs for the split {part.name!r} "
                    f"of {prepared.folder}. To train this run again, delete {folder.parent / 'result.json'} and run "
                    "the same command again."
                )
            model, task = load_model(checkpoint, prepared, split=part.name)
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
                write_outputs(folder, outputs, part, checkpoint=checkpoint)
        yield outputs


def shown(metric: str, value: float) -> str:
    """A metric for a table: percent with one digit, errors in units of the label with four.

    Example: shown("accuracy", 81.234) -> "81.2"; shown("mae", 0.0123456) -> "0.01235".
    """
    return f"{value:.4g}" if metric in error_metrics() else f"{value:.1f}"


def constant_baseline(
    judge: Judge,
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
    if "train" not in judge.prepared.splits:
        return {}
    constant = judge.kind.constant(outputs, judge.prepared.split("train"))
    return {} if constant is None else judge.score(split, constant, options)


@lru_cache(maxsize=1)
def bag_of_words(folder: Path, digest: str | None) -> BagOfWords:
    """The bag of words of a prepared folder, fitted once for all models that are compared with it."""
    return BagOfWords(Prepared.open(folder))


def bag_of_words_baseline(
    judge: Judge, part: PreparedSplit, metrics: Mapping[str, float], decisions: Decisions
) -> tuple[dict[str, float], list[str]]:
    """The `metrics` of a model that TF-IDF with logistic regression has too, and why there are none, if that needs
    saying; it decides by its own threshold, or else by the ensemble's."""
    prepared = judge.prepared
    if not judge.kind.is_compared_with_words or "train" not in prepared.splits or not metrics:
        return {}, []
    words = bag_of_words(prepared.folder, prepared.sha256_of_inputs("train"))
    if reason := words.skipped():
        return {}, [reason]
    theirs = judge.score(part.name, words.outputs(part), judge.deciding(decisions.words or decisions.ensemble))
    return {name: value for name, value in theirs.items() if name in metrics}, []


def no_better_than_words(
    split: str, metrics: Mapping[str, float], tf_idf: Mapping[str, float], *, selection: str
) -> list[str]:
    """A sentence if TF-IDF with logistic regression is as good as the model, or better."""
    worse = [
        f"{name} {shown(name, tf_idf[name])}; the model {shown(name, metrics[name])}"
        for name in _no_better(selection, metrics, tf_idf)
    ]
    return [f"{split}: {WORDS} is as good or better ({', '.join(worse)})."] if worse else []


def peak_rate(checkpoint: Path) -> float | None:
    """The --lr of the training that has written a checkpoint; None if the file does not say."""
    try:
        state = read_tensors(checkpoint, advice="", is_mapped=True)
        return max(float(rate) for rate in state["cfg"]["optimization"]["lr"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def remedy(rate: float | None) -> str:
    """A remedy for a model that has learned nothing, by the peak learning rate of its training, if it is known."""
    if rate is not None and rate > _HIGH_RATE:
        return (
            f"It is of no use as it is, and its learning rate of {rate:g} is higher than models are fine-tuned at, so "
            "that its training has probably diverged: try a lower one (--only lr=2e-5)."
        )
    return (
        "It is of no use as it is: try a higher learning rate (--only lr=...), more --epochs, or a model that was "
        "pretrained for longer."
    )


def no_better_than_constant(
    split: str,
    answers: Sequence[str | None],
    metrics: Mapping[str, float],
    baseline: Mapping[str, float],
    *,
    selection: str,
    baseline_name: str,
    rate: float | None = None,
) -> list[str]:
    """Sentences about models that give every input one answer, or are not better than a constant answer.

    `answers` holds each model's one answer, or None (`Kind.only_answer`); `metrics` belong to the ensemble,
    `selection` is the metric that has selected the models, and `rate` their highest learning rate.
    """
    sentences = []
    # With a threshold, the most probable label is not always the answer.
    stuck = [] if "threshold" in metrics else [answer for answer in answers if answer]
    if stuck:
        who = "the model gives" if len(answers) == 1 else f"{len(stuck)} of {len(answers)} models give"
        sentences.append(f"{split}: {who} {' or '.join(dict.fromkeys(stuck))} to every input. {remedy(rate)}")
    worse = _no_better(selection, metrics, baseline)
    if worse and len(stuck) < len(answers):
        numbers = ", ".join(f"{name} {shown(name, metrics[name])} and {shown(name, baseline[name])}" for name in worse)
        sentences.append(
            f"{split}: the model is no better than the baseline, {baseline_name} ({numbers}). {remedy(rate)}"
        )
    return sentences


def _no_better(selection: str, metrics: Mapping[str, float], baseline: Mapping[str, float]) -> list[str]:
    """The metrics that are not better than the baseline's: of the one that selects checkpoints, or else the first one;
    and the errors, if none of them is better."""

    def is_better(name: str) -> bool:
        difference = metrics[name] - baseline[name]
        return (-difference if name in error_metrics() else difference) > 1e-9

    shared = [name for name in metrics if name in baseline]
    chosen = list(filter(None, [find_score(selection, shared)]))
    worse = [name for name in shared if not is_better(name)]
    errors = [name for name in shared if name in error_metrics()]
    first = [name for name in (chosen or shared)[:1] if name in worse]
    return list(dict.fromkeys([*first, *(errors if set(errors) <= set(worse) else [])]))
