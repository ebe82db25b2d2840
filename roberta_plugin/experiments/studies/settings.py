"""A study file -> typed settings: what is compared, by what, at which budget; examples/README.studies.md has it.

Values reach fairseq-train as they are written (`training/options_file.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from roberta_plugin.experiments.studies.paper_tables import PERPLEXITY, paper_row
from roberta_plugin.experiments.sweeps.grid import checked_seeds
from roberta_plugin.finetuning.benchmarks import TASKS
from roberta_plugin.launch.recipe import recipe_files
from roberta_plugin.planner.equal_compute import RULES
from roberta_plugin.training.options_file import is_null, locate, named_options, read_yaml
from roberta_plugin.training.resources import Resources, given_settings, read_resources
from roberta_plugin.training.settings import check_names, convert

_SECTIONS = ("title", "base", "variants", "seeds", "reference", "budget", "learning-rate", "probes", "slurm")
_NEEDED = ("base", "variants", "seeds", "probes")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.+-]*[A-Za-z0-9+])?")  # sweeps keep it as the name of a folder
KINDS = ("perplexity", "fine-tuning")
EQUAL = ("tokens", "updates", "flops")
_ACCURACY = "accuracy"
# The official metric of a task that the report shows; of the others, accuracy.
_METRICS = {"CoLA": "mcc", "STS-B": "pearson", **dict.fromkeys(("squad1", "squad2", "conll2003", "wnut17"), "f1")}
_METRICS |= {"summaries": "rouge1", "cnn_dailymail": "rouge1"}
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to pretrain: fairseq-train's options by name, the base's among them."""

    name: str
    options: Mapping[str, Any]
    own: tuple[str, ...] = ()
    """Names of the options that the variant sets itself."""
    paper: str = ""
    """The row of the paper's tables that it mirrors, as `table1/static`."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What all variants have in common, and how much of it."""

    equal: str = "tokens"
    """One of EQUAL."""
    amount: float | None = None
    """How much each variant gets, from which its number of updates follows; None: the options say max-update."""
    warm_up: float = 0.06
    """With `amount`: warm-up as a share of the updates."""
    tolerance: float = 0.02
    """Largest relative difference between two variants that counts as equal."""

    def __post_init__(self) -> None:
        """Check the values."""
        if self.equal not in EQUAL:
            raise ValueError(f"--equal must be one of {', '.join(EQUAL)}, got {self.equal!r}.")
        if self.amount is not None and not 0 < self.amount < math.inf:
            raise ValueError(f"--amount must be a finite number above 0, got {self.amount:g}.")
        if not 0 <= self.warm_up < 1 or not 0 <= self.tolerance < 1:
            raise ValueError("--warm-up and --tolerance are shares, from 0 to less than 1.")


@dataclass(frozen=True, kw_only=True)
class RateRule:
    """How the learning rate follows from the batch: from the tokens of an update, by `planner/equal_compute.py`."""

    rule: str
    """One of RULES."""
    batch_of: str
    """The variant whose batch the base's learning rate is for."""

    def __post_init__(self) -> None:
        """Check the values."""
        if self.rule not in RULES:
            raise ValueError(f"--rule must be one of {', '.join(RULES)}, got {self.rule!r}.")


@dataclass(frozen=True, kw_only=True)
class PerplexityProbe:
    """Held-out masked-LM perplexity: the same blocks with the same masks for every variant."""

    name: str
    data: Path | None = None
    """Folder of binarized text; None: the base's."""
    split: str = "valid"
    """Its split."""
    tokens_per_sample: int | None = None
    """Tokens of a block, <s> included; None: the base's."""
    mask_prob: float = 0.15
    """Share of the tokens that are predicted."""
    passes: int = 1
    """Masks of each block."""
    max_tokens: int | None = None
    """About how many tokens of the split are used, spread over it; None: all."""
    column = PERPLEXITY
    better = "smaller"

    def __post_init__(self) -> None:
        """Check the values."""
        for option in ("passes", "max_tokens", "tokens_per_sample"):
            value, least = getattr(self, option), 3 if option == "tokens_per_sample" else 1
            if value is not None and value < least:
                raise ValueError(f"--{option.replace('_', '-')} must be {least} or more, got {value}.")
        if not 0 < self.mask_prob < 1:
            raise ValueError(f"--mask-prob must lie between 0 and 1, got {self.mask_prob:g}.")


@dataclass(frozen=True, kw_only=True)
class TuningProbe:
    """A fine-tuning task: the paper's procedure with a grid and seeds, from every pretrained model."""

    name: str
    task: str
    """One of `finetuning.benchmarks.TASKS`."""
    raw: Path
    """Folder with the official files."""
    tokenizer: Path
    """Folder with the tokenizer's files and the dict.txt of the pretraining data."""
    max_length: int
    """Most tokens of a sequence."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the task, as `question-length`."""
    seeds: tuple[str, ...] = ("1", "2", "3", "4", "5")
    """Seeds of fine-tuning; their median is the value of a pretrained model."""
    epochs: int | None = None
    """Passes over the data; None: the paper's number."""
    grid: Mapping[str, str] = field(default_factory=dict)
    """Axis of the paper's grid -> the values tried instead, as `1e-4,3e-4`."""
    train: Mapping[str, str] = field(default_factory=dict)
    """Further options of fairseq-train."""
    better = "larger"

    def __post_init__(self) -> None:
        """Check the values."""
        if self.epochs is not None and self.epochs < 1:
            raise ValueError(f"--epochs must be 1 or more, got {self.epochs}.")

    @property
    def column(self) -> str:
        """Of the paper's tables."""
        return self.task

    @property
    def metric(self) -> str:
        """The official metric that is compared."""
        return _METRICS.get(self.task, _ACCURACY)


Probe = PerplexityProbe | TuningProbe


@dataclass(frozen=True, kw_only=True)
class Study:
    """What a study file says."""

    path: Path
    title: str
    variants: tuple[Variant, ...]
    seeds: tuple[str, ...]
    reference: str
    """The variant that the sentences of the report compare the others with."""
    budget: Budget
    rate: RateRule | None
    probes: tuple[Probe, ...]
    slurm: Mapping[str, Any] = field(default_factory=dict)

    def variant(self, name: str) -> Variant:
        """The variant of this name."""
        return next(variant for variant in self.variants if variant.name == name)

    def slurm_with(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The section slurm with other settings that win over it, for a grid file: without values of secrets.

        Raises:
            ValueError: for an unknown name or a value of another type.
        """
        found = read_resources({**self.slurm, **given}, where=f"{self.path}: slurm", kind=Resources)
        return given_settings(found)


def read_study(path: Path) -> Study:
    """Read and check a study file.

    Raises:
        FileNotFoundError: if the file, or the recipe that its base names, does not exist.
        ValueError: naming the file, the line where one can be found, and what to write instead.
    """
    content = {name: value for name, value in read_yaml(path).items() if not is_null(value)}
    check_names(content, known=_SECTIONS, where=str(path))
    for name in _NEEDED:
        if not content.get(name):
            raise ValueError(f"{path}: the section {name} is missing; a study has {', '.join(_NEEDED)}.")
    base = _base_of(content["base"], path)
    variants = tuple(_variant_of(name, own, base, path) for name, own in _named(content["variants"], path, "variants"))
    seeds = checked_seeds(content["seeds"], where=f"{path}: seeds")
    names = [variant.name for variant in variants]
    reference = str(content.get("reference", names[0]))
    rate = _section(RateRule, content["learning-rate"], path, "learning-rate") if "learning-rate" in content else None
    for section, name in (("reference", reference), *([("batch-of", rate.batch_of)] if rate else [])):
        if name not in names:
            where = locate(path, f"--{section}")
            raise ValueError(f"{where}: there is no variant {name!r}: {section} must be one of {', '.join(names)}.")
    return Study(
        path=path,
        title=str(content.get("title", path.stem)),
        variants=variants,
        seeds=seeds,
        reference=reference,
        budget=_section(Budget, content.get("budget", {}), path, "budget"),
        rate=rate,
        probes=tuple(_probe_of(name, own, path) for name, own in _named(content["probes"], path, "probes")),
        slurm=_slurm_of(content.get("slurm", {}), path),
    )


def _base_of(content: Any, path: Path) -> dict[str, Any]:
    """Options of the base: those of the recipe that it names, and its own, which win."""
    own = named_options(content, where=f"{path}: base")
    options: dict[str, Any] = {}
    if "recipe" in own:
        recipe = path.parent / str(own.pop("recipe"))
        for file in reversed(recipe_files(recipe)):
            options |= named_options(read_yaml(file).get("train", {}), where=f"{file}: train")
    return options | own


def _variant_of(name: str, content: Any, base: Mapping[str, Any], path: Path) -> Variant:
    own = {} if is_null(content) else named_options(content, where=f"{path}: variants, {name}")
    paper = str(own.pop("paper", ""))
    if paper:
        _in_file(lambda: paper_row(paper), path, "paper", f"variants, {name}")
    options = {**base, **own}
    if not isinstance(options.get("data"), str) or not options["data"]:
        raise ValueError(f"{path}: the variant {name} has no data: write `data: FOLDER` under base, or under it.")
    return Variant(name=name, options=options, own=tuple(own), paper=paper)


def _probe_of(name: str, content: Any, path: Path) -> Probe:
    where = f"probes, {name}"
    values = named_options(content, where=f"{path}: {where}")
    kind = values.pop("kind", None)
    if kind not in KINDS:
        place = locate(path, f"--{name}")
        raise ValueError(
            f"{place}: {where}: there is no kind of probe {kind!r}: write kind: {' or kind: '.join(KINDS)}."
        )
    if kind == "perplexity":
        return _section(PerplexityProbe, {**values, "name": name}, path, where)
    options, train = (
        dict(named_options(values.pop(bag, {}), where=f"{path}: {where}, {bag}")) for bag in ("options", "train")
    )
    grid = named_options(values.pop("grid", {}), where=f"{path}: {where}, grid")
    seeds = checked_seeds(values.pop("seeds", ["1", "2", "3", "4", "5"]), where=f"{path}: {where}, seeds")
    for missing in {"task", "raw", "tokenizer", "max-length"} - values.keys():
        raise ValueError(f"{locate(path, f'--{name}')}: {where}: {missing} is missing.")
    if values["task"] not in TASKS:
        place = locate(path, f"--{name}")
        raise ValueError(f"{place}: {where}: there is no task {values['task']!r}; there are {', '.join(TASKS)}.")
    tuned = _section(TuningProbe, {**values, "name": name}, path, where)
    for axis, found in grid.items():
        if not all(isinstance(one, str) for one in (found if isinstance(found, list) else [found])):
            place = locate(path, f"--{axis}")
            raise ValueError(f"{place}: {where}: grid: {axis} must be a value or a list of values, got {found!r}.")
    choices = {axis: ",".join(found) if isinstance(found, list) else found for axis, found in grid.items()}
    return replace(tuned, seeds=seeds, grid=choices, options=options, train=train)


def _section(kind: type[T], content: Any, path: Path, section: str) -> T:
    """A section of plain values as a dataclass; errors name the file and the line."""
    values = {
        name.replace("-", "_"): value for name, value in named_options(content, where=f"{path}: {section}").items()
    }
    return _in_file(lambda: convert(kind, values, where=str(path)), path, None, section)


def _in_file(make: Callable[[], T], path: Path, key: str | None, section: str) -> T:
    """What `make` returns; its ValueError gets the file, the line and the section in front."""
    try:
        return make()
    except ValueError as error:
        message = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{locate(path, f'--{key}' if key else message)}: {section}: {message}") from error


def _named(content: Any, path: Path, section: str) -> list[tuple[str, Any]]:
    """The entries of a section, with names that can be names of folders."""
    if not isinstance(content, Mapping) or not content:
        raise ValueError(
            f"{path}: {section} must hold one entry per line, as `dynamic: {{lr: 1e-3}}`, got {content!r}."
        )
    for name in content:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{path}: {section}: the name {name!r} may have letters, digits and .+- only.")
    return list(content.items())


def _slurm_of(content: Any, path: Path) -> dict[str, Any]:
    """The section as it stands; `training/resources.py` checks it when the command is told to use SLURM."""
    if not isinstance(content, Mapping):
        raise ValueError(f"{path}: slurm must hold settings such as `partition: gpu`, got {content!r}.")
    return dict(content)
