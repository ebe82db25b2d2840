"""A grid file -> the runs of a sweep: every combination of the axes, with every seed.

    train:                         # fairseq-train's options of all runs, as in a recipe (recipe.py)
      data: data-bin/books
      task: roberta_masked_lm
      bf16: true                   # an option without a value; `false` leaves it out
      tensorboard-logdir: "{folder}/tensorboard"        # {folder}: the folder of the run
    axes:
      dropout: [0.0, 0.1]          # an option, and its values
      batch:                       # or a name, and under it settings that belong together
        256: {update-freq: 1, lr: 1e-4}
        2K: {update-freq: 8, lr: 7e-4}
    seeds: [1, 2, 3]
    metric: {log: valid, value: ppl, goal: min, at: last}
    slurm: {partition: gpu, time: 8:00:00, gpus_per_node: 8}     # `roberta sweep --slurm`; sbatch_options.py

A *cell* is one combination of the axes; a *run* is a cell with a seed. Values reach fairseq-train as they are written:
`1e-4` stays `1e-4` (`options_file.py`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .options_file import is_null, named_options, read_yaml, to_arguments

_SECTIONS = ("train", "axes", "seeds", "metric", "slurm")
# What the sweep sets for each run, and why a grid file must not.
_OURS = {
    "save-dir": "every run has its own",
    "seed": "list the seeds under `seeds`",
    "log-format": "the metric is read from the JSON log",
    "log-file": "every run has its own log.txt",
    "restore-file": "a run goes on from its own checkpoint; to start from a model use --finetune-from-model",
}
# A run has one task on one machine; its GPUs are fairseq-train's to start processes on.
_SLURM_SETTINGS = {
    *("partition", "time", "gpus_per_node", "cpus_per_task", "mem", "account", "qos", "constraint", "exclude", "setup"),
    *("signal_delay_s", "gpu_request"),
}
SBATCH = "sbatch."  # in front of any other option of sbatch, in the settings of a grid
PLUGIN = Path(__file__).parent.parent  # the default of --user-dir
_FOLDER = "{folder}"
_UNSAFE = re.compile(r"[^A-Za-z0-9.+-]+")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Which number of a run counts.

    Either `log`, the validation split whose records in the log hold `value`, or `file`, a JSON file in the run's folder
    that holds it (`a.b` is b inside a).
    """

    value: str
    goal: str  # "min" or "max"
    log: str = ""
    at: str = "best"  # the best validation, or the last one
    file: str = ""

    @property
    def words(self) -> list[str]:
        """Options that let fairseq keep the checkpoint which this metric calls the best."""
        if not self.log or self.at != "best":
            return []
        goal = ["--maximize-best-checkpoint-metric"] if self.goal == "max" else []
        return ["--best-checkpoint-metric", self.value, *goal]

    def better(self, a: float, b: float) -> bool:
        """Whether `a` is better than `b`."""
        return a < b if self.goal == "min" else a > b

    def __str__(self) -> str:
        """As in `valid ppl, last, smaller is better`."""
        where = self.file or f"{self.log} {self.value}, {self.at}"
        return f"{where}, {'smaller' if self.goal == 'min' else 'larger'} is better"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training: its place in the grid and its words after `fairseq-train`, in which {folder} is still open."""

    cell: str
    seed: str
    settings: Mapping[str, str]  # axis -> label
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """Where the run lies in the folder of the sweep."""
        return f"{self.cell}/seed-{self.seed}"

    def words_in(self, folder: Path, metric: Metric, *, code: Path | None = None) -> list[str]:
        """The words after `fairseq-train`, for a run that lies in `folder`; user directories are those in `code`."""
        own = ["--seed", self.seed, "--save-dir", str(folder / "checkpoints"), "--log-format", "json"]
        if "--user-dir" not in self.words:
            own += ["--user-dir", str(PLUGIN)]
        if "--best-checkpoint-metric" not in self.words:
            own += metric.words
        words = [word.replace(_FOLDER, str(folder)) for word in self.words] + own
        if code is not None:
            at = words.index("--user-dir") + 1
            words[at] = str(code / Path(words[at]).resolve().name)
        return words


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What a grid file says."""

    path: Path
    metric: Metric
    runs: tuple[Run, ...]
    slurm: Mapping[str, str]  # what each run asks SLURM for

    @property
    def cells(self) -> list[str]:
        """Names of the cells, in the order of the file."""
        return list(dict.fromkeys(run.cell for run in self.runs))


def read_grid(path: Path) -> Grid:
    """Read and check a grid file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the file, the place and what would be right.
    """
    content = read_yaml(path)
    if set(content) - set(_SECTIONS) or not {"train", "metric"} <= set(content):
        raise ValueError(
            f"{path}: a grid file has the sections train and metric, and may have axes, seeds and slurm; found "
            f"{', '.join(content)}."
        )
    options = _options_of(content["train"], path, "train")
    if not isinstance(options.get("data"), str) or not options["data"]:
        raise ValueError(f"{path}: train must hold `data`, the first argument of fairseq-train.")
    content = {name: value for name, value in content.items() if not is_null(value) or name == "metric"}
    axes = _axes_of(content.get("axes", {}), path)
    seeds = _list_of(content.get("seeds", ["1"]), path, "seeds")
    if not all(seed.isdigit() for seed in seeds):
        raise ValueError(f"{path}: seeds must be whole numbers, got {', '.join(seeds)}.")
    return Grid(
        path=path,
        metric=_metric_of(content["metric"], path),
        runs=tuple(_runs_of(options, axes, seeds, path)),
        slurm=_slurm_of(content.get("slurm", {}), path),
    )


def _options_of(content: Any, path: Path, place: str) -> dict[str, Any]:
    """Options by name, without dashes in front and with dashes within."""
    options = named_options(content, where=f"{path}: {place}")
    for name in options.keys() & _OURS:
        raise ValueError(f"{path}: {place} sets {name}, which the sweep sets itself: {_OURS[name]}. Remove it.")
    return options


def _list_of(content: Any, path: Path, place: str) -> list[str]:
    if not isinstance(content, list) or not content or not all(isinstance(item, str) for item in content):
        raise ValueError(f"{path}: {place} must be a list of values such as [1, 2, 3], got {content!r}.")
    if len(content) != len(set(content)):
        raise ValueError(f"{path}: {place} has a value twice: {', '.join(content)}.")
    return content


def _axes_of(content: Any, path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Axis -> label -> options."""
    if not isinstance(content, dict):
        raise ValueError(f"{path}: axes must hold an axis a line, as in `lr: [1e-5, 2e-5]`, got {content!r}.")
    axes = {}
    for name, choices in content.items():
        place = f"axes, {name}"
        if isinstance(choices, dict) and choices:
            axes[name] = {label: _options_of(options, path, f"{place}, {label}") for label, options in choices.items()}
        else:
            values = _list_of(choices, path, place)
            axes[name] = {value: _options_of({name: value}, path, place) for value in values}
    return axes


def _runs_of(
    options: dict[str, Any], axes: dict[str, dict[str, dict[str, Any]]], seeds: list[str], path: Path
) -> Iterator[Run]:
    cells: dict[str, Mapping[str, str]] = {}
    for labels in itertools.product(*axes.values()):
        settings = dict(zip(axes, labels, strict=True))
        merged: dict[str, Any] = {}
        for axis, label in settings.items():
            twice = merged.keys() & axes[axis][label].keys()
            if twice:
                raise ValueError(f"{path}: two axes set {', '.join(sorted(twice))}; an option belongs to one axis.")
            merged.update(axes[axis][label])
        cell = "_".join(f"{_plain(axis)}-{_plain(label)}" for axis, label in settings.items()) or "base"
        if cell in cells:
            raise ValueError(f"{path}: {cells[cell]} and {settings} would both be called {cell}; rename one of them.")
        cells[cell] = settings
        words = tuple(to_arguments({**options, **merged}, where=str(path)))
        for seed in seeds:
            yield Run(cell=cell, seed=seed, settings=settings, words=words)


def _plain(text: str) -> str:
    return _UNSAFE.sub("-", text).strip("-.") or "none"


def _metric_of(content: Any, path: Path) -> Metric:
    fields = {"log", "file", "value", "goal", "at"}
    if not isinstance(content, dict) or set(content) - fields or not {"value", "goal"} <= set(content):
        raise ValueError(
            f"{path}: metric must be as {{log: valid, value: ppl, goal: min, at: best}} or {{file: result.json, value: "
            f"f1, goal: max}}, got {content!r}."
        )
    metric = Metric(**content)
    if metric.goal not in ("min", "max"):
        raise ValueError(f"{path}: metric, goal must be min or max, got {metric.goal!r}.")
    if metric.at not in ("best", "last"):
        raise ValueError(f"{path}: metric, at must be best or last, got {metric.at!r}.")
    if bool(metric.log) == bool(metric.file):
        raise ValueError(f"{path}: metric must have either log, the split as in fairseq's log, or file, a JSON file.")
    return metric


def _slurm_of(content: Any, path: Path) -> dict[str, str]:
    """Settings by name, those below `sbatch` as sbatch.NAME."""
    settings: dict[str, Any] = dict(content) if isinstance(content, dict) else {"slurm": content}
    further = settings.pop("sbatch", {})
    if isinstance(further, list) and all(isinstance(item, str) for item in further):
        further = dict((*item.split("=", 1), "true")[:2] for item in further)
    if isinstance(further, dict):
        settings |= {f"{SBATCH}{name}": value for name, value in further.items()}
    else:
        settings["sbatch"] = further
    settings = {name: value for name, value in settings.items() if not is_null(value)}
    unknown = sorted(name for name in settings if name not in _SLURM_SETTINGS and not name.startswith(SBATCH))
    if unknown:
        raise ValueError(
            f"{path}: slurm has {unknown[0]!r}; it may have {', '.join(sorted(_SLURM_SETTINGS))}, and any other option "
            f"of sbatch below sbatch:, as `sbatch: {{reservation: night}}`."
        )
    if not all(isinstance(value, str) for value in settings.values()):
        raise ValueError(f"{path}: slurm must hold settings such as `partition: gpu`, got {settings!r}.")
    return settings


def finite(value: Any) -> float | None:
    """`value` as a number, or None where it is none: a diverged run logs nan."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
