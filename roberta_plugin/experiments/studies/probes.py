"""The measurements of a pretrained model: perplexity on held-out text, and fine-tuning.

**Perplexity.** The split is cut into whole sentences (FULL-SENTENCES of section 4.2) whatever the model was trained on;
a block's mask is a function of the seed here, the pass and the block, so it is the same for all models.

**Fine-tuning.** All models x the paper's grid x seeds are one sweep, so that many runs train at a time. For each model
the cell with the best median on the development set counts, as in the paper (section 5.1).

    OUTPUT/KIND/PROBE/ results/VARIANT/seed-N/ value.json       what the report reads
                       data/ grid.json runs/ results/...        of fine-tuning: the prepared folder, a sweep like all
                                                                others, whose weights go when outputs are stored, and
                                                                evaluations and predictions of the best cell
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from roberta_plugin.checkpoint_files import DivergedError, load_state
from roberta_plugin.data.block_tables import open_blocks
from roberta_plugin.data.count_baselines import baselines_of
from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.data.masked_lm_dataset import MaskedLMDataset, SplitFile
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.neighbor_baseline import see_neighbors
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.experiments.evaluation import evaluate
from roberta_plugin.experiments.finetune import best_runs, drop_weights, evaluation_of
from roberta_plugin.experiments.finetuning_grid import tuning_grid
from roberta_plugin.experiments.finetuning_plan import FinetunePlan
from roberta_plugin.experiments.settings import StudySettings, TuningSettings
from roberta_plugin.experiments.starting_model import check_model, starting_model
from roberta_plugin.experiments.studies.plan import PlannedStudy
from roberta_plugin.experiments.studies.settings import PerplexityProbe, Probe, Study, TuningProbe
from roberta_plugin.experiments.sweeps.report import cell_results
from roberta_plugin.experiments.sweeps.sweep import check_options
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.preparation import prepared_folder
from roberta_plugin.hub.scoring import score_masked
from roberta_plugin.launch.run_folder import DONE
from roberta_plugin.models.checkpoints import build_model
from roberta_plugin.tasks.block_task import load_vocabulary

MASK_SEED = 20190726
MODEL_AXIS = "model"
_TOKENS_IN_BATCH = 8192


@dataclass(frozen=True, kw_only=True)
class Model:
    """A pretrained model of the study."""

    variant: str
    seed: str
    checkpoint: Path  # it may have been deleted since it was measured

    @property
    def label(self) -> str:
        """Its label on the axis of models."""
        return f"{self.variant}-seed-{self.seed}"

    def results(self, root: Path, probe: Probe) -> Path:
        """The folder of what a probe has measured."""
        return root / probe.kind / probe.name / "results" / self.variant / f"seed-{self.seed}"


def check_probes(planned: PlannedStudy) -> None:
    """Refuse a probe without its files, with another vocabulary, or with sequences that a model cannot hold.

    Raises:
        ValueError: if vocabularies or lengths do not fit each other.
    """
    study = planned.study
    for probe in study.probes:
        with _located(study, probe):
            _check_probe(probe, planned)


def _check_probe(probe: Probe, planned: PlannedStudy) -> None:
    if isinstance(probe, PerplexityProbe):
        option, length, folder = "tokens-per-sample", block_length(probe, planned), held_out_folder(probe, planned)
        remedy = "binarize it with the tokenizer and dictionary of the pretraining data"
        needed, what = folder / f"{probe.split}.idx", "name other data, or a split that it has"
    else:
        option, length, folder = "max-length", probe.max_length, probe.tokenizer
        remedy = "give the tokenizer of the pretraining data"
        needed, what = probe.raw, "give the folder of the official files as raw"
    for path, do in ((needed, what), (folder / "dict.txt", remedy)):
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist: {do}.")
    if isinstance(probe, TuningProbe):
        benchmark_of(probe.task).files(probe.raw, probe.source.task_options)
    if Vocabulary.load(folder / "dict.txt").sha256 != planned.plans[0].dictionary:
        raise ValueError(f"{folder / 'dict.txt'} is not the dict.txt of the pretraining data: {remedy}.")
    for plan in planned.plans:
        if plan.shape.max_positions < length and not plan.shape.positions.is_rotary:
            raise ValueError(
                f"--{option} is {length}, and the variant {plan.variant.name} has {plan.shape.max_positions} "
                "positions: lower it, or give max-positions under train."
            )


@contextmanager
def _located(study: Study, probe: Probe) -> Iterator[None]:
    """Let an error name the probe, the line that it is about, and options of a fine-tuning as the file has them."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        section = study.file.subsection("probes").subsection(probe.name)
        message = str(error).removeprefix(f"{study.path}: ")
        place = section.place(re.sub(r"--(?:only|set) (?=[\w-])", "--", message))
        message = message.replace("--only ", "grid, ").replace("--set ", "train, ").removeprefix("--")
        kind = ValueError if isinstance(error, ValueError) else FileNotFoundError
        raise kind(f"{place}: {section.name}: {message}") from error


def held_out_folder(probe: PerplexityProbe, planned: PlannedStudy) -> Path:
    """The folder of the held-out text, the same for all variants."""
    return probe.data or planned.plans[0].folders[0]


def block_length(probe: PerplexityProbe, planned: PlannedStudy) -> int:
    """Tokens of a block, <s> included: the same for all variants."""
    return probe.tokens_per_sample or min(int(plan.parsed.tokens_per_sample) for plan in planned.plans)


def count_losses(probe: PerplexityProbe, planned: PlannedStudy) -> dict[str, float]:
    """What counts of the reference variant's training text reach on the whole split of a probe; empty if unknown."""
    (plan,) = (plan for plan in planned.plans if plan.variant.name == planned.study.reference)
    train = [folder / plan.parsed.train_subset for folder in plan.folders]
    split = held_out_folder(probe, planned) / probe.split
    baselines = baselines_of(train, {"": [split]})[""]
    if baselines is None:
        return {}
    masker = Masker.for_vocabulary(Vocabulary.load(split.parent / "dict.txt"), MaskingRecipe(mask_prob=probe.mask_prob))
    return baselines.losses(see_neighbors(masker, MmapTokens(split), block_length=block_length(probe, planned)))


class HeldOut(NamedTuple):
    """Blocks of a split and their masks."""

    split: Path
    dictionary: Any  # fairseq's, with <mask>
    dataset: MaskedLMDataset
    batches: list[list[tuple[int, int]]]  # pass (from 1) and number of each block


def held_out(probe: PerplexityProbe, planned: PlannedStudy) -> HeldOut:
    """The blocks and masks of a probe; with `max_tokens`, blocks that are evenly spread over the split."""
    folder, length = held_out_folder(probe, planned), block_length(probe, planned)
    dictionary, vocabulary = load_vocabulary(folder)
    split = folder / probe.split
    tokens = MmapTokens(split)
    dataset = MaskedLMDataset(
        [SplitFile(tokens, open_blocks(tokens, block_length=length - 1, break_mode="complete"))],
        Masker.for_vocabulary(vocabulary, MaskingRecipe(mask_prob=probe.mask_prob)),
        bos_id=vocabulary.bos_id,
        pad_id=vocabulary.pad_id,
        vocab_size=len(vocabulary),
        seed=MASK_SEED,
    )
    if not len(dataset):
        raise ValueError(f"{split}.bin holds no text: name another split for the perplexity.")
    share = min(1.0, (probe.max_tokens or math.inf) / (tokens.num_tokens + len(dataset)))
    blocks = np.unique(np.linspace(0, len(dataset) - 1, max(1, round(share * len(dataset)))).astype(np.int64)).tolist()
    size = max(1, _TOKENS_IN_BATCH // length)
    batches = [
        [(number, block) for block in blocks[start : start + size]]
        for number in range(1, probe.passes + 1)
        for start in range(0, len(blocks), size)
    ]
    return HeldOut(split, dictionary, dataset, batches)


def perplexity_of(checkpoint: Path, text: HeldOut, *, device: str) -> dict[str, Any]:
    """Perplexity ("value"; None of a model that has diverged) and accuracy in percent of a pretrained checkpoint.

    Raises:
        ValueError: if it cannot be loaded safely, or nothing could be masked.
    """
    try:
        with _saying_how_to_go_on(checkpoint):
            state = load_state(checkpoint)
    except DivergedError:
        return {"value": None, "accuracy": None, "num_predicted": 0}
    model: Any = build_model(state, checkpoint, dictionary=text.dictionary).to(device)
    batches = map(text.dataset.__getitems__, text.batches)
    score = score_masked(model, batches, pad_id=text.dataset.pad_id, device=device, split=text.split)
    value = score.perplexity if math.isfinite(score.perplexity) else None
    return {"value": value, "accuracy": score.accuracy, "num_predicted": len(score.targets)}


@contextmanager
def _saying_how_to_go_on(checkpoint: Path) -> Iterator[None]:
    """Say that a model of the study can be pretrained again, where its file is damaged."""
    try:
        yield
    except DivergedError:
        raise
    except ValueError as error:
        run = checkpoint.parents[1]
        raise ValueError(
            f"{error} Or delete {run} and start the study again: it pretrains this model again."
        ) from error


def plan_tuning(probe: TuningProbe, planned: PlannedStudy, settings: StudySettings, data: Path) -> FinetunePlan:
    """A probe as a fine-tuning of its own, its data prepared in the folder `data`; `with_models` says from what.

    Raises:
        ValueError: before there is a model, if the data cannot be prepared, or options do not fit them.
    """
    root, path, num_gpus = settings.output_dir.resolve(), planned.study.path, int(planned.has_gpus)
    source, slurm = probe.source, None
    if settings.slurm is not None:  # GPUs of the type that the study asks for
        slurm = replace(planned.study.resources(settings.slurm), gpus_per_node=num_gpus)
    tuning = TuningSettings(
        task=source.task,
        raw=source.raw,
        tokenizer=source.tokenizer,
        max_length=source.max_length,
        options=source.options,
        output_dir=root / probe.kind / probe.name,
        seeds=probe.seeds,
        epochs=probe.epochs,
        only=probe.grid,
        train_options=probe.train,
        parallel=settings.parallel,
        retries=settings.retries,
        slurm=slurm,
        device=settings.device,
        code=root,
        splits=["valid"],
        name_in_queue=f"{root.name}-{probe.name}",
    )
    with _located(planned.study, probe):
        prepared = prepared_folder(tuning, data)
        grid = tuning_grid(tuning, prepared, None, path=path, num_gpus=num_gpus)
        grid = replace(grid, axes={MODEL_AXIS: {"any": {"arch": "fast_roberta_base"}}, **grid.axes})
        check_options(grid, is_written=False)
    return FinetunePlan(settings=tuning, prepared=prepared, grid=grid, gpus_per_run=settings.gpus_per_run)


def with_models(plan: FinetunePlan, models: Sequence[Model]) -> FinetunePlan:
    """The fine-tuning of these models: they are an axis before those of the paper's grid.

    Raises:
        ValueError: if a model is damaged, or does not fit the data.
    """
    starts = {}
    for model in models:
        with _saying_how_to_go_on(model.checkpoint):
            start = starting_model(model.checkpoint)
        check_model(start, plan.prepared)
        starts[model.label] = start.train_options(plan.prepared.settings["max_length"])
    axes = {**plan.grid.axes, MODEL_AXIS: starts}
    return replace(plan, grid=replace(plan.grid, path=plan.settings.output_dir / "grid.json", axes=axes))


def tuned_value(plan: FinetunePlan, model: Model, folder: Path) -> dict[str, Any] | None:
    """Official metrics of a model's best cell, evaluated into `folder`; None while runs of it are left to do.

    A cell with a failed run is left out: a learning rate at which a run diverges is not the best one.
    The weights are deleted then.

    Returns:
        "value": the median over seeds of the recipe's metric, "metric"; "seeds": the value of each; "cell"; "medians"
        of all cells by the log's metric.
    """
    runs = [run for run in plan.runs if run.run.settings[MODEL_AXIS] == model.label]
    complete = [cell for cell in cell_results(plan.grid, runs) if cell.values and cell.is_complete]
    chosen = best_runs(plan.grid, runs) if complete else []
    if not chosen:
        return None
    evaluation = replace(plan.evaluation, output_dir=folder)
    (evaluated,) = evaluate(evaluation_of(chosen, evaluation))
    drop_weights([run for run in runs if run.state() == DONE], evaluation)
    metric = benchmark_of(plan.prepared.task).recipe(plan.prepared).compared_by
    names = (metric, f"tuned_{metric}", metric.removeprefix("tuned_"))  # with a threshold, and of earlier versions
    metric = next((name for name in names if name in evaluated.members[0]["metrics"]), metric)
    seeds = {run.run.seed: member["metrics"][metric] for run, member in zip(chosen, evaluated.members, strict=True)}
    return {
        "value": statistics.median(seeds.values()),
        "seeds": seeds,
        "metric": metric,
        "cell": {name: label for name, label in chosen[0].run.settings.items() if name != MODEL_AXIS},
        "medians": {cell.name: cell.median for cell in complete},
    }
