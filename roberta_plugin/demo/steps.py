"""The steps of the demo, in order, and the folder that records them.

Each step takes the run folder and returns plain values for steps.json and the report. A step is done if steps.json
lists it with the current values of the settings it depends on. The file is replaced atomically after each step, so a
killed run resumes with the step it was in.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.locks import try_lock
from roberta_plugin.progress import progress_bar
from roberta_plugin.settings import Checked, setting

LOCK_PATIENCE_S = 20  # a training whose parent was killed needs a moment to end
TEXT = ("max_megabytes",)
VOCABULARY = (*TEXT, "vocab_size")
TRAINING = (*VOCABULARY, "minutes", "seed")


@dataclass(frozen=True, kw_only=True)
class DemoSettings(Checked):
    """The fields are options of `roberta demo`; a change repeats the steps that depend on it."""

    output_dir: Path = setting(Path("runs/demo"), "folder for all files of the run")
    minutes: float = setting(5.0, "time limit of the pretraining, without start-up", smallest=0.05, largest=24 * 60)
    vocab_size: int = setting(4000, "number of tokens of the tokenizer", smallest=300, largest=50000)
    max_megabytes: float = setting(0.0, "limit on the text to use, 0: no limit", smallest=0)
    seed: int = setting(1, "seed of weights, masks and order")


class DemoFolder:
    """Paths and finished steps of one demo run."""

    def __init__(self, settings: DemoSettings) -> None:
        self.path = settings.output_dir.absolute()
        self.settings = settings
        self.corpus = self.path / "corpus"
        self.tokenizer = self.path / "tokenizer"
        self.data_bin = self.path / "data-bin"
        self.checkpoints = self.path / "checkpoints"
        self.train_log = self.path / "train.log"
        self.lock_descriptor = -1
        self._steps_file = self.path / "steps.json"

    def has_done(self, step: Step) -> bool:
        """Whether the step is done with the current settings."""
        entry = self._read().get(step.name)
        return entry is not None and entry["settings"] == self._settings_of(step)

    def forget(self, steps: Sequence[Step]) -> None:
        """Record that these steps must run again, because a step they depend on is about to run."""
        names = [step.name for step in steps]
        self._write({name: entry for name, entry in self._read().items() if name not in names})

    def mark_done(self, step: Step, result: dict[str, Any], *, seconds: float) -> None:
        """Record that the step is done."""
        entry = {"settings": self._settings_of(step), "seconds": round(seconds, 1), "result": result}
        self._write({**self._read(), step.name: entry})

    def results(self) -> dict[str, dict[str, Any]]:
        """The results of all finished steps, and their times under "seconds"."""
        entries = self._read()
        return {name: entry["result"] for name, entry in entries.items()} | {
            "seconds": {name: entry["seconds"] for name, entry in entries.items()}
        }

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process and the training it starts."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "w") as file:
            deadline = time.monotonic() + LOCK_PATIENCE_S
            while not try_lock(file.fileno()):
                if time.monotonic() > deadline:
                    raise ValueError(
                        f"Another `roberta demo` is running in {self.path}: wait for it or choose another --output-dir."
                    )
                time.sleep(0.2)
            self.lock_descriptor = file.fileno()
            yield

    def _settings_of(self, step: Step) -> dict[str, Any]:
        return {name: getattr(self.settings, name) for name in step.depends_on}

    def _read(self) -> dict[str, Any]:
        return read_json(self._steps_file, keys=(), remedy="delete it, and the demo runs all steps again") or {}

    def _write(self, entries: dict[str, Any]) -> None:
        write_json(self._steps_file, entries)


class Step(NamedTuple):
    """One step of the demo: a function of the run folder, and what to print about it."""

    name: str
    what: str
    seconds: float  # on two cores of 2026; the pretraining also takes --minutes
    depends_on: tuple[str, ...]
    run: Callable[[DemoFolder], dict[str, Any]]
    describe: Callable[[dict[str, Any]], str]


def collect_corpus(run: DemoFolder) -> dict[str, Any]:
    """Write corpus/{train,valid,test}.txt."""
    from roberta_plugin.demo.corpus import find_documents, write_corpus

    run.corpus.mkdir(parents=True, exist_ok=True)
    max_bytes = 1e6 * run.settings.max_megabytes or float("inf")
    documents = progress_bar("reading", iterable=find_documents(), unit=" documents", leave=False)
    return dict(write_corpus(run.corpus, documents, max_bytes=max_bytes))


def train_vocabulary(run: DemoFolder) -> dict[str, Any]:
    """Train byte-level BPE on the training text alone."""
    from roberta_plugin.data.tokenizers.training import TokenizerSettings, train_tokenizer
    from roberta_plugin.data.vocabulary import Vocabulary

    train_tokenizer(
        TokenizerSettings(
            input=(str(run.corpus / "train.txt"),),
            vocab_size=run.settings.vocab_size,
            sample_megabytes=0,
            output_dir=run.tokenizer,
            overwrite=True,
            no_progress=True,
        )
    )
    return {"size": len(Vocabulary.load(run.tokenizer / "dict.txt"))}


def binarize_splits(run: DemoFolder) -> dict[str, Any]:
    """Write data-bin/{train,valid,test}.bin and .idx."""
    from roberta_plugin.data.binarize.pipeline import binarize
    from roberta_plugin.data.mmap_tokens import MmapTokens
    from roberta_plugin.data.tokenizers import load_tokenizer
    from roberta_plugin.data.vocabulary import Vocabulary
    from roberta_plugin.demo.corpus import SPLITS

    shutil.rmtree(run.data_bin, ignore_errors=True)
    tokenizer, vocabulary = load_tokenizer(run.tokenizer), Vocabulary.load(run.tokenizer / "dict.txt")
    for split in SPLITS:
        binarize(
            [run.corpus / f"{split}.txt"],
            split=split,
            tokenizer=tokenizer,
            vocabulary=vocabulary,
            destination=run.data_bin,
            progress=False,
        )
    return {f"{split}_tokens": MmapTokens(run.data_bin / split).num_tokens for split in SPLITS}


def make_training_plan(run: DemoFolder) -> dict[str, Any]:
    """Measure the speed and plan the training; delete what was trained with an earlier plan."""
    from roberta_plugin.demo.training import plan_training

    shutil.rmtree(run.checkpoints, ignore_errors=True)
    run.train_log.unlink(missing_ok=True)
    return plan_training(run)._asdict()


def pretrain_model(run: DemoFolder) -> dict[str, Any]:
    """Train, or resume the training."""
    from roberta_plugin.demo.training import Plan, pretrain

    planned = run.results()["plan"]  # of an earlier version it may have more
    return pretrain(run, Plan(**{name: planned[name] for name in Plan._fields}))


def evaluate_model(run: DemoFolder) -> dict[str, Any]:
    """Evaluate the model on the test split, and let it fill masks in held-out sentences."""
    from roberta_plugin.demo.training import SPIN_COUNT

    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)  # read when torch is imported
    import torch

    import roberta_plugin
    from roberta_plugin.demo.evaluation import evaluate, fill
    from roberta_plugin.hub import RobertaHub

    roberta_plugin.register()
    torch.set_num_threads(run.results()["plan"]["threads"])
    hub = RobertaHub.from_pretrained(run.checkpoints, checkpoint_file="checkpoint_last.pt", data=run.data_bin)
    return {**evaluate(hub, run.data_bin), "answers": fill(hub, run.corpus / "test.txt")}


def write_reports(run: DemoFolder) -> dict[str, Any]:
    """Write report.md, report.json and loss.png from the results of all other steps."""
    from roberta_plugin.demo.report import write_report

    lines = run.train_log.read_text(encoding="utf-8", errors="replace").splitlines()
    settings = {name: getattr(run.settings, name) for name in TRAINING}
    facts = write_report(run.path, results={**run.results(), "settings": settings}, log_lines=lines)
    return {"tokens_per_second": facts["tokens_per_second"]}


STEPS = (
    Step(
        "corpus",
        "read the documentation in the source files of Python, numpy and torch; nothing is downloaded",
        20,
        TEXT,
        collect_corpus,
        lambda done: (
            f"{done['train_bytes'] / 1e6:.1f} MB of text to train on, {done['test_documents']:,} documents held out"
        ),
    ),
    Step(
        "vocabulary",
        "train a byte-level BPE tokenizer on the training text",
        5,
        VOCABULARY,
        train_vocabulary,
        lambda done: f"{done['size']:,} symbols",
    ),
    Step(
        "binarize",
        "convert the text into the binary files that fairseq-train reads",
        5,
        VOCABULARY,
        binarize_splits,
        lambda done: f"{done['train_tokens']:,} tokens to train on, {done['test_tokens']:,} held out",
    ),
    Step(
        "plan",
        "measure the speed of this machine, to fit the training into the time",
        25,
        TRAINING,
        make_training_plan,
        lambda done: (
            f"{1000 * done['seconds_per_update']:.0f} ms per update (threads: {done['threads']}): "
            f"{done['num_updates']:,} updates fit"
        ),
    ),
    Step(
        "pretrain",
        "pretrain with fairseq-train",
        10,  # its start-up
        TRAINING,
        pretrain_model,
        lambda done: f"{done['num_updates']:,} of {done['planned_updates']:,} updates",
    ),
    Step(
        "evaluation",
        "predict masked tokens of the held-out documents, compared with a unigram baseline",
        20,
        TRAINING,
        evaluate_model,
        lambda done: f"{done['num_predictions']:,} masked tokens",
    ),
    Step(
        "report",
        "write report.md, report.json and loss.png",
        5,
        TRAINING,
        write_reports,
        lambda done: "report.md, report.json and loss.png",
    ),
)
