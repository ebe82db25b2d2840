"""Evaluations -> results.md and .json beside the paper's numbers; report.md where there are details.

The details (`Benchmark.judge`), which only some benchmarks have, are confidence intervals, a table of the
labels and the confusion matrix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roberta_plugin import reports
from roberta_plugin.experiments.evaluation import PREFIX, Evaluation, shown
from roberta_plugin.files import files_below, write_text
from roberta_plugin.finetuning.benchmarks import all_tasks, benchmark_of
from roberta_plugin.finetuning.kinds.score_names import is_of_label, is_score, untuned
from roberta_plugin.reports import markdown_table

_MOST_LABELS = 40  # of a matrix that can be read


class MetricRow(NamedTuple):
    """One metric of one evaluation."""

    task: str
    split: str
    metric: str
    median: float
    smallest: float
    largest: float
    num_members: int
    ensemble: float
    baseline: float | None  # the metric of a constant answer
    tf_idf: float | None  # the metric of TF-IDF with logistic regression
    paper: dict[str, float]  # row of the paper's table -> its number for this metric
    precision: str  # of the models' products
    folder: str  # of the evaluation, if it was read from one


def find_evaluations(folders: Sequence[Path]) -> list[Evaluation]:
    """All evaluations in and below the folders, in the order of the tasks.

    Raises:
        ValueError: if a file is not an evaluation.
    """
    paths = files_below(folders, f"{PREFIX}*.json")
    if not paths:
        raise FileNotFoundError(
            f"No {PREFIX}SPLIT.json in {', '.join(map(str, folders))}: run `roberta finetune` or `roberta evaluate` "
            "first."
        )
    return sorted(map(Evaluation.read, paths), key=lambda each: (all_tasks().index(each.task), each.split))


def metric_rows(evaluations: Sequence[Evaluation]) -> Iterator[MetricRow]:
    """One row per metric; evaluations without labels have none."""
    for evaluation in evaluations:
        paper = benchmark_of(evaluation.task).paper.get(evaluation.split, {})
        for metric, median in evaluation.median.items():
            if not is_score(metric):
                continue
            values = [member["metrics"][metric] for member in evaluation.members]
            yield MetricRow(
                task=evaluation.task,
                split=evaluation.split,
                metric=metric,
                median=median,
                smallest=min(values),
                largest=max(values),
                num_members=len(values),
                ensemble=evaluation.ensemble[metric],
                baseline=evaluation.baseline.get(metric),
                tf_idf=evaluation.tf_idf.get(metric),
                paper={name: numbers[metric] for name, numbers in paper.items() if metric in numbers},
                precision=evaluation.precision,
                folder=evaluation.folder,
            )


def as_markdown(rows: Sequence[MetricRow]) -> str:
    """The table as Markdown. The paper's numbers are for its own models and data.

    Where several evaluations are of the same split of a task, their folders tell them apart.
    """
    papers = list(dict.fromkeys(name for row in rows for name in row.paper))
    if not rows:
        return "There are no metrics: none of the evaluated splits has labels.\n"
    has_words = any(row.tf_idf is not None for row in rows)
    beside = ["baseline", *(["TF-IDF"] if has_words else [])]
    are_several = len({(row.task, row.split, row.metric) for row in rows}) < len(rows)
    where = ["results"] if are_several else []
    head = ["task", "split", *where, "metric", "median", "min to max", "runs", "ensemble", *beside, *papers]
    table = []
    for row in rows:
        median, smallest, largest, ensemble = (
            shown(row.metric, value) for value in (row.median, row.smallest, row.largest, row.ensemble)
        )
        numbers = [median, f"{smallest} to {largest}", str(row.num_members), ensemble]
        baselines = (row.baseline, row.tf_idf)[: len(beside)]
        numbers += ["" if value is None else shown(row.metric, value) for value in baselines]
        numbers += [f"{row.paper[name]:.1f}" if name in row.paper else "" for name in papers]
        table.append([row.task, row.split, *([row.folder] if are_several else []), row.metric, *numbers])
    return markdown_table(head, table) + "\n"


def write_report(evaluations: Sequence[Evaluation], folder: Path) -> str:
    """Write results.md and results.json into a folder; return the table, and below it what was cut or is of no use,
    and a precision other than fp32.

    The rows of each type of entities are in the files only. With details of the evaluations, report.md is
    written too.
    """
    rows = list(metric_rows(evaluations))
    lower = [each for each in evaluations if each.precision != "fp32"]
    remarks = [f"- {each.task}, {each.split}: the models computed in {each.precision}.\n" for each in lower]
    names = _names(evaluations)
    remarks += [
        f"- {name}, {remark}\n" for name, each in zip(names, evaluations, strict=True) for remark in each.remarks
    ]
    remarks += [f"- {sentence}\n" for sentence in not_comparable(evaluations)]
    table = "\n".join([as_markdown(rows), *filter(None, ["".join(dict.fromkeys(remarks))])])
    folder.mkdir(parents=True, exist_ok=True)
    reports.write_report(folder / "results", table, [row._asdict() for row in rows])
    if detailed := [each for each in evaluations if each.details]:
        data = dict.fromkeys(f"{each.task}: {Path(*Path(each.data).parts[-2:])}" for each in detailed)
        named = [(name, each) for name, each in zip(names, evaluations, strict=True) if each.details]
        parts = [f"# {', '.join(data)}", table.rstrip()]
        parts += [part for name, each in named for part in _section(each, name.partition(", ")[2])]
        write_text(folder / "report.md", "\n\n".join(parts) + "\n")
    chosen = {untuned(each.selection) for each in evaluations}
    short = [row for row in rows if untuned(row.metric) in chosen or not is_of_label(row.metric)]
    if len(short) == len(rows):
        return table
    return table.replace(
        as_markdown(rows), f"{as_markdown(short)}\nThe rows of each type are in {folder / 'results.md'}.\n"
    )


def _names(evaluations: Sequence[Evaluation]) -> list[str]:
    """The task of each evaluation; and its folder, if another one is of the same split.

    Example: RTE's development set in two folders -> ["RTE, runs/a/results", "RTE, runs/b/results"]
    """
    splits = Counter((each.task, each.split) for each in evaluations)
    return [
        f"{each.task}, {each.folder}" if splits[each.task, each.split] > 1 and each.folder else each.task
        for each in evaluations
    ]


def not_comparable(evaluations: Sequence[Evaluation]) -> Iterator[str]:
    """A sentence for each split of a task whose evaluations have judged different examples."""
    groups: dict[tuple[str, str], list[Evaluation]] = {}
    for each in evaluations:
        groups.setdefault((each.task, each.split), []).append(each)
    for (task, split), (first, *others) in groups.items():
        different = [other.folder for other in others if not first.has_same_examples(other)]
        if different:
            yield (
                f"{task}, {split}: {', '.join(different)} and {first.folder} were evaluated on different examples, so "
                "that their numbers cannot be compared. To compare models, evaluate all of them on the same file, "
                "which none was trained on: --valid FILE or --test FILE of `roberta prepare`."
            )


def _section(evaluation: Evaluation, folder: str) -> Iterator[str]:
    details, where = evaluation.details, f", {folder}" if folder else ""
    yield f"## {evaluation.split}{where}: {details['num_examples']:,} examples"
    yield _metrics(evaluation)
    if "threshold" in evaluation.ensemble:
        yield f"Threshold: a probability of {evaluation.ensemble['threshold']:g}."
    if calibration := details.get("calibration"):
        yield _calibration(evaluation, calibration)
    if details.get("classes"):
        rows = [
            [row["label"], *(_percent(row[name]) for name in ("precision", "recall", "f1")), f"{row['support']:,}"]
            for row in details["classes"]
        ]
        yield markdown_table(["label", "precision", "recall", "F1", "examples"], rows)
    if (confusion := details.get("confusion")) and len(confusion["labels"]) <= _MOST_LABELS:
        rows = [
            [label, *(f"{count:,}" for count in counts)]
            for label, counts in zip(confusion["labels"], confusion["counts"], strict=True)
        ]
        yield markdown_table(["right / predicted", *confusion["labels"]], rows)
    if details.get("hardest"):
        yield "The highest losses, of wrong labels or hard texts:"
        rows = [
            [*(str(row[name]) for name in ("id", "line", "text", "label", "prediction")), f"{row['loss']:.4g}"]
            for row in details["hardest"]
        ]
        yield markdown_table(["id", "line", "text", "label", "predicted", "loss"], rows)


def _calibration(evaluation: Evaluation, calibration: Mapping[str, Any]) -> str:
    """The expected calibration error, and with a temperature what it does."""
    before, after = calibration["before"], calibration.get("after")
    sentence = f"Expected calibration error {before['ece']:.1f} %, loss {before['loss']:.4f} nats"
    if after is None:
        return f"{sentence}; `--calibrate` would fit a temperature."
    return (
        f"{sentence}; with the temperature {calibration['temperature']:.3g}, which the probabilities above and in the "
        f"predictions have, {after['ece']:.1f} % and {after['loss']:.4f} nats."
        + (" It was fitted on these examples." if evaluation.split == "valid" else "")
    )


def _metrics(evaluation: Evaluation) -> str:
    """Metrics of the ensemble (of the model, if there is one), with their intervals."""
    intervals: Mapping[str, Sequence[float]] = evaluation.details["intervals"]
    beside = {"baseline": evaluation.details.get("baseline") or {}, "TF-IDF": evaluation.tf_idf}
    beside = {name: numbers for name, numbers in beside.items() if numbers}
    column = "ensemble" if len(evaluation.members) > 1 else "model"
    rows = [
        [
            name,
            shown(name, evaluation.ensemble[name]),
            f"{shown(name, low)} to {shown(name, high)}",
            *(shown(name, numbers[name]) if name in numbers else "" for numbers in beside.values()),
        ]
        for name, (low, high) in intervals.items()
    ]
    rows += [[name, _percent(None), "", *[""] * len(beside)] for name in evaluation.details.get("not_measured", ())]
    return markdown_table(["metric", column, "95 % interval", *beside], rows)


def _percent(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1f}"
