"""Every fairseq fault that this plugin works around, in one place; `install()` runs once, when the plugin is imported.

1. **Resuming fails under torch >= 2.6.** fairseq calls `torch.load` without `weights_only`, whose default is now
   True and refuses `argparse.Namespace`, the one class beyond plain types and tensors that its checkpoints hold.
   We allow-list that class alone. A checkpoint that holds anything else is still refused.
2. **`checkpoint_last.pt` can be cut off.** `checkpoint_utils.save_checkpoint` writes its first file under a temporary
   name, but makes `checkpoint_last.pt` and `checkpoint_best.pt` by `PathManager.copy`, straight onto the old file; a
   kill in the middle leaves a truncated checkpoint that the next start cannot read. We make that copy atomic for
   local files: a temporary name, fsync, rename. Paths that iopath manages keep fairseq's own copy.
3. **`--bf16` turns to a TPU.** `options.parse_args_and_arch` sets `tpu` wherever `bf16` is set, so that `fairseq-train
   --bf16` looks for torch_xla on a machine with GPUs. We take that back, unless --tpu was asked for. (Configs of
   fairseq-hydra-train do not go that way.)
4. **Resuming on several ranks fails under torch >= 2.6.** Rank 0 reads the checkpoint and sends it to the others by
   `torch.save`, which read it with the new default of `weights_only`, as in 1; the options in it are of omegaconf. What
   comes from our own rank 0 is trusted.

fairseq's lack of a hook after each update, and of handlers for signals, is dealt with in `cluster/update_hook.py` and
`cluster/preemption.py`, while a job of `roberta launch` runs and at no other time.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager

logger = logging.getLogger(__name__)

_fairseq_copy = PathManager.copy
_fairseq_convert = convert_namespace_to_omegaconf
_fairseq_broadcast = distributed_utils._broadcast_object_slow


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


def take_back_tpu(args: argparse.Namespace, words: Sequence[str]) -> None:
    """Undo what fairseq makes of --bf16 in the options parsed from `words`; see fault 3 above."""
    if getattr(args, "bf16", False):
        args.tpu = "--tpu" in words


def without_tpu(args: argparse.Namespace) -> Any:
    """Options of the running command -> fairseq's config."""
    take_back_tpu(args, sys.argv)
    return _fairseq_convert(args)


def broadcast_object(obj: Any, src_rank: int, group: object, dist_device: torch.device) -> Any:
    """Send `obj` from rank `src_rank` to all ranks of the group, in fairseq's own form; see fault 4 above."""
    if distributed_utils.get_rank(group) == src_rank:
        return _fairseq_broadcast(obj, src_rank, group, dist_device)
    length = torch.zeros(1, dtype=torch.int64, device=dist_device)
    distributed_utils.broadcast(length, src=src_rank, group=group)
    data = torch.empty(int(length), dtype=torch.uint8, device=dist_device)
    distributed_utils.broadcast(data, src=src_rank, group=group)
    return torch.load(io.BytesIO(data.cpu().numpy().tobytes()), map_location="cpu", weights_only=False)


def install() -> None:
    """Apply the workarounds listed above; calling it again changes nothing."""
    torch.serialization.add_safe_globals([argparse.Namespace])
    PathManager.copy = staticmethod(atomic_copy)
    distributed_utils._broadcast_object_slow = broadcast_object
    for name in ("fairseq_cli.train", "fairseq_cli.validate", "__main__"):  # commands that run already
        module = sys.modules.get(name)
        if getattr(module, "convert_namespace_to_omegaconf", None) is _fairseq_convert:
            module.convert_namespace_to_omegaconf = without_tpu  # type: ignore[union-attr]
    logger.debug("fairseq workarounds installed; roberta_plugin/fairseq_workarounds.py lists them")
