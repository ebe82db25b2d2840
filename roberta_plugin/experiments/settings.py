"""The settings of `roberta finetune`, `evaluate` and `sweep`: fields with a help text are their options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from roberta_plugin.finetuning.benchmarks import all_tasks, options_for
from roberta_plugin.finetuning.options import TaskOptions
from roberta_plugin.finetuning.preparation import DataSettings
from roberta_plugin.launch.options_file import named_options
from roberta_plugin.launch.resources import Resources, read_resources
from roberta_plugin.machine import Precision
from roberta_plugin.runs import Choice
from roberta_plugin.settings import REQUIRED, Checked, check_roads, flag, parse_pairs, setting

Keep = Literal["best", "weights", "all"]
_LENGTHS = ("max-epoch", "max-update")  # options of fairseq-train


def _closed_by_slurm(slurm: Any, place: str) -> dict[str, str]:
    """The road of runs on this machine, closed by --slurm."""
    if slurm is None:
        return {}
    reason = f"with --slurm (gpus_per_node {place} gives GPUs, and the same command repeats what failed)"
    return {"here": reason, "restarts": reason}


@dataclass(frozen=True, kw_only=True)
class RunSettings(Checked):
    """Settings of everything that trains several runs."""

    output_dir: Path = setting(REQUIRED, "folder for all files of the runs")
    parallel: int = setting(1, "runs at a time", smallest=1, road="runs")
    retries: int = setting(
        0, "how often to restart a failed run at once; only on this machine", smallest=0, road="restarts"
    )


@dataclass(frozen=True, kw_only=True)
class GridRuns(RunSettings):
    """Settings of everything that trains the runs of a file with a section `slurm`."""

    gpus_per_run: int = setting(
        0,
        "GPUs of its own for each run on this machine, 0: every run sees all GPUs; with --slurm, gpus_per_node says it",
        smallest=0,
        road="here",
    )
    slurm: Mapping[str, str] | None = setting(
        None,
        "submit the runs as a job array. These settings override the file's section slurm: "
        "time=8:00:00 partition=gpu gpus_per_node=8 sbatch.OPTION=VALUE env.NAME",
        nargs="*",
        metavar="NAME=VALUE",
    )

    def __post_init__(self) -> None:
        """Check the values, and refuse what --slurm leaves without an effect."""
        super().__post_init__()
        check_roads(self, _closed_by_slurm(self.slurm, "under `slurm` in the file"))


@dataclass(frozen=True, kw_only=True)
class SweepSettings(GridRuns):
    """Settings of `roberta sweep`."""

    report_only: bool = setting(False, "write the report of the results so far, train nothing")
    grid: Path = setting(REQUIRED, "grid file (YAML)", flag="grid")
    job_name: str | None = None  # the name in squeue; None: the name of `output_dir`
    wait: bool = setting(False, "with --slurm: wait until the runs have left the queue", goes_with={"slurm": ()})
    code: Path | None = None  # the runs use the code in this folder's .snapshots; None: `output_dir`
    renew_code: bool = setting(
        False, "from now on use the present code of this plugin instead of the copy that the first start made"
    )
    ensemble: int = setting(5, "members of an ensemble to list", smallest=0)
    keep: Keep = setting(
        "all",
        "checkpoints of finished runs to keep: `best`, the weights of each setting's best run; `weights`, those of "
        "every run; `all`, the best and the last with the optimizer's state",
    )
    in_words: Callable[[str], str] = str  # makes the reason of a failure the user's, for the report
    after: Callable[[Any], None] | None = None  # with `slurm`: what a job does with its RunFolder once the run is done
    dry_run: bool = setting(False, "check the options and data of all runs, show their commands, write nothing")


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(Checked):
    """Settings of `roberta evaluate`."""

    data: Path = setting(REQUIRED, "prepared folder", road="evaluation")
    checkpoints: Sequence[Path] = setting(
        REQUIRED,
        "fine-tuned checkpoint or org/name of a model, or members of an ensemble",
        flag="--checkpoint",
        nargs="+",
        gives="checkpoint",
        road="evaluation",
    )
    output_dir: Path = setting(REQUIRED, "where to write")
    splits: Sequence[str] | None = setting(
        None, "splits to evaluate (default: all but train)", flag="--split", nargs="+", road="evaluation"
    )
    options: TaskOptions | None = None  # options of the scoring (`finetuning/options.py`); None: the paper's values
    max_tokens: int = setting(16384, "maximum positions of a batch, padding included", smallest=1, road="evaluation")
    device: str | None = setting(None, "where to compute (default: a GPU if there is one)", road="evaluation")
    precision: Precision = setting(
        "fp32", "for matrix products: bf16 and int8 are faster where the processor has them", road="evaluation"
    )
    show_progress: bool = setting(False, "show no progress bar", flag="--no-progress", action="store_false")
    """Programs have to ask for progress bars; the command shows them by default."""
    selection: str | None = None
    """The metric that has selected the checkpoints, by which they are judged; None: the recipe's."""
    stored: Sequence[Path] | None = None
    """Folder of each checkpoint's raw outputs, which are written there, and read if the checkpoint was run before
    (`finetuning/kinds/outputs.py`); None: nothing is stored."""

    def __post_init__(self) -> None:
        """Check the values, and refuse what is named twice: a model would count twice in its ensemble."""
        super().__post_init__()
        for option, values in (("--checkpoint", self.checkpoints), ("--split", self.splits or ())):
            twice = next((value for value, count in Counter(values).items() if count > 1), None)
            if twice is not None:
                raise ValueError(f"{option} names {twice} twice: name each once.")


@dataclass(frozen=True, kw_only=True)
class TuningSettings(RunSettings, DataSettings):
    """Settings of a fine-tuning, whatever it starts from."""

    data: Path | None = setting(None, "prepared folder (default: OUTPUT_DIR/data, made from --raw)")
    from_scratch: bool = setting(
        False, "a baseline: the model's architecture with random weights, drawn as its pretraining drew them"
    )
    seeds: Sequence[str] | None = setting(None, "seeds of the runs (the paper's five: 1 to 5)", nargs="+", metavar="N")
    quick: bool = setting(
        False, "one run instead of the grid: the values in the middle of its axes, and the first seed"
    )
    epochs: int | None = setting(None, "passes over the data, instead of the paper's number", smallest=1)
    only: Mapping[str, str] = setting(
        dict,
        "one value of an axis of the grid, such as lr=1e-5 or batch=64, or several, as lr=1e-4,3e-4, instead of all",
        metavar="AXIS=LABEL",
    )
    train_options: Mapping[str, str] = setting(
        dict,
        "option of fairseq-train, such as bf16=true; batch-size=N is the batch of a GPU, and update-freq "
        "follows from it so that the batch of the setting does not change",
        flag="--set",
        metavar="OPTION=VALUE",
    )
    select: str | None = setting(
        None,
        "choose checkpoint and setting by this metric on the development set, instead of the recipe's: such as "
        "macro_f1, mcc, roc_auc, mae, loss or f1_LABEL; an unknown name lists the task's metrics",
        metavar="METRIC",
    )
    checkpoint: Choice = setting(
        "best",
        "the checkpoint of a run that is its result, which is evaluated and kept: the best one on the development set, "
        "or the last one",
    )
    patience: int | None = setting(
        None,
        "stop a run after this many validations in a row, one an epoch, that are not better by the metric that chooses "
        "checkpoints; a resumed run counts on",
        smallest=1,
        is_for_training=True,
    )
    label_smoothing: float | None = setting(
        None,
        "share of the target that is spread evenly over all labels in training; for kinds that choose one of several "
        "labels",
        default_text=0,
        smallest=0.0,
        largest=1.0,
        metavar="SHARE",
        is_for_training=True,
    )
    gpus_per_run: int | None = setting(
        None,
        "GPUs of each run, which share the paper's batch (1 if there are GPUs; 0: all runs share one GPU)",
        smallest=0,
        road="here",
    )
    keep: Keep = setting(
        "best",
        "checkpoints of finished runs to keep: `best`, the weights of each setting's best run; `weights`, those of "
        "every run; `all`, the best and the last with the optimizer's state",
        road="runs",
    )
    slurm: Resources | None = setting(
        None,
        "run as a SLURM job array with these resources, under the names of slurm/README.md: time=8:00:00 "
        "partition=gpu gpus_per_node=1 sbatch.OPTION=VALUE env.NAME",
        nargs="*",
        metavar="NAME=VALUE",
        read=lambda texts: read_resources(parse_pairs(texts, option="--slurm"), where="--slurm", kind=Resources),
    )
    folds: int | None = setting(
        None,
        "custom: cross-validation. K times the whole procedure, each with another Kth of the texts as development "
        "set; then mean and spread of the metrics",
        metavar="K",
        smallest=2,
        excludes=("data",),
    )
    device: str | None = setting(None, "where to evaluate (default: a GPU if there is one)", road="evaluation")
    grid_only: bool = setting(False, "write the grid file for `roberta sweep`, and stop")
    code: Path | None = None  # folder with the copy of this package that the runs use; None: `output_dir`/.snapshots
    show_progress: bool = False  # whether to show progress bars of the evaluation
    splits: Sequence[str] | None = None  # that are evaluated; None: all but train
    name_in_queue: str = ""  # of SLURM, and of trackers; empty: `job_name` says it

    @property
    def job_name(self) -> str:
        """The name in squeue: the task and the output folder; the folder of the runs is always called `runs`.

        Example: RTE in runs/large -> "RTE-large"; in runs/rte-2 -> "rte-2"; a fold in runs/mine/fold-1-of-5 ->
        "custom-mine-fold-1-of-5".
        """
        folder = self.output_dir.resolve()
        name = f"{folder.parent.name}-{folder.name}" if folder.name.startswith("fold-") else folder.name
        return self.name_in_queue or (name if self.task.lower() in name.lower() else f"{self.task}-{name}")

    @property
    def batches(self) -> list[int]:
        """The sizes of batches that --only batch=... names; empty: the recipe's.

        Example: "16,64" -> [16, 64].
        """
        text = self.only.get("batch", "")
        sizes = text.split(",") if text else []
        for size in sizes:
            if not size.isdecimal() or int(size) < 1:
                raise ValueError(f"--only batch={text}: a batch is a whole number of examples from 1 on, got {size!r}.")
        return [int(size) for size in sizes]

    @property
    def options_of_runs(self) -> dict[str, str]:
        """The options of fairseq-train that --set gives, with those that have options of their own.

        Raises:
            ValueError: if both give one, and differ.
        """
        options = named_options(self.train_options, where="--set")
        for item in (item for item in fields(self) if "is_for_training" in item.metadata):
            name, value = flag(item).removeprefix("--"), getattr(self, item.name)
            if value is not None and options.setdefault(name, str(value)) != str(value):
                raise ValueError(f"--{name} {value} and --set {name}={options[name]} contradict each other.")
        for name in _LENGTHS if self.epochs is not None else ():
            if name in options:
                raise ValueError(
                    f"--epochs {self.epochs} and --set {name}={options[name]} both say how long a run is: leave one of "
                    "them out."
                )
        return options


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(TuningSettings):
    """Settings of `roberta finetune`."""

    model: Path = setting(
        REQUIRED,
        "pretrained checkpoint (.pt), ours or fairseq's; a name, as org/name of the Hugging Face hub or roberta.base; "
        "or the folder of a finished `roberta finetune`, for its best run (the paper: RTE from MNLI)",
        gives="checkpoint",
    )

    def __post_init__(self) -> None:
        """Check what can be checked before anything is read."""
        super().__post_init__()
        check_roads(self, _closed_by_slurm(self.slurm, "after --slurm"))
        if self.slurm is not None:
            check_roads(self, {"evaluation": "with --slurm, where the job of each run evaluates it"})
        if self.grid_only:
            roads = ("runs", "restarts", "evaluation")
            check_roads(self, dict.fromkeys(roads, "with --grid-only (`roberta sweep` has such an option)"))
        if self.slurm is not None and not self.slurm.time and not self.grid_only:
            raise ValueError(
                "--slurm needs a time limit for a run: --slurm time=8:00:00. A run that needs longer is requeued and "
                "resumes."
            )
        if self.folds is not None:
            if not self.task_options.can_fold:
                tasks = " and ".join(task for task in all_tasks() if options_for(task).can_fold)
                raise ValueError(f"--folds goes with {tasks}: {self.task} has an official development set.")
            if {"valid", "fold"} & self.task_options.given("prepare").keys():
                raise ValueError("--folds cuts the development sets from --train: leave --valid and --fold out.")
