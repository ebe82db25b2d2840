"""A study file -> typed settings: what is compared, by what, at which budget; examples/README.studies.md has it.

Options, axes and seeds are read as in a grid file (`sweeps/grid.py`): a variant is a cell of the grid.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roberta_plugin.experiments.sweeps.grid import SECTIONS, VARIANT, cells_from, checked_seeds
from roberta_plugin.finetuning.benchmarks import TASKS
from roberta_plugin.planner.equal_compute import RULES
from roberta_plugin.settings import check_names, convert, is_null
from roberta_plugin.training.options_file import in_section, locate, named_options, read_yaml
from roberta_plugin.training.resources import Resources, given_settings, read_resources

_OWN_SECTIONS = ("title", "reference", "budget", "learning-rate", "probes")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.+-]*[A-Za-z0-9+])?")  # sweeps keep it as the name of a folder
EQUAL = ("tokens", "updates", "flops")
PERPLEXITY, FINE_TUNING = "perplexity", "fine-tuning"
PAPER: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "table1": {  # BERT base, static against dynamic masking (section 4.1)
        "reference": {"squad2": 76.3, "MNLI": 84.3, "SST-2": 92.8},
        "static": {"squad2": 78.3, "MNLI": 84.3, "SST-2": 92.5},
        "dynamic": {"squad2": 78.7, "MNLI": 84.0, "SST-2": 92.9},
    },
    "table2": {  # input formats, the first two with next-sentence prediction (section 4.2)
        "segment-pair": {"squad1": 90.4, "squad2": 78.7, "MNLI": 84.0, "SST-2": 92.9, "race": 64.2},
        "sentence-pair": {"squad1": 88.7, "squad2": 76.2, "MNLI": 82.9, "SST-2": 92.1, "race": 63.0},
        "full-sentences": {"squad1": 90.4, "squad2": 79.1, "MNLI": 84.7, "SST-2": 92.5, "race": 64.8},
        "doc-sentences": {"squad1": 90.6, "squad2": 79.7, "MNLI": 84.7, "SST-2": 92.7, "race": 65.6},
    },
    "table3": {  # batches at equal numbers of passes (section 4.3)
        "256": {"perplexity": 3.99, "MNLI": 84.7, "SST-2": 92.7},
        "2K": {"perplexity": 3.68, "MNLI": 85.2, "SST-2": 92.9},
        "8K": {"perplexity": 3.77, "MNLI": 84.6, "SST-2": 92.8},
    },
}
"""Table -> row -> number by probe: held-out perplexity, F1 for SQuAD, accuracy for the other tasks. Tables 1 and 2 have
medians over five seeds of fine-tuning."""


def paper_row(name: str) -> Mapping[str, float]:
    """The row of the paper's Tables 1 to 3 that a variant mirrors, as `table1/static`; empty for an empty name.

    Raises:
        ValueError: naming the rows that there are.
    """
    rows = {f"{table}/{row}": numbers for table, own in PAPER.items() for row, numbers in own.items()}
    if name and name not in rows:
        raise ValueError(f"--paper: the paper has no row {name!r}: there are {', '.join(rows)}.")
    return rows[name] if name else {}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to pretrain: fairseq-train's options by name, those of all variants among them."""

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
        for name in ("warm_up", "tolerance"):
            if not 0 <= getattr(self, name) < 1:
                option = name.replace("_", "-")
                raise ValueError(f"--{option} must be a share, from 0 to less than 1, got {getattr(self, name):g}.")


@dataclass(frozen=True, kw_only=True)
class RateRule:
    """How the learning rate follows from the batch: from the tokens of an update, by `planner/equal_compute.py`."""

    rule: str
    """One of RULES."""
    batch_of: str
    """The variant whose batch the learning rate is for."""

    def __post_init__(self) -> None:
        """Check the values."""
        if self.rule not in RULES:
            raise ValueError(f"--rule must be one of {', '.join(RULES)}, got {self.rule!r}.")


@dataclass(frozen=True, kw_only=True)
class PerplexityProbe:
    """Held-out masked-LM perplexity: the same blocks with the same masks for every variant."""

    name: str
    data: Path | None = None
    """Folder of binarized text; None: that of the first variant."""
    split: str = "valid"
    """Its split."""
    tokens_per_sample: int | None = None
    """Tokens of a block, <s> included; None: the shortest of the variants'."""
    mask_prob: float = 0.15
    """Share of the tokens that are predicted."""
    passes: int = 1
    """Masks of each block."""
    max_tokens: int | None = None
    """About how many tokens of the split are used, spread over it; None: all."""
    kind = column = PERPLEXITY
    better = "smaller"
    unit = "bits per token"

    def __post_init__(self) -> None:
        """Check the values."""
        for option, least in {"passes": 1, "max_tokens": 1, "tokens_per_sample": 3}.items():
            value = getattr(self, option)
            if value is not None and value < least:
                raise ValueError(f"--{option.replace('_', '-')} must be {least} or more, got {value}.")
        if not 0 < self.mask_prob < 1:
            raise ValueError(f"--mask-prob must lie between 0 and 1, got {self.mask_prob:g}.")

    def scaled(self, value: float) -> float:
        """A value as it is tested and drawn: bits per token, for perplexity is exponential in them."""
        return math.log2(value)


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
    kind = FINE_TUNING
    better = "larger"
    unit = "points"

    def __post_init__(self) -> None:
        """Check the values."""
        if self.task not in TASKS:
            raise ValueError(f"--task: there is no task {self.task!r}; there are {', '.join(TASKS)}.")
        if self.epochs is not None and self.epochs < 1:
            raise ValueError(f"--epochs must be 1 or more, got {self.epochs}.")

    @property
    def column(self) -> str:
        """Column name in the paper's tables."""
        return self.task

    def scaled(self, value: float) -> float:
        """A value as it is tested and drawn: in percent, as it is."""
        return value


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

    @property
    def tuning(self) -> list[TuningProbe]:
        """The probes that fine-tune."""
        return [probe for probe in self.probes if isinstance(probe, TuningProbe)]

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
        FileNotFoundError: if the file, or the recipe that it names, does not exist.
        ValueError: naming the file, the line where one can be found, and what to write instead.
    """
    content = {name: value for name, value in read_yaml(path).items() if not is_null(value)}
    with in_section(path, "the study"):
        check_names(content, known=(*SECTIONS, *_OWN_SECTIONS), where=str(path))
    for needed in (["train", "base"], ["variants", "axes"], ["seeds"], ["probes"]):
        if not any(content.get(name) for name in needed):
            raise ValueError(f"{path}: the section {' or '.join(needed)} is missing.")
    content["variants"], papers = _papers_of(content.get("variants"), path)
    variants = tuple(_variants_of({name: value for name, value in content.items() if value is not None}, papers, path))
    names = [variant.name for variant in variants]
    reference = str(content.get("reference", names[0]))
    rate = None
    if "learning-rate" in content:
        with in_section(path, "learning-rate"):
            rate = convert(RateRule, _values(content["learning-rate"], path, "learning-rate"), where=str(path))
    for section, name in (("reference", reference), *([("batch-of", rate.batch_of)] if rate else [])):
        if name not in names:
            where = locate(path, f"--{section}")
            raise ValueError(f"{where}: there is no variant {name!r}: {section} must be one of {', '.join(names)}.")
    with in_section(path, "budget"):
        budget = convert(Budget, _values(content.get("budget", {}), path, "budget"), where=str(path))
    slurm = content.get("slurm", {})
    if not isinstance(slurm, Mapping):  # `training/resources.py` checks the rest when the command is told to use SLURM
        raise ValueError(f"{path}: slurm must hold settings such as `partition: gpu`, got {slurm!r}.")
    return Study(
        path=path,
        title=str(content.get("title", path.stem)),
        variants=variants,
        seeds=checked_seeds(content["seeds"], where=f"{path}: seeds"),
        reference=reference,
        budget=budget,
        rate=rate,
        probes=tuple(_probe_of(name, own, path) for name, own in _named(content["probes"], path, "probes").items()),
        slurm=dict(slurm),
    )


def _papers_of(content: Any, path: Path) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """The section variants without the key paper, and these keys."""
    if content is None:
        return None, {}
    papers, variants = {}, {}
    for name, own in _named(content, path, "variants").items():
        options = {} if is_null(own) else named_options(own, where=f"{path}: variants, {name}")
        papers[name] = str(options.pop("paper", ""))
        with in_section(path, f"variants, {name}"):
            paper_row(papers[name])
        variants[name] = options
    return variants, papers


def _variants_of(content: Mapping[str, Any], papers: Mapping[str, str], path: Path) -> list[Variant]:
    """The cells of the file's axes; with other axes than the variants they are called as in `lr-1e-3+dropout-0.1`."""
    return [
        Variant(
            name=cell.settings[VARIANT] if list(cell.settings) == [VARIANT] else cell.name.replace("_", "+"),
            options=cell.options,
            own=cell.own,
            paper=papers.get(cell.settings.get(VARIANT, ""), ""),
        )
        for cell in cells_from(content, path)
    ]


def _probe_of(name: str, content: Any, path: Path) -> Probe:
    where = f"probes, {name}"
    values = _values(content, path, where)
    kind = values.pop("kind", None)
    if kind not in (PERPLEXITY, FINE_TUNING):
        place = locate(path, f"--{name}")
        raise ValueError(
            f"{place}: {where}: there is no kind of probe {kind!r}: write kind: {PERPLEXITY} or kind: {FINE_TUNING}."
        )
    if kind == PERPLEXITY:
        with in_section(path, where):
            return convert(PerplexityProbe, {**values, "name": name}, where=str(path))
    for bag in ("options", "train", "grid"):
        values[bag] = named_options(values.get(bag, {}), where=f"{path}: {where}, {bag}")
    for axis, found in values["grid"].items():
        texts = found if isinstance(found, list) else [found]
        if not all(isinstance(one, str) for one in texts):
            place = locate(path, f"--{axis}")
            raise ValueError(f"{place}: {where}: grid: {axis} must be a value or a list of values, got {found!r}.")
        values["grid"][axis] = ",".join(texts)
    if "seeds" in values:
        values["seeds"] = checked_seeds(values["seeds"], where=f"{path}: {where}, seeds")
    with in_section(path, where):
        return convert(TuningProbe, {**values, "name": name}, where=str(path))


def _values(content: Any, path: Path, section: str) -> dict[str, Any]:
    """A section's values by field name."""
    named = named_options(content, where=f"{path}: {section}")
    return {name.replace("-", "_"): value for name, value in named.items()}


def _named(content: Any, path: Path, section: str) -> Mapping[str, Any]:
    """The entries of a section, with names that can be names of folders."""
    if not isinstance(content, Mapping) or not content:
        raise ValueError(
            f"{path}: {section} must hold one entry per line, as `dynamic: {{lr: 1e-3}}`, got {content!r}."
        )
    for name in content:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{path}: {section}: the name {name!r} may have letters, digits and .+- only.")
    return content
