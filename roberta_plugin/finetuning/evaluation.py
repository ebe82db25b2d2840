"""Fine-tuned checkpoints and a prepared split -> official metrics: of each, their median, and of their average."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from roberta_plugin.data.atomic_files import atomic_write
from roberta_plugin.finetuning.inference import load_model, run_model
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.finetuning.suites import suite_of

PREFIX = "evaluation_"


def evaluate(
    prepared: Prepared,
    checkpoints: Sequence[str | os.PathLike[str]],
    *,
    split: str,
    folder: Path,
    device: str | torch.device = "cpu",
    max_tokens: int = 16384,
    options: Mapping[str, str] | None = None,
    show_progress: bool = False,
) -> dict[str, Any]:
    """Evaluate checkpoints on a split, and write what was found into a folder.

    The predictions that are written are those of all checkpoints together: their outputs are averaged, as the paper
    does for GLUE's test sets (section 5.1).

    Args:
        prepared: the data.
        checkpoints: one, or the members of an ensemble.
        split: which split of the data.
        folder: where evaluation_SPLIT.json and the prediction files go; it is made.
        device: where to compute.
        max_tokens: positions of a batch at most.
        options: options of the suite's scoring.
        show_progress: whether to show progress bars.

    Returns:
        What evaluation_SPLIT.json holds: task, split, options, "predictions": the files, "members" (checkpoint and
        metrics), "median" of the members' metrics, "together": the metrics of the averaged outputs. Metrics are 0 to
        100; there are none without labels.

    Raises:
        ValueError: if a file of the prepared folder was changed since it was made, or a checkpoint does not fit.
    """
    suite, part = suite_of(prepared.task), prepared.split(split)
    for fault in prepared.changed_files(split):
        raise ValueError(fault)  # else the numbers would be those of other data
    options = dict(options or {})
    folder.mkdir(parents=True, exist_ok=True)
    outputs = []
    for checkpoint in checkpoints:
        model, task = load_model(checkpoint, prepared)
        outputs.append(run_model(model, task, part, max_tokens=max_tokens, device=device, show_progress=show_progress))
    together = suite.score(prepared.task, prepared, split, outputs, folder=folder, options=options)
    alone = [together]
    if len(outputs) > 1:
        alone = [suite.score(prepared.task, prepared, split, [one], folder=None, options=options) for one in outputs]
    found = {
        "task": prepared.task,
        "split": split,
        "data": str(prepared.folder),
        "options": options,
        "predictions": [str(folder / name) for name in suite.prediction_files(prepared.task, split)],
        "members": [
            {"checkpoint": str(checkpoint), "metrics": metrics}
            for checkpoint, metrics in zip(checkpoints, alone, strict=True)
        ],
        "median": {name: statistics.median(metrics[name] for metrics in alone) for name in alone[0]},
        "together": together,
    }
    with atomic_write(folder / f"{PREFIX}{split}.json", "w") as file:
        file.write(json.dumps(found, indent=2) + "\n")
    return found


def evaluate_splits(
    prepared: Prepared, checkpoints: Sequence[Path], *, folder: Path, **how: Any
) -> list[dict[str, Any]]:
    """Evaluate on every split but train, as `evaluate` does; SQuAD 2.0's threshold is that of the development set.

    Where checkpoints are gone that were evaluated and not kept, what was found then is read.

    Raises:
        FileNotFoundError: if such an evaluation is not there, or was another one.
    """
    options: dict[str, str] = dict(how.pop("options", None) or {})
    splits = sorted((name for name in prepared.splits if name != "train"), key=lambda name: name != "valid")
    found: list[dict[str, Any]] = []
    for split in splits:
        if all(path.is_file() for path in checkpoints):
            found.append(evaluate(prepared, checkpoints, split=split, folder=folder, options=options, **how))
        else:
            found.append(_known(prepared, checkpoints, split=split, folder=folder, options=options))
        if split == "valid" and "null_threshold" in found[0]["together"]:
            options = {"null-threshold": str(found[0]["together"]["null_threshold"]), **options}
    return found


def _known(
    prepared: Prepared, checkpoints: Sequence[Path], *, split: str, folder: Path, options: Mapping[str, str]
) -> dict[str, Any]:
    path = folder / f"{PREFIX}{split}.json"
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    members = [member["checkpoint"] for member in known.get("members", ())]
    if (known.get("split"), known.get("options"), members) != (split, dict(options), [str(one) for one in checkpoints]):
        missing = next(one for one in checkpoints if not one.is_file())
        raise FileNotFoundError(
            f"{missing} was not kept after its evaluation, and {path} is not of the same runs and options. Evaluate "
            f"the checkpoints that are left by `roberta evaluate --data {prepared.folder} --checkpoint ...`; to keep "
            "all of them, train in another folder with --keep weights."
        )
    return known


def where_predictions_are(evaluations: Sequence[Mapping[str, Any]]) -> str:
    """A line a split that names its prediction files."""
    return "".join(f"predictions, {found['split']}: {', '.join(found['predictions'])}\n" for found in evaluations)
