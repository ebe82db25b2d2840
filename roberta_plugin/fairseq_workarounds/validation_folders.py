"""Fault 5: the search for validation splits takes a mixture of corpora for one folder, and a `:` in a path for two."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from fairseq.data import data_utils

from roberta_plugin.data.mixture import data_folders

_fairseq_check = data_utils.raise_if_valid_subsets_unintentionally_ignored
_fairseq_find = data_utils._find_extra_valid_paths


def check_valid_subsets(train_cfg: Any) -> None:
    """Refuse validation splits that would be ignored, in all folders of a mixture; see fault 5."""
    is_mixture = getattr(train_cfg.task, "_name", None) == "roberta_masked_lm"

    def find(data: str) -> set[str]:
        if is_mixture or os.path.isdir(data):
            folders = data_folders(data) if is_mixture else [Path(data)]
            return set().union(*map(further_validation_splits, folders))
        found: set[str] = _fairseq_find(data)
        return found

    data_utils._find_extra_valid_paths = find
    try:
        _fairseq_check(train_cfg)
    finally:
        data_utils._find_extra_valid_paths = _fairseq_find


def further_validation_splits(folder: Path) -> set[str]:
    """Names such as `valid1`, as fairseq's search matches them."""
    return {path.stem for path in folder.iterdir() if re.match("valid*[0-9].*", path.name)}


def install() -> None:
    """Make fairseq search the folders that the tasks read."""
    data_utils.raise_if_valid_subsets_unintentionally_ignored = check_valid_subsets
