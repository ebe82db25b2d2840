"""Arrays in files: slices that are read, elements that are taken without keeping the rest in memory."""

import subprocess
import sys

import numpy as np

from roberta_plugin.data import array_files
from roberta_plugin.data.array_files import ArrayOnDisk, take_mapped

TAKE = """
import sys
import numpy as np
from roberta_plugin.data import array_files
from roberta_plugin.data.array_files import take_mapped
def resident(kind):
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(kind)) / 1024
values = np.asarray(np.memmap(sys.argv[1], dtype="<i4", mode="r"))
values[:: 1024].max()  # all of the file is in the page cache
import mmap
values.base._mmap.madvise(mmap.MADV_DONTNEED) if isinstance(values.base, np.memmap) else None
before = resident("RssFile")
where = np.random.default_rng(0).integers(0, len(values), 16384)
taken = take_mapped(values, where) if sys.argv[2] == "ours" else values[where]
assert (taken == 0).all()
print(resident("RssFile") - before)
"""


def test_slices_are_read_where_they_are(tmp_path):
    values = np.arange(50, dtype="<i4")
    (tmp_path / "file").write_bytes(b"head!" + values.tobytes() + b"tail")
    array = ArrayOnDisk(str(tmp_path / "file"), values.dtype, 5, 50)
    assert len(array) == 50
    for window in (slice(0, 7), slice(7, 50), slice(40, 99), slice(60, 70), slice(None)):
        assert array[window].tolist() == values[window].tolist()


def test_plain_arrays_are_taken_from_as_ever():
    assert take_mapped(np.arange(10) * 2, np.array([3, 3, 0])).tolist() == [6, 6, 0]


def test_elements_all_over_a_large_file_do_not_make_it_resident(tmp_path):
    with open(tmp_path / "file", "wb") as file:
        file.truncate(2**28)
    grown = {}
    for way in ("ours", "numpy"):
        command = [sys.executable, "-c", TAKE, str(tmp_path / "file"), way]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        grown[way] = float(done.stdout)
    assert grown["numpy"] > 150, "numpy alone would do"
    assert grown["ours"] < 60


def test_pages_are_kept_while_a_whole_array_is_taken_from(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "_MAP_WORTH_RELEASING", 0)
    (tmp_path / "file").write_bytes(np.arange(5000).tobytes())
    values = np.asarray(np.memmap(tmp_path / "file", dtype=np.int64, mode="r"))
    released = []
    monkeypatch.setattr(array_files, "_release", released.append)
    where = np.arange(5000)[::-1]
    with array_files.keeping_pages():
        assert np.array_equal(take_mapped(values, where), where)
    assert not released
    assert np.array_equal(take_mapped(values, where), where)
    assert len(released) == 10
