"""One kind of progress bar for all steps."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


def progress_bar(what: str, **options: Any) -> Any:
    """A tqdm bar on stderr; where that is no terminal, a line now and then instead of a flicker."""
    return tqdm(desc=f"      {what}", mininterval=0.5 if sys.stderr.isatty() else 20.0, **options)
