"""The archives of real data, unpacked; they are no part of the project."""

import tarfile
from pathlib import Path

import pytest
import zstandard


def unpack(shared_data: Path, name: str, folder: Path) -> Path:
    """Unpack NAME.tar.zst into a folder, or skip where there is none."""
    archive = shared_data / f"{name}.tar.zst"
    if not archive.is_file():
        pytest.skip(f"needs {archive}")
    options = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 and later
    with (
        archive.open("rb") as compressed,
        zstandard.ZstdDecompressor().stream_reader(compressed) as stream,
        tarfile.open(fileobj=stream, mode="r|") as members,
    ):
        members.extractall(folder, **options)
    return folder
