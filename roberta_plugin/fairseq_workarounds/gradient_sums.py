"""Fault 34: gradients of several ranks add up in half precision.

Under --bf16 and --fp16, torch's DistributedDataParallel sums the gradients as they are, and each addition rounds to 8
or 11 bits: the more ranks, the more is lost, as with the batches of --update-freq (fault 20). With `--gradient-sum
fp32` each bucket of gradients is summed in fp32 and rounded once. Ranks then send 4 bytes for each parameter instead
of 2, which the backward pass hides where its batches are large.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def wrap_model(fairseqs: Callable[..., Any], options: Any, model: Any, *args: Any, **keywords: Any) -> Any:
    """fairseq's wrapper of a model on several ranks, with the sums that the model's --gradient-sum asks for.

    Raises:
        ValueError: if the wrapper is not torch's, and cannot sum so.
    """
    wrapped = fairseqs(options, model, *args, **keywords)
    if str(getattr(getattr(model, "cfg", None), "gradient_sum", "half")) != "fp32":
        return wrapped
    if not hasattr(wrapped, "register_comm_hook"):
        raise ValueError(
            f"--gradient-sum fp32 needs --ddp-backend pytorch_ddp, and this is {options.ddp_backend}: change either."
        )
    if str(getattr(options, "ddp_comm_hook", "none")) != "none":
        raise ValueError(f"--gradient-sum fp32 contradicts --ddp-comm-hook {options.ddp_comm_hook}: leave one out.")
    wrapped.register_comm_hook(keywords.get("process_group"), sum_in_fp32)
    return wrapped


def sum_in_fp32(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    """The mean over ranks of a bucket of gradients, rounded once; called by torch's wrapper, which checks the types.

    `group` may be fairseq's tuple of a kind and a process group, or None for all ranks.
    """
    group = group[1] if isinstance(group, tuple) else group
    gradients: Tensor = bucket.buffer()
    wide = gradients.float().div_(dist.get_world_size(group))  # a copy, unless it is fp32 already
    summed = dist.all_reduce(wide, group=group, async_op=True).get_future()  # type: ignore[union-attr]

    def rounded(future: torch.futures.Future[list[Tensor]]) -> Tensor:
        return gradients.copy_(future.value()[0])

    return summed.then(rounded)  # type: ignore[no-any-return]
