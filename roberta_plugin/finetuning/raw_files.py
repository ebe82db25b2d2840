"""Official files -> what identifies their content, which a prepared folder remembers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def describe(files: Sequence[Path]) -> dict[str, Any]:
    """Number and bytes of the files, and one SHA-256 over their contents; where they lie does not matter."""
    digest = hashlib.sha256()
    num_bytes = 0
    for path in files:
        content = path.read_bytes()
        num_bytes += len(content)
        digest.update(hashlib.sha256(content).digest())
    return {"files": len(files), "bytes": num_bytes, "sha256": digest.hexdigest()}
