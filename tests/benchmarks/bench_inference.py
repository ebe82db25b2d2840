"""Predictions beside Hugging Face's pipelines, on one CPU: masks, features, classes; and opening a base model.

    python -m tests.benchmarks.bench_inference [--write] [--sentences 200] [--rounds 3]

A base model with random weights, the same on both sides, and GPT-2's BPE. The sentences have 5 to 60 words of English
prose. Ours gets the list of texts; Hugging Face's pipeline gets it with its best batch size, which is found first on
a quarter of the texts; it runs in torch's inference mode with its own default attention. Both turn texts into answers,
tokenizing included; features are tensors on both sides. Opening is a process of its own, after the imports: ours with the
optimizer's state in the file, as fairseq-train leaves it.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from roberta_plugin.hub import RobertaHub
from tests.benchmarks.report import Report, machine
from tests.conftest import REPOSITORY, SHARED_DATA
from tests.hugging_face import import_transformers
from tests.hugging_face_pipelines import classifier_of, masked_lm_of, random_hub, tokenizer_of

LABELS = ["contradiction", "neutral", "entailment"]
BATCH_SIZES = (1, 4, 8, 32)
OPEN = """
import sys, time
from roberta_plugin.hub import RobertaHub
import roberta_plugin
roberta_plugin.register()
started, cpu = time.perf_counter(), time.process_time()
RobertaHub.from_pretrained(sys.argv[1])
print(time.perf_counter() - started, time.process_time() - cpu)
"""


def sentences(number: int) -> list[str]:
    """Texts of 5 to 60 words, cut from prose in a fixed random order."""
    words = " ".join(path.read_text(encoding="utf-8") for path in sorted(REPOSITORY.glob("*.md"))).split()
    rng = np.random.default_rng(1)
    lengths = np.minimum(60, 5 + rng.geometric(1 / 16, number))
    starts = rng.integers(0, len(words) - 60, number)
    return [" ".join(words[start : start + length]) for start, length in zip(starts, lengths, strict=True)]


def seconds_of(function: Callable[[], Any]) -> float:
    """CPU time of one call, of all threads; on a quiet machine, wall time times threads."""
    gc.collect()
    started = time.process_time()
    function()
    return time.process_time() - started


def tasks_of(hub: RobertaHub, texts: list[str]) -> dict[str, tuple[Any, dict[str, Any], list[str], Callable[..., Any]]]:
    """Task -> Hugging Face's pipeline and its options, the texts, and our call."""
    transformers = import_transformers()
    transformers.logging.set_verbosity_error()
    masked = [f"{text} <mask>." for text in texts]
    masked_lm = masked_lm_of(transformers, hub)
    models = {
        "fill-mask": (masked_lm, masked, {}),
        "feature-extraction": (masked_lm.roberta, texts, {"return_tensors": True}),
        "text-classification": (classifier_of(transformers, hub, "task", labels=LABELS), texts, {"top_k": None}),
    }
    ours: dict[str, Callable[..., Any]] = {
        "fill-mask": hub.fill_mask,
        "feature-extraction": hub.extract_features,
        "text-classification": lambda inputs: hub.predict("task", inputs).tolist(),
    }
    tokenizer = tokenizer_of(transformers, hub)
    tasks = {}
    for task, (model, inputs, options) in models.items():
        pipeline = transformers.pipeline(task, model=model, tokenizer=tokenizer, device="cpu")
        tasks[task] = pipeline, options, inputs, ours[task]
    return tasks


def best_batch_size(pipeline: Any, options: dict[str, Any], texts: list[str]) -> tuple[int, str]:
    """The batch size with which the pipeline needs the least time, and what each one needed."""
    list(pipeline(texts[:8], batch_size=8, **options))  # the first call makes what later ones have
    seconds = {
        size: seconds_of(lambda size=size: list(pipeline(texts, batch_size=size, **options)))  # type: ignore[misc]
        for size in BATCH_SIZES
    }
    said = ", ".join(f"{size}: {value:.1f} s" for size, value in seconds.items())
    return min(seconds, key=seconds.__getitem__), f"{len(texts)} sentences by the pipeline's batch size: {said}."


def write_checkpoint(hub: RobertaHub, folder: Path, data: Path) -> None:
    """The model as fairseq-train saves it, Adam's state included."""
    state = hub.model.state_dict()
    moments = {
        number: {"exp_avg": torch.zeros_like(value), "exp_avg_sq": torch.zeros_like(value), "step": 1}
        for number, value in enumerate(hub.model.parameters())
    }
    cfg = {"task": {"_name": "roberta_masked_lm", "data": str(data)}, "model": {"_name": "fast_roberta_base"}}
    cfg["model"] |= vars(Namespace(encoder_layers=12, encoder_embed_dim=768, encoder_ffn_embed_dim=3072))
    cfg["model"]["encoder_attention_heads"] = 12
    torch.save(
        {"model": state, "cfg": cfg, "args": None, "last_optimizer_state": {"state": moments}}, folder / "model.pt"
    )


def main() -> None:
    """Measure, print and, on demand, write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the report to results/")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", default="base", help="of the model")
    arguments = parser.parse_args()
    data = SHARED_DATA / "gpt2_bpe"
    hub = random_hub(data, size=arguments.size, heads={"task": len(LABELS)})
    texts = sentences(arguments.sentences)
    hardware = f"{machine()}; {torch.get_num_threads()} threads of torch"
    report = Report("inference_cpu2", "Inference beside Hugging Face's pipelines", __doc__ or "", hardware)
    tokens = sum(len(ids) for ids in hub.encode(texts))
    report.text(f"{len(texts):,} sentences, {tokens:,} tokens with <s> and </s>. Seconds are CPU time of all threads.")
    report.text(f"Load average at the start: {os.getloadavg()[0]:.1f}.")
    for task, (pipeline, options, inputs, ours) in tasks_of(hub, texts).items():
        size, said = best_batch_size(pipeline, options, inputs[: max(8, len(inputs) // 4)])
        best = f"pipeline, batches of {size}"
        sides: dict[str, Callable[[], Any]] = {
            "ours": lambda ours=ours, inputs=inputs: ours(inputs),  # type: ignore[misc]
            best: lambda p=pipeline, o=options, i=inputs, s=size: list(p(i, batch_size=s, **o)),  # type: ignore[misc]
        }
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(arguments.rounds):
            for name, side in sides.items():
                seconds[name].append(seconds_of(side))
        report.text(f"{task}: {said}")
        report.table(task, seconds, baseline=best, amount=len(texts), unit="sentences")
    if arguments.size == "base":
        with tempfile.TemporaryDirectory() as folder:
            write_checkpoint(hub, Path(folder), data)
            num_bytes = (Path(folder) / "model.pt").stat().st_size
            call = [sys.executable, "-c", OPEN, folder]
            times = [
                [
                    float(value)
                    for value in subprocess.run(call, capture_output=True, text=True, check=True).stdout.split()[-2:]
                ]
                for _ in range(arguments.rounds + 1)
            ][1:]  # the first one fills the page cache
        wall, cpu = np.median(times, axis=0)
        report.text(
            f"Opening a base model after the imports, a file of {num_bytes / 1e9:.2f} GB in the page cache: {wall:.2f} s, of "
            f"which {cpu:.2f} s CPU time (median of {len(times)})."
        )
    report.text(f"Load average at the end: {os.getloadavg()[0]:.1f}.")
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
