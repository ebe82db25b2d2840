"""A planned pretraining on this machine: fairseq-train in a process of its own, a bar, our warnings, and the pace.

The folder of `roberta pretrain` holds what its steps make, each once:

    text.json       the text and how it was read
    text/           train.txt and valid.txt, if texts are given without --valid; train.txt, if the text is a pipe
    tokenizer/      if texts are given without --tokenizer
    data-bin/       if texts are given
    pretrain.json   options of fairseq-train with which the training began
    train.log       output of fairseq-train
    checkpoints/    and tensorboard/
    report.md       results, with loss.png; report.json has the numbers
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from roberta_plugin.launch import process
from roberta_plugin.launch.log import parse_line, show_on
from roberta_plugin.machine import num_cores
from roberta_plugin.pretraining.choice import MAX_THREADS
from roberta_plugin.pretraining.pace import Pace
from roberta_plugin.pretraining.plan import Plan
from roberta_plugin.progress import progress_bar

_WARNING = re.compile(r" \| WARNING \| roberta_plugin\S* \| (.*)")


def train(plan: Plan, *, log: Path, lock: int) -> None:
    """Train to the end with a bar and our warnings, from the last checkpoint if there is one; the training inherits
    `lock`.
    """
    environment = tracker_variables(log.parent)
    if not plan.machine.gpus:
        environment["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS") or str(min(MAX_THREADS, num_cores()))
    bar = progress_bar("training", total=plan.recipe.updates, unit="update")
    lines = process.lines_of(plan.command, log=log, lock=lock, environment=environment)
    pace = Pace(updates=plan.recipe.updates, hours=plan.recipe.hours) if plan.is_timed else None
    with closing(lines) as output, bar:
        for line in output:
            if warning := _WARNING.search(line):
                bar.write(f"WARNING: {warning[1]}", file=sys.stderr)
            record = parse_line(line)
            if record and "num_updates" in record.values:
                show_on(bar, record)
                if pace is not None and (remark := pace.remark(int(record.values["num_updates"]))):
                    bar.write(remark, file=sys.stderr)


def tracker_variables(folder: Path) -> dict[str, str]:
    """The variables by which a tracker tells the training in a folder from others."""
    return process.tracker_variables(folder.resolve(), user=os.environ)


def command_line(folder: Path, plan: Plan) -> str:
    """The command that trains, with the variables of trackers."""
    return process.variables_shown(tracker_variables(folder), plan.command) + shown(plan.command)


def shown(arguments: Sequence[str]) -> str:
    """A command that can be copied, an option a line."""
    lines: list[str] = []
    for word in arguments:
        quoted = shlex.quote(word)
        if word.startswith("--") or not lines:
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    return " \\\n  ".join(lines)
