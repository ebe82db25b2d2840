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
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from roberta_plugin.files import write_text
from roberta_plugin.launch.options_file import (
    Section,
    all_options,
    note_on_updates,
    options_of_recipe,
    read_file,
    to_arguments,
)
from roberta_plugin.launch.resources import Resources, given_settings, read_resources
from roberta_plugin.launch.run_folder import Metric, Run, RunFolder
from roberta_plugin.settings import short

SECTIONS = ("train", "base", "axes", "variants", "seeds", "slurm")  # of files with runs
VARIANT = "variant"
# Options that the sweep sets for each run, and why a grid file must not set them.
_OURS = {
    "save-dir": "every run has its own",
    "seed": "list the seeds under `seeds`",
    "log-format": "the metric is read from the JSON log",
    "log-file": "every run has its own log.txt",
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
        ValueError: when it is made, if the options do not fit runs of a sweep.
    """

    path: Path  # the file, which messages name
    options: Mapping[str, Any]  # fairseq-train's, of every run
    axes: Axes
    seeds: tuple[str, ...]
    metric: Metric
    slurm: Resources | None = None  # what each run asks SLURM for
    recipe: Mapping[str, Any] = field(default_factory=dict)  # options of the recipe that the file names

    def __post_init__(self) -> None:
        """Make the runs now, to find what they cannot be made of."""
        try:
            _ = self.runs
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from error

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """All runs, by cells and then by seeds."""
        return tuple(
            Run(cell=cell.name, seed=seed, settings=cell.settings, arguments=arguments)
            for cell in combinations(self.options, self.axes)
            for arguments in [tuple(to_arguments(cell.options))]
            for seed in self.seeds
        )

    @property
    def notes(self) -> list[str]:
        """What the settings leave as the recipe has it, though they change its number of updates; each once."""
        cells = combinations(self.options, self.axes)
        return list(dict.fromkeys(filter(None, (note_on_updates(cell.options, self.recipe) for cell in cells))))

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
    """Read and check a grid file. Settings in `slurm` override its section of that name."""
    file = read_file(path)
    with file.located():
        file.check_keys(known=(*SECTIONS, "metric"), needed=[("train", "base")])
        options, axes = options_and_axes(file)
        metric = file.subsection("metric")
        if not isinstance(metric.content, Mapping):
            raise metric.error(f"metric must be as {{log: valid, value: ppl, goal: min}}, got {short(metric.content)}.")
        return Grid(
            path=path,
            options=options,
            axes=axes,
            seeds=checked_seeds(file.subsection("seeds", ["1"]).content, where="--seeds"),
            metric=metric.as_settings(Metric),
            slurm=read_slurm(file.subsection("slurm"), slurm or {}),
            recipe=options_of_recipe(file.subsection("train") or file.subsection("base")),
        )


def options_and_axes(file: Section) -> tuple[dict[str, Any], Axes]:
    """The options under `train` of a file with runs, with the options of the recipe that they name; and its axes.

    `base` is another name for `train`, and `variants` for the axis `variant`.
    """
    train, base, variants = file.subsection("train"), file.subsection("base"), file.subsection("variants")
    if train and base:
        raise base.error("base is another name for train: leave out one of them.")
    axes = file.subsection("axes").subsections("lr: [1e-5, 2e-5]") if file.subsection("axes") else {}
    if variants:
        if VARIANT in axes:
            raise variants.error("variants is another name for the axis variant: leave out one of them.")
        axes = {VARIANT: variants, **axes}
    return all_options(train or base), {name: axis.as_choices(name) for name, axis in axes.items()}


def is_list(axis: str, labels: Mapping[str, Mapping[str, Any]]) -> bool:
    """True if the labels of an axis are values of the option that it is named after."""
    return all(options == {axis: label} for label, options in labels.items())


def checked_seeds(content: Any, *, where: str) -> tuple[str, ...]:
    """Seeds as texts: different whole numbers.

    Raises:
        ValueError: also for `01`, which would be the seed 1 again, in another folder.
    """
    # A grid file has numbers or texts, [1, "2"]. `type`, because true of YAML is an int in Python, but not a seed.
    is_list = isinstance(content, list | tuple)
    words = [str(seed) if type(seed) is int else seed for seed in content] if is_list else []
    are_texts = all(isinstance(word, str) for word in words)
    if not words or not are_texts or len(set(words)) < len(words):
        raise ValueError(f"{where} must be a list of different whole numbers, as [1, 2], got {short(content)}.")
    if not all(_SEED.fullmatch(word) and int(word) < 2**32 for word in words):  # the generators' limit
        raise ValueError(f"{where} must be whole numbers below 2^32 without leading zeros, got {', '.join(words)}.")
    return tuple(words)


def combinations(options: Mapping[str, Any], axes: Axes) -> Iterator[Cell]:
    """The cells: the options with every combination of the axes."""
    names: dict[str, Mapping[str, str]] = {}
    for labels in itertools.product(*axes.values()):
        settings = dict(zip(axes, labels, strict=True))
        axis_options: dict[str, Any] = {}
        for axis, label in settings.items():
            twice = axis_options.keys() & axes[axis][label].keys()
            if twice:
                raise ValueError(f"two axes set {', '.join(sorted(twice))}; an option belongs to one axis.")
            axis_options.update(axes[axis][label])
        name = "_".join(f"{_plain(axis)}-{_plain(label)}" for axis, label in settings.items()) or "base"
        if name in names:
            raise ValueError(f"{names[name]} and {settings} would both be called {name}; rename one of them.")
        names[name] = settings
        cell = Cell(name=name, settings=settings, options={**options, **axis_options}, own_options=tuple(axis_options))
        if not isinstance(cell.options.get("data"), str) or not cell.options["data"]:
            raise ValueError("--train or --base must hold `data`, the first argument of fairseq-train.")
        for option in cell.options.keys() & _OURS:
            raise ValueError(f"--{option} is set by the sweep itself: {_OURS[option]}. Remove it.")
        yield cell


def _plain(text: str) -> str:
    return _UNSAFE.sub("-", text).strip("-.") or "none"


def read_slurm(section: Section, overrides: Mapping[str, Any]) -> Resources | None:
    """The resources of a run: the section slurm of a file, overridden by the settings `overrides`.

    Raises:
        ValueError: for an unknown name, a value of another type, or several nodes.
    """
    if not section and not overrides:
        return None
    if section and not isinstance(section.content, Mapping):
        raise section.error(f"slurm must hold settings such as `partition: gpu`, got {short(section.content)}.")
    with section.located():
        resources = read_resources({**(section.content or {}), **overrides}, where="slurm", kind=Resources)
        if resources.nodes != 1:
            raise ValueError(f"--nodes is {resources.nodes}: a run of a sweep has one node; leave it out.")
    return resources
