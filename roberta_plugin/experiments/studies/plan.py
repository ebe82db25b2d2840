"""A study -> its plan: for each variant fairseq-train's options, updates, tokens and FLOPs.

    variants + data --launch/batch_size.py--> tokens and FLOPs of an update --budget--> updates, learning rate

What cannot work is refused here, before anything runs. FLOPs are those of forward and backward, without padding and
recomputation (`models/flops.py`).
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import roberta_plugin
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.experiments.settings import StudySettings
from roberta_plugin.experiments.studies.settings import Budget, Study, Variant, read_study
from roberta_plugin.experiments.sweeps.grid import VARIANT
from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.launch.arguments import check_options
from roberta_plugin.launch.batch_size import UpdateSize, measured_size, nominal_size
from roberta_plugin.launch.options_file import to_arguments
from roberta_plugin.models.flops import training_flops
from roberta_plugin.planner.equal_compute import equal_updates, scaled_rate
from roberta_plugin.planner.flops import Shape
from roberta_plugin.planner.inputs import shape_of

# Options with which a run may end before its updates, or leave nothing to measure; and fairseq's defaults.
_WHOLE_RUNS = {
    "max-epoch": 0,
    "patience": -1,
    "stop-time-hours": 0,
    "no-save": False,
    "no-last-checkpoints": False,
    "disable-validation": False,
}
_DERIVED = ("max-update", "total-num-update", "warmup-updates")
_LINES = 500_000  # of a split, from its beginning: enough to see whether it has documents and sentences
_BY_PAIR = ("segment-pair", "sentence-pair")
_BY_DOCUMENT = ("complete_doc", "doc-sentences", *_BY_PAIR)
_LEAST_SENTENCES = 1.5  # lines in a document on average: below it, a line is a document


@dataclass(frozen=True, kw_only=True)
class VariantPlan:
    """A variant with its numbers."""

    variant: Variant
    options: Mapping[str, Any]
    """fairseq-train's, with those that follow from the budget and the rule of the learning rate."""
    parsed: Namespace
    shape: Shape
    size: UpdateSize
    is_measured: bool
    """Whether `size` is of the data; else blocks are taken to be full."""
    num_ranks: int
    """Processes of a pretraining."""

    @property
    def num_updates(self) -> int:
        """Total updates."""
        return int(self.parsed.max_update)

    @property
    def tokens(self) -> float:
        """Total tokens."""
        return self.size.tokens * self.num_updates

    @property
    def flops(self) -> float:
        """Total FLOPs."""
        return flops_of_update(self.shape, self.size) * self.num_updates

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

    def amount(self, equal: str) -> float:
        """How much of the budget's unit the variant gets."""
        return {"tokens": self.tokens, "updates": float(self.num_updates), "flops": self.flops}[equal]


@dataclass(frozen=True, kw_only=True)
class PlannedStudy:
    """A study, and what its variants take; checked as far as possible before it runs."""

    study: Study
    plans: Sequence[VariantPlan]
    num_ranks: int
    """Processes of a pretraining on GPUs."""

    @property
    def has_gpus(self) -> bool:
        """Whether the pretrainings compute on GPUs."""
        return not any(plan.parsed.cpu for plan in self.plans)

    def pretraining(self) -> dict[str, Any]:
        """All pretrainings as the content of a grid file, with the variants as its axis."""
        split = str(self.plans[0].parsed.valid_subset).split(",")[0]
        return {
            "train": {"data": self.plans[0].options["data"]},
            "axes": {VARIANT: {plan.variant.name: dict(plan.options) for plan in self.plans}},
            "seeds": list(self.study.seeds),
            "metric": {"log": split, "value": "loss", "goal": "min", "at": "last"},
        }


def plan_study(settings: StudySettings, *, num_ranks: int | None = None) -> PlannedStudy:
    """Read a study, and work out what it takes.

    `num_ranks` are the processes of a pretraining that an earlier start has recorded; None: as many as there are GPUs.

    Raises:
        ValueError: for what cannot work, or what claims to be equal and is not; nothing has run then.
    """
    import torch

    roberta_plugin.register()
    study = read_study(settings.study)
    if num_ranks is None:
        has_slurm = settings.slurm is not None
        num_ranks = (
            study.resources(settings.slurm or {}).gpus_per_node
            if has_slurm
            else settings.gpus_per_run or torch.cuda.device_count()
        )
    num_ranks = max(1, num_ranks)
    return PlannedStudy(study=study, plans=plan_variants(study, num_ranks=num_ranks), num_ranks=num_ranks)


def plan_variants(study: Study, *, num_ranks: int) -> list[VariantPlan]:
    """The plans of all variants.

    Raises:
        ValueError: for options that fairseq-train would refuse, and for budgets that are not equal though claimed.
    """
    sized = {variant.name: _sized(variant, study, num_ranks=num_ranks) for variant in study.variants}
    plans = []
    for variant in study.variants:
        options = {**variant.options, **_learning_rate(variant, study, sized)}
        parsed, size, is_measured = sized[variant.name]
        shape = shape_of(parsed)
        if study.budget.amount is not None:
            options |= _schedule(study.budget, shape, size)
        parsed = _parse(options, variant, study)
        plans.append(
            VariantPlan(
                variant=variant,
                options=options,
                parsed=parsed,
                shape=shape,
                size=size,
                is_measured=is_measured,
                num_ranks=1 if parsed.cpu else num_ranks,
            )
        )
    check_budget(plans, study)
    return plans


def flops_of(shape: Shape, *, tokens: float, pairs: float, predicted: float = 0.0, sequences: float = 0.0) -> float:
    """FLOPs of forward and backward for these numbers of tokens, pairs of positions, predicted positions, sequences."""
    return training_flops(
        num_layers=shape.num_layers,
        dim=shape.dim,
        ffn_dim=shape.ffn_dim,
        vocab_size=shape.vocab_size,
        num_tokens=round(tokens),
        num_pairs=round(pairs),
        num_predicted=round(predicted),
        num_next_sentences=round(sequences) if shape.predicts_next_sentence else 0,
    )


def flops_of_update(shape: Shape, size: UpdateSize) -> float:
    """FLOPs of forward and backward of an average update."""
    return flops_of(shape, tokens=size.tokens, pairs=size.pairs, predicted=size.predicted, sequences=size.sequences)


def check_budget(plans: list[VariantPlan], study: Study) -> None:
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


def missing_data(plans: Sequence[VariantPlan]) -> list[Path]:
    """Data folders without a training split."""
    folders = {folder: plan.parsed.train_subset for plan in plans for folder in plan.folders}
    return [folder for folder, split in folders.items() if not (folder / f"{split}.idx").is_file()]


def check_data(study: Study, plans: Sequence[VariantPlan]) -> None:
    """Refuse data that is missing, or has different vocabularies.

    Raises:
        FileNotFoundError: if a folder has no training split.
        ValueError: naming variants whose perplexities could not be compared.
    """
    missing = missing_data(plans)
    if missing:
        raise FileNotFoundError(
            f"{study.path}: {', '.join(map(str, missing))} is not there: make it with `roberta binarize --output-dir "
            "...`."
        )
    vocabularies = {plan.dictionary: plan.variant.name for plan in plans}
    if len(vocabularies) > 1:
        raise ValueError(
            f"{study.path}: the data of {' and '.join(vocabularies.values())} have different vocabularies (dict.txt): "
            "perplexities over different tokens cannot be compared. Binarize all of them with one tokenizer."
        )


def warnings_of(plans: Sequence[VariantPlan]) -> list[str]:
    """Notes on variants that are not what their name says at this budget."""
    notes = []
    for plan in plans:
        masks = int(getattr(plan.parsed, "num_static_masks", 0))
        if masks and plan.epochs is not None and plan.epochs <= masks:
            notes.append(
                f"Note: {plan.variant.name} has {masks} static masks a block, and {plan.epochs:.3g} passes over the "
                "data: no mask comes back, so it is the same as dynamic masking. In the paper each comes four times: "
                "raise the amount, or take less data."
            )
    return notes


def _parse(options: Mapping[str, Any], variant: Variant, study: Study) -> Namespace:
    """fairseq's namespace of a variant's options; ValueError names study and variant."""
    arguments = to_arguments(options, where=str(study.path))
    if "--user-dir" not in arguments:
        arguments += ["--user-dir", str(Path(roberta_plugin.__file__).parent)]
    try:
        return train_arguments.parse(arguments)
    except ValueError as error:
        raise ValueError(f"{study.path}: the variant {variant.name}: {error}") from error


def _sized(variant: Variant, study: Study, *, num_ranks: int) -> tuple[Namespace, UpdateSize, bool]:
    options = dict(variant.options)
    if study.budget.amount is not None:
        for name in _DERIVED:
            if name in options:
                raise ValueError(
                    f"{study.path}: {name} is set, and it follows from the amount under budget: leave out one of them."
                )
        options |= {"max-update": "1", "total-num-update": "1"}
    parsed = _parse(options, variant, study)
    _check_run(parsed, where=f"{study.path}: the variant {variant.name}")
    try:
        check_options(parsed)
    except ValueError as error:
        raise ValueError(f"{study.path}: the variant {variant.name}: {error}") from error
    is_here = all((folder / f"{parsed.train_subset}.idx").is_file() for folder in train_arguments.data_folders(parsed))
    if is_here:
        _check_format(parsed, variant=variant.name)
    size = (measured_size if is_here else nominal_size)(parsed, num_ranks=1 if parsed.cpu else num_ranks)
    return parsed, size, is_here


def _check_run(parsed: Namespace, *, where: str) -> None:
    """Refuse a run whose number of updates or of tokens would not be the planned one, or without checkpoint or loss."""
    if not parsed.max_update:
        raise ValueError(f"{where} has no end: give max-update and total-num-update, or an amount under budget.")
    for name, default in _WHOLE_RUNS.items():
        if (getattr(parsed, name.replace("-", "_"), default) or 0) != default:
            raise ValueError(
                f"{where} sets {name}, with which a run may end before its budget or leaves nothing to measure: leave "
                "it out."
            )
    if len(parsed.update_freq) != 1:
        given = ",".join(map(str, parsed.update_freq))
        raise ValueError(f"{where} sets update-freq to {given}: it must be one number for all epochs.")


def structure_of(sizes: Sequence[int] | NDArray[np.int32]) -> tuple[int, int]:
    """Lines without blank ones, and documents, by the tokens of each line (n,): a blank line is </s> alone.

    Example:
        structure_of([5, 7, 1, 4, 1])  ->  (3, 2): three lines in two documents
    """
    is_blank = np.asarray(sizes) == 1
    starts = ~is_blank & np.concatenate([[True], is_blank[:-1]])
    return int((~is_blank).sum()), int(starts.sum())


def _check_format(parsed: Namespace, *, variant: str) -> None:
    """Refuse a format of documents or pairs for data without them, which would end a run at its start or in it."""
    input_format = str(getattr(parsed, "input_format", None) or parsed.sample_break_mode)
    if input_format not in _BY_DOCUMENT:
        return
    validation = str(parsed.valid_subset).split(",") if input_format in _BY_PAIR else ()
    for folder in train_arguments.data_folders(parsed):
        for split in (parsed.train_subset, *validation):
            if not (folder / f"{split}.idx").is_file():
                continue
            num_lines, num_documents = structure_of(np.asarray(MmapTokens(folder / split).sizes[:_LINES]))
            least = _LEAST_SENTENCES if split == parsed.train_subset else 1.0
            has_sentences = num_lines > num_documents and num_lines >= least * num_documents
            if num_documents < 2 or (input_format in _BY_PAIR and not has_sentences):
                needs = "documents of several sentences" if input_format in _BY_PAIR else "documents"
                raise ValueError(
                    f"The variant {variant} has the input format {input_format}, which needs {needs}, and the split "
                    f"{split} of {folder} has {num_lines:,} lines in {num_documents:,} documents: binarize text with "
                    "a blank line between documents or with --blank-line-after-files, for pairs with one sentence a "
                    "line or with --split-sentences."
                )


def _learning_rate(
    variant: Variant, study: Study, sized: Mapping[str, tuple[Namespace, UpdateSize, bool]]
) -> dict[str, str]:
    """The learning rate by the study's rule, for a variant without one of its own."""
    if study.rate is None or "lr" in variant.own_options:
        return {}
    base = sized[study.rate.batch_of][0].lr[0]
    known, own = (sized[name][1].tokens for name in (study.rate.batch_of, variant.name))
    return {"lr": f"{scaled_rate(base, known, own, rule=study.rate.rule):.4g}"}


def _schedule(budget: Budget, shape: Shape, size: UpdateSize) -> dict[str, str]:
    """Options by which the variant gets the budget's amount, to the nearest update.

    Example:
        1e6 tokens, 4096 tokens an update, warm-up 0.06  ->  max-update and total-num-update 244, warmup-updates 15
    """
    assert budget.amount is not None
    of_update = {"tokens": size.tokens, "updates": 1.0, "flops": flops_of_update(shape, size)}[budget.equal]
    updates = equal_updates(budget.amount, of_update=of_update)
    warm_up = min(max(1, round(budget.warm_up * updates)), updates - 1)
    return {"max-update": str(updates), "total-num-update": str(updates), "warmup-updates": str(max(0, warm_up))}
