"""Fault 17: warnings of hydra and torch about fairseq's own code, which a user cannot act on.

Only these are filtered. The filters have the lowest priority, so `python -W default` shows the warnings again.
"""

from __future__ import annotations

import re
import warnings

_FAIRSEQ = r"fairseq(_cli)?\."

# Start of the message, category, module that causes it ("" for any: hydra blames fairseq's caller).
FILTERED: tuple[tuple[str, type[Warning], str], ...] = (
    ("hydra.experimental.initialize() is no longer experimental.", UserWarning, "hydra"),
    ("hydra.experimental.compose() is no longer experimental.", UserWarning, "hydra"),
    ("\nThe version_base parameter is not specified.", UserWarning, "hydra"),
    ("In 'config': Usage of deprecated keyword in package header '# @package _group_'.", UserWarning, "hydra"),
    ("\n'config' is validated against ConfigStore schema with the same name.", UserWarning, ""),
    ("\nThe strict flag in the compose API is deprecated.", UserWarning, "hydra"),
    ("'pin_memory' argument is set as true but no accelerator is found", UserWarning, r"torch\.utils\.data\."),
    ("`torch.cuda.amp.autocast(args...)` is deprecated.", FutureWarning, _FAIRSEQ),
    ("`torch.cuda.amp.GradScaler(args...)` is deprecated.", FutureWarning, _FAIRSEQ),
)


def install() -> None:
    """Filter the warnings listed above."""
    for message, category, module in FILTERED:
        warnings.filterwarnings("ignore", re.escape(message), category, module, append=True)
