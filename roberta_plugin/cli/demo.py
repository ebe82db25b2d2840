"""`roberta demo`: everything from text to filled masks in a few minutes, resumable."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from roberta_plugin.cli.interrupts import terminated_like_interrupted
from roberta_plugin.demo.report import most_frequent, summary
from roberta_plugin.demo.steps import STEPS, DemoFolder, DemoSettings, Step
from roberta_plugin.settings import add_options, from_arguments


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta demo`; its options are the fields of `DemoSettings`."""
    parser.description = (
        "Builds a corpus from the documentation inside the installed Python, numpy and torch, trains a tokenizer on "
        "it, pretrains a small RoBERTa with fairseq-train, and reports what it learned. Nothing is downloaded. After "
        "an interruption, the same command resumes where it stopped."
    )
    add_options(parser, DemoSettings)


def run(args: argparse.Namespace) -> int:
    """Run the steps that are not done yet, then show the results."""
    folder = DemoFolder(from_arguments(DemoSettings, vars(args)))
    with terminated_like_interrupted(), folder.locked():
        run_steps(folder)
    show_results(folder)
    return 0


def run_steps(folder: DemoFolder) -> None:
    """Run the steps in order, printing each and the time left."""
    undone = [number for number, step in enumerate(STEPS) if not folder.has_done(step)]
    first = undone[0] if undone else len(STEPS)  # a step that runs makes all later steps run
    say(
        "A small RoBERTa, trained on the documentation inside this Python. "
        f"About {time_of(STEPS[first:], folder)} in all:"
    )
    for number, step in enumerate(STEPS):
        when = "done before" if number < first else f"about {time_of([step], folder)}"
        say(f"  {number + 1}. {step.name:<11} {when:<17} {step.what}")
    say(f"Everything goes to {folder.path}; the same command resumes a run that was stopped.\n")
    for number, step in list(enumerate(STEPS))[first:]:
        folder.forget(STEPS[number:])
        say(f"[{number + 1}/{len(STEPS)}] {step.name}: {step.what} (about {time_of(STEPS[number:], folder)} left)")
        started = time.monotonic()
        try:
            result = step.run(folder)
        except KeyboardInterrupt:
            say(f"\nStopped in the step {step.name}. The same command resumes from here.")
            raise
        seconds = time.monotonic() - started
        folder.mark_done(step, result, seconds=seconds)
        say(f"      {step.describe(result)} ({as_time(seconds)})")


def show_results(folder: DemoFolder) -> None:
    """Print the filled masks and the scores."""
    results = folder.results()
    evaluation = results["evaluation"]
    say("\nHeld-out sentences, one word masked in each; the model's five best answers:\n")
    for answer in evaluation["answers"]:
        mark = "*" if answer["word"] == answer["words"][0] else "+" if answer["word"] in answer["words"] else " "
        guesses = zip(answer["words"], answer["probabilities"], strict=True)
        shown = ", ".join(f"{word} {probability:.0%}" for word, probability in guesses)
        say(f"  {mark} {answer['text']}\n      {shown}   (true: {answer['word']})")
    say(f"\n  (* first answer right, + among the five; the baseline always answers: {most_frequent(evaluation)})\n")
    say(summary(evaluation) + ".")
    say(f"Training speed {results['report']['tokens_per_second']:,} tokens/s. Report: {folder.path / 'report.md'}")


def time_of(steps: Sequence[Step], folder: DemoFolder) -> str:
    """Estimated time of steps; that of the pretraining is its start-up and its budget."""
    budget_s = 60 * folder.settings.minutes
    return as_time(sum(step.seconds + (budget_s if step.name == "pretrain" else 0.0) for step in steps))


def as_time(seconds: float) -> str:
    """`42 s`, or `5 min 10 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)
