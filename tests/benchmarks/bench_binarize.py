"""Throughput and memory of `roberta binarize` beside fairseq's two steps, on the same text, tokenizer and processors.

    python -m tests.benchmarks.bench_binarize [--formats] [--write]

All sides are real commands, in turn, with two worker processes or threads, on the same text: fairseq's
multiprocessing_bpe_encoder --keep-empty and fairseq-preprocess --only-source, `hugging_face_binarize.py` with Hugging
Face's tokenizers and numpy, and `roberta binarize`. The text is the first megabytes of the books, of several sizes,
because fairseq's imports alone take seconds; a ratio is always between two sides on one size. The files are compared
byte for byte. Needs the real data (see tests/conftest.py). --formats instead compares the same documents of 20 lines as
JSON Lines, Parquet, Arrow and CSV, each in turn.
"""

from __future__ import annotations

import csv
import json
import lzma
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.harness import Report, load, machine, options
from tests.conftest import SHARED_DATA
from tests.tiny_corpus import command, environment

BPE = SHARED_DATA / "gpt2_bpe"
WORKERS = "2"
MEGABYTES = (8, 32)  # 195 is all of the books, which take fairseq minutes
MEMORY_MEGABYTES = (10, 50, 200)


class Cost(NamedTuple):
    """Seconds by the clock, and of processors, of a command with all its processes."""

    seconds: float
    cpu_seconds: float


def timed(arguments: list[str]) -> Cost:
    """Cost of a command that must succeed."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(arguments, env=environment(), check=True, capture_output=True)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def median(costs: list[Cost]) -> Cost:
    return Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))


def fairseq_steps(text: Path, folder: Path) -> tuple[Cost, Cost]:
    """Cost of fairseq's encoder and of fairseq-preprocess."""
    import fairseq

    encoder = Path(fairseq.__file__).parent / "examples" / "roberta" / "multiprocessing_bpe_encoder.py"
    folder.mkdir()
    encode = [
        *(sys.executable, str(encoder), "--keep-empty", "--workers", WORKERS),
        *("--encoder-json", str(BPE / "encoder.json"), "--vocab-bpe", str(BPE / "vocab.bpe")),
        *("--inputs", str(text), "--outputs", str(folder / "encoded")),
    ]
    preprocess = [
        *command("fairseq-preprocess"),
        *("--only-source", "--srcdict", str(BPE / "dict.txt"), "--workers", WORKERS),
        *("--trainpref", str(folder / "encoded"), "--destdir", str(folder / "data")),
    ]
    return timed(encode), timed(preprocess)


def hugging_face(text: Path, target: Path) -> Cost:
    """Cost of Hugging Face's tokenizers and numpy."""
    program = [sys.executable, "-m", "tests.benchmarks.hugging_face_binarize", str(text), str(BPE), str(target)]
    return timed(["env", f"RAYON_NUM_THREADS={WORKERS}", *program])


def binarize_command(text: Path, destination: Path, workers: str = WORKERS) -> list[str]:
    shutil.rmtree(destination, ignore_errors=True)
    return [
        *command("roberta"),
        *("binarize", "--train", str(text), "--tokenizer", str(BPE), "--output-dir", str(destination)),
        *("--workers", workers, "--no-progress"),
    ]


def peak_memory(arguments: list[str]) -> tuple[float, float]:
    """Peak resident megabytes of the first process and of the largest worker, read while the command runs."""
    process = subprocess.Popen(arguments, env=environment(), stdout=subprocess.DEVNULL)
    peaks: dict[int, float] = {}
    while process.poll() is None:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for pid in [process.pid, *map(int, children)]:
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("VmHWM:"):
                        peaks[pid] = max(peaks.get(pid, 0.0), int(line.split()[1]) / 1000)
        except (FileNotFoundError, ProcessLookupError):
            pass  # a process ended between two looks
        time.sleep(0.01)
    assert process.returncode == 0
    parent = peaks.pop(process.pid)
    return parent, max(peaks.values())


def same_bytes(first: Path, second: Path) -> bool:
    return all(
        (first / name).read_bytes() == (second / name).read_bytes() for name in ("train.bin", "train.idx", "dict.txt")
    )


def measure(report: Report, work: Path, repeats: int, megabytes: Sequence[int]) -> None:
    """Cost of all sides on each size of the text, and the memory of ours."""
    with lzma.open(SHARED_DATA / "text" / "books.train.txt.xz") as file:
        books = file.read()
    texts = {size: work / f"{size}.txt" for size in megabytes}
    for size, path in texts.items():
        path.write_bytes(books[: books.rfind(b"\n", 0, size * 10**6) + 1])

    rows: list[tuple[str, int, Cost]] = []
    theirs: dict[int, list[tuple[Cost, Cost]]] = {size: [] for size in megabytes}
    third: dict[int, list[Cost]] = {size: [] for size in megabytes}
    ours: dict[tuple[int, str], list[Cost]] = {}
    for number in range(repeats):
        for size in megabytes:
            folder = work / f"fairseq{size}_{number}"
            theirs[size].append(fairseq_steps(texts[size], folder))
            for workers in ("1", WORKERS):
                cost = timed(binarize_command(texts[size], work / "ours", workers))
                ours.setdefault((size, workers), []).append(cost)
            assert same_bytes(work / "ours", folder / "data"), "the files differ"
            third[size].append(hugging_face(texts[size], work / "third.bin"))
            assert (work / "third.bin").read_bytes() == (work / "ours" / "train.bin").read_bytes(), "the ids differ"
            shutil.rmtree(folder)
    for size, pairs in theirs.items():
        encoding, preprocessing = zip(*pairs, strict=True)
        rows.append(("fairseq: multiprocessing_bpe_encoder", size, median(list(encoding))))
        rows.append(("fairseq: fairseq-preprocess", size, median(list(preprocessing))))
        both = [Cost(*map(sum, zip(*pair, strict=True))) for pair in pairs]
        rows.append(("fairseq: both", size, median(both)))
        rows.append(("Hugging Face's tokenizers, numpy", size, median(third[size])))
    for (size, workers), costs in ours.items():
        rows.append((f"roberta binarize --workers {workers}", size, median(costs)))
    costs_of_sides(report, rows, texts, repeats)
    report.text("Peak resident memory with two workers (a worker's includes what it shares with the first process):")
    report.rows(("text", "first process", "largest worker"), memory_rows(books, work), texts=1)


def measure_formats(report: Report, work: Path, repeats: int, megabytes: int) -> None:
    """The cost of each format of the same documents."""
    import pyarrow
    from pyarrow import parquet

    with lzma.open(SHARED_DATA / "text" / "books.train.txt.xz", "rt", encoding="utf-8") as file:
        lines = file.read(megabytes * 10**6).splitlines()
    texts = ["\n".join(lines[first : first + 20]) for first in range(0, len(lines), 20)]
    table = pyarrow.table({"text": texts})
    (work / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    parquet.write_table(table, work / "row_groups_of_1000.parquet", row_group_size=1000)
    parquet.write_table(table, work / "one_row_group.parquet")
    with pyarrow.ipc.new_stream(str(work / "a.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    with open(work / "a.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text"], *([text] for text in texts)])
    names = ["a.jsonl", "row_groups_of_1000.parquet", "one_row_group.parquet", "a.arrow", "a.csv"]
    costs: dict[tuple[str, str], list[Cost]] = {(name, workers): [] for workers in ("1", WORKERS) for name in names}
    for _ in range(repeats):
        for (name, workers), found in costs.items():
            found.append(timed(binarize_command(work / name, work / "out" / name, workers)))
            expected = work / "out" / names[0] / "train.bin"
            assert (work / "out" / name / "train.bin").read_bytes() == expected.read_bytes(), "the files differ"
    rows = []
    for (name, workers), found in costs.items():
        ratios = [
            Cost(*(first / second for first, second in zip(base, own, strict=True)))
            for base, own in zip(costs["a.jsonl", workers], found, strict=True)
        ]
        size, cost, ratio = (work / name).stat().st_size / 1e6, median(found), median(ratios)
        rows.append((name, f"{size:.1f} MB", workers, *(f"{number:.2f}" for number in (*cost, *ratio))))
    report.text(
        f"{len(texts):,} documents of 20 lines of books, GPT-2 BPE, {repeats} runs of each in turn, from start to exit, "
        "medians. The .bin is the same. A ratio is the throughput divided by that of JSON Lines in the same turn and with "
        f"as many workers. {load('end')} If it is higher than the number of workers, other programs ran meanwhile, and "
        "seconds by the clock say little; CPU seconds do. The import of pyarrow takes some 0.15 of them, which larger "
        "texts hide."
    )
    report.rows(("file", "bytes", "workers", "seconds", "CPU seconds", "times JSON Lines", "by CPU"), rows, texts=1)


def memory_rows(books: bytes, work: Path) -> list[tuple[str, ...]]:
    rows = []
    for megabytes in MEMORY_MEGABYTES:
        part = (books * 2)[: megabytes * 10**6]
        (work / "part.txt").write_bytes(part[: part.rfind(b"\n") + 1])
        parent, worker = peak_memory(binarize_command(work / "part.txt", work / "memory"))
        rows.append((f"{megabytes} MB", f"{parent:.0f} MB", f"{worker:.0f} MB"))
    return rows


def costs_of_sides(report: Report, rows: list[tuple[str, int, Cost]], texts: dict[int, Path], repeats: int) -> None:
    """Add the table of seconds and throughputs."""
    megabytes = {size: text.stat().st_size / 1e6 for size, text in texts.items()}
    bases = {size: cost for what, size, cost in rows if what == "fairseq: both"}
    shown = []
    for what, size, cost in sorted(rows, key=lambda row: row[1]):
        times = [f"{base / own:.1f}" for base, own in zip(bases[size], cost, strict=True)]
        numbers = [f"{number:.2f}" for number in (*cost, megabytes[size] / cost.seconds)]
        shown.append((what, f"{megabytes[size]:.1f} MB", *numbers, *times))
    report.text(
        f"GPT-2 BPE, fairseq's dict.txt, {WORKERS} workers for each of fairseq's steps, the real commands from start to "
        f"exit (imports included), {repeats} runs of each in turn, medians. No warm-up; the text is in the page cache for "
        "both sides. Both sides' .bin, .idx and dict.txt were compared after each run and are the same bytes; Hugging "
        "Face's ids are those of the .bin. CPU seconds are those of all processes of a command: other work on the machine "
        "disturbs them less. A ratio is the throughput divided by that of fairseq's two steps together on the same text."
    )
    report.rows(("what", "text", "seconds", "CPU seconds", "MB/s", "times fairseq", "by CPU"), shown, texts=1)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--megabytes", type=int, nargs="+", default=MEGABYTES, help="sizes of the text (8 32)")
    parser.add_argument("--formats", action="store_true", help="several formats of the same documents instead")
    args = parser.parse_args()
    hardware = f"{machine()}, gigatoken {version('gigatoken')}"
    with tempfile.TemporaryDirectory() as folder:
        if args.formats:
            title = "roberta binarize of the same documents in several formats"
            report = Report("binarize_formats_cpu2", title, __doc__, f"{hardware}, pyarrow {version('pyarrow')}")
            measure_formats(report, Path(folder), args.repeats, max(args.megabytes))
        else:
            report = Report("binarize_cpu2", "roberta binarize beside fairseq's two steps", __doc__, hardware)
            measure(report, Path(folder), args.repeats, args.megabytes)
    report.show(write=args.write)


if __name__ == "__main__":
    main()
