"""Fault 5: the search for validation splits takes a mixture of corpora for one folder."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from fairseq.data import data_utils

from roberta_plugin.data.mixture import data_folders

_fairseq_check = data_utils.raise_if_valid_subsets_unintentionally_ignored


def check_valid_subsets(train_cfg: Any) -> None:
    """Refuse validation splits that would be ignored, in all folders of a mixture; see fault 5."""
    if getattr(train_cfg.task, "_name", None) == "roberta_masked_lm":
        folders = os.pathsep.join(str(folder) for folder in data_folders(train_cfg.task.data))
        train_cfg = SimpleNamespace(dataset=train_cfg.dataset, task=SimpleNamespace(data=folders))
    _fairseq_check(train_cfg)


def install() -> None:
    """Make fairseq search the folders of a mixture."""
    data_utils.raise_if_valid_subsets_unintentionally_ignored = check_valid_subsets
