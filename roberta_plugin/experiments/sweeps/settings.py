"""What the commands `roberta sweep` and `roberta study` can be told: fields with a help text are their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_plugin.training.settings import setting

KEEP = ("best", "weights", "all")


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How the runs of a sweep or a study are done; what has a help text is an option of both commands."""

    output_dir: Path  # folder of the runs and the report
    parallel: int = setting(1, "runs at a time")
    retries: int = setting(0, "how often to restart a failed run at once; only on this machine")
    gpus_per_run: int = setting(0, "GPUs of its own for each run on this machine; 0: every run sees all GPUs")
    slurm: Mapping[str, str] | None = None  # submit a job array; its entries win over the file's section `slurm`
    report_only: bool = setting(False, "write the report of what is there, train nothing")

    def __post_init__(self) -> None:
        """Check the values."""
        for name, least in {"parallel": 1, "retries": 0, "gpus_per_run": 0}.items():
            if getattr(self, name) < least:
                raise ValueError(f"--{name.replace('_', '-')} must be {least} or more, got {getattr(self, name)}.")


@dataclass(frozen=True, kw_only=True)
class SweepSettings(RunSettings):
    """What a sweep trains, and how.

    Raises:
        ValueError: for values that cannot work; names the command-line option.
    """

    grid: Path  # grid file (YAML); slurm/README.md has the format
    job_name: str | None = None  # what squeue shows; None: the name of `output_dir`
    wait: bool = setting(False, "with --slurm: wait until the runs have left the queue")
    code: Path | None = None  # folder whose .snapshots holds the code that the runs use; None: `output_dir`
    renew_code: bool = setting(
        False, "from now on use the present code of this plugin, not the copy that the first start has made"
    )
    ensemble: int = setting(5, "members of an ensemble to list")
    keep: str = setting(
        "all",
        "checkpoints of finished runs to keep: `best`, the weights of each cell's best run; `weights`, those of every "
        "run; `all`, the best and the last with the optimizer's state",
    )
    after: Callable[[Any], None] | None = None  # with slurm: what a job does with its RunFolder when that is done

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        if self.ensemble < 0:
            raise ValueError(f"--ensemble must be 0 or more, got {self.ensemble}.")
        if self.keep not in KEEP:
            raise ValueError(f"--keep must be one of {', '.join(KEEP)}, got {self.keep!r}.")
        if self.wait and self.slurm is None:
            raise ValueError("--wait goes with --slurm: runs on this machine are waited for anyway.")
        if self.slurm is not None and (self.gpus_per_run or self.retries):
            raise ValueError(
                "--gpus-per-run and --retries are for runs on this machine. With --slurm write gpus_per_node under "
                "`slurm` in the grid file, and run the command again to repeat what failed."
            )
