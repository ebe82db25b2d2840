"""The steps of a study, each of which goes on where an earlier call was stopped: pretrain, measure, fine-tune."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_plugin.experiments.studies import tuning as study_tuning
from roberta_plugin.experiments.studies.checks import block_length, data_of
from roberta_plugin.experiments.studies.costs import StudyCosts
from roberta_plugin.experiments.studies.plan import VariantPlan
from roberta_plugin.experiments.studies.progress import StudyProgress
from roberta_plugin.experiments.studies.record import FINE_TUNING, PERPLEXITY, PRETRAINING, VARIANT_AXIS
from roberta_plugin.experiments.studies.settings import PerplexityProbe, Study, TuningProbe
from roberta_plugin.experiments.studies.tuning import Model
from roberta_plugin.experiments.sweeps.grid import Grid, grid_from
from roberta_plugin.experiments.sweeps.run import DONE, FAILED, RunFolder
from roberta_plugin.experiments.sweeps.sweep import SweepSettings, sweep
from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.json_files import read_json


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """What `run_study` does.

    Raises:
        ValueError: for values that cannot work; names the command-line option.
    """

    study: Path  # study file (YAML); examples/README.studies.md has the format
    output_dir: Path  # folder of all runs, results and the report
    parallel: int = 1  # runs at a time
    gpus_per_run: int = 0  # GPUs of its own for each run on this machine; 0: every run sees all GPUs
    retries: int = 0  # how often a failed run is started again at once; only on this machine
    slurm: Mapping[str, str] | None = None  # submit runs as job arrays; its entries win over the file's section slurm
    redo_changed: bool = False  # delete the results of what the file has changed, and make them anew
    report_only: bool = False  # report what is there; write report.md, results.json and the plots, and nothing else
    device: str | None = None  # where to evaluate; None: on a GPU if there is one

    def __post_init__(self) -> None:
        """Check the values."""
        if self.report_only and self.redo_changed:
            raise ValueError("--report-only changes nothing: leave out --redo-changed.")
        if self.parallel < 1 or self.gpus_per_run < 0 or self.retries < 0:
            raise ValueError("--parallel must be 1 or more, --gpus-per-run and --retries 0 or more.")


@dataclass(frozen=True, kw_only=True)
class PlannedStudy:
    """A study that nothing speaks against."""

    study: Study
    plans: Sequence[VariantPlan]
    num_ranks: int


def pretraining_content(study: Study, plans: Sequence[VariantPlan]) -> dict[str, Any]:
    """All pretrainings as the content of a grid file, whose axis are the variants."""
    split = str(plans[0].parsed.valid_subset).split(",")[0]
    return {
        "train": {"data": plans[0].options["data"]},
        "axes": {VARIANT_AXIS: {plan.variant.name: dict(plan.options) for plan in plans}},
        "seeds": list(study.seeds),
        "metric": {"log": split, "value": "loss", "goal": "min", "at": "last"},
    }


class Work:
    """The steps of one call, and what they have found."""

    def __init__(
        self,
        *,
        settings: StudySettings,
        planned: PlannedStudy,
        root: Path,
        grid: Grid,
        costs: StudyCosts,
        prepared: Mapping[str, Prepared],
        say: Callable[[str], None],
    ) -> None:
        self.settings, self.study, self.plans, self.root, self.say = settings, planned.study, planned.plans, root, say
        self.num_ranks, self.grid, self.costs, self.prepared = planned.num_ranks, grid, costs, prepared
        self.runs = [RunFolder(root / PRETRAINING, run, grid.metric) for run in grid.runs]
        self.values: dict[str, dict[str, dict[str, Any]]] = {}
        """Probe -> variant -> seed -> what was found."""
        self.failures: dict[str, str] = {}
        self.progress = StudyProgress(costs.total)

    @property
    def models(self) -> list[Model]:
        """The models whose pretraining is done; the checkpoint may have been deleted since."""
        return [
            Model(
                variant=run.run.settings[VARIANT_AXIS],
                seed=run.run.seed,
                checkpoint=run.checkpoint() or run.path / "checkpoints" / "checkpoint_last.pt",
            )
            for run in self.runs
            if run.state() == DONE
        ]

    def do(self) -> None:
        """Do all steps; with `report_only`, read what they have found."""
        self.pretrain()
        for probe in self.study.probes:
            if isinstance(probe, PerplexityProbe):
                self.measure(probe)
            else:
                self.tune(probe)

    def pretrain(self) -> None:
        """Do the pretrainings that are left."""
        path = self.root / f"{PRETRAINING}.json"
        flops = {plan.variant.name: plan.flops for plan in self.plans}
        work = {run.run.name: flops[run.run.settings[VARIANT_AXIS]] for run in self.runs}
        content = pretraining_content(self.study, self.plans)
        self._sweep(content, path, self.root / PRETRAINING, self.runs, work, name="pretraining")

    def measure(self, probe: PerplexityProbe) -> None:
        """Perplexity of every model that has none yet."""
        from roberta_plugin.experiments.studies import perplexity as study_perplexity

        text = None
        for model in self.models:
            path = self.root / PERPLEXITY / probe.name / model.variant / f"seed-{model.seed}.json"
            remedy = "delete it and run the same command again"
            found = read_json(path, keys=("value",), remedy=remedy)
            if found is None and not self._is_there(model):
                continue
            if found is None and not self.settings.report_only:
                text = text or study_perplexity.held_out(
                    data_of(probe, self.plans),
                    probe.split,
                    tokens_per_sample=block_length(probe, self.plans),
                    mask_prob=probe.mask_prob,
                    passes=probe.passes,
                    max_tokens=probe.max_tokens,
                )
                device = self.settings.device or _default_device()
                score = study_perplexity.perplexity_of(model.checkpoint, text, device=device)
                value = score.perplexity if math.isfinite(score.perplexity) else None
                found = {"value": value, "accuracy": score.accuracy, "num_predicted": score.num_predicted}
                path.parent.mkdir(parents=True, exist_ok=True)
                with atomic_write(path, "w") as file:
                    json.dump(found, file, indent=2)
                self.say(f"{probe.name}: {model.variant}, seed {model.seed}: {score.perplexity:.4g}")
            self._note(probe.name, model, found)

    def tune(self, probe: TuningProbe) -> None:
        """Fine-tune every model that is there, and evaluate it."""
        models, folder = self.models, self.root / FINE_TUNING / probe.name
        if not models or probe.name not in self.prepared:
            return
        prepared, path = self.prepared[probe.name], folder / "grid.json"
        there = [model for model in models if model.checkpoint.is_file()]
        for group in (there, [model for model in models if model not in there]):
            if not group:
                continue
            content = study_tuning.tuning_grid(probe, prepared, group, num_ranks=min(1, self.num_gpus))
            grid = grid_from(content, path)
            if group is there:
                runs = study_tuning.run_folders(grid, folder)
                work = dict.fromkeys((run.run.name for run in runs), self.costs.of_tuning_run[probe.name])
                self._sweep(content, path, folder / "runs", runs, work, name=probe.name, num_gpus=min(1, self.num_gpus))
            only_read, device = self.settings.report_only or group is not there, self.settings.device
            for model in group:
                found = study_tuning.results_of(probe, model, grid, folder, device=device, only_read=only_read)
                if found is not None or self._is_there(model):
                    self._note(probe.name, model, found)

    @property
    def num_gpus(self) -> int:
        """GPUs of a run; 0: it computes on the CPU."""
        return 0 if any(plan.parsed.cpu for plan in self.plans) else self.num_ranks

    def _sweep(
        self,
        content: Mapping[str, Any],
        path: Path,
        folder: Path,
        runs: Sequence[RunFolder],
        work: Mapping[str, float],
        *,
        name: str,
        num_gpus: int | None = None,
    ) -> None:
        """Do the runs of a grid that are left, and take note of those that fail.

        With SLURM, squeue shows the study's folder and `name`, and a run gets `num_gpus`; None: as many as the study
        says.
        """
        if self.settings.report_only:
            failed = {str(run.path): run.failure() for run in runs if run.state() == FAILED}
            self.failures |= {name: failure["reason"] for name, failure in failed.items() if failure}
            return
        is_local = self.settings.slurm is None
        sections = dict(content)
        if not is_local:
            gpus = {} if num_gpus is None else {"gpus_per_node": num_gpus}  # of the type that the study asks for
            sections["slurm"] = {**self.study.slurm_with(self.settings.slurm or {}), **gpus}
        with atomic_write(path, "w") as file:
            json.dump(sections, file, indent=2)
        report = sweep(
            SweepSettings(
                grid=path,
                output_dir=folder,
                parallel=self.settings.parallel,
                retries=self.settings.retries if is_local else 0,
                gpus_per_run=self.settings.gpus_per_run if is_local else 0,
                slurm=None if is_local else {},
                job_name=f"{self.root.name}-{name}",
                wait=not is_local,
                code=self.root,
                keep="weights",
            ),
            say=self.say,
            progress=self.progress.stage(runs, work),
        )
        self.progress.finish(sum(work.values()))
        self.failures |= {str(folder / name): failure["reason"] for name, failure in report.failures.items()}

    def _is_there(self, model: Model) -> bool:
        """Whether a model that has to be measured still has its checkpoint; if not, that counts as a failure."""
        folder = model.checkpoint.parent.parent
        if not model.checkpoint.is_file():
            self.failures[str(folder)] = (
                f"{model.checkpoint} is gone, and not measured by every probe. To pretrain the model again, "
                f"delete {folder / 'result.json'} and run the same command again."
            )
        return model.checkpoint.is_file()

    def _note(self, probe: str, model: Model, found: dict[str, Any] | None) -> None:
        if found is None:
            return
        if found["value"] is None or not math.isfinite(found["value"]):
            self.failures[f"{probe}: {model.variant}, seed {model.seed}"] = (
                "the value is not a finite number: the model has diverged"
            )
            return
        self.values.setdefault(probe, {}).setdefault(model.variant, {})[model.seed] = found


def _default_device() -> str:
    from roberta_plugin.experiments.inference import default_device

    return default_device()
