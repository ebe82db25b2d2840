"""A study: variants x seeds, pretrained, measured, and compared beside the paper's rows (`roberta study`).

    study file --plan--> sweep --> pretraining/variant-NAME/seed-N --probes--> KIND/PROBE/results/NAME/seed-N/value.json
    all values --report--> report.md, results.json

The folders are the whole state: the same call resumes after any stop, and new variants, seeds and probes extend it.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from roberta_plugin.checkpoint_files import DivergedError
from roberta_plugin.data.manifest import read_manifest
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.experiments.finetune import finetune
from roberta_plugin.experiments.finetuning_grid import tuning_grid
from roberta_plugin.experiments.settings import SweepSettings
from roberta_plugin.experiments.sweeps.grid import VARIANT, Grid, read_slurm, run_folders
from roberta_plugin.experiments.sweeps.sweep import check_options, sweep
from roberta_plugin.extensions.studies import report
from roberta_plugin.extensions.studies.plan import plan_study
from roberta_plugin.extensions.studies.study_file import HeldOut, Probe, StudySettings, read_study
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.kinds.score_names import find_score
from roberta_plugin.finetuning.preparation import prepared_folder
from roberta_plugin.hub.running import usable_device
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.launch.estimate import model_shape
from roberta_plugin.launch.resources import Resources, check_slurm
from roberta_plugin.launch.run_folder import Metric, RunFolder
from roberta_plugin.locks import only_process
from roberta_plugin.pretraining.evaluation import MASK_SEED, MOST_PREDICTIONS, evaluate, load_trained
from roberta_plugin.record import differences, refuse, shown
from roberta_plugin.runs import DONE, FAILED

NAME = "study.json"
_AGAIN = "delete it if the study file and its data are unchanged, and run the same command again"


def run_study(settings: StudySettings, *, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Do the remaining steps of a study, write its report, and return the content of results.json."""
    work, device = Work(settings, say=say), usable_device(settings.device)
    with only_process(work.root, f"Another `roberta study` works in {work.root}: wait, or give another --output-dir."):
        write_json(work.root / NAME, {"parts": {"study": work.record}})
        for probe in work.study.probes:
            work.check_probe(probe)
        try:
            work.grid.write()
            sweep(work.pretraining, say=say)
            for probe, run in itertools.product(work.study.probes, work.runs):
                work.measure(probe, run, device=device)
        finally:
            results = work.write_report()
    return results


class Work:
    """A planned and checked study, and its steps, which resume where an earlier call stopped."""

    def __init__(self, settings: StudySettings, *, say: Callable[[str], None]) -> None:
        import torch

        self.study, self.say, self.root = read_study(settings.study), say, settings.output_dir.resolve()
        self.failures: dict[str, str] = {}  # probe and run -> reason
        resources, num_ranks = None, settings.gpus_per_run or torch.cuda.device_count()
        how: dict[str, Any] = {"retries": settings.retries, "gpus_per_run": settings.gpus_per_run}
        if settings.slurm is not None:
            resources = read_slurm(self.study.file.subsection("slurm"), settings.slurm) or Resources()
            check_slurm(resources)
            num_ranks = resources.gpus_per_node
        self.plans = plan_study(self.study, num_ranks=max(1, num_ranks), needs_data=not settings.dry_run)
        self.num_gpus = int(not any(plan.parsed.cpu for plan in self.plans))  # GPUs of a fine-tuning
        path, folder, first = self.root / "pretraining.json", self.root / "pretraining", self.plans[0]
        metric = Metric(log=first.parsed.valid_subset.split(",")[0], value="loss", goal="min", at="last")
        axes = {VARIANT: {plan.variant.name: plan.options for plan in self.plans}}
        more: dict[str, Any] = {"options": {"data": first.options["data"]}, "metric": metric, "slurm": resources}
        self.grid = Grid(path=path, axes=axes, seeds=self.study.seeds, **more)
        self.runs = run_folders(self.grid, folder)
        for run in self.runs:
            run.check()
        common: dict[str, Any] = {"parallel": settings.parallel, "code": self.root}
        more = {**common, **(how if resources is None else {"slurm": {}, "wait": True})}
        name = f"{self.root.name}-pretraining"
        self.pretraining = SweepSettings(grid=path, output_dir=folder, job_name=name, keep="weights", **more)
        more = how if resources is None else {"slurm": replace(resources, gpus_per_node=self.num_gpus)}
        here = {"device": settings.device} if resources is None else {}  # a job has the device that it is given
        self.how_to_tune = {**here, **common, **more}
        self.record = self.check()

    def tuning(self, probe: Probe, **more: Any) -> Any:
        """The settings of `finetune` for a probe; all models share the prepared folder."""
        data, name = self.root / probe.kind / probe.name / "data", f"{self.root.name}-{probe.name}"
        return replace(probe.settings, **{"data": data, "name_in_queue": name, **self.how_to_tune, **more})

    def held_out(self, text: HeldOut) -> tuple[Path, int]:
        """The folder of held-out text, and the tokens of a block, <s> included: the same for all variants."""
        shortest = min(int(plan.parsed.tokens_per_sample) for plan in self.plans)
        return text.data or self.plans[0].folders[0], text.tokens_per_sample or shortest

    def check(self) -> dict[str, str]:
        """The facts on which values depend: processes, probes, hash or size of each text. Refuse changed ones."""
        now = {"processes": str(max(plan.num_ranks for plan in self.plans))}
        texts = [(folder, str(plan.parsed.train_subset)) for plan in self.plans for folder in plan.folders]
        for probe in self.study.probes:
            options = {**probe.section.as_options(), "seeds": "any"}
            if isinstance(probe.settings, HeldOut):  # the defaults follow from the variants
                options["data"], options["tokens-per-sample"] = self.held_out(probe.settings)
                texts.append((options["data"], probe.settings.split))
            now[f"probe {probe.name}"] = shown(dict(sorted(options.items())))
        for folder, split in texts:
            outputs = ((read_manifest(folder) or {"splits": {}})["splits"].get(split) or {"outputs": {}})["outputs"]
            path, digest = folder / f"{split}.bin", outputs.get(f"{split}.bin", {}).get("sha256")
            if path.is_file():
                now[str(path)] = f"sha256 {digest[:16]}" if digest else f"{path.stat().st_size:,} bytes"
        record = read_json(self.root / NAME, keys=("parts",), remedy=_AGAIN, hints={"parts": dict}) or {"parts": {}}
        before = {name: held for part in record["parts"].values() for name, held in part.items()}
        changes = differences(before, now, free=lambda name: name not in before or name not in now, named=str)
        remedy = "Change it back, rename the probe, or give another --output-dir."
        refuse(f"{self.root} holds results of other settings or data", changes, remedy)
        return {**before, **now}

    def check_probe(self, probe: Probe) -> None:
        """Prepare the data of a probe; refuse a probe without its files, or with another vocabulary."""
        with probe.section.located():
            if isinstance(probe.settings, HeldOut):
                folder, length = self.held_out(probe.settings)
                for path in (folder / name for name in (f"{probe.settings.split}.idx", "train.idx", "dict.txt")):
                    if not path.is_file():
                        raise FileNotFoundError(f"{path} does not exist: name other data, or a split that it has.")
                vocabulary = Vocabulary.load(folder / "dict.txt")
            else:
                tuning = self.tuning(probe)
                prepared = prepared_folder(tuning, self.root / probe.kind / probe.name / "data")
                vocabulary, length = prepared.vocabulary, int(prepared.settings["max_length"])
                if (old := self.root / probe.kind / probe.name / "runs").is_dir():
                    self.say(f"{old} is from an earlier version, and its runs are not continued: delete it.")
                grid = tuning_grid(tuning, prepared, None, path=probe.section.path, num_gpus=self.num_gpus)
                check_options(replace(grid, options={**grid.options, "arch": "fast_roberta_base"}), is_written=False)
            for plan, shape in ((plan, model_shape(plan.parsed)) for plan in self.plans):
                if Vocabulary.load(path := plan.folders[0] / "dict.txt").sha256 != vocabulary.sha256:
                    raise ValueError(f"its vocabulary is not {path}: use one tokenizer for all data.")
                if shape.longest < length:
                    limit = f"the variant {plan.variant.name} has {shape.max_positions} positions"
                    raise ValueError(f"{limit}, but sequences have up to {length} tokens: lower these, or raise those.")

    def folder(self, probe: Probe, run: RunFolder) -> Path:
        """The folder of a probe's results for a model, with value.json and the fine-tuning."""
        return self.root / probe.kind / probe.name / "results" / run.run.settings[VARIANT] / f"seed-{run.run.seed}"

    def value(self, probe: Probe, run: RunFolder) -> dict[str, Any] | None:
        """The value that a probe has measured; None if it has not, or if it had other masks or seeds."""
        value = read_json(self.folder(probe, run) / "value.json", keys=("value",), remedy=_AGAIN)
        if value is None:
            return None
        if isinstance(probe.settings, HeldOut):
            is_current = value.get("masks") == MASK_SEED
        else:
            is_current = set(value["seeds"]) == set(probe.settings.seeds or ())
        return value if is_current else None

    def measure(self, probe: Probe, run: RunFolder, *, device: str) -> None:
        """Measure a pretrained model, unless it is missing or was measured before."""
        if run.state() != DONE or self.value(probe, run) is not None:
            return
        name, folder, checkpoint = f"{probe.name}: {run.run.name}", self.folder(probe, run), run.chosen_checkpoint()
        if not checkpoint.is_file():
            self.failures[name] = f"its checkpoint is gone: delete {run.path}, and the same command pretrains it again"
            return
        try:
            text = probe.settings if isinstance(probe.settings, HeldOut) else None
            value = self.perplexity(text, checkpoint, device) if text else self.tune(probe, checkpoint, folder)
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / "value.json", value)
            self.say(f"{name}: {value['value']}")
        except (DivergedError, ChildProcessError) as error:
            self.failures[name] = str(error)

    def perplexity(self, text: HeldOut, checkpoint: Path, device: str) -> dict[str, Any]:
        """The perplexity of a model ("value"), and the baselines in bits per token."""
        folder, length = self.held_out(text)
        most = MOST_PREDICTIONS if text.max_tokens is None else round(0.15 * text.max_tokens)  # 15 % are masked
        model, vocabulary = load_trained(checkpoint, folder, device=device)
        scores = evaluate(model, vocabulary, folder, split=text.split, break_mode="complete", length=length, most=most)
        found = {name: score["perplexity"] for name, score in scores.items() if isinstance(score, dict)}
        if not math.isfinite(value := found.pop("model")):
            raise DivergedError(f"{checkpoint}: its perplexity is not a finite number: the model has diverged")
        counts = {f"{name}_loss": math.log2(perplexity) for name, perplexity in found.items()}
        return {"value": value, "baselines": counts, "masks": MASK_SEED}

    def tune(self, probe: Probe, checkpoint: Path, folder: Path) -> dict[str, Any]:
        """Fine-tune a model: "value" is the median over seeds of the recipe's metric."""
        result = finetune(self.tuning(probe, model=checkpoint, output_dir=folder), report=self.say)
        cells = {cell["name"]: cell["values"] for cell in result.sweep["cells"]} if result.sweep else {}
        values, wanted = cells.get(result.best_cell, {}), result.plan.settings.seeds or ()
        if set(values) != set(wanted) or not result.evaluations:
            raise ChildProcessError(f"fine-tunings have failed: see {folder / 'runs'}")
        members = [member["metrics"] for member in result.evaluations[0].members]
        metric = benchmark_of(result.plan.prepared.task).recipe(result.plan.prepared).compared_by
        metric = find_score(metric, members[0]) or metric
        seeds = {seed: each[metric] for seed, each in zip(values, members, strict=True)}
        return {"value": statistics.median(seeds.values()), "seeds": seeds, "metric": metric, "cell": result.best_cell}

    def write_report(self) -> dict[str, Any]:
        """Write the report of the values that are there."""
        failed = {str(run.path): run.failure() or {} for run in self.runs if run.state() == FAILED}
        failures, values = {name: str(each.get("reason")) for name, each in failed.items()}, dict[str, Any]()
        for probe, run in itertools.product(self.study.probes, self.runs):
            value = self.value(probe, run) if run.state() == DONE else None
            if value is not None:
                values.setdefault(probe.name, {}).setdefault(run.run.settings[VARIANT], {})[run.run.seed] = value
        return report.write_report(self.study, self.plans, values, failures | self.failures, self.root)
