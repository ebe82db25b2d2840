"""The loader with dynamic masking, blocks of 512 tokens, no workers: ours beside fairseq's `masked_lm` task.

    python -m tests.benchmarks.bench_loader [--write]

Both read the same .bin/.idx of made-up text through the batch iterator of their own task, as fairseq-train asks for it,
and hand over collated batches of 16 blocks. A second table has the time from the files to the first batch.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

from roberta_plugin.data.mmap_tokens import MmapTokensWriter
from roberta_plugin.tasks.masked_lm import RobertaMaskedLMTask
from roberta_plugin.tasks.masked_lm_options import RobertaMaskedLMConfig
from tests.benchmarks.harness import Report, options

VOCAB, LENGTH, BATCH_SIZE = 50264, 512, 16
WARM_UP = 20  # batches


def parse_arguments(description: str | None) -> argparse.Namespace:
    """The options of the benchmarks of loaders."""
    parser = options(description)
    parser.add_argument("--repeats", type=int, default=5, help="measurements a side")
    parser.add_argument("--batches", type=int, default=150, help="batches in a measurement")
    parser.add_argument("--tokens", type=int, default=50_000_000, help="size of the data")
    return parser.parse_args()


def write_dict(folder: Path) -> None:
    """dict.txt with as many symbols as GPT-2's BPE has."""
    lines = (f"{symbol} {VOCAB - symbol}" for symbol in range(VOCAB - 4))
    (folder / "dict.txt").write_text("\n".join(lines) + "\n")


def write_data(folder: Path, *, num_tokens: int, blank_share: float = 0.0) -> None:
    """Lines of 5 to 60 tokens, ids drawn as in text: a few often, most rarely; a share of the lines is blank."""
    write_dict(folder)
    rng = np.random.default_rng(0)
    with MmapTokensWriter(folder / "train", np.uint16) as writer:
        while writer.num_tokens < num_tokens:
            sizes = rng.integers(5, 61, 20_000)
            if blank_share:
                sizes[rng.random(20_000) < blank_share] = 1
            tokens = np.minimum(3 + rng.zipf(1.2, int(sizes.sum())), VOCAB - 1).astype(np.uint16)
            tokens[np.cumsum(sizes) - 1] = 2
            writer.write(tokens, sizes)


def our_task(data: Path, break_mode: str) -> RobertaMaskedLMTask:
    """Our task on a data-bin."""
    cfg = RobertaMaskedLMConfig(data=str(data), sample_break_mode=break_mode, tokens_per_sample=LENGTH, seed=1)
    return RobertaMaskedLMTask.setup_task(cfg)


def fairseq_task(data: Path, break_mode: str) -> MaskedLMTask:
    """fairseq's `masked_lm` on a data-bin."""
    cfg = MaskedLMConfig(data=str(data), sample_break_mode=break_mode, tokens_per_sample=LENGTH, seed=1)
    cfg.tpu, cfg.shorten_method = False, "none"
    dictionary = Dictionary.load(str(data / "dict.txt"))
    dictionary.add_symbol("<mask>")
    return MaskedLMTask(cfg, dictionary)


def batches_of(task: MaskedLMTask | RobertaMaskedLMTask, *, batch_size: int = BATCH_SIZE) -> Iterator[dict]:
    """The batches of an epoch, as fairseq-train asks for them."""
    task.load_dataset("train", epoch=1, combine=True)
    how = {"max_sentences": batch_size, "max_positions": LENGTH, "seed": 1, "num_workers": 0}
    return iter(task.get_batch_iterator(task.dataset("train"), **how).next_epoch_itr(shuffle=True))


def seconds_a_token(batches: Iterator[dict], num_batches: int, *, clock: Callable[[], float]) -> float:
    """What a token of so many batches takes, after some that do not count."""
    for _ in islice(batches, WARM_UP):
        pass
    start = clock()
    num_tokens = sum(batch["ntokens"] for batch in islice(batches, num_batches))
    return (clock() - start) / num_tokens


def main() -> None:
    arguments = parse_arguments(__doc__)
    report = Report("loader_cpu2", "Loader with dynamic masking", __doc__)
    tasks: dict[str, Callable[[Path, str], MaskedLMTask | RobertaMaskedLMTask]]
    tasks = {"fairseq": fairseq_task, "ours": our_task}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        write_data(data, num_tokens=arguments.tokens)
        for break_mode in ("none", "complete"):
            firsts: dict[str, list[float]] = {side: [] for side in tasks}
            per_token: dict[str, list[float]] = {side: [] for side in tasks}
            for _ in range(arguments.repeats):
                for side, make in tasks.items():
                    start = time.perf_counter()
                    batches = batches_of(make(data, break_mode))
                    next(batches)
                    firsts[side].append(time.perf_counter() - start)
                    per_token[side].append(seconds_a_token(batches, arguments.batches, clock=time.perf_counter))
            title = f"--sample-break-mode {break_mode}"
            report.table(f"{title}: seconds a token", per_token, baseline="fairseq", amount=1, unit="tokens")
            opened = f"{title}: from {arguments.tokens / 1e6:.0f} million tokens on disk to the first batch"
            report.table(opened, firsts, baseline="fairseq", amount=1, unit="starts")
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
