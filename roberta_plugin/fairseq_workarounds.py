"""Every fairseq fault that this plugin works around, in one place; `install()` runs once, when the plugin is imported.

1. **Resuming fails under torch >= 2.6.** fairseq calls `torch.load` without `weights_only`, whose default is now
   True and refuses `argparse.Namespace`, the one class beyond plain types and tensors that its checkpoints hold.
   We allow-list that class alone. A checkpoint that holds anything else is still refused.
2. **`checkpoint_last.pt` can be cut off.** `checkpoint_utils.save_checkpoint` writes its first file under a temporary
   name, but makes `checkpoint_last.pt` and `checkpoint_best.pt` by `PathManager.copy`, straight onto the old file; a
   kill in the middle leaves a truncated checkpoint that the next start cannot read. We make that copy atomic for
   local files: a temporary name, fsync, rename. Paths that iopath manages keep fairseq's own copy.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil

import torch
from fairseq.file_io import PathManager

logger = logging.getLogger(__name__)

_fairseq_copy = PathManager.copy


def atomic_copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
    """Copy a file so that `dst_path` is at every moment either the old file or the whole new one.

    Same signature and result as fairseq's `PathManager.copy`; see fault 2 above.
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
    """Apply the workarounds listed above; calling it again changes nothing."""
    torch.serialization.add_safe_globals([argparse.Namespace])
    PathManager.copy = staticmethod(atomic_copy)
    logger.debug("fairseq workarounds installed; roberta_plugin/fairseq_workarounds.py lists them")
