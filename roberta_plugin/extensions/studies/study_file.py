"""Study files, which examples/README.studies.md describes. A variant is a cell of a grid file (`sweeps/grid.py`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from roberta_plugin.experiments.settings import FinetuneSettings, GridRuns
from roberta_plugin.experiments.sweeps import grid
from roberta_plugin.finetuning.benchmarks import all_tasks, options_for
from roberta_plugin.launch.options_file import Section, read_file, read_yaml, to_arguments
from roberta_plugin.settings import REQUIRED, Checked, check_names, convert, setting, short

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.+-]*[A-Za-z0-9+])?")  # sweeps use it as the name of a folder
_TUNING = ("task", "raw", "tokenizer", "max-length", "options", "seeds", "epochs", "grid", "train")
PERPLEXITY, FINE_TUNING = "perplexity", "fine-tuning"  # also names of folders
PAPER: Mapping[str, Mapping[str, str]] = read_yaml(Path(__file__).with_name("paper.yaml"))


@dataclass(frozen=True, kw_only=True)
class StudySettings(GridRuns):
    """Settings of `roberta study`."""

    study: Path = setting(REQUIRED, "study file (YAML)", flag="study")
    output_dir: Path = setting(None, "where everything is written (runs/NAME of the file)")
    device: str | None = setting(None, "where to evaluate (default: a GPU if there is one)")
    dry_run: bool = setting(False, "check everything, print updates, tokens and FLOPs; write nothing")

    def __post_init__(self) -> None:
        if self.output_dir is None:
            object.__setattr__(self, "output_dir", Path("runs") / self.study.stem)
        super().__post_init__()


class Variant(NamedTuple):
    """One way to pretrain: fairseq-train's options, and the row of PAPER that it mirrors."""

    name: str
    options: Mapping[str, Any]
    paper: str


@dataclass(frozen=True, kw_only=True)
class Budget(Checked):
    """The budget that all variants share."""

    equal: Literal["tokens", "updates", "flops"] = "tokens"
    amount: float | None = setting(None, "amount of each variant; None: the options have max-update", smallest=1)
    warm_up: float = setting(0.06, "with amount: warm-up as a share of the updates", smallest=0, largest=0.99)
    tolerance: float = setting(0.02, "largest relative difference that counts as equal", smallest=0, largest=0.99)


@dataclass(frozen=True, kw_only=True)
class HeldOut(Checked):
    """Held-out text, whose masked tokens all models predict: the same blocks with the same masks."""

    data: Path | None = None  # folder of binarized text; None: the first variant's
    split: str = "valid"
    tokens_per_sample: int | None = setting(None, "tokens of a block; None: the variants' smallest number", smallest=3)
    max_tokens: int | None = setting(None, "approximate number of tokens to read; None: enough", smallest=1)


class Probe(NamedTuple):
    """A measurement of every pretrained model: perplexity, or the paper's fine-tuning for a task."""

    name: str
    kind: str
    settings: HeldOut | FinetuneSettings  # settings of fine-tuning have no model and folders yet
    section: Section


class Study(NamedTuple):
    """The content of a study file."""

    file: Section
    title: str
    variants: tuple[Variant, ...]
    seeds: tuple[str, ...]
    reference: str  # the variant that the others are compared with
    budget: Budget
    probes: tuple[Probe, ...]


def read_study(path: Path) -> Study:
    """Read and check a study file; refusals name the line."""
    file = read_file(path)
    with file.located():
        known = (*grid.SECTIONS, "title", "reference", "budget", "probes")
        file.check_keys(known=known, needed=[("train", "base"), ("variants", "axes"), ("seeds",), ("probes",)])
        cells = grid.combinations(*grid.options_and_axes(file))
        variants = tuple(_variant(cell, file.subsection("variants")) for cell in cells)
        probes = file.subsection("probes").subsections("ppl: {kind: perplexity}")
        names = [variant.name for variant in variants]
        for name in (name for name in (*names, *probes) if not _NAME.fullmatch(name)):
            raise ValueError(f"(--{name}) the name {name!r} may have letters, digits and .+- only.")
        reference = file.subsection("reference", names[0])
        if reference.content not in names:
            raise reference.error(f"reference must be {' or '.join(names)}, got {short(reference.content)}.")
        title, budget = str(file.subsection("title", path.stem).content), file.subsection("budget").as_settings(Budget)
        seeds = grid.checked_seeds(file.subsection("seeds").content, where="--seeds")
        measured = tuple(_probe(name, section) for name, section in probes.items())
        return Study(file, title, variants, seeds, reference.content, budget, measured)


def _variant(cell: grid.Cell, variants: Section) -> Variant:
    """A cell of the file's axes. With other axes than the variants, its name is such as `lr-1e-3+dropout-0.1`."""
    options, label = dict(cell.options), cell.settings.get(grid.VARIANT, "")
    paper = str(options.pop("paper", "")) if "paper" in cell.own_options else ""
    if paper and paper not in PAPER:
        raise variants.subsection(label).error(f"--paper: the paper has no row {paper!r}: use {', '.join(PAPER)}.")
    name = label if list(cell.settings) == [grid.VARIANT] else cell.name.replace("_", "+")
    return Variant(name=name, options=options, paper=paper)


def _probe(name: str, section: Section) -> Probe:
    with section.located():
        values = {name.replace("-", "_"): value for name, value in section.as_options().items()}
        kind, task = values.pop("kind", None), str(values.get("task"))
        if kind == PERPLEXITY:
            return Probe(name=name, kind=kind, section=section, settings=convert(HeldOut, values, where=section.name))
        if kind != FINE_TUNING:
            raise section.error(f"--kind must be {PERPLEXITY} or {FINE_TUNING}, got {kind!r}.")
        check_names((name.replace("_", "-") for name in values), known=_TUNING, where=section.name)
        if task not in all_tasks():
            remedy = "Correct the name, or install the package that brings it."
            raise section.error(f"--task must be {' or '.join(all_tasks())}, got {task!r}. {remedy}")
        options, train, axes = (section.subsection(bag).as_options() for bag in ("options", "train", "grid"))
        only = {axis: ",".join(to_arguments({axis: choices}, where="grid")[1:]) for axis, choices in axes.items()}
        seeds = grid.checked_seeds(section.subsection("seeds", ["1", "2", "3", "4", "5"]).content, where="--seeds")
        of_task = options_for(task, {name.replace("-", "_"): value for name, value in options.items()})
        given = {name: value for name, value in values.items() if name not in ("options", "grid", "train")}
        if missing := [name for name in ("raw", "tokenizer", "max_length") if name not in given]:
            raise section.error(f"{missing[0].replace('_', '-')} is missing: give it a value.")
        given |= {"seeds": seeds, "only": only, "train_options": train, "splits": ("valid",), "model": Path()}
        settings = convert(FinetuneSettings, {**given, "output_dir": Path()}, where=section.name)
        return Probe(name=name, kind=kind, section=section, settings=replace(settings, options=of_task))
