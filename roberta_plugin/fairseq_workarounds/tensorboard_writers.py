"""Fault 7: a TensorBoard writer outlives its run."""

from __future__ import annotations

import os
from typing import Any

from fairseq.logging.progress_bar import TensorboardProgressBarWrapper

_fairseq_writer = TensorboardProgressBarWrapper._writer


def writer_of_folder(self: Any, key: str) -> Any:
    """The writer of `key` ("train", "valid") in this run's folder; see fault 7."""
    return _fairseq_writer(self, os.path.abspath(os.path.join(self.tensorboard_logdir, key)))


def install() -> None:
    """Keep one writer per folder."""
    TensorboardProgressBarWrapper._writer = writer_of_folder
