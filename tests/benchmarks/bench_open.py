"""Starting on a large data-bin: opening, the start of an epoch and a resume, beside fairseq's `masked_lm` task.

    python -m tests.benchmarks.bench_open [--write]

Lines have 5 to 83 tokens, 44 on average, and every 25th is blank. The .bin is a sparse file, so that reading it costs
no disk; of the .idx, the tokens of each line are real and the positions a hole. Each measurement is a process of its
own that does what fairseq-train does: task, training set, iterator, first batch of 32 blocks of 512 tokens (`eos`: of
2,048 lines). Imports do not count. The first start makes the table of blocks, later ones find it; "resume" goes on in
the middle of the epoch. Memory is what the peak of the resident set grows by, pages of mapped files included. fairseq
holds several numbers a line and a block in memory and reads all of a .bin to warm the cache: it gets a smaller corpus,
as one of ours too, and no `eos`, for which it needs numpy 1.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from roberta_plugin.data.mmap_tokens import MmapTokensWriter
from tests.benchmarks.bench_loader import write_dict
from tests.benchmarks.harness import Report, apart, load, options

MODES = ("none", "complete", "complete_doc", "eos")
LINES_AT_ONCE = 2**20
MEASURE = """
import json, resource, sys, time
from pathlib import Path
from roberta_plugin.data.block_order import ORDER_VERSION
from tests.benchmarks.bench_loader import fairseq_task, our_task
side, data, mode, limit, value, do = sys.argv[1:]
task = {"fairseq": fairseq_task, "ours": our_task}[side](Path(data), mode)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, wall, cpu = peak(), time.perf_counter(), time.process_time()
task.load_dataset("train", epoch=1, combine=True)
opened = time.perf_counter() - wall, time.process_time() - cpu, peak() - before
options = {limit: int(value), "max_positions": 512, "seed": 1, "num_workers": 0}
iterator = task.get_batch_iterator(task.dataset("train"), **options)
if do == "resume":
    blocks = len(task.dataset("train")) // 2
    state = {"version": 2, "epoch": 1, "iterations_in_epoch": blocks // 32, "shuffle": False}
    iterator.load_state_dict({**state, "blocks_in_epoch": blocks, "order_of_blocks": ORDER_VERSION})
batch = next(iterator.next_epoch_itr(shuffle=side == "fairseq"))
done = time.perf_counter() - wall, time.process_time() - cpu, peak() - before
print(json.dumps({"opened": opened, "done": done, "blocks": len(task.dataset("train")), "tokens": batch["ntokens"]}))
"""


def write_sparse(folder: Path, *, num_tokens: float) -> None:
    """A data-bin of about so many tokens whose .bin is a hole."""
    folder.mkdir()
    write_dict(folder)
    with MmapTokensWriter(folder / "train", np.uint16) as writer:
        writer.write(np.zeros(0, dtype=np.uint16), np.zeros(0, dtype=np.int64))
    header = (folder / "train.idx").read_bytes()[:18]
    rng = np.random.default_rng(0)
    total = num_lines = 0
    with open(folder / "train.idx", "wb") as index:
        index.write(header + bytes(8))
        while total < num_tokens:
            sizes = rng.integers(5, 84, LINES_AT_ONCE, dtype=np.int32)
            sizes[::25] = 1
            index.write(sizes.tobytes())
            total, num_lines = total + int(sizes.sum()), num_lines + len(sizes)
        index.seek(18)
        index.write(num_lines.to_bytes(8, "little"))
        index.seek(26 + 12 * num_lines - 8)
        index.write((2 * (total - int(sizes[-1]))).to_bytes(8, "little"))
    os.truncate(folder / "train.bin", 2 * total)


def measure(side: str, data: Path, mode: str, what: str, *, limit: str = "max_sentences", value: int = 0) -> list[str]:
    """A row: seconds, CPU seconds and megabytes until the data are open, and until the first batch is there."""
    value = value or (2048 if mode == "eos" else 32)
    result = apart(MEASURE, side, data, mode, limit, value, what)
    shown = mode if limit == "max_sentences" else f"{mode} --max-tokens {value}"
    row = [side, f"`{shown}`", what, f"{result['blocks'] / 1e6:,.1f}"]
    for seconds, cpu, megabytes in (result["opened"], result["done"]):
        row += [f"{seconds:.2f}", f"{cpu:.2f}", f"{megabytes:,.0f}"]
    print(*row, flush=True)
    return row


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--tokens", type=float, default=33e9, help="size of the large corpus")
    parser.add_argument("--fairseq-tokens", type=float, default=5e8, help="size of the corpus that fairseq gets")
    parser.add_argument("--folder", help="where to write the files, 15 GB for 33e9 tokens")
    arguments = parser.parse_args()
    report = Report("open_cpu2", "Starting on a large data-bin", __doc__)
    report.text(f"{load('start')} CPU seconds are the figures to trust.")
    head = ("side", "mode", "start", "M blocks", "open: s", "CPU s", "MB", "first batch: s", "CPU s", "MB")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        small, large = Path(folder) / "small", Path(folder) / "large"
        write_sparse(small, num_tokens=arguments.fairseq_tokens)
        write_sparse(large, num_tokens=arguments.tokens)
        for data, tokens, sides in (
            (small, arguments.fairseq_tokens, ("fairseq", "ours")),
            (large, arguments.tokens, ("ours",)),
        ):
            rows = [
                measure(side, data, mode, what)
                for mode in MODES
                for side in sides
                for what in (("first",) if side == "fairseq" else ("first", "later", "resume"))
                if (side, mode) != ("fairseq", "eos")  # for which fairseq asks numpy 2 for np.compat
            ]
            rows += [measure(side, data, "complete", "later", limit="max_tokens", value=2**14) for side in sides]
            report.rows(head, rows, title=f"{tokens / 1e9:g} billion tokens")
        tables = sorted((path.stat().st_size, path.name) for path in large.glob("*.table"))
        report.text("Tables: " + ", ".join(f"{name} {size / 1e6:,.3f} MB" for size, name in tables) + ".")
    report.text(load("end"))
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
