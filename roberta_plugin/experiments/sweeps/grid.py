"""A grid file -> the runs of a sweep: every combination of the axes, with every seed. slurm/README.md has the format.

A *cell* is one combination of the axes; a *run* is a cell with a seed. Values reach fairseq-train as they are written:
`1e-4` stays `1e-4` (`options_file.py`).

Example:
    axes: {dropout: [0.0, 0.1], lr: [1e-4]} with seeds: [1, 2]
    ->  runs dropout-0.0_lr-1e-4/seed-1, dropout-0.0_lr-1e-4/seed-2, dropout-0.1_lr-1e-4/seed-1, ...
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from roberta_plugin.files import write_text
from roberta_plugin.launch.options_file import in_section, locate, named_options, read_yaml, recipe_path, to_arguments
from roberta_plugin.launch.recipe import recipe_files, train_options
from roberta_plugin.launch.resources import Resources, given_settings, read_resources
from roberta_plugin.launch.run_folder import Metric, Run, RunFolder
from roberta_plugin.settings import convert, is_null

SECTIONS = ("train", "base", "axes", "variants", "seeds", "slurm")  # of grid files and study files
VARIANT = "variant"
# What the sweep sets for each run, and why a grid file must not.
_OURS = {
    "save-dir": "every run has its own",
    "seed": "list the seeds under `seeds`",
    "log-format": "the metric is read from the JSON log",
    "log-file": "every run has its own log.txt",
    "restore-file": "a run resumes from its own checkpoint; to start from a model use --finetune-from-model",
}
_SEED = re.compile(r"0|[1-9][0-9]*")
_UNSAFE = re.compile(r"[^A-Za-z0-9.+-]+")
Axes: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Any]]]  # axis -> label -> options


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One combination of the axes."""

    name: str
    settings: Mapping[str, str]  # axis -> label
    options: Mapping[str, Any]  # of fairseq-train, as they are written
    own_options: tuple[str, ...]  # names of the options that the axes set


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Many runs: options, axes and seeds, as in a grid file.

    Raises:
        ValueError: when it is made, if the options cannot be those of runs.
    """

    path: Path  # the file, which messages name
    options: Mapping[str, Any]  # fairseq-train's, of every run
    axes: Axes
    seeds: tuple[str, ...]
    metric: Metric
    slurm: Resources | None = None  # what each run asks SLURM for

    def __post_init__(self) -> None:
        """Make the runs now, to find what they cannot be made of."""
        check_own(self.options, self.path, "train")
        _ = self.runs

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """All runs, by cells and then by seeds."""
        return tuple(
            Run(cell=cell.name, seed=seed, settings=cell.settings, arguments=arguments)
            for cell in combinations(self.options, self.axes, self.path)
            for arguments in [tuple(to_arguments(cell.options, where=str(self.path)))]
            for seed in self.seeds
        )

    @property
    def cells(self) -> list[str]:
        """Names of the cells, in the order of the file."""
        return list(dict.fromkeys(run.cell for run in self.runs))

    def write(self) -> None:
        """Write the grid file, in JSON: that is also YAML, and shows which values are strings.

        Characters beyond the first 65,536 stay as they are: JSON's escape for them, two surrogates, is not YAML's.
        """
        axes = {name: list(labels) if is_list(name, labels) else labels for name, labels in self.axes.items()}
        metric = {name: text for name, text in asdict(self.metric).items() if text}
        content = {"train": self.options, "axes": axes, "seeds": self.seeds, "metric": metric}
        if self.slurm is not None:
            content["slurm"] = given_settings(self.slurm)
        write_text(self.path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def run_folders(grid: Grid, root: Path) -> list[RunFolder]:
    """The folders of all runs of a grid, in its order."""
    return [RunFolder(root, run, grid.metric) for run in grid.runs]


def read_grid(path: Path, *, slurm: Mapping[str, str] | None = None) -> Grid:
    """Read and check a grid file; settings in `slurm` win over its section of that name."""
    content = read_yaml(path)
    try:
        return grid_from(content, path, slurm=slurm)
    except ValueError as error:
        section = re.match(r"[\w-]*", str(error).removeprefix(f"{path}: "))
        where = locate(path, f"{error} --{section[0] if section else ''}")
        raise ValueError(str(error).replace(f"{path}: ", f"{where}: ", 1)) from error


def grid_from(content: Mapping[str, Any], path: Path, *, slurm: Mapping[str, str] | None = None) -> Grid:
    """The grid of a file's content; `path` is what messages name."""
    content = {name: value for name, value in content.items() if not is_null(value) or name == "metric"}
    if set(content) - {*SECTIONS, "metric"} or "metric" not in content or not content.keys() & {"train", "base"}:
        raise ValueError(
            f"{path}: a grid file has the sections train and metric, and may have axes, variants, seeds and slurm; "
            f"found {', '.join(content)}."
        )
    options, axes = options_and_axes(content, path)
    with in_section(path, "metric"):
        if not isinstance(content["metric"], dict):
            raise ValueError(f"must be as {{log: valid, value: ppl, goal: min}}, got {content['metric']!r}.")
        metric = convert(Metric, content["metric"], where=str(path))
    return Grid(
        path=path,
        options=options,
        axes=axes,
        seeds=checked_seeds(content.get("seeds", ["1"]), where=f"{path}: seeds"),
        metric=metric,
        slurm=resources_of(content.get("slurm"), slurm or {}, path),
    )


def options_and_axes(content: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], Axes]:
    """The options under `train` of a grid file or a study file, and its axes.

    `base` is another name for `train`, and `variants` for the axis `variant`. `recipe` among the options names a recipe
    whose options they change: one of the package, or a file, relative to this one.
    """
    if {"train", "base"} <= content.keys():
        raise ValueError(f"{path}: base is another name for train: leave out one of them.")
    section = "base" if "base" in content else "train"
    options = _options_of(content[section], path, section)
    if "recipe" in options:
        with in_section(path, section):
            file = recipe_path(str(options["recipe"]), folder=path.parent)
        options = train_options(recipe_files(file), options)
    variants = {VARIANT: content["variants"]} if "variants" in content else {}
    return options, _axes_of(variants, path, section="variants") | _axes_of(content.get("axes", {}), path)


def is_list(axis: str, labels: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the labels of an axis are values of the option that it is named after."""
    return all(options == {axis: label} for label, options in labels.items())


def checked_seeds(content: Any, *, where: str) -> tuple[str, ...]:
    """Seeds as they are written: whole numbers, each once.

    Raises:
        ValueError: also for `01`, which is the seed 1 in another folder.
    """
    words = content if isinstance(content, list | tuple) else []
    if not words or not all(isinstance(word, str) for word in words) or len(set(words)) < len(words):
        raise ValueError(f"{where} must be a list of different whole numbers, as [1, 2], got {content!r}.")
    if not all(_SEED.fullmatch(word) and int(word) < 2**32 for word in words):  # the generators' limit
        raise ValueError(f"{where} must be whole numbers below 2^32 without leading zeros, got {', '.join(words)}.")
    return tuple(words)


def _options_of(content: Any, path: Path, section: str) -> dict[str, Any]:
    """Options by name, without dashes in front and with dashes within."""
    options = named_options(content, where=f"{path}: {section}")
    check_own(options, path, section)
    return options


def check_own(options: Mapping[str, Any], path: Path, section: str) -> None:
    """Refuse options of runs that the sweep sets itself."""
    for name in options.keys() & _OURS:
        raise ValueError(f"{path}: {section} sets --{name}, which the sweep sets itself: {_OURS[name]}. Remove it.")


def _list_of(content: Any, path: Path, section: str) -> list[str]:
    if not isinstance(content, list) or not content or not all(isinstance(item, str) for item in content):
        raise ValueError(f"{path}: {section} must be a list of values such as [1, 2, 3], got {content!r}.")
    if len(content) != len(set(content)):
        raise ValueError(f"{path}: {section} has a value twice: {', '.join(content)}.")
    return content


def _axes_of(content: Any, path: Path, *, section: str = "axes") -> dict[str, dict[str, dict[str, Any]]]:
    if not isinstance(content, dict):
        raise ValueError(f"{path}: axes must hold one axis per line, as in `lr: [1e-5, 2e-5]`, got {content!r}.")
    axes = {}
    for name, choices in content.items():
        where = f"axes, {name}" if section == "axes" else section
        if isinstance(choices, dict) and choices:
            axes[name] = {
                label: {} if is_null(options) else _options_of(options, path, f"{where}, {label}")
                for label, options in choices.items()
            }
        else:
            values = _list_of(choices, path, where)
            axes[name] = {value: _options_of({name: value}, path, where) for value in values}
    return axes


def combinations(options: Mapping[str, Any], axes: Axes, path: Path) -> Iterator[Cell]:
    """The cells: the options with every combination of the axes."""
    names: dict[str, Mapping[str, str]] = {}
    for labels in itertools.product(*axes.values()):
        settings = dict(zip(axes, labels, strict=True))
        axis_options: dict[str, Any] = {}
        for axis, label in settings.items():
            twice = axis_options.keys() & axes[axis][label].keys()
            if twice:
                raise ValueError(f"{path}: two axes set {', '.join(sorted(twice))}; an option belongs to one axis.")
            axis_options.update(axes[axis][label])
        name = "_".join(f"{_plain(axis)}-{_plain(label)}" for axis, label in settings.items()) or "base"
        if name in names:
            raise ValueError(f"{path}: {names[name]} and {settings} would both be called {name}; rename one of them.")
        names[name] = settings
        cell = Cell(name=name, settings=settings, options={**options, **axis_options}, own_options=tuple(axis_options))
        if not isinstance(cell.options.get("data"), str) or not cell.options["data"]:
            raise ValueError(f"{path}: train or base must hold `data`, the first argument of fairseq-train.")
        yield cell


def _plain(text: str) -> str:
    return _UNSAFE.sub("-", text).strip("-.") or "none"


def resources_of(content: Any, overrides: Mapping[str, Any], path: Path) -> Resources | None:
    """The resources of a run: the section slurm of a file, with the settings `overrides`, which win.

    Raises:
        ValueError: for an unknown name, a value of another type, or several nodes.
    """
    if content is None and not overrides:
        return None
    if not isinstance(content, Mapping | None):
        raise ValueError(f"{path}: slurm must hold settings such as `partition: gpu`, got {content!r}.")
    where = f"{path}: slurm"
    try:
        resources = read_resources({**(content or {}), **overrides}, where=where, kind=Resources)
        if resources.nodes != 1:
            raise ValueError(f"{where}: --nodes is {resources.nodes}: a run of a sweep has one node; leave it out.")
    except ValueError as error:
        raise ValueError(str(error).replace(str(path), locate(path, str(error)), 1)) from error
    return resources
