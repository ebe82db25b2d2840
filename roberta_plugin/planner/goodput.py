"""Failures, checkpoints, restarts -> goodput, the fraction of a job's time with progress that it keeps.

    |-- tau --|C|-- tau --|C|-- lost --X---- R ----|-- tau --|C| ...        goodput = kept tau / all of it

A job on many nodes fails when one of them does. Failures come at random with mean M between them (a Poisson
process). After each, the work since the last checkpoint is lost, and R passes until the job trains again: it is
noticed, the job waits in the queue, processes start, the checkpoint is read. A failure may also hit a checkpoint or a
restart. To keep tau of work then takes, in the mean, M e^(R/M) (e^((tau + C)/M) - 1) of time, where C is the time for
which a checkpoint stops the training: the complete model of Daly (2006, "A higher order estimate of the optimum
checkpoint interval for restart dumps").

Example: large on 1,024 GPUs, 11 s a checkpoint every 15 minutes, a failure a day, 6 minutes for a restart:
goodput(900, stall=11, restart=360, between_failures=86_400) -> 0.9786.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

DAY_S = 86_400.0
GPUS_OF_RATE = 1024  # rates are for this number of GPUs


@dataclass(frozen=True, kw_only=True)
class Failures:
    """Failure rates, and the time until a failed job trains again."""

    per_day: float  # of GPUS_OF_RATE GPUs; in proportion for others
    restart_s: float = 360.0  # noticed in one minute, two in the queue (SLURM's, of a requeued job), three to start

    def between(self, num_gpus: int) -> float:
        """Mean seconds between the failures of a job on `num_gpus` GPUs."""
        return DAY_S / self.per_day * GPUS_OF_RATE / num_gpus if self.per_day else math.inf


def goodput(interval: float, *, stall: float, restart: float, between_failures: float) -> float:
    """The fraction of time with kept work; all in seconds.

    Args:
        interval: training between two checkpoints, tau.
        stall: time for which a checkpoint stops the training, C.
        restart: from a failure to the next update, R.
        between_failures: mean time between failures of the job, M; infinite: none.
    """
    if math.isinf(between_failures):
        return interval / (interval + stall)
    rate = 1 / between_failures
    try:
        return interval * rate / (math.exp(restart * rate) * math.expm1((interval + stall) * rate))
    except OverflowError:
        return 0.0
