"""The results of a demo run: report.md for people, report.json for programs, and loss.png.

Last stage of `roberta_plugin/demo/__init__.py`. Reads the finished steps of the run folder and the training log.
"""

from __future__ import annotations

import json
import math
import platform
import shlex
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from roberta_plugin.files import atomic_write
from roberta_plugin.machine import num_cores
from roberta_plugin.pictures import picture
from roberta_plugin.training.log import Curve, curve, median_speed


def write_report(folder: Path, *, results: dict[str, dict[str, Any]], log_lines: Sequence[str]) -> dict[str, Any]:
    """Write report.md, report.json and loss.png into `folder`; return the content of report.json.

    Args:
        folder: the run folder.
        results: the results of all steps, with "settings" and "seconds".
        log_lines: fairseq's log of the training.
    """
    train = curve(log_lines, kind="train_inner", value="loss")
    valid = curve(log_lines, kind="valid", value="loss")
    facts = {
        **results,
        "tokens_per_second": median_speed(log_lines),
        "num_resumed": sum("Loaded checkpoint" in line for line in log_lines),
        "loss_in_bits": {"train": train._asdict(), "valid": valid._asdict()},
        "machine": machine(),
    }
    with atomic_write(folder / "report.json", "w") as file:
        json.dump(facts, file, indent=2)
    with atomic_write(folder / "loss.png") as file:
        plot_losses(train, valid, unigram_bits=math.log2(results["evaluation"]["unigram"]["perplexity"]), file=file)
    with atomic_write(folder / "report.md", "w") as file:
        file.write(as_markdown(facts))
    return facts


def machine() -> dict[str, Any]:
    """The machine and the package versions, without names of the machine or its user."""
    packages = ("roberta_plugin", "torch", "numpy", "ve-fairseq")
    installed = {package: _version(package) for package in packages}
    return {"cores": num_cores(), "architecture": platform.machine(), "python": platform.python_version()} | {
        package: version for package, version in installed.items() if version
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def as_markdown(facts: dict[str, Any]) -> str:
    """The content of report.md."""
    evaluation, corpus, training = facts["evaluation"], facts["corpus"], facts["pretrain"]
    model, unigram = evaluation["model"], evaluation["unigram"]
    stopped = "" if training["num_updates"] >= training["planned_updates"] else ", stopped when the time was up"
    parts = [
        "# roberta demo: results",
        summary(evaluation) + ".",
        table(
            ("on held-out documents", "model", "unigram baseline"),
            [
                ("masked-token accuracy", f"{model['accuracy']:.1f} %", f"{unigram['accuracy']:.1f} %"),
                ("perplexity", f"{model['perplexity']:.1f}", f"{unigram['perplexity']:.1f}"),
            ],
        ),
        f"Both predict the same {evaluation['num_predictions']:,} masked tokens of {corpus['test_documents']:,} "
        "documents that were not used in training: whole documents, without paragraphs that share a sentence "
        "with the training text. 15 % of the tokens are masked as in the paper, several times with different "
        "masks, and the last checkpoint predicts them (`roberta_plugin/demo/evaluation.py`). The baseline "
        "knows how often each token occurs in the training text: always the most frequent one for the accuracy, the "
        "token's share for the perplexity.",
        "![loss curve](loss.png)",
        "The curves use the masks of the training, which hide more than 15 % of the tokens; their losses are therefore "
        "higher than the perplexity in the table implies.",
        "## The run",
        table(("what", "how much"), list(_run_rows(facts, stopped))),
        "## Held-out sentences",
        "Sentences and masked words were chosen by hash, not by result. The baseline's five answers are always "
        + ", ".join(f"`{word.strip()}`" for word in evaluation["most_frequent"])
        + ".",
        *(_answer_lines(answer) for answer in evaluation["answers"]),
        "## The command",
        "```\n" + shlex.join(training["command"]) + "\n```",
    ]
    return "\n\n".join(parts) + "\n"


def summary(evaluation: dict[str, Any]) -> str:
    """The outcome in one sentence."""
    model, unigram = evaluation["model"], evaluation["unigram"]
    return (
        f"On held-out text the model finds {model['accuracy']:.1f} % of the masked tokens, the unigram baseline "
        f"{unigram['accuracy']:.1f} %: {model['accuracy'] / max(unigram['accuracy'], 1e-9):.1f} times as many "
        f"({model['accuracy'] - unigram['accuracy']:+.1f} points). Its perplexity is {model['perplexity']:.1f} against "
        f"{unigram['perplexity']:.1f}"
    )


def _run_rows(facts: dict[str, Any], stopped: str) -> Iterable[tuple[str, str]]:
    corpus, training, seconds = facts["corpus"], facts["pretrain"], facts["seconds"]
    yield "training text", f"{corpus['train_bytes'] / 1e6:.2f} MB, {corpus['train_documents']:,} documents"
    yield "held-out text", f"{corpus['test_bytes'] / 1e6:.2f} MB, {corpus['test_documents']:,} documents"
    yield "vocabulary", f"{facts['vocabulary']['size']:,} symbols"
    yield "updates", f"{training['num_updates']:,} of {training['planned_updates']:,} planned{stopped}"
    yield "training speed", f"{facts['tokens_per_second']:,} tokens/s (median)"
    resumed = f", counted from the last of {facts['num_resumed']} resumptions" if facts["num_resumed"] else ""
    budget_s = 60 * facts["settings"]["minutes"]
    yield "pretraining", f"{seconds['pretrain']:.0f} s: a budget of {budget_s:.0f} s, and the start-up{resumed}"
    yield "all steps", f"{sum(seconds.values()):.0f} s"
    yield "machine", ", ".join(f"{name} {value}" for name, value in facts["machine"].items())


def _answer_lines(answer: dict[str, Any]) -> str:
    pairs = zip(answer["words"], answer["probabilities"], strict=True)
    guesses = ", ".join(
        f"**{word}** {probability:.0%}" if word == answer["word"] else f"{word} {probability:.0%}"
        for word, probability in pairs
    )
    return f"> {answer['text'].replace('<mask>', '`<mask>`')}\n>\n> {guesses} (true: {answer['word']})"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plot_losses(train: Curve, valid: Curve, *, unigram_bits: float, file: Any) -> None:
    """Draw both curves and the unigram baseline as a PNG."""
    with picture(file, width=8.0, height=4.5) as figure:
        axes = figure.add_subplot()
        axes.plot(train.updates, train.values, color="#8fb3d9", linewidth=0.8, label="train")
        axes.plot(valid.updates, valid.values, color="#1f4e8c", marker="o", markersize=4, label="valid (held out)")
        axes.axhline(unigram_bits, color="#999999", linestyle="--", linewidth=1, label="unigram baseline (test)")
        axes.set_xlabel("updates")
        axes.set_ylabel("loss in bits per masked token")
        axes.set_title("Masked-LM pretraining")
        axes.grid(alpha=0.3)
        axes.legend()
