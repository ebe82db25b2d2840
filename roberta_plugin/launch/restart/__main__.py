"""The command of the batch script: `python -I .../launch/restart --output-dir RUN-DIR --code CODE ...`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))  # this folder is a package by itself

from restart.attempts import read_end  # type: ignore[import-not-found]
from restart.carry_out import Slurm, carry_out  # type: ignore[import-not-found]
from restart.policy import Limits  # type: ignore[import-not-found]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command of the batch script; its exit code is the job's."""
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):  # SLURM's, to all processes of a requeued job
        signal.signal(number, signal.SIG_IGN)
    parser = argparse.ArgumentParser(description="Requeue the job, or say why not.")
    parser.add_argument("--output-dir", type=Path, required=True)
    for name in ("code", "num-nodes", "max-requeues", "preemption-code"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args(arguments)
    job_id, attempt = os.environ["SLURM_JOB_ID"], int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    end = read_end(args.output_dir, job_id=job_id, attempt=attempt, code=args.code)
    limits = Limits(args.max_requeues, args.num_nodes, args.preemption_code)
    return int(carry_out(end, limits, output_dir=args.output_dir, slurm=Slurm(_say), say=_say))


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} | restart | {text}\n")
    sys.stderr.flush()


sys.exit(main())
