"""What `finetune` does: its settings, checked when they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from roberta_plugin.finetuning.benchmarks import checked_options
from roberta_plugin.finetuning.options import TaskOptions
from roberta_plugin.training.resources import Resources


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings:
    """What `finetune` does."""

    task: str
    """One of `finetuning.benchmarks.TASKS`."""
    model: Path
    """Pretrained checkpoint, or the `output_dir` of a finished fine-tuning, whose best run is taken."""
    output_dir: Path
    """Where the data, the grid file, the runs and the results are written."""
    data: Path | None = None
    """Prepared folder; None: `output_dir`/data, which is made from `raw` if it does not exist."""
    raw: Path | None = None
    """Folder with the official files."""
    tokenizer: Path | None = None
    """Folder with the tokenizer's files and dict.txt; None: those of the model."""
    max_length: int | None = None
    """Most tokens of a sequence; None: 512, or the positions of the model if it has fewer."""
    options: TaskOptions | None = None
    """Options of the task (`finetuning/options.py`); None: the paper's values."""
    from_scratch: bool = False
    """Whether to start from random weights: a baseline with the model's architecture."""
    seeds: Sequence[str] | None = None
    """One run of each cell per seed; None: the paper's five."""
    quick: bool = False
    """Whether to train one run instead of the grid: the values in the middle of its axes, the first seed."""
    epochs: int | None = None
    """Passes over the data; None: the paper's number."""
    only: Mapping[str, str] = field(default_factory=dict)
    """Axis of the grid -> the one value that is kept of it."""
    train_options: Mapping[str, str] = field(default_factory=dict)
    """Options of fairseq-train that change or extend the paper's settings."""
    select: str | None = None
    """The metric that chooses checkpoint and cell (`finetuning.benchmarks.selectable`); None: the recipe's."""
    num_parallel: int = 1
    """Runs at a time."""
    gpus_per_run: int | None = None
    """GPUs of each run; 0: all runs share one; None: 1 if there are GPUs. Only for runs on this machine."""
    retries: int = 0
    """How often a failed run is started again at once. Only for runs on this machine."""
    keep: Literal["best", "weights", "all"] = "best"
    """Checkpoints of finished runs that are kept: the weights of each cell's best run, of every run, or everything."""
    slurm: Resources | None = None
    """Resources of each run of a SLURM job array; None: run on this machine."""
    device: str | None = None
    """Where to evaluate; None: on a GPU if there is one."""
    grid_only: bool = False
    """Whether to stop when the grid file is written."""
    code: Path | None = None
    """Folder with the copy of this package that the runs use; None: `output_dir`/.snapshots."""
    show_progress: bool = False
    """Whether to show progress bars of the evaluation."""

    def __post_init__(self) -> None:
        """Check what can be checked before anything is read.

        Raises:
            ValueError: naming the option and what to write instead.
        """
        checked_options(self.task, self.options)
        if self.epochs is not None and self.epochs < 1:
            raise ValueError(f"--epochs must be 1 or more, got {self.epochs}.")
        if self.slurm is not None and not self.slurm.time and not self.grid_only:
            raise ValueError(
                "--slurm needs a time limit for a run: --slurm time=8:00:00. A run that needs longer is requeued and "
                "resumes."
            )
        smallest = {"--parallel": (self.num_parallel, 1), "--retries": (self.retries, 0)}
        smallest["--gpus-per-run"] = (self.gpus_per_run or 0, 0)
        for name, (value, least) in smallest.items():
            if value < least:
                raise ValueError(f"{name} must be {least} or more, got {value}.")

    @property
    def job_name(self) -> str:
        """What squeue shows: the task and the output folder; the folder of the runs is always called `runs`.

        Example: RTE in runs/large -> "RTE-large"; in runs/rte-2 -> "rte-2"; a fold in runs/mine/fold-1-of-5 ->
        "custom-mine-fold-1-of-5".
        """
        folder = self.output_dir.resolve()
        name = f"{folder.parent.name}-{folder.name}" if folder.name.startswith("fold-") else folder.name
        return name if self.task.lower() in name.lower() else f"{self.task}-{name}"
