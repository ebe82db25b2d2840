"""A CPU stand-in for CUDA graphs, which only GPUs have.

It runs a recorded function again, on the same static tensors. As graphs share their memory, a replay takes away what
another recording has kept for its backward pass.
"""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class CpuRecorder:
    """Records on a CPU; `replays` counts what all of them have replayed."""

    device_type = "cpu"
    replays = 0

    def __init__(self, device) -> None:
        self.recordings: list = []

    def warm_up(self, function):
        for _ in range(3):
            function()

    def record(self, function):
        self.recordings.append(function.__self__)
        function()

        def replay():
            if not CpuRecorder.replays:
                logger.info("stand-in for CUDA graphs: the first replay")
            CpuRecorder.replays += 1
            for other in self.recordings:
                if other is not function.__self__:
                    other._result = None
            function()

        return replay
