"""A study: variants x seeds, pretrained, probed, and compared beside the paper's rows (`roberta study`).

    study file --settings--> Study --plan, probes--> plans, or a refusal
    plans --sweep--> pretraining/variant-NAME/seed-N --probes--> perplexity/, fine-tuning/
    all values --report--> report.md, results.json, curves.png, values.png

Pretrainings and fine-tunings are sweeps: a variant is an axis of the one, a pretrained model an axis of the other.
The folders are the whole state: the same call resumes after any stop. study.json holds the settings and data that the
results come from, part by part: new variants, seeds and probes extend a study; what exists and has changed, in the file
or in the data, is named and refused. With --redo-changed its results are deleted, with those that depend on them.

Example:
    from roberta_plugin.experiments.studies.study import StudySettings, run_study

    outcome = run_study(StudySettings(study=Path("examples/studies/table1_small.yaml"), output_dir=Path("runs/table1")))
    print(outcome.report)
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from roberta_plugin.data.manifest import read_manifest
from roberta_plugin.experiments.finetuning_plan import prepared_folder
from roberta_plugin.experiments.settings import StudySettings as StudySettings
from roberta_plugin.experiments.settings import SweepSettings
from roberta_plugin.experiments.studies.costs import costs_of, machine, measured_costs
from roberta_plugin.experiments.studies.plan import PlannedStudy, VariantPlan, check_data, plan_study, warnings_of
from roberta_plugin.experiments.studies.probes import (
    MODEL_AXIS,
    Model,
    baselines_for,
    block_length,
    check_probes,
    data_of,
    held_out,
    perplexity_of,
    recipe_of,
    results_of,
    tuning_grid,
)
from roberta_plugin.experiments.studies.report import write_report
from roberta_plugin.experiments.studies.settings import (
    FINE_TUNING,
    PERPLEXITY,
    PRETRAINING,
    PerplexityProbe,
    Study,
    TuningProbe,
)
from roberta_plugin.experiments.sweeps.grid import VARIANT, grid_from, run_folders
from roberta_plugin.experiments.sweeps.running import share_done
from roberta_plugin.experiments.sweeps.sweep import check_options, sweep
from roberta_plugin.finetuning.prepared import NAME as PREPARED
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.launch.log import curve
from roberta_plugin.launch.resources import check_slurm, given_settings
from roberta_plugin.launch.run_folder import DONE, FAILED
from roberta_plugin.locks import try_lock
from roberta_plugin.prediction.opening import usable_device
from roberta_plugin.record import differences, listed

NAME = "study.json"
_PROCESSES = "processes"
_DIGITS = 16  # of a hash
_NAMED = {"variants": "variant", "probes": "probe", "ranks": "pretraining of"}  # in messages
_NOT_RECORDED = ("name", "seeds")  # of a probe: more seeds extend it
Parts = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""variants, probes or ranks -> name -> settings."""
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class StudyOutcome:
    """The results of a study so far."""

    results: Mapping[str, Any]
    """The content of results.json."""
    report: str
    """The content of report.md."""
    failures: Mapping[str, str]
    """Why runs have failed, by their folders."""


def run_study(settings: StudySettings, *, say: Say = print) -> StudyOutcome:
    """Do what is left of a study, and write its report; with `report_only`, write the report of what is there.

    Raises:
        FileNotFoundError: if a file that the study names does not exist; with `report_only`, if no study was begun.
        ValueError: as `plan_study`; if another process works in the folder; or if its results have other settings or
            come of other data.
    """
    root = settings.output_dir.resolve()
    planned = plan_study(settings, num_ranks=recorded_ranks(root) if settings.report_only else None)
    study, plans = planned.study, planned.plans
    check_data(study, plans)
    check_probes(study, plans)
    sources = {probe.name: (probe.source, root / FINE_TUNING / probe.name / "data") for probe in study.tuning}
    if settings.report_only:  # nothing else is written, so it may be asked for while the study runs
        check_record(root, settings_of(study, plans), only_read=True)
        there = {name: source for name, source in sources.items() if (source[1] / PREPARED).is_file()}
        prepared = {name: prepared_folder(*source) for name, source in there.items()}
        work = Work(settings, planned, prepared, say=say)
        work.do()
        return work.report()
    check_options(grid_from(planned.pretraining(), study.path))
    usable_device(settings.device)  # it is needed after the pretrainings only
    if settings.slurm is not None:
        check_slurm(study.resources(settings.slurm))
    with only_one(root):
        for line in check_record(root, settings_of(study, plans), redo=settings.redo_changed):
            say(line)
        prepared = {name: prepared_folder(*source) for name, source in sources.items()}
        for line in warnings_of(plans):
            say(line)
        work = Work(settings, planned, prepared, say=say)  # refuses what does not fit the paper's grid
        try:
            work.do()
        finally:
            outcome = work.report()
    return outcome


@contextmanager
def only_one(root: Path) -> Iterator[None]:
    """Hold the folder for this process."""
    root.mkdir(parents=True, exist_ok=True)
    lock = os.open(root / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not try_lock(lock):
            raise ValueError(f"Another `roberta study` works in {root}: wait for it, or give another --output-dir.")
        yield
    finally:
        os.close(lock)


class Work:
    """The steps of one call, which resume where an earlier call was stopped, and their results."""

    def __init__(
        self, settings: StudySettings, planned: PlannedStudy, prepared: Mapping[str, Prepared], *, say: Say
    ) -> None:
        """Count the work of a study, with the data of each probe that has any; `say` receives messages for the user."""
        self.settings, self.planned, self.prepared, self.say = settings, planned, prepared, say
        self.study = planned.study
        self.root = settings.output_dir.resolve()
        self.costs = costs_of(planned.study, planned.plans, prepared)
        self.runs = run_folders(grid_from(planned.pretraining(), self.study.path), self.root / PRETRAINING)
        self.values: dict[str, dict[str, dict[str, Any]]] = {}
        """Probe -> variant -> seed -> result."""
        self.failures: dict[str, str] = {}
        self.finished = 0.0
        """FLOPs of the sweeps that are over."""

    @property
    def models(self) -> list[Model]:
        """The models whose pretraining is done; the checkpoint may have been deleted since."""
        last = Path("checkpoints") / "checkpoint_last.pt"
        return [
            Model(variant=run.run.settings[VARIANT], seed=run.run.seed, checkpoint=run.checkpoint() or run.path / last)
            for run in self.runs
            if run.state() == DONE
        ]

    def do(self) -> None:
        """Do all steps; with `report_only`, read their results."""
        self.pretrain()
        for probe in self.study.probes:
            if isinstance(probe, PerplexityProbe):
                self.measure(probe)
            elif probe.name in self.prepared:
                self.tune(probe)

    def pretrain(self) -> None:
        """Do the pretrainings that are left."""
        flops = {plan.variant.name: plan.flops for plan in self.planned.plans}
        work = {run.run.name: flops[run.run.settings[VARIANT]] for run in self.runs}
        folder = self.root / PRETRAINING
        self._sweep(self.planned.pretraining(), folder.with_suffix(".json"), folder, work, name=PRETRAINING)

    def measure(self, probe: PerplexityProbe) -> None:
        """Perplexity of every model that has none yet."""
        text = None
        for model in self.models:
            path = self.root / PERPLEXITY / probe.name / model.variant / f"seed-{model.seed}.json"
            score = read_json(path, keys=("value",), remedy="delete it and run the same command again")
            if score is None and self._is_there(model) and not self.settings.report_only:
                text = text or held_out(probe, self.planned.plans)
                score = perplexity_of(model.checkpoint, text, device=usable_device(self.settings.device))
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, score)
                shown = "not a finite number" if score["value"] is None else f"{score['value']:.4g}"
                self.say(f"{probe.name}: {model.variant}, seed {model.seed}: perplexity {shown}")
            self._note(probe.name, model, score)

    def tune(self, probe: TuningProbe) -> None:
        """Fine-tune every model that is there, and evaluate it; read the results of the others."""
        folder, prepared = self.root / FINE_TUNING / probe.name, self.prepared[probe.name]
        metric = recipe_of(probe, prepared).compared_by
        num_gpus = min(1, self.planned.num_ranks) if self.planned.has_gpus else 0
        for is_there in (True, False):
            group = [model for model in self.models if model.checkpoint.is_file() == is_there]
            if not group:
                continue
            content, path = tuning_grid(probe, prepared, group, num_ranks=num_gpus), folder / "grid.json"
            grid = grid_from(content, path)
            if is_there:
                if not self.settings.report_only:
                    check_options(grid, is_written=False)
                work = dict.fromkeys((run.name for run in grid.runs), self.costs.of_tuning_run[probe.name])
                self._sweep(content, path, folder / "runs", work, name=probe.name, num_gpus=num_gpus)
            only_read = self.settings.report_only or not is_there
            for model in group:
                score = results_of(
                    probe, model, grid, folder, metric=metric, device=self.settings.device, only_read=only_read
                )
                if score is not None or self._is_there(model):
                    self._note(probe.name, model, score)

    def _sweep(
        self,
        content: Mapping[str, Any],
        path: Path,
        folder: Path,
        work: Mapping[str, float],
        *,
        name: str,
        num_gpus: int | None = None,
    ) -> None:
        """Do the runs of a grid that are left, and note those that fail.

        The caller has checked the options of `content`. `work` has the FLOPs of each run by its name; `num_gpus` is for
        a run on SLURM, None: as the study says.
        """
        settings, grid = self.settings, grid_from(content, path)
        runs = run_folders(grid, folder)
        if settings.report_only:
            failed = {str(run.path): run.failure() for run in runs if run.state() == FAILED}
            self.failures |= {name: failure["reason"] for name, failure in failed.items() if failure}
            return
        is_local = settings.slurm is None
        if settings.slurm is not None:
            resources = self.study.resources(settings.slurm)
            if num_gpus is not None:  # of the type that the study asks for
                resources = replace(resources, gpus_per_node=num_gpus)
            grid, content = replace(grid, slurm=resources), {**content, "slurm": given_settings(resources)}
        write_json(path, content)

        def share() -> float:
            done = sum(work[run.run.name] * share_done(run) for run in runs)
            return min(1.0, (self.finished + done) / self.costs.total)

        outcome = sweep(
            SweepSettings(
                grid=path,
                output_dir=folder,
                parallel=settings.parallel,
                retries=settings.retries if is_local else 0,
                gpus_per_run=settings.gpus_per_run if is_local else 0,
                slurm=None if is_local else {},
                job_name=f"{self.root.name}-{name}",
                wait=not is_local,
                code=self.root,
                keep="weights",
            ),
            grid=grid,
            say=self.say,
            share=share,
        )
        self.finished += sum(work.values())
        self.failures |= {str(folder / name): failure["reason"] for name, failure in outcome.failures.items()}

    def _is_there(self, model: Model) -> bool:
        """Whether a model that has to be measured still has its checkpoint; if not, that counts as a failure."""
        folder = model.checkpoint.parent.parent
        if not model.checkpoint.is_file():
            self.failures[str(folder)] = (
                f"{model.checkpoint} is gone, and not measured by every probe. To pretrain the model again, "
                f"delete {folder / 'result.json'} and run the same command again."
            )
        return model.checkpoint.is_file()

    def _note(self, probe: str, model: Model, score: dict[str, Any] | None) -> None:
        if score is not None and score["value"] is None:
            self.failures[f"{probe}: {model.variant}, seed {model.seed}"] = (
                "the value is not a finite number: the model has diverged"
            )
        elif score is not None:
            self.values.setdefault(probe, {}).setdefault(model.variant, {})[model.seed] = score

    def report(self) -> StudyOutcome:
        """Write the report of what there is."""
        study, plans = self.study, self.planned.plans
        finished = self.root.glob(f"{FINE_TUNING}/*/runs/*/seed-*/result.json")
        seconds = [float(json.loads(path.read_text(encoding="utf-8")).get("seconds", 0)) for path in finished]
        curves = {run.run.name: curve(run.log_lines(), kind="train_inner", value="loss") for run in self.runs}
        results = {
            "title": study.title,
            "machine": machine(),
            "data": all_contents(study, plans),
            "seeds": list(study.seeds),
            "budget": asdict(study.budget),
            "variants": {plan.variant.name: self._facts_of(plan) for plan in plans},
            "values": self.values,
            "baselines": {
                probe.name: found.losses()
                for probe in study.probes
                if isinstance(probe, PerplexityProbe) and (found := baselines_for(probe, plans, study.reference))
            },
            "curves": {name: each._asdict() for name, each in curves.items()},
            "cost": {
                "flops": self.costs.total,
                "flops_pretraining": self.costs.pretraining,
                "flops_fine_tuning": self.costs.tuning,
                "fine_tuning_hours": sum(seconds) / 3600,
            },
            "failures": self.failures,
        }
        full, text = write_report(study, results, self.root)
        return StudyOutcome(results=full, report=text, failures=self.failures)

    def _facts_of(self, plan: VariantPlan) -> dict[str, Any]:
        """Options, planned and measured costs of a variant's pretrainings."""
        runs = [run for run in self.runs if run.run.settings[VARIANT] == plan.variant.name]
        done = [(run, result) for run in runs if (result := run.result()) is not None]
        measured = [one for run, result in done if (one := measured_costs(run.log_lines(), result["num_updates"]))]
        return {
            "options": {name: str(value) for name, value in plan.options.items()},
            "paper": plan.variant.paper,
            "num_updates": plan.num_updates,
            "tokens_per_update": plan.size.tokens,
            "tokens": plan.tokens,
            "epochs": plan.epochs,
            "flops": plan.flops,
            "lr": plan.parsed.lr[0],
            "pretrainings_done": len(done),
            "measured_tokens": [tokens for tokens, _ in measured],
            "hours": [hours for _, hours in measured],
        }


def settings_of(study: Study, plans: Sequence[VariantPlan]) -> dict[str, dict[str, dict[str, Any]]]:
    """The settings of every part that results depend on, as study.json holds them."""
    probes = {}
    for probe in study.probes:
        names = [item.name for item in fields(probe) if item.name not in _NOT_RECORDED]
        values = {name: str(getattr(probe, name)) for name in names}
        if isinstance(probe, PerplexityProbe):  # by the variants where they are not given
            folder = data_of(probe, plans)
            values |= {"data": str(folder), "tokens_per_sample": str(block_length(probe, plans))}
            values |= contents_of(folder, probe.split)
        probes[probe.name] = {"kind": probe.kind, **values}
    return {
        "variants": {
            plan.variant.name: {
                **{name: str(value) for name, value in sorted(plan.options.items())},
                **all_contents(replace(study, probes=()), [plan]),
            }
            for plan in plans
        },
        "probes": probes,
        "ranks": {plan.variant.name: {_PROCESSES: str(plan.num_ranks)} for plan in plans},
    }


def recorded_ranks(root: Path) -> int | None:
    """Processes of the pretrainings of an earlier start: its report may be asked for where there are no GPUs."""
    known = (_record(root) or {}).get("ranks", {})
    return max((int(settings[_PROCESSES]) for settings in known.values()), default=None)


def contents_of(folder: Path, split: str) -> dict[str, str]:
    """The content of a split of a data-bin: file -> hash by manifest.json, or its size in a folder without a manifest.

    Example:
        contents_of(Path("books"), "train")  ->  {"books/train.bin": "sha256 1f0c...", "books/train.idx": "sha256 ..."}
    """
    outputs = ((read_manifest(folder) or {"splits": {}})["splits"].get(split) or {"outputs": {}})["outputs"]
    paths = [folder / f"{split}.{ending}" for ending in ("bin", "idx")]
    return {
        str(path): f"sha256 {outputs[path.name]['sha256'][:_DIGITS]}"
        if path.name in outputs
        else f"{path.stat().st_size:,} bytes"
        for path in paths
    }


def all_contents(study: Study, plans: Sequence[VariantPlan]) -> dict[str, str]:
    """The content of all training data and of the splits of all perplexities; see `contents_of`."""
    splits = [(folder, str(plan.parsed.train_subset)) for plan in plans for folder in plan.folders]
    splits += [(data_of(probe, plans), probe.split) for probe in study.probes if isinstance(probe, PerplexityProbe)]
    return {path: held for folder, split in splits for path, held in contents_of(folder, split).items()}


def check_record(root: Path, now: Parts, *, redo: bool = False, only_read: bool = False) -> list[str]:
    """Compare with study.json of an earlier start, and write it again.

    With `redo`, the results of what has changed are deleted instead; with `only_read`, nothing is written, and a folder
    without a study is refused. Returns what was deleted, a line each.

    Raises:
        FileNotFoundError: with `only_read`, if no study was begun in the folder.
        ValueError: naming each difference, unless `redo`.
    """
    before = _record(root)
    if before is None and only_read:
        raise FileNotFoundError(f"{root / NAME} does not exist: no study was begun there. Give its --output-dir.")
    before = before or {}
    changed = {
        (kind, name): changes
        for kind, parts in now.items()
        for name, settings in parts.items()
        if name in before.get(kind, {}) and (changes := differences(before[kind][name], settings, named=str))
    }
    if changed and not redo:
        lines = [f"{_NAMED[kind]} {name}: {listed(changes)}" for (kind, name), changes in changed.items()]
        raise ValueError(
            f"{root} holds results of other settings or data. Changed since: {'; '.join(lines)}. Change it back, give "
            "another --output-dir, or give --redo-changed, which deletes the results of what has changed and makes "
            "them again."
        )
    folders = [folder for kind, name in changed for folder in _results(root, kind, name) if folder.exists()]
    for folder in dict.fromkeys(folders):
        shutil.rmtree(folder)
    if not only_read:
        write_json(root / NAME, {kind: {**before.get(kind, {}), **parts} for kind, parts in now.items()})
    return [f"deleted, to be made again: {folder}" for folder in dict.fromkeys(folders)]


def _record(root: Path) -> dict[str, Any] | None:
    remedy = "give another --output-dir, or delete this folder"
    return read_json(root / NAME, keys=("variants", "probes"), remedy=remedy)


def _results(root: Path, kind: str, name: str) -> list[Path]:
    """The folders of what a probe has measured; or of a variant's pretrainings, and what was measured with them."""
    if kind == "probes":
        return [root / PERPLEXITY / name, root / FINE_TUNING / name]
    folders = [root / PRETRAINING / f"{VARIANT}-{name}", *(root / PERPLEXITY).glob(f"*/{name}")]
    for probe in (root / FINE_TUNING).glob("*"):
        folders += [*(probe / "runs").glob(f"{MODEL_AXIS}-{name}-seed-*"), probe / "results" / name]
    return folders
