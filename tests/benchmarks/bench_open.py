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

VOCAB, LENGTH = 50264, 512
MODES = ("none", "complete", "complete_doc", "eos")
LINES_AT_ONCE = 2**20
MEASURE = """
import json, resource, sys, time
from pathlib import Path
from roberta_plugin.data.block_order import ORDER_VERSION
from tests.benchmarks.bench_open import fairseq_task, our_task
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


def our_task(data: Path, break_mode: str):
    from roberta_plugin.tasks.masked_lm import RobertaMaskedLMTask
    from roberta_plugin.tasks.masked_lm_options import RobertaMaskedLMConfig

    cfg = RobertaMaskedLMConfig(data=str(data), sample_break_mode=break_mode, tokens_per_sample=LENGTH, seed=1)
    return RobertaMaskedLMTask.setup_task(cfg)


def fairseq_task(data: Path, break_mode: str):
    from fairseq.data import Dictionary
    from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

    cfg = MaskedLMConfig(data=str(data), sample_break_mode=break_mode, tokens_per_sample=LENGTH, seed=1)
    cfg.tpu, cfg.shorten_method = False, "none"
    dictionary = Dictionary.load(str(data / "dict.txt"))
    dictionary.add_symbol("<mask>")
    return MaskedLMTask(cfg, dictionary)


def write_sparse(folder: Path, *, num_tokens: float) -> None:
    """A data-bin of about so many tokens whose .bin is a hole."""
    folder.mkdir()
    lines = (f"{symbol} {VOCAB - symbol}" for symbol in range(VOCAB - 4))
    (folder / "dict.txt").write_text("\n".join(lines) + "\n")
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


def measure(side: str, data: Path, mode: str, *, do: str = "start", limit: str = "max_sentences", value: int = 0):
    """Seconds, CPU seconds and megabytes until the data are open, and until the first batch is there."""
    value = value or (2048 if mode == "eos" else 32)
    command = [sys.executable, "-c", MEASURE, side, str(data), mode, limit, str(value), do]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[3:])} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def row(report: Report, side: str, mode: str, what: str, result: dict) -> None:
    opened, done = result["opened"], result["done"]
    shown = f"| {side} | `{mode}` | {what} | {result['blocks'] / 1e6:,.1f} "
    for seconds, cpu, megabytes in (opened, done):
        shown += f"| {seconds:.2f} | {cpu:.2f} | {megabytes:,.0f} "
    report.lines.append(f"{shown}|")
    print(report.lines[-1], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the report to tests/benchmarks/results")
    parser.add_argument("--tokens", type=float, default=33e9, help="size of the large corpus")
    parser.add_argument("--fairseq-tokens", type=float, default=5e8, help="size of the corpus that fairseq gets")
    parser.add_argument("--folder", help="where to write the files, 15 GB for 33e9 tokens")
    arguments = parser.parse_args()
    report = Report("open_cpu2", "Starting on a large data-bin", __doc__ or "", machine())
    report.text(f"Load average at the start: {os.getloadavg()[0]:.1f}; CPU seconds are the figures to trust.")
    head = ["side", "mode", "start", "M blocks", "open: s", "CPU s", "MB", "first batch: s", "CPU s", "MB"]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        small, large = Path(folder) / "small", Path(folder) / "large"
        write_sparse(small, num_tokens=arguments.fairseq_tokens)
        write_sparse(large, num_tokens=arguments.tokens)
        for data, tokens, sides in (
            (small, arguments.fairseq_tokens, ("fairseq", "ours")),
            (large, arguments.tokens, ("ours",)),
        ):
            report.lines += [f"## {tokens / 1e9:g} billion tokens", "", f"| {' | '.join(head)} |", "| --- " * 10 + "|"]
            for mode in MODES:
                for side in sides:
                    if (side, mode) == ("fairseq", "eos"):
                        continue  # fairseq asks numpy 2 for np.compat
                    for what in ("first",) if side == "fairseq" else ("first", "later", "resume"):
                        row(report, side, mode, what, measure(side, data, mode, do=what))
            for side in sides:
                result = measure(side, data, "complete", limit="max_tokens", value=2**14)
                row(report, side, "complete --max-tokens 16384", "later", result)
            report.lines.append("")
        tables = sorted((path.stat().st_size, path.name) for path in large.glob("*.table"))
        report.text("Tables: " + ", ".join(f"{name} {size / 1e6:,.3f} MB" for size, name in tables) + ".")
    report.text(f"Load average at the end: {os.getloadavg()[0]:.1f}.")
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
