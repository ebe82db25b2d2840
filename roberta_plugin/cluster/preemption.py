"""A signal -> "stop after this update".

SLURM announces preemption and the time limit by a signal to every process of a job, data-loader workers included.
submitit's own handler leaves the training at once, in the middle of an update; here a signal is only noted, and
`update_hook.py` asks for it after each update.
"""

from __future__ import annotations

import os
import signal

from roberta_plugin import stop_signals

PREEMPTION = signal.Signals[f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}"]
STOP_SIGNALS = (PREEMPTION, signal.SIGTERM)


class StopSignals(stop_signals.StopSignals):
    """Notes the signals by which SLURM ends a job."""

    def __init__(self) -> None:
        super().__init__(STOP_SIGNALS)
