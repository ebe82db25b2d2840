"""The logs of a run and the ends of its attempts, for people: `roberta jobs logs` and `roberta jobs attempts`.

A job has one log for each node, RUN-DIR/logs/JOB_NODE_log.out, of all its attempts; NODE counts from 0, and each line
begins with the number of its rank. The first node's also has the lines of the batch script.
"""

from __future__ import annotations

import datetime
import os
import re
from collections import Counter
from pathlib import Path

from roberta_plugin.launch.restart.attempts import read_attempts
from roberta_plugin.launch.status import Launch, read_launch

_BYTES_OF_A_LINE = 2000  # more than a line of the log has
_HOST = re.compile(r"\brank \d+ on ([\w.-]+)")


def launched_run(output_dir: Path) -> Launch:
    """What was last submitted for a run folder.

    Raises:
        FileNotFoundError: if nothing was.
    """
    launch = read_launch(output_dir)
    if launch is None or launch.job_id is None:
        raise FileNotFoundError(f"{output_dir} is not the folder of a launched run: `roberta jobs` lists them.")
    return launch


def log_path(output_dir: Path, *, node: int | None = None) -> Path:
    """The log of a node; None: of the node whose rank failed first in the last attempt that ended, else the first.

    Raises:
        FileNotFoundError: if there is none, naming those that there are.
    """
    job_id = launched_run(output_dir).job_id
    records = [record for record in read_attempts(output_dir) if record["job_id"] == job_id]
    name = f"logs/{job_id}_0_log.out" if not records else records[-1].get("log", f"logs/{job_id}_0_log.out")
    path = output_dir / (name if node is None else f"logs/{job_id}_{node}_log.out")
    if not path.is_file():
        others = sorted(path.parent.glob(f"{job_id}_*_log.out"))
        found = f"there are {len(others)} logs of job {job_id}" if others else f"job {job_id} has written no log yet"
        raise FileNotFoundError(f"{path} does not exist: {found}.")
    return path


def last_lines(path: Path, number: int) -> list[str]:
    """The last lines of a text file, which may be large."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - number * _BYTES_OF_A_LINE))
        return file.read().decode(errors="replace").splitlines()[-number:]


def attempt_lines(output_dir: Path) -> list[str]:
    """How each attempt of all jobs of the run ended and what followed, and which nodes failed how often.

    Example:
        2026-11-22 03:10  job 7, attempt 0, update 5,210: failed in training (exit code 1; rank 3 on gpu2: ...)
                          the job restarts from its last checkpoint; excluded: gpu2; log: logs/7_1_log.out
        first to fail: gpu2 (2 times), gpu5
    """
    lines, hosts = [], Counter[str]()
    for record in read_attempts(output_dir):
        moment = datetime.datetime.fromtimestamp(float(record.get("time", 0))).strftime("%Y-%m-%d %H:%M")
        reason = f" ({record['reason']})" if record.get("reason") else ""
        excluded = f"; excluded: {', '.join(record['excluded'])}" if record.get("excluded") else ""
        lines += [
            f"{moment}  job {record['job_id']}, attempt {record.get('attempt', '?')}, "
            f"update {record.get('update', 0):,}: {record['kind']}{reason}",
            f"{'':{len(moment)}}  {record.get('then', '')}{excluded}; log: {record.get('log', 'logs')}",
        ]
        hosts.update(_HOST.findall(record.get("reason", ""))[:1])
    if hosts:
        counts = (f"{host} ({count} times)" if count > 1 else host for host, count in hosts.most_common())
        lines.append(f"first to fail: {', '.join(counts)}")
    return lines
