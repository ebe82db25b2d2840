"""Fault 3: a `checkpoint_last.pt` that a kill can cut off."""

from __future__ import annotations

import os
import shutil

from fairseq.file_io import PathManager

_fairseq_copy = PathManager.copy


def atomic_copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
    """Copy a file so that `dst_path` is at every moment either the old file or the whole new one.

    Same signature and result as fairseq's `PathManager.copy`; see fault 3.
    """
    if PathManager.path_requires_pathmanager(dst_path):
        return bool(_fairseq_copy(src_path, dst_path, overwrite))
    if not overwrite and os.path.exists(dst_path):
        raise FileExistsError(f"Refusing to copy {src_path} over the existing file {dst_path}: pass overwrite=True.")
    temporary = f"{dst_path}.tmp"
    with open(src_path, "rb") as source, open(temporary, "wb") as target:
        shutil.copyfileobj(source, target, 16 * 2**20)
        target.flush()
        os.fsync(target.fileno())
    os.replace(temporary, dst_path)
    return True


def install() -> None:
    """Make fairseq's copies of checkpoints atomic."""
    PathManager.copy = staticmethod(atomic_copy)
