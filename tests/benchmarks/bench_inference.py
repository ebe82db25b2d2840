"""Answers on a CPU by every engine there is: ours in each precision beside Hugging Face, ONNX Runtime and others.

    python -m tests.benchmarks.bench_inference --cache FOLDER [--write] [--sections latency features1 ...] [--engines ...]

A base model with random weights, and its first 6 layers; GPT-2's BPE; sentences of 5 to 60 words of English prose, or of
300 words. Each engine is a process of its own (`inference_engines`), all are open at once and answer in turn, and each has
its best batch size, found on a quarter of the texts: positions of a batch (512, or 2,048, the hub's own choice), or texts
of one (1, 8) for Hugging Face's pipelines, which pad them as they come. Seconds are wall time of tokenizing and computing,
the least of the rounds. Engines with the encoder alone answer features. Sections that are in the cache are not measured
again. SST-2's accuracy needs a fine-tuned checkpoint and its prepared folder (--checkpoint, --data).
"""

from __future__ import annotations

import importlib.util
import json
import lzma
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from roberta_plugin.machine import processor_words
from roberta_plugin.models.cpu import Bf16Product, Int8Product, plain_linear
from roberta_plugin.models.precision import BF16_FLAGS, INT8_FLAGS, available
from tests.benchmarks.harness import Report, load, machine, options, seconds_of
from tests.conftest import REPOSITORY, SHARED_DATA

PIPELINE = "pipeline-fp32"  # the baseline
ENGINES = (
    *(f"ours-{precision}" for precision in ("fp32", "bf16", "int8")),
    PIPELINE,
    "pipeline-bf16",
    *(f"onnxruntime-{precision}" for precision in ("fp32", "int8")),
    *(f"ctranslate2-{precision}" for precision in ("fp32", "bf16", "int8")),
    *(f"openvino-{precision}" for precision in ("fp32", "bf16")),
)
SHAPES = ((768, 2304), (768, 768), (768, 3072), (3072, 768))  # K, N of a base layer
PARAMETERS = 12 * sum(k * n for k, n in SHAPES)


class Section(NamedTuple):
    """One table."""

    task: str
    num_layers: int
    num_threads: int
    num_texts: int
    words: tuple[int, int] = (5, 60)
    is_latency: bool = False


SECTIONS = {
    "features2": Section("features", 12, 2, 144),
    "latency2": Section("features", 12, 2, 32, is_latency=True),
    "classes": Section("classes", 12, 2, 32),
    "masks": Section("masks", 12, 2, 32),
    "tags": Section("tags", 12, 2, 32),
    "long": Section("features", 12, 2, 6, words=(300, 300)),
    "latency": Section("features", 12, 1, 32, is_latency=True),
    "six": Section("features", 6, 2, 48),
    "features1": Section("features", 12, 1, 24),
}


def sentences(number: int, *, words: tuple[int, int] = (5, 60)) -> list[str]:
    """Texts of that many words, cut from prose in a fixed random order; most of them are short.

    Long ones are from novels: 300 words of our documents, with their commands, may be more than 512 tokens.
    """
    least, most = words
    if least < 300:
        prose = " ".join(path.read_text(encoding="utf-8") for path in sorted(REPOSITORY.glob("*.md"))).split()
    else:
        with lzma.open(SHARED_DATA / "text" / "books.valid.txt.xz", "rt", encoding="utf-8") as file:
            prose = file.read().split()
    rng = np.random.default_rng(1)
    lengths = np.minimum(most, least + rng.geometric(1 / 16, number))
    starts = rng.integers(0, len(prose) - most, number)
    return [" ".join(prose[start : start + length]) for start, length in zip(starts, lengths, strict=True)]


class Engine:
    """The process of an engine."""

    def __init__(self, name: str, section: Section, folder: Path) -> None:
        self.name = name
        own = (name, str(section.num_layers), str(section.num_threads), str(folder))
        environment = {**os.environ, "OMP_NUM_THREADS": str(section.num_threads), "TOKENIZERS_PARALLELISM": "false"}
        with open(folder / f"{name}.log", "a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.inference_engines", *own],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )

    def wait(self) -> None:
        """Until it is ready.

        Raises:
            RuntimeError: if it has ended.
        """
        self._read()

    def ask(self, task: str, texts: list[str], batch: int, *, answers: bool = False) -> dict[str, Any]:
        """The engine's reply."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"task": task, "texts": texts, "batch": batch, "answers": answers}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended: see its log")
        return json.loads(line)  # type: ignore[no-any-return]

    @property
    def batches(self) -> tuple[int, ...]:
        """Batch sizes to try."""
        return (1, 8) if self.name.startswith("pipeline") else (512, 2048)


@contextmanager
def opened(names: list[str], section: Section, folder: Path) -> Iterator[dict[str, Engine]]:
    """The engines that this machine has; of another one, it is printed."""
    with ExitStack() as stack:
        engines = {name: Engine(name, section, folder) for name in names}
        for name, engine in list(engines.items()):
            stack.callback(engine.close)
            try:
                engine.wait()
            except RuntimeError as error:
                print(f"not measured: {error}", file=sys.stderr)
                del engines[name]
        yield engines


def measure(section: Section, engines: dict[str, Engine], *, rounds: int) -> dict[str, dict[str, Any]]:
    """Engine -> batch size, seconds of each round (or of each text), memory, and how its answers differ."""
    texts = sentences(section.num_texts, words=section.words)
    if section.task != "features":
        engines = {name: engine for name, engine in engines.items() if name.startswith(("ours", "pipeline"))}
    found: dict[str, dict[str, Any]] = {}
    answers: dict[str, Any] = {}
    few = texts[: max(6, len(texts) // 4)]
    for name, engine in engines.items():
        engine.ask(section.task, few[:4], engine.batches[0])
        sizes = engine.batches[:1] if section.is_latency else engine.batches
        tried = {size: engine.ask(section.task, few, size)["seconds"] for size in sizes}
        found[name] = {"batch": min(tried, key=tried.__getitem__), "seconds": []}
    if section.is_latency:
        for text in texts:
            for name, engine in engines.items():
                found[name]["seconds"].append(engine.ask(section.task, [text], found[name]["batch"])["seconds"])
        return found
    for number in range(rounds):
        for name, engine in engines.items():
            reply = engine.ask(section.task, texts, found[name]["batch"], answers=number == 0)
            found[name]["seconds"].append(reply["seconds"])
            found[name]["megabytes"] = reply["megabytes"]
            answers.setdefault(name, reply["answers"])
    for name, own in answers.items():
        found[name]["differs"] = difference(section.task, own, answers.get("ours-fp32"))
    return found


def difference(task: str, answers: list[Any], expected: list[Any] | None) -> str:
    """How answers differ from ours in fp32."""
    if expected is None or (
        task == "tags" and isinstance(answers[0], list) and answers[0] and isinstance(answers[0][0], dict)
    ):
        return ""
    if task == "features":
        return f"{np.sqrt(np.mean((np.array(answers) - np.array(expected)) ** 2)):.4f} RMS"
    if task == "tags":
        pairs = [pair for one, other in zip(answers, expected, strict=True) for pair in zip(one, other, strict=True)]
    else:
        pairs = list(zip(answers, expected, strict=True))
    return f"{np.mean([a != b for a, b in pairs]):.1%}"


def show(report: Report, section: Section, found: dict[str, dict[str, Any]], title: str) -> None:
    """The table of a section."""
    if section.is_latency:
        in_ms = {name: 1000 * np.array(own["seconds"]) for name, own in found.items()}
        rows = [(name, f"{np.median(ms):.1f}", f"{np.percentile(ms, 99):.1f}") for name, ms in in_ms.items()]
        report.rows(("engine", "median ms", "99 % ms"), rows, title=f"Latency of one sentence: {title}")
        return
    precisions = {name: name.rpartition("-")[2] for name in found}
    speeds = {name: section.num_texts / min(own["seconds"]) for name, own in found.items()}
    table = []
    for name, own in found.items():
        others = [v for n, v in speeds.items() if precisions[n] == precisions[name] and not n.startswith("ours")]
        beside = f"{speeds[name] / max(others):.2f}" if name.startswith("ours") and others else ""
        times = f"{speeds[name] / speeds[PIPELINE]:.2f}" if PIPELINE in speeds else ""
        memory = f"{own['megabytes']:,.0f}"
        table.append((name, f"{speeds[name]:.1f}", times, beside, own["batch"], memory, own["differs"]))
    head = ("engine", "texts/s", f"x {PIPELINE}", "x the best other in this precision", "batch", "MB")
    report.rows((*head, "differs from ours in fp32"), table, title=title)


def limits(num_threads: int, rows: int = 1024) -> dict[str, float]:
    """GFLOP/s of our products alone, in the shapes of a base layer, by precision: the most that an answer can reach."""
    torch.set_num_threads(num_threads)
    made: dict[str, float] = {}
    with torch.inference_mode():
        for precision in available(torch.device("cpu")):
            seconds = 0.0
            for inputs, outputs in SHAPES:
                weight, bias, x = torch.randn(outputs, inputs), torch.zeros(outputs), torch.randn(rows, inputs)
                call: Callable[[], Any] = partial(plain_linear, x, weight, bias)
                if precision == "bf16":
                    call = partial(Bf16Product(weight, bias), x.bfloat16())
                elif precision == "int8":
                    call = partial(Int8Product(weight, bias), Int8Product.read(x))
                seconds += min(seconds_of(call) for _ in range(7))
            made[precision] = 2 * rows * sum(k * n for k, n in SHAPES) / seconds / 1e9
    return made


def accuracy(checkpoint: Path, data: Path) -> dict[str, dict[str, float]]:
    """Precision -> accuracy on the development set, and the share of labels that differ from those of fp32."""
    from roberta_plugin.experiments.inference import load_model, run_model
    from roberta_plugin.finetuning.prepared import Prepared

    prepared = Prepared.open(data)
    split = prepared.split("valid")
    right = np.asarray(split.columns["label"])
    found: dict[str, dict[str, float]] = {}
    first = None
    for precision in available(torch.device("cpu")):
        model, task = load_model(checkpoint, prepared)
        labels = run_model(model, task, split, precision=precision).logits.argmax(axis=1)
        first = labels if first is None else first
        found[precision] = {
            "accuracy": 100 * float((labels == right).mean()),
            "differ": float((labels != first).mean()),
        }
    return found


def main() -> None:
    """Measure what the cache lacks, print and, on demand, write the report."""
    parser = options(__doc__)
    parser.add_argument("--sections", nargs="*", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cache", type=Path, help="folder of converted models and of finished sections")
    parser.add_argument("--hardware", default="cpu2", help="in the name of the report")
    parser.add_argument("--checkpoint", type=Path, help="fine-tuned on SST-2")
    parser.add_argument("--data", type=Path, help="prepared folder of SST-2")
    arguments = parser.parse_args()
    folder = arguments.cache or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    encoders = ("onnxruntime", "ctranslate2", "openvino")  # their packages have these names
    there = [
        name
        for name in arguments.engines
        if (package := name.partition("-")[0]) not in encoders or importlib.util.find_spec(package)
    ]
    there = [n for n in there if not n.startswith("ours") or n.removeprefix("ours-") in available(torch.device("cpu"))]
    flags = ", ".join(sorted(processor_words("flags") & {*BF16_FLAGS, *INT8_FLAGS}))
    hardware = f"{machine()}; {flags or 'no VNNI'}"
    report = Report(f"inference_{arguments.hardware}", "Answers on a CPU", __doc__, hardware)
    sections = {name: SECTIONS[name] for name in arguments.sections}
    missing = [name for name in sections if not (folder / f"{name}.json").is_file()]
    for key in dict.fromkeys((SECTIONS[name].num_layers, SECTIONS[name].num_threads) for name in missing):
        same = [name for name in missing if (SECTIONS[name].num_layers, SECTIONS[name].num_threads) == key]
        with opened(there, SECTIONS[same[0]], folder) as engines:
            for name in same:
                content = {"load": load("start"), "found": measure(SECTIONS[name], engines, rounds=arguments.rounds)}
                (folder / f"{name}.json").write_text(json.dumps(content))
    for name, section in sections.items():
        content = json.loads((folder / f"{name}.json").read_text())
        size = "base" if section.num_layers == 12 else f"{section.num_layers} layers of base"
        what = f"{size}, {section.task}, {section.num_threads} thread{'s' * (section.num_threads > 1)}"
        what += f", {section.num_texts} texts of {section.words[0]} to {section.words[1]} words"
        show(report, section, content["found"], what)
        report.text(content["load"])
    limit_path = folder / "limits.json"
    if not limit_path.is_file():
        limit_path.write_text(json.dumps({str(threads): limits(threads) for threads in (1, 2)}))
    tokens, rows = _num_tokens(), []
    for threads, of_precision in json.loads(limit_path.read_text()).items():
        path = folder / f"features{threads}.json"
        found = json.loads(path.read_text())["found"] if path.is_file() else {}
        for precision, limit in of_precision.items():
            own = found.get(f"ours-{precision}")
            reached = 2 * PARAMETERS * tokens[f"features{threads}"] / min(own["seconds"]) / 1e9 if own else 0.0
            shown = (f"{reached:.0f}", f"{reached / limit:.0%}") if own else ("", "")
            rows.append((threads, precision, f"{limit:.0f}", *shown))
    head = ("threads", "precision", "products alone", "features", "share")
    report.rows(head, rows, title="GFLOP/s of the products alone, and what features reach")
    if arguments.checkpoint is not None and arguments.data is not None:
        found = accuracy(arguments.checkpoint, arguments.data)
        rows = [(name, f"{each['accuracy']:.2f}", f"{each['differ']:.2%}") for name, each in found.items()]
        head = ("precision", "accuracy", "labels that differ from fp32")
        report.rows(head, rows, title="SST-2, held-out rows")
    report.show(write=arguments.write)


def _num_tokens() -> dict[str, int]:
    """Tokens of the texts of the sections of features, with <s> and </s>."""
    from roberta_plugin.data.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(SHARED_DATA / "gpt2_bpe")
    return {
        name: sum(len(tokenizer.encode(text)) + 2 for text in sentences(SECTIONS[name].num_texts))
        for name in ("features1", "features2")
    }


if __name__ == "__main__":
    main()
