"""Fine-tuned checkpoints and a prepared split -> official metrics: of each, their median, and of their ensemble.

Example:
    from roberta_plugin.experiments.evaluation import EvaluateSettings, evaluate

    settings = EvaluateSettings(data=Path("data-bin/RTE"), checkpoints=[Path("best.pt")], output_dir=Path("results"))
    for evaluation in evaluate(settings):
        print(evaluation.split, evaluation.median, evaluation.predictions)
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from roberta_plugin.experiments.baseline import baseline_of, findings, same_answer
from roberta_plugin.experiments.stored_outputs import read_outputs, write_outputs
from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.benchmarks import benchmark_of, checked_options, options_for
from roberta_plugin.finetuning.inspection import remarks
from roberta_plugin.finetuning.options import TaskOptions
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.settings import REQUIRED, setting

PREFIX = "evaluation_"
_TUNED = ("null_threshold", "threshold")  # metrics that are options too


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings:
    """What `evaluate` does."""

    data: Path = setting(REQUIRED, "prepared folder")
    checkpoints: Sequence[Path] = setting(
        REQUIRED, "fine-tuned checkpoint, or members of an ensemble", flag="--checkpoint", nargs="+"
    )
    output_dir: Path = setting(REQUIRED, "where to write")
    splits: Sequence[str] | None = setting(
        None, "splits to evaluate (default: all but train)", flag="--split", nargs="+"
    )
    options: TaskOptions | None = None
    """Options of the scoring (`finetuning/options.py`); None: the paper's values."""
    max_tokens: int = setting(16384, "most positions of a batch, padding included")
    device: str | None = setting(None, "where to compute (default: a GPU if there is one)")
    show_progress: bool = False
    """Whether to show progress bars."""
    selection: str | None = None
    """The metric that has selected the checkpoints, by which they are judged; None: that of the recipe."""
    stored: Sequence[Path] | None = None
    """Folder of each checkpoint's raw outputs, which are written there, and read if the checkpoint was run before
    (`stored_outputs.py`); None: nothing is stored."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What was found on a split; evaluation_SPLIT.json holds the same.

    Metrics are from 0 to 100, errors in units of the label; without labels there are none.
    """

    task: str
    split: str
    data: str = ""
    """The prepared folder."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the scoring, named as on the command line."""
    predictions: Sequence[str] = field(default_factory=list)
    """The prediction files: those of the ensemble, if there are several checkpoints."""
    members: Sequence[Mapping[str, Any]]
    """Of each model: its "checkpoint" and its "metrics"."""
    median: Mapping[str, float]
    """Median of the members' metrics."""
    ensemble: Mapping[str, float]
    """Metrics of the averaged outputs."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the benchmark says of them besides (`benchmarks.Benchmark.details`)."""
    remarks: Sequence[str] = field(default_factory=list)
    """What of the training set and of this split was cut, which labels they lack, and which models are of no use."""
    baseline: Mapping[str, float] = field(default_factory=dict)
    """Metrics of a constant answer (`baseline`)."""

    @classmethod
    def read(cls, path: Path) -> Evaluation:
        """Read evaluation_SPLIT.json.

        Raises:
            ValueError: if the file is not an evaluation.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            known = {item.name for item in fields(cls)}
            evaluation = cls(**{name: value for name, value in content.items() if name in known})
            benchmark_of(evaluation.task)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not an evaluation of `roberta evaluate` ({error}): delete it.") from error
        return evaluation

    def write(self, folder: Path) -> None:
        """Write evaluation_SPLIT.json."""
        with atomic_write(folder / f"{PREFIX}{self.split}.json", "w") as file:
            file.write(json.dumps(asdict(self), indent=2) + "\n")


def evaluate(settings: EvaluateSettings) -> list[Evaluation]:
    """Evaluate checkpoints on several splits, the development set first.

    A threshold that is tuned on the development set, as for "no answer" in SQuAD 2.0 and for several labels, is applied
    to the other splits, unless the options give one.

    Raises:
        FileNotFoundError: if a checkpoint does not exist and its outputs are not stored.
        ValueError: if a file of the prepared folder has changed since it was made, or a checkpoint does not fit it.
    """
    prepared = Prepared.open(settings.data)
    options = checked_options(prepared.task, settings.options)
    found: list[Evaluation] = []
    for split in _splits(prepared, settings):
        found.append(evaluate_split(prepared, settings, split=split, options=options))
        tuned = {name: found[0].ensemble[name] for name in _TUNED if name in found[0].ensemble}
        if split == "valid" and tuned:
            given = {**options.given("prepare"), **tuned, **options.given("score")}
            options = options_for(prepared.task, given)
    return found


def evaluate_split(prepared: Prepared, settings: EvaluateSettings, *, split: str, options: TaskOptions) -> Evaluation:
    """Evaluate the checkpoints on one split, and write evaluation_SPLIT.json and the prediction files.

    The predictions are those of the ensemble: the outputs of all checkpoints are averaged, as the paper does for GLUE's
    test sets (section 5.1).
    """
    benchmark, folder = benchmark_of(prepared.task), settings.output_dir
    for fault in prepared.changed_files(split):
        raise ValueError(fault)  # else the numbers would be those of other data
    folder.mkdir(parents=True, exist_ok=True)
    outputs = list(_outputs(prepared, settings, split=split))
    ensemble = benchmark.score(prepared.task, prepared, split, outputs, folder=folder, options=options)
    metrics = [ensemble]
    if len(outputs) > 1:
        metrics = [
            benchmark.score(prepared.task, prepared, split, [one], folder=None, options=options) for one in outputs
        ]
    describe = getattr(benchmark, "details", None)
    details = describe(prepared.task, prepared, split, outputs, options=options) if describe else {}
    constant = baseline_of(prepared, split, outputs[0], metrics=ensemble, details=details, options=options)
    answers = [same_answer(prepared, prepared.split(split), each) for each in outputs]
    evaluation = Evaluation(
        task=prepared.task,
        split=split,
        data=str(prepared.folder),
        options=as_text(options),
        predictions=[str(folder / name) for name in benchmark.prediction_files(prepared.task, split)],
        members=[
            {"checkpoint": str(checkpoint), "metrics": each}
            for checkpoint, each in zip(settings.checkpoints, metrics, strict=True)
        ],
        median={name: statistics.median(each[name] for each in metrics) for name in metrics[0]},
        ensemble=ensemble,
        details=details,
        baseline=constant,
        remarks=[
            *findings(prepared, split, answers, ensemble, constant, selection=settings.selection),
            *remarks(prepared, [name for name in ("train", split) if name in prepared.splits]),
        ],
    )
    evaluation.write(folder)
    return evaluation


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
    return sorted(names, key=lambda name: name != "valid")


def _outputs(prepared: Prepared, settings: EvaluateSettings, *, split: str) -> Iterator[RawOutputs]:
    """The raw outputs of each checkpoint for a split: the stored ones, or else what the model computes now."""
    from roberta_plugin.experiments.inference import default_device, load_model, run_model

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
                device=settings.device or default_device(),
                show_progress=settings.show_progress,
            )
            if folder:
                write_outputs(folder, outputs, part)
        yield outputs


def where_predictions_are(evaluations: Sequence[Evaluation]) -> str:
    """One line per split, which names its prediction files."""
    return "".join(f"predictions, {found.split}: {', '.join(found.predictions)}\n" for found in evaluations)
