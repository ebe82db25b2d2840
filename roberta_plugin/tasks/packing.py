"""Whether the batches of pretraining are packed where the options leave it open."""

from __future__ import annotations

import logging
from typing import Any

import torch

from roberta_plugin.tasks.block_task import holds_on_all_ranks

logger = logging.getLogger(__name__)


def packs_by_default(cfg: Any, model: Any) -> bool:
    """Whether packed rows are right and faster: on a GPU, in half precision, for blocks of different lengths.

    There the mask of a padded batch keeps attention from its fastest kernel; with --sample-break-mode none, only the
    last batch of an epoch has padding. Asked of the model once it is built, on the device that this rank trains on.
    All ranks answer alike: if one cannot pack, none does.
    """
    is_wanted = (
        not getattr(cfg, "no_pack_sequences", False)
        and str(cfg.sample_break_mode) != "none"
        and getattr(cfg, "cpu", None) is False  # a string where the task has no config of fairseq's around it
        and torch.cuda.is_available()
        and hasattr(model, "prefers_packing")
    )
    if not is_wanted:
        return False
    device, dtype = torch.device("cuda", torch.cuda.current_device()), half_precision(cfg)
    packs = holds_on_all_ranks(dtype is not None and model.prefers_packing(device, dtype), device)
    if packs:
        logger.info(
            "blocks are packed end to end instead of padded, which is faster on this GPU; --no-pack-sequences pads them"
        )
    return packs


def half_precision(cfg: Any) -> torch.dtype | None:
    """The type that the options make a GPU compute attention in; None for fp32."""
    if getattr(cfg, "bf16", None) is True:
        return torch.bfloat16
    return torch.float16 if getattr(cfg, "fp16", None) is True or getattr(cfg, "amp", None) is True else None
