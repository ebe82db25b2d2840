"""The costs of a study: FLOPs of its trainings, also for the dry run, and hours of finished runs."""

from __future__ import annotations

import platform
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roberta_plugin.experiments.finetuning_plan import prepared_folder
from roberta_plugin.experiments.settings import StudySettings
from roberta_plugin.experiments.studies.plan import (
    VariantPlan,
    check_data,
    flops_of,
    missing_data,
    plan_study,
    warnings_of,
)
from roberta_plugin.experiments.studies.probes import check_probes, check_tuning, recipe_of
from roberta_plugin.experiments.studies.settings import FINE_TUNING, Study, TuningProbe
from roberta_plugin.finetuning.benchmark import PaperRecipe
from roberta_plugin.finetuning.prepared import NAME as PREPARED
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.launch.log import curve
from roberta_plugin.machine import num_cores


@dataclass(frozen=True, kw_only=True)
class StudyCosts:
    """FLOPs, and numbers of runs."""

    pretraining: float
    of_tuning_run: Mapping[str, float]
    """Probe -> FLOPs of one fine-tuning."""
    num_tuning_runs: Mapping[str, int]
    """Probe -> fine-tunings of all models together."""
    num_pretrainings: int

    @property
    def tuning(self) -> float:
        """FLOPs of all fine-tunings."""
        return sum(flops * self.num_tuning_runs[name] for name, flops in self.of_tuning_run.items())

    @property
    def total(self) -> float:
        """FLOPs of everything that trains."""
        return self.pretraining + self.tuning

    @property
    def num_runs(self) -> int:
        """Trainings in all."""
        return self.num_pretrainings + sum(self.num_tuning_runs.values())


def costs_of(study: Study, plans: Sequence[VariantPlan], prepared: Mapping[str, Prepared]) -> StudyCosts:
    """The costs; probes whose data is not prepared are left out."""
    num_models = len(plans) * len(study.seeds)
    probes = [(probe, prepared[probe.name]) for probe in study.tuning if probe.name in prepared]
    return StudyCosts(
        pretraining=sum(plan.flops for plan in plans) * len(study.seeds),
        of_tuning_run={probe.name: tuning_flops(probe, data, plans) for probe, data in probes},
        num_tuning_runs={
            probe.name: num_models * check_tuning(probe, data, study.path) * len(probe.seeds) for probe, data in probes
        },
        num_pretrainings=num_models,
    )


def tuning_flops(probe: TuningProbe, prepared: Prepared, plans: Sequence[VariantPlan]) -> float:
    """FLOPs of one fine-tuning, averaged over the variants' models; the task's head is left out."""
    sizes = np.asarray(prepared.split("train").sequences.sizes, dtype=np.float64)
    of_run, of_pass = (_updates(recipe_of(probe, prepared, epochs=epochs)) for epochs in (None, 1))
    epochs = min(of_run, int(probe.train.get("max-update", of_run))) / of_pass
    return epochs * statistics.fmean(flops_of(plan.shape, tokens=sizes.sum(), pairs=(sizes**2).sum()) for plan in plans)


def _updates(recipe: PaperRecipe) -> int:
    """Updates of a run, which the recipe gives for all runs or by the batch."""
    axes = [choices for choices in recipe.axes.values() if isinstance(choices, Mapping)]
    of_batches = [choice for choices in axes for choice in choices.values()]
    return next(int(options["max-update"]) for options in (recipe.train, *of_batches) if "max-update" in options)


def measured_costs(log: Sequence[str], num_updates: int) -> tuple[float, float] | None:
    """Tokens of a finished pretraining, and its hours of training steps; None without a record of them.

    The log has records every few updates; what lies after the last one is taken to be like the rest.
    """
    batches, speeds = (curve(log, kind="train_inner", value=value) for value in ("wpb", "wps"))
    if not batches.updates:
        return None
    batch, speed = np.asarray(batches.values), np.asarray(speeds.values)
    tokens = batch * np.diff(batches.updates, prepend=0)
    seconds = np.divide(tokens, speed, out=np.zeros_like(tokens), where=speed > 0)
    scale = num_updates / batches.updates[-1]
    return scale * float(tokens.sum()), scale * float(seconds.sum()) / 3600


def dry_run(settings: StudySettings) -> str:
    """The plan of a study as text, its data checked and counted. Nothing is kept.

    Where pretraining data or official files are not here, they are left out, so that a study can be planned anywhere.

    Raises:
        FileNotFoundError: as `run_study`, for what is needed to plan.
    """
    planned = plan_study(settings)
    study, plans = planned.study, planned.plans
    if not missing_data(plans):
        check_data(study, plans)
        check_probes(study, plans)
    with tempfile.TemporaryDirectory() as scratch:
        prepared = {}
        for probe in study.tuning:
            if probe.raw.exists() and probe.tokenizer.exists():
                kept = settings.output_dir / FINE_TUNING / probe.name / "data"
                folder = kept if (kept / PREPARED).is_file() else Path(scratch) / probe.name
                prepared[probe.name] = prepared_folder(probe.source, folder)
        costs = costs_of(study, plans, prepared)
    return describe_plan(study, plans, costs)


def describe_plan(study: Study, plans: Sequence[VariantPlan], costs: StudyCosts) -> str:
    """The plan as text: a table of the variants, the probes, and the FLOPs."""
    head = f"{'variant':<18} {'updates':>10} {'tokens/update':>14} {'tokens':>10} {'epochs':>7} {'FLOPs':>9} {'lr':>8}"
    lines = [f"{study.title}: {len(plans)} variants x {len(study.seeds)} seeds, equal {study.budget.equal}", head]
    for plan in plans:
        epochs = "?" if plan.epochs is None else f"{plan.epochs:.3g}"
        lines.append(
            f"{plan.variant.name:<18} {plan.num_updates:>10,} {plan.size.tokens:>14,.0f} {plan.tokens:>10.3g} "
            f"{epochs:>7} {plan.flops:>9.2e} {plan.parsed.lr[0]:>8.3g}"
        )
    for probe in study.probes:
        if isinstance(probe, TuningProbe):
            runs = costs.num_tuning_runs.get(probe.name)
            counted = f"{runs} runs" if runs else "data not prepared: its FLOPs are not in the sum"
            lines.append(f"probe {probe.name}: fine-tuning on {probe.task}, {counted}")
        else:
            lines.append(f"probe {probe.name}: held-out perplexity, {probe.split} split")
    lines += warnings_of(plans)
    if any(not plan.is_measured for plan in plans):
        lines.append("The data is not here: tokens are those of full blocks.")
    shares = f"pretraining {costs.pretraining:.2e}, fine-tuning {costs.tuning:.2e}"
    return "\n".join([*lines, f"{costs.num_runs} trainings, {costs.total:.2e} FLOPs ({shares})"])


def machine() -> dict[str, Any]:
    """The machine that a report names: processor, cores, GPU."""
    import torch

    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"processor": name, "cores": num_cores(), "gpu": gpu, "torch": torch.__version__}
