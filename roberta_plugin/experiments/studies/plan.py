"""A study -> its plan: for each variant fairseq-train's options, updates, tokens and FLOPs.

    variants + data --launch/batch_size.py--> tokens and FLOPs of an update --budget--> updates, learning rate

What cannot work is refused here, before anything runs. FLOPs are those of forward and backward, without padding and
recomputation (`models/flops.py`).
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import roberta_plugin
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.experiments.studies.settings import Budget, Study, Variant
from roberta_plugin.experiments.sweeps.grid import VARIANT, Grid
from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.launch.arguments import check_options
from roberta_plugin.launch.batch_size import UpdateSize, measured_size, nominal_size, task_of
from roberta_plugin.launch.estimate import Shape, model_shape
from roberta_plugin.launch.options_file import to_arguments
from roberta_plugin.launch.run_folder import Metric

# Options with which a run may end before its updates, has updates of several sizes, or leaves nothing to measure; and
# fairseq's defaults.
_WHOLE_RUNS = {
    "max-epoch": 0,
    "patience": -1,
    "stop-time-hours": 0,
    "no-save": False,
    "no-last-checkpoints": False,
    "disable-validation": False,
    "grow-max-tokens": 0,
    "grow-tokens-per-sample": 0,
}
_DERIVED = ("max-update", "total-num-update", "warmup-updates")


@dataclass(frozen=True, kw_only=True)
class VariantPlan:
    """A variant with its numbers."""

    variant: Variant
    options: Mapping[str, Any]
    """fairseq-train's, with those that follow from the budget and the rule of the learning rate."""
    learning_rate: float
    num_updates: int
    parsed: Namespace  # the options before the budget and the rule
    shape: Shape
    size: UpdateSize
    is_measured: bool  # whether `size` is of the data; else blocks are taken to be full
    num_ranks: int  # processes of a pretraining

    def per_update(self, unit: str) -> float:
        """Tokens, updates (one) or FLOPs of forward and backward of an average update."""
        if unit == "flops":
            tokens, pairs, predicted, sequences = map(
                round, (self.size.tokens, self.size.pairs, self.size.predicted, self.size.sequences)
            )
            return self.shape.flops(tokens=tokens, pairs=pairs, predicted=predicted, sequences=sequences)
        return {"tokens": self.size.tokens, "updates": 1.0}[unit]

    def amount(self, unit: str) -> float:
        """Tokens, updates or FLOPs in all."""
        return self.per_update(unit) * self.num_updates

    @property
    def tokens(self) -> float:
        """Total tokens."""
        return self.amount("tokens")

    @property
    def flops(self) -> float:
        """Total FLOPs."""
        return self.amount("flops")

    @property
    def epochs(self) -> float | None:
        """Passes over the training data; None where they cannot be known."""
        return self.tokens / self.size.tokens_in_epoch if self.size.tokens_in_epoch else None

    @property
    def folders(self) -> list[Path]:
        """The folders of its data."""
        return train_arguments.data_folders(self.parsed)

    @property
    def dictionary(self) -> str:
        """SHA-256 of the vocabulary."""
        return Vocabulary.load(self.folders[0] / "dict.txt").sha256

    def facts(self) -> dict[str, Any]:
        """Its numbers, as results.json holds them."""
        return {
            "options": {name: str(value) for name, value in self.options.items()},
            "paper": self.variant.paper,
            "num_updates": self.num_updates,
            "tokens_per_update": self.size.tokens,
            "tokens": self.tokens,
            "epochs": self.epochs,
            "flops": self.flops,
            "lr": self.learning_rate,
        }


@dataclass(frozen=True, kw_only=True)
class PlannedStudy:
    """A study, and what its variants take; checked as far as possible before it runs."""

    study: Study
    plans: Sequence[VariantPlan]

    @property
    def flops(self) -> float:
        """FLOPs of all pretrainings."""
        return sum(plan.flops for plan in self.plans) * len(self.study.seeds)

    @property
    def has_gpus(self) -> bool:
        """Whether the pretrainings compute on GPUs."""
        return not any(plan.parsed.cpu for plan in self.plans)

    @property
    def has_data(self) -> bool:
        """Whether the training data of all variants is here."""
        return all(plan.is_measured for plan in self.plans)

    @cached_property
    def grid(self) -> Grid:
        """All pretrainings, with the variants as the axis."""
        return Grid(
            path=self.study.path,
            options={"data": self.plans[0].options["data"]},
            axes={VARIANT: {plan.variant.name: plan.options for plan in self.plans}},
            seeds=self.study.seeds,
            metric=Metric(
                log=str(self.plans[0].parsed.valid_subset).split(",")[0], value="loss", goal="min", at="last"
            ),
        )


def plan_study(study: Study, *, num_ranks: int) -> PlannedStudy:
    """Work out what the variants of a study take, with `num_ranks` processes for a pretraining on GPUs.

    Raises:
        ValueError: for options that fairseq-train would refuse, and for budgets that are not equal though claimed.
    """
    roberta_plugin.register()
    measured = {variant.name: _measured(variant, study, num_ranks=num_ranks) for variant in study.variants}
    plans = [_with_budget(_with_learning_rate(plan, study, measured), study.budget) for plan in measured.values()]
    _check_budget(plans, study)
    return PlannedStudy(study=study, plans=plans)


def _check_budget(plans: list[VariantPlan], study: Study) -> None:
    """Refuse variants whose budgets differ by more than the study's tolerance."""
    equal, tolerance = study.budget.equal, study.budget.tolerance
    ordered = sorted(plans, key=lambda plan: plan.amount(equal))
    least, most = ordered[0], ordered[-1]
    low, high = least.amount(equal), most.amount(equal)
    if high > low * (1 + tolerance):
        remedy = (
            "Give an amount under budget and leave max-update out, so that the updates follow; or change max-update, "
            "update-freq or equal."
            if study.budget.amount is None
            else f"An update of {most.variant.name} is a large part of the amount: raise the amount or lower the batch."
        )
        raise ValueError(
            f"{study.path}: the study compares variants at equal {equal}, and {most.variant.name} would get {high:.4g} "
            f"where {least.variant.name} gets {low:.4g}, {100 * (high / low - 1):.1f} % more (tolerance "
            f"{100 * tolerance:g} %). {remedy}"
        )


def check_data(planned: PlannedStudy) -> None:
    """Refuse data that is missing, or has different vocabularies.

    Raises:
        FileNotFoundError: if a folder, or a split that is trained or validated on, is missing.
        ValueError: naming variants whose perplexities could not be compared.
    """
    study = planned.study
    for plan in planned.plans:
        try:
            train_arguments.check_data(plan.parsed)
        except (ValueError, FileNotFoundError) as error:
            place = study.place(plan.variant, f"{error} (--data)")
            raise type(error)(f"{place}: the variant {plan.variant.name}: {error}") from error
    vocabularies = {plan.dictionary: plan.variant.name for plan in planned.plans}
    if len(vocabularies) > 1:
        raise ValueError(
            f"{study.path}: the data of {' and '.join(vocabularies.values())} have different vocabularies (dict.txt): "
            "perplexities over different tokens cannot be compared. Binarize all of them with one tokenizer."
        )


def notes_on(planned: PlannedStudy) -> list[str]:
    """Notes on variants that are not what their name says at this budget."""
    notes = []
    for plan in planned.plans:
        masks = int(getattr(plan.parsed, "num_static_masks", 0))
        if masks and plan.epochs is not None and plan.epochs <= masks:
            notes.append(
                f"Note: {plan.variant.name} has {masks} static masks a block, and {plan.epochs:.3g} passes over the "
                "data: no mask comes back, so it is the same as dynamic masking. In the paper each comes four times: "
                "raise the amount, or take less data."
            )
    return notes


def _measured(variant: Variant, study: Study, *, num_ranks: int) -> VariantPlan:
    """A variant with its update measured, before the budget and the rule of the learning rate.

    Raises:
        ValueError: naming study and variant.
    """
    derived = [name for name in _DERIVED if name in variant.options]
    if study.budget.amount is not None and derived:
        raise ValueError(
            f"{study.place(variant, f'--{derived[0]}')}: {derived[0]} is set, and it follows from the amount under "
            f"budget of {study.path}: leave out one of them; an empty `{derived[0]}:` takes a recipe's out."
        )
    until = {} if study.budget.amount is None else {"max-update": "1", "total-num-update": "1"}
    try:
        arguments = to_arguments({"user-dir": str(train_arguments.PACKAGE), **variant.options, **until})
        parsed = train_arguments.parse(arguments)
        _check_run(parsed)
        check_options(parsed)
        folders, num_ranks = train_arguments.data_folders(parsed), 1 if parsed.cpu else num_ranks
        is_here = all((folder / f"{parsed.train_subset}.idx").is_file() for folder in folders)
        if is_here:
            task, config = task_of(parsed)
            size = measured_size(task, config, parsed.train_subset, num_ranks=num_ranks)
            for split in parsed.valid_subset.split(","):  # without blocks or pairs, it would end a run at its start
                if all((folder / f"{split}.idx").is_file() for folder in folders):
                    measured_size(task, config, split, num_ranks=1)  # as if to train on
        else:
            size = nominal_size(parsed, num_ranks=num_ranks)
    except ValueError as error:
        raise ValueError(f"{study.place(variant, str(error))}: the variant {variant.name}: {error}") from error
    return VariantPlan(
        variant=variant,
        options=variant.options,
        learning_rate=parsed.lr[0],
        num_updates=int(parsed.max_update),
        parsed=parsed,
        shape=model_shape(parsed),
        size=size,
        is_measured=is_here,
        num_ranks=num_ranks,
    )


def _check_run(parsed: Namespace) -> None:
    """Refuse a run whose number of updates or of tokens would not be the planned one, or without checkpoint or loss."""
    if not parsed.max_update:
        raise ValueError("it has no end: give max-update and total-num-update, or an amount under budget.")
    for name, default in _WHOLE_RUNS.items():
        if (getattr(parsed, name.replace("-", "_"), default) or 0) != default:
            raise ValueError(
                f"it sets --{name}, with which a run would not have the planned updates or tokens, or leaves nothing "
                "to measure: leave it out."
            )
    if len(parsed.update_freq) != 1:
        numbers = ",".join(map(str, parsed.update_freq))
        raise ValueError(f"it sets --update-freq to {numbers}: it must be one number for all epochs.")


def _with_learning_rate(plan: VariantPlan, study: Study, plans: Mapping[str, VariantPlan]) -> VariantPlan:
    """The plan with the learning rate by the study's rule, if the variant has none of its own."""
    if study.rate is None or "lr" in plan.variant.own_options:
        return plan
    base = plans[study.rate.batch_of]
    rate = f"{study.rate.scaled(base.learning_rate, base.size.tokens, plan.size.tokens):.4g}"
    return replace(plan, options={**plan.options, "lr": rate}, learning_rate=float(rate))


def _with_budget(plan: VariantPlan, budget: Budget) -> VariantPlan:
    """The plan with as many updates as give it the budget's amount, to the nearest one.

    The paper compares batches of 256, 2K and 8K sequences "for the same number of passes through the training data"
    (section 4.3).

    Example:
        1e6 tokens, 4096 tokens an update, warm-up 0.06  ->  max-update and total-num-update 244, warmup-updates 15
    """
    if budget.amount is None:
        return plan
    updates = max(1, round(budget.amount / plan.per_update(budget.equal)))
    warm_up = min(max(1, round(budget.warm_up * updates)), updates - 1)
    schedule = {"max-update": str(updates), "total-num-update": str(updates), "warmup-updates": str(warm_up)}
    return replace(plan, options={**plan.options, **schedule}, num_updates=updates)
