"""A study: variants x seeds, pretrained, probed, and compared beside the paper's rows (`roberta study`).

    study file --settings--> Study --plan, checks--> plans, or a refusal
    plans --sweep--> pretraining/variant-NAME/seed-N --perplexity--> perplexity/PROBE/NAME/seed-N.json
                                                     --tuning--> fine-tuning/PROBE/results/NAME/seed-N
    all values --statistics, report, plots--> report.md, results.json, curves.png, bars.png

The folders are the whole state: the same call goes on after any stop.

Example:
    from roberta_plugin.experiments.studies.study import StudySettings, run_study

    outcome = run_study(StudySettings(study=Path("examples/studies/table1_small.yaml"), output_dir=Path("runs/table1")))
    print(outcome.report)
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import roberta_plugin
from roberta_plugin.experiments.studies import tuning as study_tuning
from roberta_plugin.experiments.studies.checks import check_study
from roberta_plugin.experiments.studies.costs import (
    StudyCosts,
    assumed_speed,
    costs_of,
    measured_speed,
    ranks_of,
    warnings_of,
)
from roberta_plugin.experiments.studies.plan import missing_data, plan_variants
from roberta_plugin.experiments.studies.record import (
    FINE_TUNING,
    PRETRAINING,
    check_record,
    check_unchanged,
    recorded_ranks,
    settings_of,
)
from roberta_plugin.experiments.studies.report import write_report
from roberta_plugin.experiments.studies.settings import TuningProbe, read_study
from roberta_plugin.experiments.studies.work import PlannedStudy, Work, pretraining_content
from roberta_plugin.experiments.studies.work import StudySettings as StudySettings
from roberta_plugin.experiments.sweeps.grid import Grid, grid_from
from roberta_plugin.experiments.sweeps.slurm import check_slurm
from roberta_plugin.experiments.sweeps.sweep import check_options
from roberta_plugin.locks import try_lock
from roberta_plugin.prediction.opening import usable_device

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class StudyOutcome:
    """What a study has found so far."""

    results: Mapping[str, Any]
    """The content of results.json."""
    report: str
    """The content of report.md."""
    failures: Mapping[str, str]
    """Why runs have failed, by their folders."""


def plan_study(settings: StudySettings) -> PlannedStudy:
    """Read a study, and work out what it takes.

    Raises:
        FileNotFoundError: if a file that it names does not exist.
        ValueError: for what cannot work, or what claims to be equal and is not; nothing has run then.
    """
    roberta_plugin.register()
    study = read_study(settings.study)
    num_ranks = recorded_ranks(settings.output_dir) if settings.report_only else None
    num_ranks = num_ranks or ranks_of(study, slurm=settings.slurm, gpus_per_run=settings.gpus_per_run)
    return PlannedStudy(study=study, plans=plan_variants(study, num_ranks=num_ranks), num_ranks=num_ranks)


def run_study(settings: StudySettings, *, say: Say = print) -> StudyOutcome:
    """Do what is left of a study, and write its report; with `report_only`, write the report of what is there.

    Args:
        settings: what to do.
        say: receives messages for the user.

    Raises:
        FileNotFoundError: if a file that the study names does not exist; with `report_only`, if no study was begun.
        ValueError: as `plan_study`; if another process works in the folder; or if its results have other settings or
            come of other data.
    """
    planned = plan_study(settings)
    study, plans, root = planned.study, planned.plans, settings.output_dir.resolve()
    check_study(study, plans)
    content = pretraining_content(study, plans)
    if settings.slurm is not None:
        content["slurm"] = study.slurm_with(settings.slurm)
    grid = grid_from(content, study.path)
    if settings.report_only:
        return _report(settings, planned, grid, say)
    check_options(grid)
    usable_device(settings.device)  # it is needed after the pretrainings only
    if settings.slurm is not None:
        check_slurm(grid.slurm)
    with only_one(root):
        for line in check_record(root, settings_of(study, plans), redo=settings.redo_changed):
            say(line)
        prepared = {
            probe.name: study_tuning.prepared_folder(probe, root / FINE_TUNING / probe.name)
            for probe in study.probes
            if isinstance(probe, TuningProbe)
        }
        for probe in study.probes:  # what does not fit the paper's grid is refused now, not after hours
            if isinstance(probe, TuningProbe):
                study_tuning.num_cells(probe, prepared[probe.name])
                study_tuning.check_options_of(probe, prepared[probe.name], study.path)
        costs = costs_of(study, plans, prepared)
        for line in warnings_of(plans):
            say(line)
        work = Work(settings=settings, planned=planned, root=root, grid=grid, costs=costs, prepared=prepared, say=say)
        try:
            work.do()
        finally:
            results, text = write_report(work)
    return StudyOutcome(results=results, report=text, failures=work.failures)


def _report(settings: StudySettings, planned: PlannedStudy, grid: Grid, say: Say) -> StudyOutcome:
    """The report of what is there. Nothing else is written, so it may be asked for while the study goes on."""
    study, plans, root = planned.study, planned.plans, settings.output_dir.resolve()
    check_unchanged(root, settings_of(study, plans))
    prepared = {
        probe.name: study_tuning.prepared_folder(probe, root / FINE_TUNING / probe.name)
        for probe in study.probes
        if isinstance(probe, TuningProbe) and study_tuning.is_prepared(root / FINE_TUNING / probe.name)
    }
    costs = costs_of(study, plans, prepared)
    work = Work(settings=settings, planned=planned, root=root, grid=grid, costs=costs, prepared=prepared, say=say)
    work.do()
    results, text = write_report(work)
    return StudyOutcome(results=results, report=text, failures=work.failures)


def planned_costs(
    settings: StudySettings, *, flops_per_second: float | None = None
) -> tuple[PlannedStudy, StudyCosts, float, str]:
    """For --dry-run: the plan, its costs, the speed of a run, and where that speed comes from. Nothing is kept.

    Where pretraining data or official files are not here, they are left out, so that a study can be planned anywhere.

    Raises:
        FileNotFoundError: as `run_study`, for what is needed to plan.
        ValueError: as `run_study`.
    """
    planned = plan_study(settings)
    study, plans = planned.study, planned.plans
    if not missing_data(plans):
        check_study(study, plans)
    with tempfile.TemporaryDirectory() as scratch:
        prepared = {}
        for probe in study.probes:
            if isinstance(probe, TuningProbe) and probe.raw.exists() and probe.tokenizer.exists():
                kept = settings.output_dir / FINE_TUNING / probe.name
                folder = kept if (kept / "data").exists() else Path(scratch) / probe.name
                prepared[probe.name] = study_tuning.prepared_folder(probe, folder)
                study_tuning.check_options_of(probe, prepared[probe.name], study.path)
        costs = costs_of(study, plans, prepared)
    if flops_per_second is not None:
        return planned, costs, flops_per_second, "as given"
    logs = sorted((settings.output_dir / PRETRAINING).glob("*/seed-*/log.txt"))
    measured = measured_speed(logs)
    if measured is not None:
        return planned, costs, measured, "measured in this study's runs"
    is_cpu = any(plan.parsed.cpu for plan in plans)
    assumed = assumed_speed(num_ranks=planned.num_ranks, parallel=settings.parallel, is_cpu=is_cpu)
    return planned, costs, assumed, "assumed: a share of this machine's peak"


@contextmanager
def only_one(root: Path) -> Iterator[None]:
    """Hold the folder for this process.

    Raises:
        ValueError: if another one holds it.
    """
    root.mkdir(parents=True, exist_ok=True)
    lock = os.open(root / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not try_lock(lock):
            raise ValueError(f"Another `roberta study` works in {root}: wait for it, or give another --output-dir.")
        yield
    finally:
        os.close(lock)
