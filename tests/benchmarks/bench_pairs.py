"""Pairs of texts with dynamic masking, no workers: segment-pair and sentence-pair beside full-sentences.

    python -m tests.benchmarks.bench_pairs [--write]

All read the same .bin/.idx of made-up text, in documents of about 50 sentences of 5 to 60 tokens, through the batch
iterator of the task, and hand over collated batches of about 8,000 tokens, with next-sentence prediction and segments. A
second table has the pairs alone: without masking and without the order of the epoch. Times are of one core's processor
time, so that other programs on the machine disturb less. A third has the time to cut the file into chunks.
"""

from __future__ import annotations

import tempfile
import time
from itertools import islice
from pathlib import Path

from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.extensions.bert_pairs.pair_chunks import Targets, make_chunks
from roberta_plugin.tasks.masked_lm import RobertaMaskedLMTask
from roberta_plugin.tasks.masked_lm_options import RobertaMaskedLMConfig
from tests.benchmarks.bench_loader import LENGTH, WARM_UP, batches_of, parse_arguments, seconds_a_token, write_data
from tests.benchmarks.harness import Report, in_turn

BATCH_SIZE = {"full-sentences": 16, "segment-pair": 16, "sentence-pair": 128}


def open_task(data: Path, input_format: str) -> RobertaMaskedLMTask:
    is_pair = input_format.endswith("-pair")
    options = {"input_format": input_format, "next_sentence_prediction": is_pair}
    task = RobertaMaskedLMTask.setup_task(
        RobertaMaskedLMConfig(data=str(data), tokens_per_sample=LENGTH, seed=1, **options)
    )
    task.load_dataset("train", epoch=1, combine=True)
    return task


def seconds_a_token_of_arrays(task: RobertaMaskedLMTask, *, batch_size: int, num_batches: int) -> float:
    """The same of the arrays of pairs."""
    dataset = task.dataset("train")
    chosen = list(islice(dataset.batches(1, max_sentences=batch_size), WARM_UP, WARM_UP + num_batches))
    start = time.process_time()
    num_tokens = sum(int(dataset._pairs(batch.passes, batch.indices).lengths.sum()) for batch in chosen)
    return (time.process_time() - start) / num_tokens


def main() -> None:
    arguments = parse_arguments(__doc__)
    report = Report("pairs_cpu2", "Pairs of texts", __doc__)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        write_data(data, num_tokens=arguments.tokens, blank_share=0.02)
        tasks = {name: open_task(data, name) for name in BATCH_SIZE}
        loader: dict[str, list[float]] = {name: [] for name in tasks}
        pairs: dict[str, list[float]] = {name: [] for name in tasks if name.endswith("-pair")}
        for _ in range(arguments.repeats):
            for name, task in tasks.items():
                batches = batches_of(task, batch_size=BATCH_SIZE[name])
                loader[name].append(seconds_a_token(batches, arguments.batches, clock=time.process_time))
            for name in pairs:
                how = {"batch_size": BATCH_SIZE[name], "num_batches": arguments.batches}
                pairs[name].append(seconds_a_token_of_arrays(tasks[name], **how))
        sizes, targets = MmapTokens(data / "train").sizes, Targets(LENGTH - 4, 0.1)
        cutting = in_turn(
            {name: lambda name=name: make_chunks(sizes, pair_format=name, targets=targets) for name in pairs},  # type: ignore[misc]
            arguments.repeats,
            clock=time.process_time,
        )
        report.table("Loader: seconds a token", loader, baseline="full-sentences", amount=1, unit="tokens")
        report.table("Pairs alone: seconds a token", pairs, baseline="segment-pair", amount=1, unit="tokens")
        title = f"Chunks of {arguments.tokens / 1e6:.0f} million tokens"
        report.table(title, cutting, baseline="segment-pair", amount=arguments.tokens, unit="tokens")
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
