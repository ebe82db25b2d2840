"""The files of an exported folder."""

from __future__ import annotations

import zlib
from pathlib import Path

MODEL, INT8_MODEL, FACTS = "model.onnx", "model.int8.onnx", "roberta.json"
VERSION = 2


def compute_checksum(path: Path) -> int:
    """CRC-32 of a file."""
    checksum = 0
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            checksum = zlib.crc32(block, checksum)
    return checksum
