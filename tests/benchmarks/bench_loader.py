"""The loader with dynamic masking, blocks of 512 tokens, no workers: ours beside fairseq's `masked_lm` task.

    python -m tests.benchmarks.bench_loader [--write]

Both read the same .bin/.idx of made-up text through the batch iterator of their own task, as fairseq-train asks for it,
and hand over collated batches of 16 blocks. A second table has the time from the files to the first batch.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

from roberta_plugin.data.mmap_tokens import MmapTokensWriter
from roberta_plugin.tasks.masked_lm import RobertaMaskedLMTask
from roberta_plugin.tasks.masked_lm_options import RobertaMaskedLMConfig
from tests.benchmarks.report import Report, machine

VOCAB, LENGTH, BATCH_SIZE = 50264, 512, 16


def parse_arguments(description: str) -> argparse.Namespace:
    """The options of the benchmarks of loaders."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the report to tests/benchmarks/results")
    parser.add_argument("--repeats", type=int, default=5, help="measurements a side")
    parser.add_argument("--batches", type=int, default=150, help="batches in a measurement")
    parser.add_argument("--tokens", type=int, default=50_000_000, help="size of the data")
    return parser.parse_args()


def write_data(folder: Path, *, num_tokens: int, blank_share: float = 0.0) -> None:
    """Lines of 5 to 60 tokens, ids drawn as in text: a few often, most rarely; a share of the lines is blank."""
    lines = (f"{symbol} {VOCAB - symbol}" for symbol in range(VOCAB - 4))
    (folder / "dict.txt").write_text("\n".join(lines) + "\n")
    rng = np.random.default_rng(0)
    with MmapTokensWriter(folder / "train", np.uint16) as writer:
        while writer.num_tokens < num_tokens:
            sizes = rng.integers(5, 61, 20_000)
            if blank_share:
                sizes[rng.random(20_000) < blank_share] = 1
            tokens = np.minimum(3 + rng.zipf(1.2, int(sizes.sum())), VOCAB - 1).astype(np.uint16)
            tokens[np.cumsum(sizes) - 1] = 2
            writer.write(tokens, sizes)


def our_batches(data: Path, break_mode: str) -> Iterator[dict]:
    cfg = RobertaMaskedLMConfig(data=str(data), sample_break_mode=break_mode, tokens_per_sample=LENGTH, seed=1)
    return batches_of(RobertaMaskedLMTask.setup_task(cfg))


def fairseq_batches(data: Path, break_mode: str) -> Iterator[dict]:
    cfg = MaskedLMConfig(data=str(data), sample_break_mode=break_mode, tokens_per_sample=LENGTH, seed=1)
    cfg.tpu = False
    cfg.shorten_method = "none"
    dictionary = Dictionary.load(str(data / "dict.txt"))
    dictionary.add_symbol("<mask>")
    return batches_of(MaskedLMTask(cfg, dictionary))


def batches_of(task: MaskedLMTask | RobertaMaskedLMTask) -> Iterator[dict]:
    task.load_dataset("train", epoch=1, combine=True)
    options = Namespace(max_sentences=BATCH_SIZE, max_positions=LENGTH, seed=1, num_workers=0)
    iterator = task.get_batch_iterator(task.dataset("train"), **vars(options))
    return iter(iterator.next_epoch_itr(shuffle=True))


def measure(make: Callable[[], Iterator[dict]], *, num_batches: int) -> tuple[float, float, int]:
    """Seconds to the first batch, seconds of the next `num_batches`, and the tokens in those."""
    start = time.perf_counter()
    batches = make()
    next(batches)
    first = time.perf_counter() - start
    for _ in islice(batches, 20):
        pass
    start = time.perf_counter()
    num_tokens = sum(batch["ntokens"] for batch in islice(batches, num_batches))
    return first, time.perf_counter() - start, num_tokens


def main() -> None:
    arguments = parse_arguments(__doc__ or "")
    report = Report("loader_cpu2", "Loader with dynamic masking", __doc__ or "", machine())
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        write_data(data, num_tokens=arguments.tokens)
        for break_mode in ("none", "complete"):
            sides = {
                "fairseq": lambda mode=break_mode: fairseq_batches(data, mode),
                "ours": lambda mode=break_mode: our_batches(data, mode),
            }
            results: dict[str, list[tuple[float, float, int]]] = {side: [] for side in sides}
            for _ in range(arguments.repeats):
                for side, make in sides.items():
                    results[side].append(measure(make, num_batches=arguments.batches))
            per_token = {side: [s / tokens for _, s, tokens in values] for side, values in results.items()}
            title = f"--sample-break-mode {break_mode}"
            report.table(f"{title}: seconds a token", per_token, baseline="fairseq", amount=1, unit="tokens")
            firsts = {side: [first for first, _, _ in values] for side, values in results.items()}
            opened = f"{title}: from {arguments.tokens / 1e6:.0f} million tokens on disk to the first batch"
            report.table(opened, firsts, baseline="fairseq", amount=1, unit="starts")
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
