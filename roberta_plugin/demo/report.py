"""The results of a demo: report.md, and loss.png with the curves of the training."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.files import atomic_write, write_text
from roberta_plugin.launch.log import parse_line
from roberta_plugin.launch.report import curves_of, draw

_REPORT = """\
# roberta demo: results

{summary}.

| on held-out documents | model | unigram baseline |
| --- | --- | --- |
| masked-token accuracy | {model[accuracy]:.1f} % | {unigram[accuracy]:.1f} % |
| perplexity | {model[perplexity]:.1f} | {unigram[perplexity]:.1f} |

Both predict the same {num_predictions:,} masked tokens of documents that were not used in training. 15 % of the \
tokens are masked as in the paper, several times with different masks, and the last checkpoint predicts them \
(`roberta_plugin/demo/evaluation.py`). The baseline knows how often each token occurs in the training text.

![loss curve](loss.png)

The curves use the masks of the training, which hide more than 15 % of the tokens; their losses are therefore higher \
than the perplexity in the table implies. The lines are what unigrams and left bigrams of the training text reach.

## Held-out sentences

Sentences and masked words were chosen by hash, not by result.

{answers}

## The training

```
{command}
```
"""


def write_report(folder: Path, *, evaluation: dict[str, Any], command: Sequence[str], log: Path) -> None:
    """Write report.md and loss.png into `folder`."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    with atomic_write(folder / "loss.png") as file:
        draw(
            file,
            curves_of([record for line in lines if (record := parse_line(line))]),
            loss="loss in bits per masked token",
        )
    answers = "\n".join(f"- {answer_line(answer)}" for answer in evaluation["answers"])
    text = _REPORT.format(
        **{**evaluation, "answers": answers}, summary=summary(evaluation), command=shlex.join(command)
    )
    write_text(folder / "report.md", text)


def summary(evaluation: dict[str, Any]) -> str:
    """The outcome in one sentence."""
    model, unigram = evaluation["model"], evaluation["unigram"]
    return (
        f"On held-out text the model finds {model['accuracy']:.1f} % of the masked tokens, the unigram baseline "
        f"{unigram['accuracy']:.1f} %: {model['accuracy'] / max(unigram['accuracy'], 1e-9):.1f} times as many "
        f"({model['accuracy'] - unigram['accuracy']:+.1f} points). Its perplexity is {model['perplexity']:.1f} against "
        f"{unigram['perplexity']:.1f}"
    )


def answer_line(answer: dict[str, Any]) -> str:
    """A sentence with a mask, the model's five best answers, and the right one."""
    pairs = zip(answer["words"], answer["probabilities"], strict=True)
    guesses = ", ".join(f"{word} {probability:.0%}" for word, probability in pairs)
    return f"{answer['text']}: {guesses} (true: {answer['word']})"
