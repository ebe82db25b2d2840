"""Which checkpoints of finished runs are kept: a grid of large models would fill a disk.

A run writes its best and its last checkpoint, each with Adam's state, three times the size of the weights. A run that
is done needs neither: its result is in result.json, and the weights of its best checkpoint serve evaluation. Runs that
are not done keep everything, because they resume from it. `roberta finetune` stores the raw outputs of a run before its
weights are deleted (`stored_outputs.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from roberta_plugin.checkpoint_files import lock_unfinished, remove_unfinished
from roberta_plugin.experiments.sweeps.grid import Metric
from roberta_plugin.experiments.sweeps.run import DONE, RunFolder
from roberta_plugin.files import atomic_write
from roberta_plugin.models.checkpoints.loading import load_state

_OPTIMIZER = "last_optimizer_state"


def keep_weights(folders: Sequence[RunFolder]) -> None:
    """Of each run that is done, keep the weights of the checkpoint that its metric is about."""
    for folder in folders:
        kept = folder.checkpoint()
        if folder.state() != DONE or kept is None:
            continue
        remove_unfinished(kept.parent)  # of a kill in the next line, or at the very end of the training
        drop_optimizer(kept)
        for path in _checkpoints(folder):
            if path != kept:
                path.unlink()


def keep_best(folders: Sequence[RunFolder], metric: Metric) -> None:
    """Of each cell whose runs are all done, keep the weights of the best run."""
    keep_weights(folders)
    for folder in not_best(folders, metric):
        for path in _checkpoints(folder):
            path.unlink()


def not_best(folders: Sequence[RunFolder], metric: Metric) -> list[RunFolder]:
    """The runs whose weights `keep_best` deletes."""
    found: list[RunFolder] = []
    for cell in dict.fromkeys(folder.run.cell for folder in folders):
        runs = [folder for folder in folders if folder.run.cell == cell]
        if any(folder.state() != DONE for folder in runs):
            continue
        with_weights = [folder for folder in runs if folder.checkpoint() is not None]
        found += [folder for folder in with_weights if folder is not _best(with_weights, metric)]
    return found


def drop_optimizer(path: Path) -> None:
    """Rewrite a checkpoint without the optimizer's state, as with fairseq's --no-save-optimizer-state."""
    state = load_state(path)
    if _OPTIMIZER not in state:
        return
    del state[_OPTIMIZER]
    with atomic_write(path) as file:
        lock_unfinished(file.fileno())
        torch.save(state, file)


def _best(folders: Sequence[RunFolder], metric: Metric) -> RunFolder:
    """The first of the best."""
    best = folders[0]
    for folder in folders[1:]:
        if metric.better(_value(folder), _value(best)):
            best = folder
    return best


def _value(folder: RunFolder) -> float:
    result = folder.result()
    assert result is not None, "the run is done"
    return float(result["value"])


def _checkpoints(folder: RunFolder) -> list[Path]:
    return sorted((folder.path / "checkpoints").glob("checkpoint*.pt"))
