"""The results of a demo run: report.md for people, report.json for programs, and loss.png."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from roberta_plugin.files import atomic_write, write_text
from roberta_plugin.json_files import write_json
from roberta_plugin.launch.report import curves_of, draw
from roberta_plugin.machine import num_cores
from roberta_plugin.training.log import Curve, median_speed, parse_line

_REPORT = """\
# roberta demo: results

{summary}.

| on held-out documents | model | unigram baseline |
| --- | --- | --- |
| masked-token accuracy | {model[accuracy]:.1f} % | {unigram[accuracy]:.1f} % |
| perplexity | {model[perplexity]:.1f} | {unigram[perplexity]:.1f} |

Both predict the same {num_predictions:,} masked tokens of {num_documents:,} documents that were not used in training: \
whole documents, without paragraphs that share a sentence with the training text. 15 % of the tokens are masked as in \
the paper, several times with different masks, and the last checkpoint predicts them \
(`roberta_plugin/demo/evaluation.py`). The baseline knows how often each token occurs in the training text: always the \
most frequent one for the accuracy, the token's share for the perplexity.

![loss curve](loss.png)

The curves use the masks of the training, which hide more than 15 % of the tokens; their losses are therefore higher \
than the perplexity in the table implies. The lines are what unigrams and left bigrams of the training text reach.

## The run

| what | how much |
| --- | --- |
{run}

## Held-out sentences

Sentences and masked words were chosen by hash, not by result. The baseline's five answers are always {most_frequent}.

{answers}

## The command

```
{command}
```
"""


def write_report(folder: Path, *, results: dict[str, dict[str, Any]], log_lines: Sequence[str]) -> dict[str, Any]:
    """Write report.md, report.json and loss.png into `folder`; return the content of report.json."""
    curves = curves_of([record for line in log_lines if (record := parse_line(line))])
    kinds = {"train": "train_inner", "valid": "valid"}
    losses = {name: curves.get((kind, "loss"), Curve([], [])) for name, kind in kinds.items()}
    facts = {
        **results,
        "tokens_per_second": median_speed(log_lines),
        "num_resumed": sum("Loaded checkpoint" in line for line in log_lines),
        "loss_in_bits": {name: curve._asdict() for name, curve in losses.items()},
        "machine": machine(),
    }
    write_json(folder / "report.json", facts)
    with atomic_write(folder / "loss.png") as file:
        draw(file, curves, loss="loss in bits per masked token")
    write_text(folder / "report.md", as_markdown(facts))
    return facts


def machine() -> dict[str, Any]:
    """The machine and the package versions, without names of the machine or its user."""
    installed = {distribution.name: distribution.version for distribution in metadata.distributions()}
    packages = ("roberta_plugin", "torch", "numpy", "ve-fairseq")
    found = {"cores": num_cores(), "architecture": platform.machine(), "python": platform.python_version()}
    return found | {package: installed[package] for package in packages if package in installed}


def as_markdown(facts: dict[str, Any]) -> str:
    """The content of report.md."""
    evaluation = facts["evaluation"]
    return _REPORT.format(
        summary=summary(evaluation),
        model=evaluation["model"],
        unigram=evaluation["unigram"],
        num_predictions=evaluation["num_predictions"],
        num_documents=facts["corpus"]["test_documents"],
        run="\n".join(f"| {what} | {value} |" for what, value in _run_rows(facts)),
        most_frequent=most_frequent(evaluation, quote="`"),
        answers="\n\n".join(map(_answer_lines, evaluation["answers"])),
        command=shlex.join(facts["pretrain"]["command"]),
    )


def summary(evaluation: dict[str, Any]) -> str:
    """The outcome in one sentence."""
    model, unigram = evaluation["model"], evaluation["unigram"]
    return (
        f"On held-out text the model finds {model['accuracy']:.1f} % of the masked tokens, the unigram baseline "
        f"{unigram['accuracy']:.1f} %: {model['accuracy'] / max(unigram['accuracy'], 1e-9):.1f} times as many "
        f"({model['accuracy'] - unigram['accuracy']:+.1f} points). Its perplexity is {model['perplexity']:.1f} against "
        f"{unigram['perplexity']:.1f}"
    )


def most_frequent(evaluation: dict[str, Any], *, quote: str = "") -> str:
    """The five most frequent tokens, which are the unigram baseline's answers."""
    return ", ".join(f"{quote}{word.strip()}{quote}" for word in evaluation["most_frequent"])


def _run_rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    corpus, training, seconds = facts["corpus"], facts["pretrain"], facts["seconds"]
    stopped = "" if training["num_updates"] >= training["planned_updates"] else ", stopped when the time was up"
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
