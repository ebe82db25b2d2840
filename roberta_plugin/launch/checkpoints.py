"""The run folder's checkpoints -> `checkpoint_last.pt` is the newest one that is whole; says what had to be done.

fairseq resumes from `checkpoint_last.pt` alone: if that is cut off it stops, if it is missing it begins anew without a
word. Here every start looks at all checkpoints first; broken ones are put aside under another name, never deleted.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

import torch

from roberta_plugin.checkpoint_files import fault_of, remove_unfinished
from roberta_plugin.files import atomic_write

LAST = "checkpoint_last.pt"
NAMES = re.compile(r"checkpoint(_last|_best|_\d+_\d+|\d+)\.pt")


def prepare(save_dir: Path) -> str:
    """Put the newest whole checkpoint in the place of checkpoint_last.pt; return what a user should know.

    Raises:
        ValueError: if there are checkpoints and none is whole: starting anew by itself would hide the loss.
    """
    said = []
    for name in remove_unfinished(save_dir):
        said.append(f"removed {name}, which was cut off while it was written")
    paths = [path for path in save_dir.glob("checkpoint*.pt") if NAMES.fullmatch(path.name)]
    if not paths:
        return "; ".join([*said, "no checkpoint yet: the training begins"])

    updates = {path: updates_of(path) for path in paths}
    order = sorted(paths, key=lambda path: (_or_below_all(updates[path]), path.name == LAST), reverse=True)
    broken = []
    for path in order:
        if updates[path] is not None and is_whole(path):
            break
        broken.append(path)
    else:
        raise ValueError(
            f"None of the checkpoints in {save_dir} is whole ({', '.join(sorted(path.name for path in paths))}): bring "
            f"one back from a copy, or remove them all to begin anew."
        )
    broken += [other for other in order if updates[other] is None and other not in broken]
    for other in broken:
        other.rename(other.with_name(f"{other.name}.broken"))
        said.append(f"{other.name} is broken and was put aside as {other.name}.broken")
    if path.name != LAST:
        with open(path, "rb") as source, atomic_write(save_dir / LAST) as target:
            shutil.copyfileobj(source, target, 16 * 2**20)
        said.append(f"{LAST} was missing, broken or older: it is now a copy of {path.name}")
    return "; ".join([*said, f"going on from {path.name}, update {updates[path]}"])


def updates_of(path: Path) -> int | None:
    """The number of updates of a checkpoint, None if it cannot be read; the tensors stay on disk."""
    try:
        # Not the context manager safe_globals: at its end it would take the class away from fairseq's own loading too.
        torch.serialization.add_safe_globals([argparse.Namespace])
        state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        return int(state["optimizer_history"][-1]["num_updates"])
    except Exception:  # whatever is wrong with the file, the answer is the same: it cannot be read
        return None


def is_whole(path: Path) -> bool:
    """Whether every part of the file has the checksum that was written with it."""
    try:
        return fault_of(path) is None
    except OSError:
        return False


def _or_below_all(updates: int | None) -> int:
    return -1 if updates is None else updates
