"""`roberta demo`: everything from text to filled masks in a few minutes, resumable.

`roberta_plugin/demo` does the work; this module parses the options and prints.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_plugin.cli.interrupts import terminated_like_interrupted
from roberta_plugin.settings import add_options, from_arguments

if TYPE_CHECKING:
    from roberta_plugin.demo.run_folder import DemoFolder
    from roberta_plugin.demo.steps import Step


def add_parser(subparsers: Any) -> None:
    """Add `roberta demo`; its options are the fields of `DemoSettings`."""
    from roberta_plugin.demo.run_folder import DemoSettings

    parser = subparsers.add_parser(
        "demo",
        help="pretrain a small RoBERTa on the documentation inside your own Python, in minutes",
        description="Builds a corpus from the documentation inside the installed Python, numpy and torch, trains a "
        "tokenizer on it, pretrains a small RoBERTa with fairseq-train, and reports what it learned. Nothing is "
        "downloaded. After an interruption, the same command resumes where it stopped.",
    )
    parser.add_argument(
        "--output-dir", type=Path, default=Path("runs/demo"), help="folder for all files of the run (runs/demo)"
    )
    add_options(parser, DemoSettings)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the steps that are not done yet, then show the results."""
    from roberta_plugin.demo.run_folder import DemoFolder, DemoSettings

    folder = DemoFolder(args.output_dir, from_arguments(DemoSettings, vars(args)))
    with terminated_like_interrupted(), folder.locked():
        run_steps(folder)
    show_results(folder)
    return 0


def run_steps(folder: DemoFolder) -> None:
    """Run the steps in order, printing each and the time left."""
    from roberta_plugin.demo.steps import STEPS

    to_do = [step for step in STEPS if folder.result_of(step.name, depends_on=step.depends_on) is None]
    first = STEPS.index(to_do[0]) if to_do else len(STEPS)  # a step that runs makes all later steps run
    show_plan(folder, STEPS, first)
    names = [step.name for step in STEPS]
    for number, step in enumerate(STEPS):
        if number < first:
            continue
        folder.forget(names[number:])
        left = sum(seconds_of(later, folder) for later in STEPS[number:])
        say(f"[{number + 1}/{len(STEPS)}] {step.name}: {step.what} (about {as_time(left)} left)")
        started = time.monotonic()
        try:
            result = step.run(folder)
        except KeyboardInterrupt:
            say(f"\nStopped in the step {step.name}. The same command resumes from here.")
            raise
        seconds = time.monotonic() - started
        folder.mark_done(step.name, result, depends_on=step.depends_on, seconds=seconds)
        say(f"      {step.describe(result)} ({as_time(seconds)})")


def show_plan(folder: DemoFolder, steps: tuple[Step, ...], first: int) -> None:
    """Print the steps that will run, and how long each takes."""
    total = sum(seconds_of(step, folder) for step in steps[first:])
    say(f"A small RoBERTa, trained on the documentation inside this Python. About {as_time(total)} in all:")
    for number, step in enumerate(steps):
        when = "done before" if number < first else f"about {as_time(seconds_of(step, folder))}"
        say(f"  {number + 1}. {step.name:<11} {when:<17} {step.what}")
    say(f"Everything goes to {folder.path}; the same command resumes a run that was stopped.\n")


def show_results(folder: DemoFolder) -> None:
    """Print the filled masks and the scores."""
    from roberta_plugin.demo.report import summary

    results = folder.results()
    evaluation = results["evaluation"]
    say("\nHeld-out sentences, one word masked in each; the model's five best answers:\n")
    for answer in evaluation["answers"]:
        guesses = zip(answer["words"], answer["probabilities"], strict=True)
        shown = ", ".join(f"{word} {probability:.0%}" for word, probability in guesses)
        mark = "*" if answer["word"] == answer["words"][0] else "+" if answer["word"] in answer["words"] else " "
        say(f"  {mark} {answer['text']}\n      {shown}   (true: {answer['word']})")
    say(f"\n  (* first answer right, + among the five; the baseline always answers: {unigram_words(evaluation)})\n")
    say(summary(evaluation) + ".")
    say(f"Training speed {results['report']['tokens_per_second']:,} tokens/s. Report: {folder.path / 'report.md'}")


def unigram_words(evaluation: dict[str, Any]) -> str:
    """The five most frequent tokens, which are the unigram baseline's answers."""
    return ", ".join(word.strip() for word in evaluation["most_frequent"])


def seconds_of(step: Step, folder: DemoFolder) -> float:
    """Estimated time of a step; that of the pretraining is its start-up and its budget."""
    return step.seconds + (60 * folder.settings.minutes if step.name == "pretrain" else 0.0)


def as_time(seconds: float) -> str:
    """`42 s`, or `5 min 10 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)
