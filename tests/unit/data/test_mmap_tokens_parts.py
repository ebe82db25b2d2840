import numpy as np
import pytest

from roberta_plugin.data.mmap_tokens import MmapTokens, MmapTokensWriter
from roberta_plugin.data.mmap_tokens_parts import SharedFiles


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_parts_written_in_any_order_make_the_files_of_the_sequential_writer(tmp_path, dtype):
    rng = np.random.default_rng(0)
    parts = []
    for num_items in (3, 0, 50, 1):
        sizes = rng.integers(1, 9, num_items).astype(np.int32)
        parts.append((rng.integers(0, 60_000, int(sizes.sum())).astype(dtype), sizes))
    with MmapTokensWriter(tmp_path / "one", dtype) as writer:
        for tokens, sizes in parts:
            writer.write(tokens, sizes)
    files = SharedFiles(
        prefix=tmp_path / "temporary",
        dtype=np.dtype(dtype),
        num_items=sum(len(sizes) for _, sizes in parts),
        num_tokens=sum(len(tokens) for tokens, _ in parts),
    )
    files.create()
    for number in (2, 0, 3, 1):
        before = parts[:number]
        files.write(
            *parts[number],
            first_item=sum(len(sizes) for _, sizes in before),
            first_token=sum(len(tokens) for tokens, _ in before),
        )
    assert sum(path.stat().st_size for path in files.paths) == files.num_bytes
    files.sync()
    files.publish(tmp_path / "many")
    for suffix in ("bin", "idx"):
        assert (tmp_path / f"many.{suffix}").read_bytes() == (tmp_path / f"one.{suffix}").read_bytes()
    assert len(MmapTokens(tmp_path / "many")) == 54
    assert not list(tmp_path.glob("temporary*"))


def test_no_items_at_all(tmp_path):
    files = SharedFiles(prefix=tmp_path / "x", dtype=np.dtype(np.uint16), num_items=0, num_tokens=0)
    files.create()
    files.publish(tmp_path / "y")
    assert len(MmapTokens(tmp_path / "y")) == 0
