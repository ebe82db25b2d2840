"""The settings of `roberta finetune` -> its plan: model, data and grid, resolved and checked once.

    --model                                       -> Start: checkpoint, options of its architecture
    --data, or official files and --tokenizer     -> Prepared
    the paper's recipe, --only, --set, --seeds    -> Grid: every combination of the axes, with every seed
    the runs that are there                       -> resumed, if they began with the same

Everything that does not fit is refused here, before anything is trained.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path

from roberta_plugin.experiments.finetuning_grid import tuning_grid
from roberta_plugin.experiments.settings import EvaluateSettings, FinetuneSettings, TuningSettings
from roberta_plugin.experiments.starting_model import (
    Start,
    check_model,
    starting_model,
    taken_over_remarks,
    tokenizer_of,
    with_taken_over,
)
from roberta_plugin.experiments.sweeps.grid import Grid, run_folders
from roberta_plugin.finetuning.benchmarks import benchmark_of, kind_of
from roberta_plugin.finetuning.benchmarks.base import MAX_LENGTH
from roberta_plugin.finetuning.preparation import prepared_folder, remarks, selection_remarks
from roberta_plugin.finetuning.prepared import NAME, Prepared
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.launch.arguments import parse
from roberta_plugin.launch.run_folder import RunFolder, check_choice
from roberta_plugin.record import differences, refuse
from roberta_plugin.runs import RUNS, RunFiles
from roberta_plugin.settings import flag

GRID = "finetune.yaml"
START = "start.json"  # in the folder of a fine-tuning: from which weights and examples its runs have started

_OPTION = re.compile(r"(?<![\w-])--(?P<name>[a-z][a-z0-9-]*)(?: (?P<value>\d[\w.-]*\b))?")
_REMEDY = "delete it if --model and the data are the same"
_NAMES = {  # options of fairseq-train -> of this command; empty: it follows from another one
    "data": "--data",
    "--save-dir": "--output-dir",
    "--finetune-from-model": "--model",
    "--best-checkpoint-metric": "--select",
    "--maximize-best-checkpoint-metric": "",
    "--max-update": "--epochs, of max-update",
    "--total-num-update": "",
    "--warmup-updates": "",
    **{flag(item): flag(item) for item in fields(TuningSettings) if "is_for_training" in item.metadata},
}


@dataclass(frozen=True, kw_only=True)
class FinetunePlan:
    """A fine-tuning: its settings, the data and the grid, which fit the model and each other."""

    settings: TuningSettings
    prepared: Prepared  # the data
    grid: Grid  # all runs, with options that fairseq-train accepts
    gpus_per_run: int  # GPUs that each run on this machine has for itself; 0: all runs share what there is
    remarks: Sequence[str] = ()  # what a user must know before trusting the runs

    @property
    def root(self) -> Path:
        """Folder of the runs and of the sweep's report."""
        return self.settings.output_dir / RUNS

    @property
    def results(self) -> Path:
        """Folder of the evaluations, the prediction files and the table."""
        return self.settings.output_dir / "results"

    @property
    def runs(self) -> list[RunFolder]:
        """The folders of all runs."""
        return run_folders(self.grid, self.root.resolve())

    @property
    def evaluation(self) -> EvaluateSettings:
        """How its runs are evaluated; `finetune.evaluation_of` says which."""
        return EvaluateSettings(
            data=self.prepared.folder,
            checkpoints=(),
            output_dir=self.results,
            splits=self.settings.splits,
            options=self.settings.options,
            device=self.settings.device,
            show_progress=self.settings.show_progress,
            selection=self.grid.metric.value,
        )

    def in_own_options(self, message: str) -> str:
        """What fairseq-train has said, with the options of this command instead of its own."""
        run = self.grid.runs[0]
        options = vars(parse(run.arguments_in(Path(run.name), self.grid.metric)))

        def instead(match: re.Match[str]) -> str:
            name, value = match["name"], match["value"]
            option = name.replace("-", "_")
            own = _NAMES.get(f"--{name}", "").partition(",")[0]
            if option not in options or own:
                return match[0].replace(f"--{name}", own or f"--{name}")
            value = value or ("true" if isinstance(options[option], bool) else "...")
            return f"{'--only' if name in self.grid.axes else '--set'} {name}={value}"

        return _OPTION.sub(instead, message)


def plan_finetuning(settings: FinetuneSettings) -> FinetunePlan:
    """Prepare the data if needed, check that everything fits, and write the grid file.

    Raises:
        ValueError: if settings, model and data do not fit each other; or if the prepared folder or a run exists and was
            made with other settings: the message names each difference.
    """
    import torch

    import roberta_plugin
    from roberta_plugin.experiments.sweeps.sweep import check_options
    from roberta_plugin.hub.running import usable_device

    roberta_plugin.register()
    if settings.device is not None:
        usable_device(settings.device)  # it is needed after the trainings only
    has_gpus = torch.cuda.is_available()
    gpus_per_run = int(has_gpus) if settings.gpus_per_run is None else settings.gpus_per_run
    num_gpus = max(has_gpus, gpus_per_run) if settings.slurm is None else settings.slurm.gpus_per_node
    start = starting_model(settings.model, from_scratch=settings.from_scratch)
    prepared = prepared_data(settings, start)
    check_model(start, prepared)
    grid = tuning_grid(settings, prepared, start, path=settings.output_dir / GRID, num_gpus=num_gpus)
    check_options(grid, is_written=False)
    plan = FinetunePlan(
        settings=settings,
        prepared=prepared,
        grid=grid,
        gpus_per_run=gpus_per_run,
        remarks=[
            *start_remarks(start, prepared, settings),
            *remarks(prepared),
            *selection_remarks(prepared, grid.metric.value),
        ],
    )
    begin(plan, start)
    return plan


def prepared_data(settings: FinetuneSettings, start: Start) -> Prepared:
    """The prepared folder, made from the official files if it does not exist, with the model's tokenizer and length.

    Raises:
        ValueError: as `prepared_folder`; or if the model is too short for the task.
    """
    folder, data = settings.data or settings.output_dir / "data", settings
    if settings.raw is None and settings.data is None and not folder.exists():
        raise ValueError(f"{settings.nothing_given} Or give a prepared folder by --data.")
    if settings.raw is None:
        return prepared_folder(data, folder)
    completed, given = (with_length(each, start) for each in (with_taken_over(settings, start), settings))
    if not (folder / NAME).is_file():
        tokenizer, dictionary = tokenizer_of(completed, start)
        return prepared_folder(replace(completed, tokenizer=tokenizer), folder, dictionary=dictionary)
    try:
        return prepared_folder(completed, folder)
    except ValueError:
        with suppress(ValueError):  # it was prepared with the options as they are, by `roberta prepare` or before
            return prepared_folder(given, folder)
        raise


def with_length(data: FinetuneSettings, start: Start) -> FinetuneSettings:
    """The settings with a length: the given one, or the model's if it is less than the usual one."""
    length = min(MAX_LENGTH, start.max_positions) if data.max_length is None else data.max_length
    return replace(data, max_length=length)


def begin(plan: FinetunePlan, start: Start) -> None:
    """Write from what the runs start, and the grid file, unless there are runs that started from other weights or
    examples, or have other options; splits that no run reads, such as test sets, may change.

    The runs record the paths of the model and of the data. A pretraining that continues writes other weights to the
    same path, and a folder that is prepared again may have other examples.
    """
    folder, prepared = plan.settings.output_dir, plan.prepared
    validated = str(plan.settings.train_options.get("valid-subset", "valid")).split(",")
    now = {
        "sha256": None if start.from_scratch else start.sha256,
        **{f"sha256_of_{split}": prepared.sha256_of_inputs(split) for split in ("train", *validated)},
    }
    before = (read_json(folder / START, keys=["sha256"], remedy=_REMEDY) or {}) if plan.root.is_dir() else {}
    is_same = now["sha256"] is not None and before.get("sha256") == now["sha256"]
    for run in plan.runs:  # before the file that describes them is replaced
        run.check(
            lambda name: _NAMES.get(name, name.replace("--", "--set ", 1)),
            free=lambda name: is_same and name == "--finetune-from-model",
        )
    check_choice(plan.runs)
    refuse(
        f"{folder} holds runs that started from other weights or examples",
        differences(
            before,
            now,
            free=lambda name: None in (before.get(name), now.get(name)),
            named=lambda name: "--model" if name == "sha256" else f"{name[len('sha256_of_') :]} of {prepared.folder}",
        ),
        f"Give another --output-dir, or delete {folder / 'runs'} and {folder / 'results'} if the runs are not needed "
        "any more.",
    )
    for run in [run for run in plan.runs if is_same and run.path.is_dir()]:
        run.write_record(RunFiles(run.path).choice())  # with the path of now; the choice changes with the result
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / START, {"model": None if start.from_scratch else str(start.checkpoint), **now})
    plan.grid.write()


def start_remarks(start: Start, prepared: Prepared, settings: TuningSettings) -> Iterator[str]:
    """Warnings about the starting model."""
    from roberta_plugin.finetuning.starting_head import starting_head

    kind = kind_of(prepared)
    name = settings.train_options.get("classification-head-name", kind.default_head_name)
    head = None if start.from_scratch else starting_head(start.state, kind, name, checkpoint=start.checkpoint)
    if head is not None and head.line:
        yield head.line
    yield from taken_over_remarks(start, prepared)
    starts_from, length = benchmark_of(prepared.task).starts_from, prepared.settings["max_length"]
    if starts_from and not start.is_fine_tuned:
        yield (
            f"The paper starts {prepared.task} from its {starts_from} model: to do the same, give --model the output "
            f"folder of `roberta finetune {starts_from}`."
        )
    if length > start.max_positions:
        limit = f"{start.checkpoint} was trained with at most {start.max_positions} tokens"
        yield f"{limit}, and {prepared.folder} has up to {length}: its positions continue."
