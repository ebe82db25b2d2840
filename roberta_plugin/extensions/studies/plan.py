"""The variants of a study -> fairseq-train's options, updates, tokens and FLOPs; refuses plans that cannot work."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import roberta_plugin
from roberta_plugin.extensions.studies.study_file import Study, Variant
from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.launch.batch_size import UpdateSize, measured_size, nominal_size, task_of
from roberta_plugin.launch.estimate import model_shape
from roberta_plugin.launch.options_file import place_of, to_arguments

# Options that end a run early, give updates several sizes, or leave nothing to measure -> fairseq's defaults.
_WHOLE_RUNS = {"max-epoch": 0, "patience": -1, "stop-time-hours": 0, "no-save": False, "no-last-checkpoints": False}
_WHOLE_RUNS |= {"disable-validation": False, "grow-max-tokens": 0, "grow-tokens-per-sample": 0}
_DERIVED = ("max-update", "total-num-update", "warmup-updates")


class VariantPlan(NamedTuple):
    """A variant with its numbers."""

    variant: Variant
    options: Mapping[str, Any]  # fairseq-train's options, with the schedule that follows from the budget
    parsed: Namespace  # the options before the budget
    size: UpdateSize  # measured on the data, or for full blocks if the data is not here
    totals: Mapping[str, float]  # tokens, updates and FLOPs of the whole run
    folders: list[Path]  # the folders of its data
    num_ranks: int  # processes of a pretraining

    def facts(self) -> dict[str, Any]:
        """Its numbers, as in results.json; `epochs` is None if the data is not here."""
        options = {name: str(value) for name, value in self.options.items()}
        epochs = self.totals["tokens"] / self.size.tokens_in_epoch if self.size.tokens_in_epoch else None
        numbers = {"tokens_per_update": self.size.tokens, "epochs": epochs, "lr": self.parsed.lr[0], **self.totals}
        return {"options": options, "paper": self.variant.paper, **numbers}


def plan_study(study: Study, *, num_ranks: int, needs_data: bool = True) -> list[VariantPlan]:
    """Plan the variants of a study, with `num_ranks` processes for a pretraining on GPUs."""
    roberta_plugin.register()
    plans = []
    for variant in study.variants:
        try:
            plans.append(_plan(variant, study, num_ranks=num_ranks))
            if needs_data or plans[-1].size.tokens_in_epoch:
                train_arguments.check_data(plans[-1].parsed)
        except ValueError as error:
            own = study.file.subsection("variants").subsection(variant.name)  # its own line comes first
            place = place_of(str(error), study.file, nearer=[own, study.file.subsection("axes")])
            raise ValueError(f"{place}: the variant {variant.name}: {error}") from error
    equal, tolerance = study.budget.equal, study.budget.tolerance
    amounts = sorted((plan.totals[equal], plan.variant.name) for plan in plans)
    (low, least), (high, most) = amounts[0], amounts[-1]
    if high > low * (1 + tolerance):
        raise ValueError(
            f"{study.file.path}: the study compares variants at equal {equal}, but {most} would get {high:.4g} and "
            f"{least} {low:.4g}: {100 * (high / low - 1):.1f} % more (tolerance {100 * tolerance:g} %). Give an amount "
            "under budget and leave max-update out. If there is an amount, raise it, or lower the batch."
        )
    return plans


def _plan(variant: Variant, study: Study, *, num_ranks: int) -> VariantPlan:
    """The plan of a variant, with enough updates for the budget's amount: 1e6 tokens at 4096 per update -> 244."""
    budget, schedule = study.budget, dict[str, str]()
    if budget.amount is not None:
        for name in (name for name in _DERIVED if name in variant.options):
            raise ValueError(
                f"{name} is set, but it follows from the amount under budget (--{name}): leave out one of them. An "
                f"empty `{name}:` removes a recipe's value."
            )
        schedule = {"max-update": "1", "total-num-update": "1"}
    options = {"user-dir": str(train_arguments.PACKAGE), **variant.options, **schedule}
    parsed = train_arguments.parse(to_arguments(options))
    _check_run(parsed)
    train_arguments.check_options(parsed)
    folders, updates = train_arguments.data_folders(parsed), int(parsed.max_update)
    num_ranks = 1 if parsed.cpu else num_ranks
    splits = [parsed.train_subset, *parsed.valid_subset.split(",")]
    here = [split for split in splits if all((folder / f"{split}.idx").is_file() for folder in folders)]
    if splits[0] in here:  # all splits are measured: a validation split without blocks or pairs would end a run
        size, *_ = (measured_size(*task_of(parsed), split, num_ranks=num_ranks) for split in here)
    else:
        size = nominal_size(parsed, num_ranks=num_ranks)
    counts = {name: round(getattr(size, name)) for name in ("tokens", "pairs", "predicted", "sequences")}
    each = {"tokens": size.tokens, "updates": 1.0, "flops": model_shape(parsed).flops(**counts)}
    if budget.amount is not None:
        updates = max(1, round(budget.amount / each[budget.equal]))
        warm_up = min(max(1, round(budget.warm_up * updates)), updates - 1)
        schedule = dict(zip(_DERIVED, map(str, (updates, updates, warm_up)), strict=True))
    options, totals = {**variant.options, **schedule}, {unit: number * updates for unit, number in each.items()}
    return VariantPlan(variant, options, parsed, size, totals, folders, num_ranks)


def _check_run(parsed: Namespace) -> None:
    """Refuse options by which a run would have another number of updates or tokens, or no checkpoint or loss."""
    if not parsed.max_update:
        raise ValueError("it has no end: give max-update and total-num-update, or an amount under budget.")
    given = {name: getattr(parsed, name.replace("-", "_"), default) for name, default in _WHOLE_RUNS.items()}
    wrong = [name for name, value in given.items() if (value or 0) != _WHOLE_RUNS[name]]
    for name in wrong + ["update-freq"] * (len(parsed.update_freq) != 1):
        raise ValueError(f"it sets --{name}, with which a run has other updates than planned or no result: omit it.")
