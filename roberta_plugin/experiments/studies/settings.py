"""A study file -> typed settings: what is compared, by what, at which budget; examples/README.studies.md has it.

Options, axes and seeds are read as in a grid file (`sweeps/grid.py`): a variant is a cell of the grid.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from roberta_plugin.experiments.sweeps.grid import (
    SECTIONS,
    VARIANT,
    Cell,
    checked_seeds,
    combinations,
    options_and_axes,
    read_slurm,
)
from roberta_plugin.finetuning.benchmarks import all_tasks, options_for
from roberta_plugin.finetuning.preparation import DataSettings
from roberta_plugin.launch.options_file import Section, place_of, read_file, to_arguments
from roberta_plugin.launch.resources import Resources
from roberta_plugin.settings import REQUIRED, Checked, setting, short

_OWN_SECTIONS = ("title", "reference", "budget", "learning-rate", "probes")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.+-]*[A-Za-z0-9+])?")  # sweeps keep it as the name of a folder
RULES: Mapping[str, Callable[[float], float]] = {"sqrt": math.sqrt, "linear": float}
"""Rules for the learning rate from the ratio of two batches."""
PERPLEXITY, FINE_TUNING = "perplexity", "fine-tuning"  # also folders
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
    """The row of the paper's Tables 1 to 3 that a variant mirrors, as `table1/static`; empty for an empty name."""
    rows = {f"{table}/{row}": numbers for table, by_row in PAPER.items() for row, numbers in by_row.items()}
    if name and name not in rows:
        raise ValueError(f"--paper: the paper has no row {name!r}: there are {', '.join(rows)}.")
    return rows[name] if name else {}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to pretrain."""

    name: str
    options: Mapping[str, Any]  # fairseq-train's options by name, those of all variants among them
    own_options: tuple[str, ...] = ()  # names of the options that the variant sets itself
    paper: str = ""  # the row of the paper's tables that it mirrors, as `table1/static`


@dataclass(frozen=True, kw_only=True)
class Budget(Checked):
    """The budget that all variants have in common."""

    equal: Literal["tokens", "updates", "flops"] = "tokens"
    amount: float | None = setting(
        None, "how much each variant gets, from which its updates follow; None: the options say max-update", smallest=1
    )
    warm_up: float = setting(0.06, "with amount: warm-up as a share of the updates", smallest=0, largest=0.99)
    tolerance: float = setting(
        0.02, "largest relative difference between two variants that counts as equal", smallest=0, largest=0.99
    )


@dataclass(frozen=True, kw_only=True)
class RateRule(Checked):
    """The rule by which the learning rate follows from the tokens of an update."""

    rule: str = setting(REQUIRED, "one of RULES", choices=tuple(RULES))
    batch_of: str  # the variant whose batch the learning rate is for

    def scaled(self, learning_rate: float, batch: float, other_batch: float) -> float:
        """The learning rate for another batch; both batches in sequences or both in tokens.

        sqrt keeps the variance of an update (Krizhevsky 2014, section 5; Hoffer et al. 2017), linear the sum of the
        updates of an epoch (Goyal et al. 2017). The paper tunes it: from 256 to 2K it lies between sqrt and linear.

        Example: from 256 to 1024 sequences, 1e-4 becomes 2e-4 by sqrt and 4e-4 by linear.
        """
        return learning_rate * RULES[self.rule](other_batch / batch)


@dataclass(frozen=True, kw_only=True)
class PerplexityProbe(Checked):
    """Held-out masked-LM perplexity: the same blocks with the same masks for every variant."""

    kind: str = PERPLEXITY
    name: str
    data: Path | None = None  # folder of binarized text; None: that of the first variant
    split: str = "valid"
    tokens_per_sample: int | None = setting(
        None, "tokens of a block, <s> included; None: the shortest of the variants'", smallest=3
    )
    mask_prob: float = setting(0.15, "share of the tokens that are predicted", smallest=0.0001, largest=0.9999)
    passes: int = setting(1, "masks of each block", smallest=1)
    max_tokens: int | None = setting(
        None, "about how many tokens of the split are used, spread over it; None: all", smallest=1
    )
    column = PERPLEXITY
    better = "smaller"
    unit = "bits per token"

    def scaled(self, value: float) -> float:
        """A value as it is tested: bits per token, for perplexity is exponential in them."""
        return math.log2(value)


@dataclass(frozen=True, kw_only=True)
class TuningProbe(Checked):
    """A fine-tuning task: the paper's procedure with a grid and seeds, from every pretrained model."""

    kind: str = FINE_TUNING
    name: str
    task: str = setting(REQUIRED, "one of TASKS", choices=all_tasks)
    raw: Path  # folder with the official files
    tokenizer: Path  # folder with the tokenizer's files and the dict.txt of the pretraining data
    max_length: int  # most tokens of a sequence
    options: Mapping[str, str] = field(default_factory=dict)  # options of the task, as `question-length`
    seeds: tuple[str, ...] = ("1", "2", "3", "4", "5")
    """Seeds of fine-tuning; their median is the value of a pretrained model."""
    epochs: int | None = setting(None, "passes over the data; None: the paper's number", smallest=1)
    grid: Mapping[str, str] = field(default_factory=dict)
    """Axis of the paper's grid -> the values tried instead, as `1e-4,3e-4`."""
    train: Mapping[str, str] = field(default_factory=dict)  # further options of fairseq-train
    better = "larger"
    unit = "points"

    def __post_init__(self) -> None:
        """Check the values, with the options of the task."""
        super().__post_init__()
        assert self.source.options

    @cached_property
    def source(self) -> DataSettings:
        """The sources of its data, with the options of the task."""
        options = {name.replace("-", "_"): value for name, value in self.options.items()}
        return DataSettings(
            task=self.task,
            raw=self.raw,
            tokenizer=self.tokenizer,
            max_length=self.max_length,
            options=options_for(self.task, options),
        )

    @property
    def column(self) -> str:
        """Column name in the paper's tables."""
        return self.task

    def scaled(self, value: float) -> float:
        """A value as it is tested: in percent, as it is."""
        return value


Probe = PerplexityProbe | TuningProbe


@dataclass(frozen=True, kw_only=True)
class Study:
    """The content of a study file."""

    file: Section  # its section slurm is checked when the command is told to use SLURM
    title: str
    variants: tuple[Variant, ...]
    seeds: tuple[str, ...]
    reference: str  # the variant that the sentences of the report compare the others with
    budget: Budget
    rate: RateRule | None
    probes: tuple[Probe, ...]

    @property
    def path(self) -> Path:
        """The study file."""
        return self.file.path

    def place(self, variant: Variant, message: str) -> str:
        """The line of the option of a variant that a message is about: the variant's own, or that of all."""
        variants, axes = self.file.subsection("variants"), self.file.subsection("axes")
        return place_of(message, self.file, nearer=[variants.subsection(variant.name), axes])

    def resources(self, overrides: Mapping[str, Any]) -> Resources:
        """The section slurm with `overrides`, which win; see `read_slurm`."""
        return read_slurm(self.file.subsection("slurm"), overrides) or Resources()


def read_study(path: Path) -> Study:
    """Read and check a study file.

    Raises:
        ValueError: naming the file, the line where one can be found, and what to write instead.
    """
    file = read_file(path)
    with file.located():
        needed = [("train", "base"), ("variants", "axes"), ("seeds",), ("probes",)]
        file.check_keys(known=(*SECTIONS, *_OWN_SECTIONS), needed=needed)
        entries = _named(file.subsection("variants")) if file.subsection("variants") else {}
        cells = combinations(*options_and_axes(file))
        variants = [_variant(cell, entries.get(cell.settings.get(VARIANT, ""), file)) for cell in cells]
        names = [variant.name for variant in variants]
        reference, rate = file.subsection("reference", names[0]), file.subsection("learning-rate")
        for section in (reference, rate.subsection("batch-of", names[0])):
            if section.content not in names:
                raise section.error(f"{section.name} must be {' or '.join(names)}, got {short(section.content)}.")
        return Study(
            file=file,
            title=str(file.subsection("title", path.stem).content),
            variants=tuple(variants),
            seeds=checked_seeds(file.subsection("seeds").content, where="--seeds"),
            reference=reference.content,
            budget=file.subsection("budget").as_settings(Budget),
            rate=rate.as_settings(RateRule) if rate else None,
            probes=tuple(_probe(name, each) for name, each in _named(file.subsection("probes")).items()),
        )


def _named(section: Section) -> dict[str, Section]:
    """The entries of a section, with names that can be names of folders."""
    entries = section.subsections("dynamic: {lr: 1e-3}")
    for name in entries:
        if not _NAME.fullmatch(name):
            raise entries[name].error(f"the name {name!r} may have letters, digits and .+- only.")
    return entries


def _variant(cell: Cell, section: Section) -> Variant:
    """A cell of the file's axes; with other axes than the variants it is called as in `lr-1e-3+dropout-0.1`."""
    options = dict(cell.options)
    paper = str(options.pop("paper", "")) if "paper" in cell.own_options else ""
    with section.located():
        paper_row(paper)
    return Variant(
        name=cell.settings[VARIANT] if list(cell.settings) == [VARIANT] else cell.name.replace("_", "+"),
        options=options,
        own_options=tuple(name for name in cell.own_options if name != "paper"),
        paper=paper,
    )


def _probe(name: str, section: Section) -> Probe:
    with section.located():
        values = section.as_options()
        if "name" in values:
            raise section.error("--name is what stands before the colon of the probe: leave it out.")
        if values.get("kind") == PERPLEXITY:
            return section.as_settings(PerplexityProbe, name=name)
        if values.get("kind") != FINE_TUNING:
            raise section.error(f"--kind must be {PERPLEXITY} or {FINE_TUNING}, got {values.get('kind')!r}.")
        bags = {bag: section.subsection(bag).as_options() for bag in ("options", "train", "grid")}
        for axis, choices in bags["grid"].items():
            bags["grid"][axis] = ",".join(to_arguments({axis: choices}, where="grid")[1:])
        seeds = checked_seeds(section.subsection("seeds", TuningProbe.seeds).content, where="--seeds")
        return section.as_settings(TuningProbe, name=name, seeds=seeds, **bags)
