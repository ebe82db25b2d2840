"""The archives of real data, read or unpacked; they are not part of the project."""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from backports import zstd


def unpack(shared_data: Path, name: str, folder: Path) -> Path:
    """Unpack NAME.tar.zst into a folder, or skip where there is none."""
    options = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 and later
    with _members(shared_data / f"{name}.tar.zst") as members:
        members.extractall(folder, **options)
    return folder


def multilingual_lines(shared_data: Path, num_bytes: int) -> list[str]:
    """Lines in at least six languages, from the beginning (`num_bytes`) of one file in each; a skip where there are none."""
    texts: dict[str, list[str]] = {}
    with _members(shared_data / "multilingual.tar.zst") as members:
        for member in members:
            language = member.name.split("/")[1] if "/" in member.name else ""
            if member.isfile() and member.size > 20_000 and language not in texts:
                text = members.extractfile(member)
                assert text is not None
                texts[language] = text.read(num_bytes).decode("utf-8", "ignore").split("\n")
    assert len(texts) >= 6
    return [line for text in texts.values() for line in text]


@contextmanager
def _members(archive: Path) -> Iterator[tarfile.TarFile]:
    """The members of an archive, in its order, or a skip where there is none."""
    if not archive.is_file():
        pytest.skip(f"needs {archive}")
    with (
        archive.open("rb") as compressed,
        zstd.ZstdFile(compressed) as stream,
        tarfile.open(fileobj=stream, mode="r|") as members,
    ):
        yield members
