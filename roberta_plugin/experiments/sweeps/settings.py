"""What the commands `roberta sweep` and `roberta study` can be told: fields with a help text are their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from roberta_plugin.settings import REQUIRED, check_values, setting

Keep = Literal["best", "weights", "all"]


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How many trainings are done; what has a help text is an option of `finetune`, `sweep` and `study`."""

    output_dir: Path = setting(REQUIRED, "where everything is written")
    parallel: int = setting(1, "runs at a time", smallest=1)
    retries: int = setting(0, "how often to restart a failed run at once; only on this machine", smallest=0)

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: naming the option and what to write instead.
        """
        check_values(self)


@dataclass(frozen=True, kw_only=True)
class ReportedRuns(RunSettings):
    """How the runs of a sweep or a study are done."""

    gpus_per_run: int = setting(
        0, "GPUs of its own for each run on this machine; 0: every run sees all GPUs", smallest=0
    )
    slurm: Mapping[str, str] | None = setting(
        None,
        "submit the runs as a job array instead of training here (a study waits for them). Settings given here win "
        "over the file's section slurm and have the same names: time=8:00:00 partition=gpu gpus_per_node=8 "
        "sbatch.OPTION=VALUE env.NAME",
        nargs="*",
        metavar="NAME=VALUE",
    )
    report_only: bool = setting(False, "write the report of what is there, train nothing")


@dataclass(frozen=True, kw_only=True)
class SweepSettings(ReportedRuns):
    """What a sweep trains, and how.

    Raises:
        ValueError: for values that cannot work; names the command-line option.
    """

    grid: Path = setting(REQUIRED, "grid file (YAML)", flag="grid")
    job_name: str | None = None  # what squeue shows; None: the name of `output_dir`
    wait: bool = setting(False, "with --slurm: wait until the runs have left the queue")
    code: Path | None = None  # folder whose .snapshots holds the code that the runs use; None: `output_dir`
    renew_code: bool = setting(
        False, "from now on use the present code of this plugin, not the copy that the first start has made"
    )
    ensemble: int = setting(5, "members of an ensemble to list", smallest=0)
    keep: Keep = setting(
        "all",
        "checkpoints of finished runs to keep: `best`, the weights of each cell's best run; `weights`, those of every "
        "run; `all`, the best and the last with the optimizer's state",
    )
    after: Callable[[Any], None] | None = None  # with slurm: what a job does with its RunFolder when that is done

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        if self.wait and self.slurm is None:
            raise ValueError("--wait goes with --slurm: runs on this machine are waited for anyway.")
        if self.slurm is not None and (self.gpus_per_run or self.retries):
            raise ValueError(
                "--gpus-per-run and --retries are for runs on this machine. With --slurm write gpus_per_node under "
                "`slurm` in the grid file, and run the command again to repeat what failed."
            )
