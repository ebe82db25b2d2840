"""Every check and benchmark that needs a GPU, in one command, with a report that grows line by line.

    python -m tests.benchmarks.bench_gpu [--report FILE] [--only steps|kernels|finetuning|checks] [--arch base large]
    python -m tests.benchmarks.bench_gpu --rehearse          # small sizes on a CPU, to try the command itself

All of it takes about 45 minutes on an H200 (estimated). Where the GPU is there for 15 minutes, give these two, the most
important first. Each answer is a line, written at once; what does not fit any more says so in the report:

    ... --minutes 9 --timeout 100 --report a.md --only steps --arch base --dropout 0.1
    ... --minutes 4.5 --timeout 100 --report b.md --only kernels checks

Then, on any machine, for the results file and the tables of the README and of all results:

    ... --write a.md b.md

steps       a whole step of base and large at 512 tokens in bf16, with the recipe's dropout and without: ours as it is
            recommended, then fairseq's and Hugging Face's, then ours compiled and with other settings
kernels     attention and loss, forward and backward: milliseconds of each path
finetuning  the same for a classification of 32 sentences of up to 64 tokens, where starting kernels takes longest
checks      the tests marked gpu

Each step is measured in a process of its own, which an error or a lack of memory ends alone. Needs no network. MFU: the
FLOPs of the paper's model over the device's dense peak in bf16; HFU: those that ours executes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.gpu_results import publish
from tests.benchmarks.harness import apart
from tests.benchmarks.training_steps import Step
from tests.conftest import REPOSITORY

SECTIONS = ("steps", "kernels", "finetuning", "checks")
SIDES = ("ours", "fairseq", "Hugging Face")
DROPOUTS = (0.1, 0.0)  # the recipe's, then none
SHORTEST = 30  # seconds; in less than these, no step can be measured
BATCHES = {"base": 64, "large": 32}


def ladder(step: Step) -> Iterator[tuple[str, Step]]:
    """Rows of the table for one size and dropout, the most important ones first."""
    ours = replace(step, packed=True, backend="auto")
    yield "ours, packed rows", ours
    yield "fairseq", replace(step, side="fairseq")
    yield "ours, packed rows, compiled", replace(ours, compiled=True)
    yield "Hugging Face", replace(step, side="Hugging Face")
    yield "Hugging Face, compiled", replace(step, side="Hugging Face", compiled=True)
    if (16 * step.attention_dropout).is_integer():
        yield "ours, packed rows, cudnn attention", replace(ours, backend="cudnn")
    yield "ours, packed rows, compiled, products in fp8", replace(ours, compiled=True, fp8=True)
    yield "ours, packed rows, 8 blocks", replace(ours, batch_size=8)
    yield "ours, packed rows, compiled, twice the batch", replace(ours, compiled=True, batch_size=2 * step.batch_size)
    yield (
        "ours, packed rows, compiled, four times the batch",
        replace(ours, compiled=True, batch_size=4 * step.batch_size),
    )
    padded = replace(step, backend="sdpa")
    yield "ours, padded", padded
    yield "ours, padded, fairseq's Adam", replace(padded, optimizer="adam")


def finetuning_ladder(step: Step) -> Iterator[tuple[str, Step]]:
    """Rows of the table for short batches."""
    yield "fairseq", replace(step, side="fairseq")
    yield "Hugging Face", replace(step, side="Hugging Face")
    yield "Hugging Face, compiled with CUDA graphs", replace(step, side="Hugging Face", compiled=True)
    yield "ours", step


class Clock:
    """The seconds that are left."""

    def __init__(self, minutes: float) -> None:
        self._end = time.monotonic() + 60 * minutes

    def left(self, at_most: float = float("inf")) -> float:
        """Seconds until the end, `at_most` so many."""
        return min(at_most, self._end - time.monotonic())


class GrowingReport:
    """Markdown that is printed and written as it comes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")

    def line(self, text: str = "") -> None:
        """A line more."""
        print(text, flush=True)
        with self.path.open("a") as file:
            file.write(text + "\n")


def hardware(device: str) -> str:
    """The device and the versions."""
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU (a rehearsal: the numbers mean nothing)"
    cudnn = torch.backends.cudnn.version()
    return f"{name}; Python {sys.version.split()[0]}, torch {torch.__version__}, cuDNN {cudnn}"


def files_of_checks() -> list[str]:
    """Files with tests marked gpu. A machine with a GPU may lack what others import, and then pytest runs none."""
    files = sorted((REPOSITORY / "tests").rglob("test_*.py"))
    return [str(file.relative_to(REPOSITORY)) for file in files if "pytest.mark.gpu" in file.read_text()]


def run_checks(report: GrowingReport, *, rehearse: bool, timeout: float) -> bool:
    """The tests marked gpu; whether all pass."""
    report.line("## Checks\n")
    if timeout < SHORTEST:
        report.line("left out: the time is over\n")
        return False
    where = ["tests/parity/test_torch_flash.py"] if rehearse else files_of_checks()
    options = ["-m", "gpu", "--device", "cpu" if rehearse else "cuda", "--slow", "--durations", "5"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--no-showlocals", "--tb=line", *options, *where],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        report.line(f"not finished in {timeout:.0f} s\n")
        return False
    report.line("```text\n" + "\n".join(done.stdout.splitlines()[-30:]) + "\n```\n")
    return done.returncode == 0


def milliseconds(function: Callable[[], Any], *, device: str, repetitions: int = 10) -> float:
    """Median time, after two calls that do not count."""
    seconds = []
    for number in range(repetitions + 2):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds += [time.perf_counter() - start] if number > 1 else []
    return 1e3 * statistics.median(seconds)


def run_kernels(report: GrowingReport, *, device: str) -> None:
    """Times of attention by backend, and of the loss by path."""
    from roberta_plugin.models import linear_cross_entropy as loss
    from roberta_plugin.models.attention import BACKENDS
    from roberta_plugin.models.attention_kernels import Sequences

    blocks, length, heads, dim = (64, 512, 12, 64) if device == "cuda" else (2, 32, 2, 16)
    rows, width, vocab_size = (4928, 768, 50265) if device == "cuda" else (64, 16, 100)
    report.line("## Kernels\n\n| path, forward and backward in bf16 | ms |\n| --- | --- |")

    def row(name: str, function: Callable[[], Any]) -> None:
        try:
            report.line(f"| {name} | {milliseconds(function, device=device):.3f} |")
        except Exception as error:
            report.line(f"| {name} | {type(error).__name__}: {str(error).splitlines()[0][:110]} |")

    def tensors(*shape: int) -> list[torch.Tensor]:
        return [torch.randn(shape, device=device, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]

    is_padding = (torch.arange(length, device=device) >= length - 3).expand(blocks, -1)
    bounds = torch.arange(0, blocks * length + 1, length, dtype=torch.int32, device=device)
    sequences = Sequences(bounds, bounds, length, length)
    layouts = {
        "padded": ((blocks, heads, length, dim), {"is_padding": is_padding}),
        "no padding": ((blocks, heads, length, dim), {}),
        "packed": ((1, heads, blocks * length, dim), {"sequences": sequences}),
    }
    for layout, (shape, mask) in layouts.items():
        for name, backend in BACKENDS.items():
            fits = layout == "packed" or backend.serves_padded
            if not fits or name == "onednn" or (layout == "packed" and name in ("eager", "sdpa")):
                continue
            for dropout_prob in (0.125, 0.0) if name == "cudnn" else (0.1, 0.0):
                inputs = tensors(*shape)

                def attend(inputs=inputs, backend=backend, mask=mask, dropout_prob=dropout_prob) -> None:
                    backend.assert_supported(torch.device(device), dropout_prob=dropout_prob)
                    output = backend(*inputs, dropout_prob=dropout_prob, **mask)
                    torch.autograd.grad(output, inputs, torch.ones_like(output))

                row(f"attention, {layout}: {name}, dropout {dropout_prob}", attend)
    x, weight, bias = tensors(rows, width)[0], tensors(vocab_size, width)[0], tensors(vocab_size)[0]
    targets = torch.randint(2, vocab_size, (rows,), device=device)
    for path in (loss.plain, loss.chunked_on_device):
        row(
            f"loss of {rows:,} positions: {path.__name__}",
            lambda path=path: torch.autograd.grad(path(x, weight, bias, targets, 1), (x, weight, bias)),
        )
    report.line()


MEASURE = """
import json, sys
from tests.benchmarks.training_steps import Step, measure
print(json.dumps(measure(Step(**json.loads(sys.argv[1])))))
"""


def measured(step: Step, *, timeout: float) -> dict[str, Any]:
    """`measure` in a process of its own; {"error": ...} if it ends otherwise."""
    try:
        return apart(MEASURE, json.dumps(asdict(step)), timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"error": f"not finished in {timeout:.0f} s"}
    except RuntimeError as error:
        return {"error": str(error)[:170]}


def run_steps(report: GrowingReport, steps: list[Step], *, sides: Sequence[str], clock: Clock, timeout: float) -> None:
    """A table for each size and dropout."""
    for base in steps:
        drops = f"dropout {base.dropout}, of attention {base.attention_dropout}"
        is_short = base.task == "classification"
        what = "Fine-tuning of " if is_short else ""
        what += f"{base.arch}, {base.batch_size} x {'up to ' if is_short else ''}{base.length} tokens"
        report.line(f"## {what}, bf16, {drops}\n")
        report.line("| side | tokens/s | ms (min-max) | MFU % | HFU % | GiB | x fairseq |\n" + "| --- " * 7 + "|")
        reference = None
        for name, step in finetuning_ladder(base) if is_short else ladder(base):
            if step.side not in sides:
                continue
            if step.compiled and step.device == "cpu":  # takes minutes
                report.line(f"| {name} | left out of the rehearsal | | | | | |")
                continue
            seconds = clock.left(timeout)
            found = measured(step, timeout=seconds) if seconds > SHORTEST else {"error": "left out: the time is over"}
            if "error" in found:
                report.line(f"| {name} | {found['error'].replace('|', '/')} | | | | | |")
                continue
            speed = found["tokens_per_second"]
            reference = reference or (speed if name == "fairseq" else None)
            shares = [f"{found[key]:.1f}" if found[key] is not None else "-" for key in ("mfu", "hfu", "gib")]
            times = f"{found['milliseconds']:.1f} ({found['spread'][0]:.1f}-{found['spread'][1]:.1f})"
            ratio = f"{speed / reference:.2f}" if reference else "-"
            report.line(f"| {name} | {speed:,.0f} | {times} | {' | '.join(shares)} | {ratio} |")
        report.line()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="small sizes on a CPU")
    parser.add_argument("--report", type=Path, default=Path("gpu_report.md"), help="where the report goes")
    parser.add_argument("--only", choices=SECTIONS, nargs="+", default=SECTIONS, help="some sections alone")
    parser.add_argument("--arch", choices=BATCHES, nargs="+", default=list(BATCHES), help="sizes of the model")
    parser.add_argument("--dropout", type=float, nargs="+", default=DROPOUTS, help="of the model and of attention")
    parser.add_argument("--sides", choices=SIDES, nargs="+", default=SIDES, help="of steps")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for the checks, and for each step")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for everything")
    parser.add_argument("--write", type=Path, nargs="+", metavar="REPORT", help="nothing but these reports' results")
    arguments = parser.parse_args()
    if arguments.write:
        try:
            print(publish(arguments.write, REPOSITORY))
        except (OSError, ValueError) as error:
            parser.error(str(error))
        return
    device = "cpu" if arguments.rehearse else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device is available: give --rehearse, or run it where there is one")
    report = GrowingReport(arguments.report)
    report.line(f"# GPU report\n\n{hardware(device)}.\n\nCommand: `python -m {' '.join(sys.orig_argv[2:])}`\n")
    passes, clock = True, Clock(arguments.minutes)
    small: dict[str, Any] = {"arch": "tiny", "batch_size": 2, "length": 32, "vocab_size": 200, "device": "cpu"}
    small |= {"steps": 2}
    if "steps" in arguments.only:
        steps = [Step(arch=arch, batch_size=BATCHES[arch]) for arch in arguments.arch]
        steps = [Step(**small, warm_up=1)] if arguments.rehearse else steps
        steps = [replace(step, dropout=drop, attention_dropout=drop) for step in steps for drop in arguments.dropout]
        steps = steps[:1] if arguments.rehearse else steps
        run_steps(report, steps, sides=arguments.sides, clock=clock, timeout=arguments.timeout)
    if "kernels" in arguments.only:
        run_kernels(report, device=device)
    if "finetuning" in arguments.only:
        step = Step(task="classification", arch="base", batch_size=32, length=64, warm_up=40, steps=40)
        step = Step(task="classification", **{**small, "length": 64}, warm_up=1) if arguments.rehearse else step
        run_steps(report, [step], sides=arguments.sides, clock=clock, timeout=arguments.timeout)
    if "checks" in arguments.only:
        passes = run_checks(report, rehearse=arguments.rehearse, timeout=clock.left(arguments.timeout))
    sys.exit(0 if passes else 1)


if __name__ == "__main__":
    main()
