"""What a study costs: FLOPs of its pretrainings and fine-tunings, and an estimate of the hours."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roberta_plugin.experiments.studies.plan import START_UP_S, VariantPlan
from roberta_plugin.experiments.studies.settings import Probe, Study, TuningProbe
from roberta_plugin.experiments.studies.tuning import num_cells
from roberta_plugin.finetuning.benchmarks import PaperRecipe, benchmark_of
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.machine import num_cores
from roberta_plugin.models.device_peaks import peak_of
from roberta_plugin.models.flops import training_flops
from roberta_plugin.training.log import curve
from roberta_plugin.training.resources import Resources, read_resources

SHARE_OF_MATMUL = 1 / 3  # of a CPU's large matrix products that training reaches; an assumption
SHARE_OF_PEAK = 0.4  # of a GPU's half-precision peak; an assumption
_MATMUL = 768  # rows and columns of the product that is timed
_MATMUL_S = 0.4


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

    def hours(self, flops_per_second: float, *, parallel: int) -> float:
        """Hours at so many FLOP/s of each of the runs that go on at a time, start-ups included."""
        return (self.total / flops_per_second + START_UP_S * self.num_runs) / parallel / 3600


def costs_of(study: Study, plans: Sequence[VariantPlan], prepared: Mapping[str, Prepared]) -> StudyCosts:
    """The costs; probes whose data is not prepared are left out."""
    tuning = [probe for probe in study.probes if isinstance(probe, TuningProbe) and probe.name in prepared]
    num_models = len(plans) * len(study.seeds)
    return StudyCosts(
        pretraining=sum(plan.flops for plan in plans) * len(study.seeds),
        of_tuning_run={probe.name: tuning_flops(probe, prepared[probe.name], plans) for probe in tuning},
        num_tuning_runs={
            probe.name: num_models * num_cells(probe, prepared[probe.name]) * len(probe.seeds) for probe in tuning
        },
        num_pretrainings=num_models,
    )


def tuning_flops(probe: TuningProbe, prepared: Prepared, plans: Sequence[VariantPlan]) -> float:
    """FLOPs of one fine-tuning, averaged over the variants' models; the task's head is left out."""
    sizes = np.asarray(prepared.split("train").sequences.sizes, dtype=np.float64)
    epochs = _epochs(probe, prepared)
    shapes = [plan.shape for plan in plans]
    return epochs * statistics.fmean(
        training_flops(
            num_layers=shape.num_layers,
            dim=shape.dim,
            ffn_dim=shape.ffn_dim,
            vocab_size=shape.vocab_size,
            num_tokens=int(sizes.sum()),
            num_pairs=int((sizes**2).sum()),
            num_predicted=0,
        )
        for shape in shapes
    )


def _epochs(probe: TuningProbe, prepared: Prepared) -> float:
    """Passes over the data: those of the probe or the paper, unless the probe's max-update comes first."""
    recipe = benchmark_of(probe.task).recipe
    of_run, of_pass = (_updates(recipe(probe.task, prepared, epochs=epochs)) for epochs in (probe.epochs, 1))
    return min(of_run, int(probe.train.get("max-update", of_run))) / of_pass


def _updates(recipe: PaperRecipe) -> int:
    """Updates of a run, which the recipe gives for all runs or by the batch."""
    of_batches = [
        choice for choices in recipe.axes.values() if isinstance(choices, Mapping) for choice in choices.values()
    ]
    return next(int(options["max-update"]) for options in (recipe.train, *of_batches) if "max-update" in options)


def ranks_of(study: Study, *, slurm: Mapping[str, str] | None, gpus_per_run: int) -> int:
    """Processes of a pretraining: GPUs that SLURM is asked for, or those of this machine that a run sees, or 1."""
    if slurm is not None:
        found = read_resources({**study.slurm, **slurm}, where=f"{study.path}: slurm", kind=Resources)
        return max(1, found.gpus_per_node)
    import torch

    return max(1, gpus_per_run or torch.cuda.device_count())


def measured_speed(logs: Iterable[Path]) -> float | None:
    """FLOP/s of the pretrainings in these logs: the median of the runs' medians; None before there is one."""
    medians = []
    for path in logs:
        with open(path, encoding="utf-8", errors="replace") as lines:
            values = curve(lines, kind="train_inner", value="tflops").values
        if values:
            medians.append(1e12 * statistics.median(values))
    return statistics.median(medians) if medians else None


def assumed_speed(*, num_ranks: int, parallel: int, is_cpu: bool) -> float:
    """FLOP/s of a run on this machine before anything was trained: a share of the peak, stated above."""
    import torch

    if not is_cpu and torch.cuda.is_available():
        return SHARE_OF_PEAK * num_ranks * (peak_of(torch.cuda.get_device_name()) or 100e12)
    threads = int(os.environ.get("OMP_NUM_THREADS", "0")) or max(1, num_cores() // parallel)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        a = torch.randn(_MATMUL, _MATMUL)
        a @ a
        count, started = 0, time.perf_counter()
        while time.perf_counter() < started + _MATMUL_S:
            a @ a
            count += 1
        return SHARE_OF_MATMUL * count * 2 * _MATMUL**3 / (time.perf_counter() - started)
    finally:
        torch.set_num_threads(before)


def describe_plan(study: Study, plans: Sequence[VariantPlan], costs: StudyCosts, *, hours: float, speed: str) -> str:
    """The plan as text: a table of the variants, the probes, and the hours."""
    head = f"{'variant':<18} {'updates':>10} {'tokens/update':>14} {'tokens':>10} {'epochs':>7} {'FLOPs':>9} {'lr':>8}"
    lines = [f"{study.title}: {len(plans)} variants x {len(study.seeds)} seeds, equal {study.budget.equal}", head]
    for plan in plans:
        epochs = "?" if plan.epochs is None else f"{plan.epochs:.3g}"
        lines.append(
            f"{plan.variant.name:<18} {plan.num_updates:>10,} {plan.size.tokens:>14,.0f} {plan.tokens:>10.3g} "
            f"{epochs:>7} {plan.flops:>9.2e} {plan.parsed.lr[0]:>8.3g}"
        )
    lines += [describe_probe(probe, costs) for probe in study.probes]
    lines += warnings_of(plans)
    if any(not plan.is_measured for plan in plans):
        lines.append("The data is not here: tokens are those of full blocks.")
    shares = f"pretraining {costs.pretraining:.2e}, fine-tuning {costs.tuning:.2e}"
    lines.append(f"{costs.num_runs} trainings, {costs.total:.2e} FLOPs ({shares})")
    lines.append(f"about {hours:.2g} hours, with {speed}")
    return "\n".join(lines)


def warnings_of(plans: Sequence[VariantPlan]) -> list[str]:
    """Variants that are not what their name says at this budget."""
    found = []
    for plan in plans:
        masks = int(getattr(plan.parsed, "num_static_masks", 0))
        if masks and plan.epochs is not None and plan.epochs <= masks:
            found.append(
                f"Note: {plan.variant.name} has {masks} static masks a block, and {plan.epochs:.3g} passes over the "
                "data: no mask comes back, so it is the same as dynamic masking. In the paper each comes four times: "
                "raise the amount, or take less data."
            )
    return found


def describe_probe(probe: Probe, costs: StudyCosts) -> str:
    """A line about a probe."""
    if not isinstance(probe, TuningProbe):
        return f"probe {probe.name}: held-out perplexity, {probe.split} split"
    runs = costs.num_tuning_runs.get(probe.name)
    counted = f", {runs} runs" if runs else ", data not prepared: its hours are not in the estimate"
    return f"probe {probe.name}: fine-tuning on {probe.task}, {probe.metric}{counted}"


def machine() -> dict[str, Any]:
    """The machine that a report names: processor, cores, GPU."""
    import platform

    import torch

    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"processor": name, "cores": num_cores(), "gpu": gpu, "torch": torch.__version__}
