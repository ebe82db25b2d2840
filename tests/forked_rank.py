"""A command that another program starts, as torchrun does its ranks, in a fork: `python -m tests.forked_rank roberta ...`.

The fork has this process's environment and output, gets its signals, and gives its exit code.
"""

import os
import signal
import sys
from pathlib import Path

from tests.forked_training import ForkedTrainings

if __name__ == "__main__":
    output = Path(os.readlink("/proc/self/fd/1"))
    forked = ForkedTrainings([sys.argv[1:]], cwd=Path.cwd(), environment=os.environ, log=output).processes[0]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: forked.send_signal(number))
    sys.exit(forked.wait(timeout=300))
