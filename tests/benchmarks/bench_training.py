"""Whole trainings, on a GPU or a CPU: ours step by step beside fairseq's own and Hugging Face's.

    python -m tests.benchmarks.bench_training --arch base --bf16 [--write]
    python -m tests.benchmarks.bench_training --arch tiny --tokens-per-sample 128 --batch-size 8 --cpu

Ours and fairseq's rows are a real `fairseq-train` each, on the same data-bin of made-up text with lines of 5 to 60
tokens, FULL-SENTENCES, with the paper's optimizer settings and dropout; what one of ours adds to the row before is in its
name. Hugging Face's is `hugging_face_training`. Speed is the median of what the training log says after the warm-up,
loader, optimizer and logging included; tokens without padding.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch

from roberta_plugin.models.config import SIZES
from roberta_plugin.models.flops import half_precision_peak, training_flops
from tests.benchmarks.bench_loader import write_data
from tests.benchmarks.report import Report, machine
from tests.conftest import REPOSITORY
from tests.tiny_corpus import command, logged

VOCAB = 50265


def rows(arch: str, arguments: argparse.Namespace) -> dict[str, list[str]]:
    """The options of each side, from fairseq's own to all of ours."""
    layers, dim, ffn_dim, heads = SIZES[arch]
    sizes = ["--encoder-layers", str(layers), "--encoder-embed-dim", str(dim)]
    sizes += ["--encoder-ffn-embed-dim", str(ffn_dim), "--encoder-attention-heads", str(heads)]
    fairseqs = ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta_base", *sizes]
    adam = ["--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-6", "--weight-decay", "0.01"]
    user_dir = ["--user-dir", str(REPOSITORY / "roberta_plugin"), "--task", "roberta_masked_lm"]
    ours = [*user_dir, "--criterion", "roberta_masked_lm", "--arch", f"fast_roberta_{arch}"]
    adamw = ["--optimizer", "roberta_adamw"]
    found = {
        "fairseq": [*fairseqs, *adam],
        "fairseq's model, our task": [*user_dir, "--criterion", "masked_lm", "--arch", "roberta_base", *sizes, *adam],
        "our model": [*ours, *adam],
        "our optimizer": [*ours, *adamw],
        "packed rows": [*ours, *adamw, "--pack-sequences"],
    }
    if arguments.compile:
        found["compiled layers"] = [*ours, *adamw, "--compile-layers"]
    return found


def train(data: Path, options: list[str], arguments: argparse.Namespace, save_dir: Path) -> list[dict[str, str]]:
    """Run the training; return what its log says of each update after the warm-up."""
    tokens = arguments.batch_size * arguments.tokens_per_sample
    total = str(arguments.warm_up + arguments.updates)
    common = ["--sample-break-mode", "complete", "--tokens-per-sample", str(arguments.tokens_per_sample)]
    common += ["--attention-dropout", str(arguments.attention_dropout), "--dropout", "0.1", "--seed", "1"]
    common += ["--max-tokens", str(tokens), "--max-update", total, "--total-num-update", total, "--clip-norm", "0.0"]
    common += ["--lr", "1e-4", "--lr-scheduler", "polynomial_decay", "--warmup-updates", "10", "--num-workers", "1"]
    common += ["--no-save", "--disable-validation", "--log-format", "json", "--log-interval", str(arguments.interval)]
    common += ["--save-dir", str(save_dir), "--log-file", str(save_dir) + ".log", "--distributed-world-size", "1"]
    common += [flag for flag, is_set in (("--bf16", arguments.bf16), ("--cpu", arguments.cpu)) if is_set]
    subprocess.run(
        [*command("fairseq-train"), str(data), *options, *common], cwd=REPOSITORY, check=True, capture_output=True
    )
    records = logged(save_dir, "train_inner")
    return [record for record in records if int(record["num_updates"]) > arguments.warm_up]


def train_hugging_face(data: Path, arguments: argparse.Namespace, *, is_compiled: bool) -> list[dict[str, str]]:
    """The same of Hugging Face's training."""
    flags = {"--bf16": arguments.bf16, "--cpu": arguments.cpu, "--compile": is_compiled}
    values = {
        "--arch": arguments.arch,
        "--num-symbols": VOCAB,
        "--tokens-per-sample": arguments.tokens_per_sample,
        "--batch-size": arguments.batch_size,
        "--attention-dropout": arguments.attention_dropout,
        "--updates": arguments.warm_up + arguments.updates,
        "--interval": arguments.interval,
    }
    words = [word for name, value in values.items() for word in (name, str(value))]
    words += [flag for flag, is_set in flags.items() if is_set]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.hugging_face_training", str(data), *words],
        cwd=REPOSITORY,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [record for record in records if record["num_updates"] > arguments.warm_up]


def flops_of_a_token(arch: str, length: int) -> float:
    layers, dim, ffn_dim, _ = SIZES[arch]
    sizes = {"num_layers": layers, "dim": dim, "ffn_dim": ffn_dim, "vocab_size": VOCAB, "num_tokens": length}
    return training_flops(**sizes, num_pairs=length**2, num_predicted=0.15 * length) / length


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the report to tests/benchmarks/results")
    parser.add_argument("--arch", choices=SIZES, default="base", help="size of the model")
    parser.add_argument("--tokens-per-sample", type=int, default=512, help="tokens of a block at most")
    parser.add_argument("--batch-size", type=int, default=64, help="blocks of full length in a batch")
    parser.add_argument("--attention-dropout", type=float, default=0.1, help="0 opens the faster kernels")
    parser.add_argument("--updates", type=int, default=50, help="measured updates")
    parser.add_argument("--warm-up", type=int, default=20, help="updates before them")
    parser.add_argument("--interval", type=int, default=5, help="updates between two lines of the log")
    parser.add_argument("--bf16", action="store_true", help="train in bf16 with fp32 master weights")
    parser.add_argument("--compile", action="store_true", help="also with --compile-layers")
    parser.add_argument("--cpu", action="store_true", help="train on the CPU")
    arguments = parser.parse_args()
    if not arguments.cpu and not torch.cuda.is_available():
        parser.error("no CUDA device is available: give --cpu, or run it where there is one")

    device = "CPU" if arguments.cpu else torch.cuda.get_device_name()
    name = f"training_{arguments.arch}_{'cpu' if arguments.cpu else device.split()[-1].lower()}"
    report = Report(name, f"Training {arguments.arch} on {device}", __doc__ or "", machine())
    seconds: dict[str, list[float]] = {}
    notes = []
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder), num_tokens=20_000_000)
        sides = {
            side: partial(train, Path(folder), options, arguments, Path(folder) / f"run{number}")
            for number, (side, options) in enumerate(rows(arguments.arch, arguments).items())
        }
        sides["Hugging Face"] = partial(train_hugging_face, Path(folder), arguments, is_compiled=False)
        if arguments.compile:
            sides["Hugging Face, compiled"] = partial(train_hugging_face, Path(folder), arguments, is_compiled=True)
        for side, run in sides.items():
            records = run()
            seconds[side] = [1.0 / float(record["wps"]) for record in records if float(record["wps"]) > 0]
            speed = 1.0 / statistics.median(seconds[side])
            peak = 0.0 if arguments.cpu else half_precision_peak(device)
            used = (
                f"{100 * speed * flops_of_a_token(arguments.arch, arguments.tokens_per_sample) / peak:.1f} %"
                if peak
                else "-"
            )
            memory = max((float(record.get("cuda_gb_allocated", 0)) for record in records), default=0)
            notes.append(f"{side}: MFU {used}, {memory:.1f} GB allocated, loss {records[-1]['loss']} at the end.")
    title = f"{arguments.batch_size} x {arguments.tokens_per_sample} tokens, attention dropout {arguments.attention_dropout}"
    report.table(
        f"{title}: seconds a token",
        seconds,
        baseline="fairseq",
        amount=1,
        unit="tokens",
        order="one side after the other",
    )
    for note in notes:
        report.text(note)
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
