"""How trackers tell trainings apart: variables of Weights & Biases that follow from the folder of a run.

Every process that trains gets them, whether it tracks (--wandb-project) or not. Without them fairseq calls each run by
the last folder of --save-dir, which is always `checkpoints`, and a restart begins a new one.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path


def tracker_variables(
    folder: Path, *, name: str | None = None, group: str | None = None, user: Collection[str]
) -> dict[str, str]:
    """The variables for the run in `folder` (absolute), but for those that the user has set, by their names.

    The id is a hash of the folder: whatever trains there continues one run. `name` is the folder's by default; `group`
    is what the runs of a sweep have in common.
    """
    variables = {
        "WANDB_NAME": name or folder.name,
        "WANDB_RUN_ID": hashlib.sha256(bytes(folder)).hexdigest()[:16],
        "WANDB_RESUME": "allow",
    }
    if group:
        variables["WANDB_RUN_GROUP"] = group
    return {variable: value for variable, value in variables.items() if variable not in user}


def shown(variables: Mapping[str, str], arguments: Sequence[str]) -> str:
    """The variables as they stand before a command of a shell; empty if its `arguments` start no tracker."""
    if not any(argument.partition("=")[0] == "--wandb-project" for argument in arguments):
        return ""
    return "".join(f"{name}={shlex.quote(value)} " for name, value in variables.items())
