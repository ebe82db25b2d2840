"""Opening a large data-bin: time and memory of ours on 50 GB, beside fairseq's reader on a part of it.

    python -m tests.benchmarks.bench_open [--write]

The .bin is a sparse file, so that reading it costs no disk, and the .idx has a million lines of 25,000 tokens. Each
measurement is a process of its own: it opens the files, takes one block from the middle, and reports the time of that
and what its memory has grown by. fairseq's reader reads all of a .bin to warm the cache; it gets 5 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from roberta_plugin.data.mmap_tokens import MmapTokensWriter
from tests.benchmarks.report import Report, machine
from tests.conftest import REPOSITORY

LINE = 25_000  # tokens; 50 kB in uint16
OURS = """
from roberta_plugin.data.blocks import make_blocks
from roberta_plugin.data.mmap_tokens import MmapTokens
import numpy as np
def work(prefix):
    tokens = MmapTokens(prefix)
    blocks = make_blocks(tokens.sizes, block_length=511, break_mode="none")
    starts, lengths = blocks.bounds(np.array([len(blocks) // 2]))
    return tokens.tokens[starts[0] : starts[0] + lengths[0]].copy()
"""
FAIRSEQ = """
from fairseq.data.indexed_dataset import MMapIndexedDataset
def work(prefix):
    dataset = MMapIndexedDataset(prefix)
    return dataset[len(dataset) // 2]
"""
MEASURE = """
import json, resource, sys, time
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
block = work(sys.argv[1])
seconds = time.perf_counter() - start
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"seconds": seconds, "megabytes": grown / 1024, "tokens": len(block)}))
"""


def write_sparse(prefix: Path, *, num_lines: int) -> None:
    """A data-bin whose .bin is a hole."""
    with MmapTokensWriter(prefix, np.uint16) as writer:
        writer.write(np.zeros(0, dtype=np.uint16), np.zeros(0, dtype=np.int64))
    sizes = np.full(num_lines, LINE, dtype="<i4")
    pointers = np.arange(num_lines, dtype="<i8") * (2 * LINE)
    header = Path(f"{prefix}.idx").read_bytes()[:18] + num_lines.to_bytes(8, "little")
    Path(f"{prefix}.idx").write_bytes(header + sizes.tobytes() + pointers.tobytes())
    os.truncate(f"{prefix}.bin", num_lines * 2 * LINE)


def measure(code: str, prefix: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", code + MEASURE, str(prefix)], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the report to tests/benchmarks/results")
    parser.add_argument("--repeats", type=int, default=5, help="measurements a side")
    arguments = parser.parse_args()
    report = Report("open_cpu2", "Opening a large data-bin", __doc__ or "", machine())
    with tempfile.TemporaryDirectory() as folder:
        sides = {"fairseq, 5 GB": (FAIRSEQ, 100_000), "ours, 5 GB": (OURS, 100_000), "ours, 50 GB": (OURS, 1_000_000)}
        for number, (_, num_lines) in enumerate(sides.values()):
            write_sparse(Path(folder) / str(number), num_lines=num_lines)
        results: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for _ in range(arguments.repeats):
            for number, (side, (code, _)) in enumerate(sides.items()):
                results[side].append(measure(code, Path(folder) / str(number)))
    seconds = {side: [result["seconds"] for result in values] for side, values in results.items()}
    report.table("From nothing to a block", seconds, baseline="fairseq, 5 GB", amount=1, unit="starts")
    for side, values in results.items():
        report.text(f"{side}: memory grew by at most {max(value['megabytes'] for value in values):.1f} MB.")
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
