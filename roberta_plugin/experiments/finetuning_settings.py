"""What `finetune` does: its settings, checked when they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roberta_plugin.experiments.sweeps.settings import Keep, RunSettings
from roberta_plugin.finetuning.preparation import DataSettings
from roberta_plugin.settings import REQUIRED, setting
from roberta_plugin.training.resources import Resources


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(RunSettings, DataSettings):
    """What `finetune` does; what has a help text is an option of `roberta finetune`."""

    model: Path = setting(
        REQUIRED,
        "pretrained checkpoint (.pt), ours or fairseq's; or the --output-dir of a finished `roberta finetune`, whose "
        "best run is taken, as the paper starts RTE, STS-B and MRPC from MNLI",
    )
    data: Path | None = setting(None, "prepared folder (default: OUTPUT_DIR/data, made from --raw)")
    from_scratch: bool = setting(False, "a baseline: the model's architecture with random weights")
    seeds: Sequence[str] | None = setting(None, "seeds of the runs (the paper's five: 1 to 5)", nargs="+", metavar="N")
    quick: bool = setting(
        False, "one run instead of the grid: the values in the middle of its axes, and the first seed"
    )
    epochs: int | None = setting(None, "passes over the data, instead of the paper's number", smallest=1)
    only: Mapping[str, str] = setting(
        dict,
        "keep one value of an axis of the grid, such as lr=1e-5, or some, as lr=1e-4,3e-4, instead of trying all",
        metavar="AXIS=LABEL",
    )
    train_options: Mapping[str, str] = setting(
        dict,
        "option of fairseq-train, such as bf16=true; batch-size=N is what a GPU takes at once, and update-freq "
        "follows from it so that the batch of the cell does not change",
        flag="--set",
        metavar="OPTION=VALUE",
    )
    select: str | None = setting(
        None,
        "choose checkpoint and cell by this metric on the development set, instead of the recipe's: such as macro_f1, "
        "mcc, f1, mae or loss; a name that the task does not have lists those that it has",
        metavar="METRIC",
    )
    gpus_per_run: int | None = setting(
        None,
        "GPUs of each run, which share the paper's batch (1 if there are GPUs; 0: all runs share one GPU)",
        smallest=0,
    )
    keep: Keep = setting(
        "best",
        "checkpoints of finished runs that are kept: `best`, the weights of each cell's best run, once the raw outputs "
        "of every run are stored (4 bytes per parameter); `weights`, those of every run; `all`, the best and the last "
        "checkpoint with the optimizer's state (24 bytes per parameter and run). Unfinished runs keep all they need to "
        "resume",
    )
    slurm: Resources | None = None
    """Resources of each run of a SLURM job array; None: run on this machine."""
    device: str | None = setting(None, "where to evaluate (default: a GPU if there is one)")
    grid_only: bool = setting(False, "write the grid file for `roberta sweep`, and stop")
    code: Path | None = None
    """Folder with the copy of this package that the runs use; None: `output_dir`/.snapshots."""
    show_progress: bool = False
    """Whether to show progress bars of the evaluation."""

    def __post_init__(self) -> None:
        """Check what can be checked before anything is read.

        Raises:
            ValueError: naming the option and what to write instead.
        """
        DataSettings.__post_init__(self)
        RunSettings.__post_init__(self)
        if self.slurm is not None and not self.slurm.time and not self.grid_only:
            raise ValueError(
                "--slurm needs a time limit for a run: --slurm time=8:00:00. A run that needs longer is requeued and "
                "resumes."
            )

    @property
    def job_name(self) -> str:
        """What squeue shows: the task and the output folder; the folder of the runs is always called `runs`.

        Example: RTE in runs/large -> "RTE-large"; in runs/rte-2 -> "rte-2"; a fold in runs/mine/fold-1-of-5 ->
        "custom-mine-fold-1-of-5".
        """
        folder = self.output_dir.resolve()
        name = f"{folder.parent.name}-{folder.name}" if folder.name.startswith("fold-") else folder.name
        return name if self.task.lower() in name.lower() else f"{self.task}-{name}"
