"""How many cores a process may use."""

import subprocess
import sys

from roberta_plugin.machine import num_cores


def test_cores_that_a_process_may_not_use_do_not_count():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    code += "from roberta_plugin.machine import num_cores; print(num_cores())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "1"
    assert num_cores() >= 1
