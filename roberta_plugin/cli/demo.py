"""`roberta demo`: the verbs in a loop, from docstrings to filled masks; the same command resumes."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from roberta_plugin.cli.command import command
from roberta_plugin.demo.pretraining import SPIN_COUNT
from roberta_plugin.locks import try_lock
from roberta_plugin.settings import Checked, setting

_LOCK_PATIENCE_S = 20  # a training whose parent was killed needs a moment to end


@dataclass(frozen=True, kw_only=True)
class DemoSettings(Checked):
    """The fields are options of `roberta demo`."""

    output_dir: Path = setting(Path("runs/demo"), "folder for all files of the run")
    updates: int = setting(8000, "length of the pretraining: some four minutes of a fast core", smallest=20)
    seed: int = setting(1, "seed of weights, masks and order")


@command(DemoSettings)
def demo(settings: DemoSettings) -> int:
    """Takes text from the docstrings of the installed Python, trains a tokenizer on it, binarizes it, pretrains a small
    RoBERTa with fairseq-train, and reports what it learned. Nothing is downloaded. After an interruption, the same
    command resumes where it stopped.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)  # read when torch is imported
    with locked(settings.output_dir) as lock:
        return run_steps(settings, lock)


def run_steps(settings: DemoSettings, lock: int) -> int:
    """Text, tokenizer, binary files, training, report; the exit code is that of the first verb that fails."""
    from roberta_plugin.cli import main
    from roberta_plugin.demo.pretraining import documents, pretrain, train_command, write_corpus

    folder = settings.output_dir.absolute()
    corpus, tokenizer, data_bin, log = (folder / name for name in ("corpus", "tokenizer", "data-bin", "train.log"))
    if not (corpus / "train.txt").is_file():
        say("Text: the docstrings in the source files of this Python")
        corpus.mkdir(parents=True, exist_ok=True)
        write_corpus(corpus, documents())
    text = {split: str(corpus / f"{split}.txt") for split in ("train", "valid", "test")}
    verbs = [["binarize", "--tokenizer", tokenizer, "--output-dir", data_bin]]
    verbs[0] += [word for split, path in text.items() for word in (f"--{split}", path)]
    if not (tokenizer / "dict.txt").is_file():
        verbs.insert(0, ["tokenizer", "train", "--input", text["train"], "--vocab-size", "4000"])
        verbs[0] += ["--output-dir", tokenizer]
    for verb in verbs:
        words = [str(word) for word in verb]
        say(f"\n$ roberta {shlex.join(words)}")
        if code := main(words):
            return code
    command = train_command(data_bin, folder / "checkpoints", updates=settings.updates, seed=settings.seed)
    say(f"\n$ {shlex.join(command)}")
    pretrain(command, log=log, updates=settings.updates, lock=lock)
    show_results(folder, command=command, log=log)
    return 0


def show_results(folder: Path, *, command: list[str], log: Path) -> None:
    """Evaluate the model, write the report, and print filled masks and scores."""
    import roberta_plugin
    from roberta_plugin.demo.evaluation import answer_line, evaluate, fill, summary, write_report
    from roberta_plugin.hub import RobertaHub

    roberta_plugin.register()
    data_bin = folder / "data-bin"
    hub = RobertaHub.from_pretrained(folder / "checkpoints", checkpoint_file="checkpoint_last.pt", data=data_bin)
    evaluation = {**evaluate(hub, data_bin), "answers": fill(hub, folder / "corpus" / "test.txt")}
    write_report(folder, evaluation=evaluation, command=command, log=log)
    say("\nHeld-out sentences, one word masked in each; the model's five best answers:\n")
    for answer in evaluation["answers"]:
        say(f"  {answer_line(answer)}")
    say(f"\n{summary(evaluation)}.\nReport, with the curve: {folder / 'report.md'}")


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold the folder for this process and the training it starts; the descriptor of the lock."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as file:
        deadline = time.monotonic() + _LOCK_PATIENCE_S
        while not try_lock(file.fileno()):
            if time.monotonic() > deadline:
                raise ValueError(
                    f"Another `roberta demo` is running in {folder}: wait for it or choose another --output-dir."
                )
            time.sleep(0.2)
        yield file.fileno()


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)
