"""A folder of corpora, one folder each, such as one per language: their files by split, and smoothed shares.

    texts/en/train.txt   texts/en/valid.txt   texts/sw/train.00.jsonl.gz   texts/sw/train.01.jsonl.gz   ...

A file belongs to the split whose name its own begins with; an editor's backup, such as train.txt~, to none. Of n_i
bytes, blocks or tokens, corpus i has the share n_i^alpha / sum_j n_j^alpha (XLM, Lample & Conneau 2019, section 3.1;
XLM-R, Conneau et al. 2020: alpha 0.3).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

SPLITS = ("train", "valid", "test")
DEFAULT_ALPHA = 0.3  # XLM-R
_BACKUPS = ("~", ".bak", ".orig", ".swp")  # of editors: their text would count twice


def find_corpora(folder: Path) -> dict[str, dict[str, list[str]]]:
    """Files of each split of each corpus, in the order of their names.

    Example: {"en": {"train": ["texts/en/train.txt"], "valid": ["texts/en/valid.txt"]}, "sw": {...}}

    Raises:
        FileNotFoundError: if there is no such folder, no corpus in it, or a corpus without training text.
        ValueError: if two corpora are one folder, or have names that differ in case only; or if fairseq-train could not
            identify a corpus by its name.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"--corpora {folder} is not a folder: name one that has a folder for each corpus.")
    corpora: dict[str, dict[str, list[str]]] = {}
    names: dict[str, str] = {}
    for path in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        if re.search(r"[\s,:@]", path.name):
            raise ValueError(
                f"--corpora {folder}: the name {path.name!r} has white space or one of , : @, which separate the data "
                "folders of fairseq-train: rename that folder."
            )
        for key in (path.name.lower(), str(path.resolve())):
            if key in names:
                raise ValueError(
                    f"--corpora {folder}: {names[key]} and {path.name} are one corpus: remove one of them."
                )
            names[key] = path.name
        files = sorted(str(file) for file in path.iterdir() if file.is_file() and not file.name.endswith(_BACKUPS))
        splits = {split: [file for file in files if Path(file).name.split(".")[0] == split] for split in SPLITS}
        corpora[path.name] = {split: of_split for split, of_split in splits.items() if of_split}
        if "train" not in corpora[path.name]:
            raise FileNotFoundError(
                f"--corpora {folder}: {path} has no training text, a file whose name begins with `train.`: "
                "add one, or move that folder away."
            )
    if not corpora:
        raise FileNotFoundError(f"--corpora {folder} has no folders: make one for each corpus, with train.txt in it.")
    return corpora


def smoothed_shares(sizes: Sequence[float], alpha: float) -> list[float]:
    """Shares of corpora of these sizes, which add up to 1.

    Example: sizes 90 and 10 -> [0.9, 0.1] with alpha 1, [0.75, 0.25] with alpha 0.5.
    """
    raw = [size**alpha for size in sizes]
    total = sum(raw)
    return [each / total for each in raw]
