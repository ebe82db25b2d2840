"""A study: variants x seeds, pretrained, probed, and compared beside the paper's rows (`roberta study`).

    study file --settings--> Study --plan, probes--> plans, or a refusal
    plans --sweep over variants--> pretraining/variant-NAME/seed-N --probes, a sweep over models--> value.json of each
    all values --report--> report.md, results.json, curves.png

The folders are the whole state: the same call resumes after any stop. study.json holds what the results are made from,
part by part: new variants, seeds and probes extend a study; a part that has changed, in the file or in the data, is
named and refused.

Example:
    from roberta_plugin.experiments.studies.study import StudySettings, run_study

    outcome = run_study(StudySettings(study=Path("examples/studies/table1_small.yaml"), output_dir=Path("runs/table1")))
    print(outcome.report)
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from roberta_plugin.data.manifest import read_manifest
from roberta_plugin.experiments.finetune import run_grid
from roberta_plugin.experiments.finetuning_plan import FinetunePlan
from roberta_plugin.experiments.settings import StudySettings as StudySettings
from roberta_plugin.experiments.settings import SweepSettings
from roberta_plugin.experiments.studies import probes, report
from roberta_plugin.experiments.studies.plan import PlannedStudy, check_data, notes_on, plan_study
from roberta_plugin.experiments.studies.probes import Model
from roberta_plugin.experiments.studies.settings import FINE_TUNING, PerplexityProbe, Probe, TuningProbe, read_study
from roberta_plugin.experiments.sweeps.grid import VARIANT, Grid, run_folders
from roberta_plugin.experiments.sweeps.sweep import train_grid
from roberta_plugin.finetuning.prepared import NAME as PREPARED
from roberta_plugin.hub.running import usable_device
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.launch.log import curve
from roberta_plugin.launch.resources import check_slurm
from roberta_plugin.launch.run_folder import DONE, RunFolder
from roberta_plugin.locks import only_process
from roberta_plugin.record import differences, listed

NAME = "study.json"
PRETRAINING = "pretraining"  # a folder, and the name of its jobs
_PROCESSES = "processes"
_DIGITS = 16  # of a hash
_NOT_RECORDED = ("name", "seeds")  # of a probe: more seeds extend it
_AGAIN = "delete it and run the same command again"
Record = Mapping[str, Mapping[str, str]]  # part of a study -> what its results are made from, by name
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class StudyOutcome:
    """The results of a study so far."""

    results: Mapping[str, Any]  # the content of results.json
    report: str  # the content of report.md
    failures: Mapping[str, str]  # why runs have failed, by their folders


def run_study(settings: StudySettings, *, say: Say = print) -> StudyOutcome:
    """Do what is left of a study, and write its report; with `report_only`, write the report of what is there.

    Raises:
        FileNotFoundError: if a file that the study names does not exist; with `report_only`, if no study was begun.
        ValueError: as `plan_study`; if another process works in the folder; or if its results have other settings or
            come of other data.
    """
    planned = checked_plan(settings)
    root = settings.output_dir.resolve()
    record = made_from(planned)
    if settings.report_only:  # nothing else is written, so it may be asked for while the study runs
        return report_on(planned, root, record)
    device = usable_device(settings.device)  # it is needed after the pretrainings only
    if settings.slurm is not None:
        check_slurm(planned.study.resources(settings.slurm))
    refusal = f"Another `roberta study` works in {root}: wait for it, or give another --output-dir."
    with only_process(root, refusal):
        write_json(root / NAME, {"parts": {**check_record(root, record), **record}})
        tunings = {
            probe.name: probes.plan_tuning(probe, planned, settings, data_folder(root, probe))
            for probe in _tuning(planned)
        }
        for line in notes_on(planned):
            say(line)
        work = Work(settings, planned, say)
        try:
            work.pretrain()
            for each in planned.study.probes:
                if isinstance(each, TuningProbe):
                    work.tune(each, tunings[each.name])
                else:
                    work.measure(each, device=device)
        finally:
            outcome = report_on(planned, root, record)
    return outcome


def dry_run(settings: StudySettings) -> str:
    """The plan of a study as text, its data checked and counted. Nothing is kept.

    Where pretraining data or official files are not here, they are left out, so that a study can be planned anywhere.

    Raises:
        FileNotFoundError: as `run_study`, for what is needed to plan.
        ValueError: as `run_study`.
    """
    planned = checked_plan(settings)
    if settings.slurm is not None:
        check_slurm(planned.study.resources(settings.slurm))
    num_runs = {}
    with tempfile.TemporaryDirectory() as scratch:
        for probe in _tuning(planned):
            if probe.raw.exists() and probe.tokenizer.exists():
                kept = data_folder(settings.output_dir, probe)
                folder = kept if (kept / PREPARED).is_file() else Path(scratch) / probe.name
                num_models = len(planned.plans) * len(planned.study.seeds)
                num_runs[probe.name] = num_models * len(probes.plan_tuning(probe, planned, settings, folder).grid.runs)
    return report.describe_plan(planned, num_runs)


def checked_plan(settings: StudySettings) -> PlannedStudy:
    """The plan of a study, checked with its data and with what was begun; of a dry run as far as the data is here.

    It is for the processes that a pretraining has here; a report alone is for those that it had.
    """
    import torch

    study = read_study(settings.study)
    root = settings.output_dir.resolve()
    earlier = read_record(root)
    if settings.report_only and not earlier:
        raise FileNotFoundError(f"{root / NAME} does not exist: no study was begun there. Give its --output-dir.")
    recorded = [int(part[_PROCESSES]) for part in earlier.values() if _PROCESSES in part]
    if settings.report_only and recorded:
        num_ranks = max(recorded)
    elif settings.slurm is not None:
        num_ranks = study.resources(settings.slurm).gpus_per_node
    else:
        num_ranks = settings.gpus_per_run or torch.cuda.device_count()
    planned = plan_study(study, num_ranks=max(1, num_ranks))
    if planned.has_data or not settings.dry_run:
        check_data(planned)
        probes.check_probes(planned)
        check_record(root, made_from(planned))
    return planned


def _tuning(planned: PlannedStudy) -> list[TuningProbe]:
    return [probe for probe in planned.study.probes if isinstance(probe, TuningProbe)]


def data_folder(root: Path, probe: TuningProbe) -> Path:
    """The prepared folder of a probe, which all models share."""
    return root / FINE_TUNING / probe.name / "data"


@dataclass(frozen=True)
class Work:
    """The steps of a study, which resume where an earlier call was stopped; each leaves its results in files."""

    settings: StudySettings
    planned: PlannedStudy
    say: Say

    @property
    def root(self) -> Path:
        """The folder of the study."""
        return self.settings.output_dir.resolve()

    def models(self) -> list[Model]:
        """The models that are pretrained so far."""
        return pretrained(pretraining_runs(self.planned, self.root))

    def pretrain(self) -> None:
        """Do the pretrainings that are left."""
        folder = self.root / PRETRAINING
        self._sweep(replace(self.planned.grid, path=folder.with_suffix(".json")), folder, name=PRETRAINING)

    def measure(self, probe: PerplexityProbe, *, device: str) -> None:
        """Perplexity of every model that has none yet."""
        left = [
            model
            for model in self.models()
            if read_value(model, self.root, probe) is None and model.checkpoint.is_file()
        ]
        text = probes.held_out(probe, self.planned) if left else None
        for model in left:
            assert text is not None
            score = probes.perplexity_of(model.checkpoint, text, device=device)
            shown = "not a finite number" if score["value"] is None else f"{score['value']:.4g}"
            self.say(f"{probe.name}: {model.variant}, seed {model.seed}: perplexity {shown}")
            write_value(model, self.root, probe, score)

    def tune(self, probe: TuningProbe, tuning: FinetunePlan) -> None:
        """Fine-tune every model that is there, in one sweep, and evaluate it."""
        models = [model for model in self.models() if model.checkpoint.is_file()]
        if not models:
            return
        plan = probes.with_models(tuning, models)
        plan.grid.write()
        run_grid(plan, report=self.say)
        for model in models:
            value = probes.tuned_value(plan, model, model.results(self.root, probe))
            if value is not None:
                write_value(model, self.root, probe, value)

    def _sweep(self, grid: Grid, folder: Path, *, name: str) -> None:
        """Do the runs of a grid that are left, whose options were checked before the first one."""
        settings, is_local = self.settings, self.settings.slurm is None
        if settings.slurm is not None:
            grid = replace(grid, slurm=self.planned.study.resources(settings.slurm))
        grid.write()
        train_grid(
            grid,
            SweepSettings(
                grid=grid.path,
                output_dir=folder,
                parallel=settings.parallel,
                retries=settings.retries,
                gpus_per_run=settings.gpus_per_run,
                slurm=None if is_local else {},
                job_name=f"{self.root.name}-{name}",
                wait=not is_local,
                code=self.root,
                keep="weights",
            ),
            say=self.say,
        )


def pretraining_runs(planned: PlannedStudy, root: Path) -> list[RunFolder]:
    """The folders of all pretrainings."""
    return run_folders(planned.grid, root / PRETRAINING)


def pretrained(runs: Sequence[RunFolder]) -> list[Model]:
    """The models whose pretraining is done."""
    return [
        Model(
            variant=run.run.settings[VARIANT],
            seed=run.run.seed,
            checkpoint=run.chosen_checkpoint(),
        )
        for run in runs
        if run.state() == DONE
    ]


def write_value(model: Model, root: Path, probe: Probe, value: Mapping[str, Any]) -> None:
    """Write what a probe has measured."""
    folder = model.results(root, probe)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "value.json", value)


def read_value(model: Model, root: Path, probe: Probe) -> dict[str, Any] | None:
    """What a probe has measured; None before it has, or for other seeds of fine-tuning."""
    value = read_json(model.results(root, probe) / "value.json", keys=("value",), remedy=_AGAIN)
    is_of_seeds = value is None or isinstance(probe, PerplexityProbe) or set(value["seeds"]) == set(probe.seeds)
    return value if is_of_seeds else None


def report_on(planned: PlannedStudy, root: Path, record: Record) -> StudyOutcome:
    """Write the report of what there is; `record` is that of `made_from`."""
    study, runs = planned.study, pretraining_runs(planned, root)
    failures: dict[str, str] = {}
    for folder in (root / PRETRAINING, *(root / FINE_TUNING / probe.name / "runs" for probe in _tuning(planned))):
        facts = read_json(folder / "report.json", keys=("failures",), remedy=_AGAIN, hints={"failures": dict}) or {
            "failures": {}
        }
        failures |= {str(folder / name): failure["reason"] for name, failure in facts["failures"].items()}
    values: dict[str, dict[str, dict[str, Any]]] = {}
    for model in pretrained(runs):
        for probe in study.probes:
            value = read_value(model, root, probe)
            if value is not None and value["value"] is None:
                reason = "the value is not a finite number: the model has diverged"
                failures[f"{probe.name}: {model.variant}, seed {model.seed}"] = reason
            elif value is not None:
                values.setdefault(probe.name, {}).setdefault(model.variant, {})[model.seed] = value
            elif not model.checkpoint.is_file():
                folder = model.checkpoint.parent.parent
                failures[str(folder)] = (
                    f"{model.checkpoint} does not exist, and not every probe has measured it. To pretrain the model "
                    f"again, delete {folder / 'result.json'} and run the same command again."
                )
    done = [run.run.settings[VARIANT] for run in runs if run.state() == DONE]
    results = {
        "title": study.title,
        "data": {
            path: held for part in record.values() for path, held in part.items() if path.endswith((".bin", ".idx"))
        },
        "seeds": list(study.seeds),
        "budget": asdict(study.budget),
        "variants": {
            plan.variant.name: {**plan.facts(), "pretrainings_done": done.count(plan.variant.name)}
            for plan in planned.plans
        },
        "values": values,
        "baselines": {
            probe.name: losses
            for probe in study.probes
            if isinstance(probe, PerplexityProbe) and (losses := probes.count_losses(probe, planned))
        },
        "curves": {run.run.name: curve(run.log_lines(), kind="train_inner", value="loss")._asdict() for run in runs},
        "flops": planned.flops,
        "failures": failures,
    }
    full, text = report.write_report(study, results, root)
    return StudyOutcome(results=full, report=text, failures=failures)


def made_from(planned: PlannedStudy) -> dict[str, dict[str, str]]:
    """The record of every part of a study that results depend on."""
    record = {}
    for plan in planned.plans:
        part = {name: str(value) for name, value in sorted(plan.options.items())} | {_PROCESSES: str(plan.num_ranks)}
        for folder in plan.folders:
            part |= split_contents(folder, str(plan.parsed.train_subset))
        record[f"variant {plan.variant.name}"] = part
    for probe in planned.study.probes:
        part = {each.name: str(getattr(probe, each.name)) for each in fields(probe) if each.name not in _NOT_RECORDED}
        if isinstance(probe, PerplexityProbe):  # by the variants where they are not given
            folder = probes.held_out_folder(probe, planned)
            part |= {"data": str(folder), "tokens_per_sample": str(probes.block_length(probe, planned))}
            part |= split_contents(folder, probe.split)
        record[f"probe {probe.name}"] = part
    return record


def split_contents(folder: Path, split: str) -> dict[str, str]:
    """The content of a split of a data-bin: file -> hash by manifest.json, or its size in a folder without a manifest.

    Example:
        split_contents(Path("books"), "train")  ->  {"books/train.bin": "sha256 1f0c...", "books/train.idx": "..."}
    """
    outputs = ((read_manifest(folder) or {"splits": {}})["splits"].get(split) or {"outputs": {}})["outputs"]
    paths = [folder / f"{split}.{ending}" for ending in ("bin", "idx")]
    return {
        str(path): f"sha256 {outputs[path.name]['sha256'][:_DIGITS]}"
        if path.name in outputs
        else f"{path.stat().st_size:,} bytes"
        for path in paths
    }


def read_record(root: Path) -> dict[str, dict[str, str]]:
    """The record of earlier starts; empty before the first one."""
    remedy = "delete it, if the study file and its data are as they were, and run the same command again"
    record = read_json(root / NAME, keys=("parts",), remedy=remedy, hints={"parts": dict}) or {"parts": {}}
    return record["parts"]  # type: ignore[no-any-return]


def check_record(root: Path, now: Record) -> Record:
    """Refuse results that are made from other settings or data than the present ones; new parts pass.

    Returns the record of earlier starts.

    Raises:
        ValueError: naming each difference.
    """
    before = read_record(root)
    changed = [
        f"{name}: {listed(changes)}"
        for name, part in now.items()
        if name in before and (changes := differences(before[name], part, named=str))
    ]
    if changed:
        raise ValueError(
            f"{root} holds results of other settings or data. Changed since: {'; '.join(changed)}. Change it back, "
            "give what has changed another name, or give another --output-dir."
        )
    return before
