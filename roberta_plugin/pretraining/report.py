"""The results of a pretraining: report.md, loss.png with the curves, and what the command prints at its end."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.files import write_text
from roberta_plugin.launch.log import parse_line
from roberta_plugin.launch.report import curves_of, draw

_REPORT = """\
# {name}: results

{summary}

| on held-out text | model | unigram baseline | bigram baseline |
| --- | ---: | ---: | ---: |
| masked-token accuracy | {model[accuracy]:.1f} % | {unigram[accuracy]:.1f} % | |
| perplexity | {model[perplexity]:.1f} | {unigram[perplexity]:.1f} | {bigram} |

The model and the unigram baseline predict the same {num_predictions:,} masked tokens of the split `{split}`. 15 % of \
the tokens are masked as in the paper, several times with different masks, and the last checkpoint, of {updates:,} \
updates, predicts them (`roberta_plugin/pretraining/evaluation.py`). The unigram baseline knows how often each token \
occurs in the training text, the bigram baseline also the previous token.

![loss curve](loss.png)

The curves use the masks of the training. If these hide more than 15 % of the tokens, losses are higher than the \
perplexity in the table implies.
{answers}
## The training

```
{command}
```
"""


def write_report(folder: Path, *, evaluation: dict[str, Any], command: Sequence[str], logs: Sequence[Path]) -> None:
    """Write report.md and loss.png into `folder`."""
    lines = [line for log in logs for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    curves = curves_of([record for line in lines if (record := parse_line(line))])
    draw(folder / "loss.png", curves, loss="loss in bits per masked token")
    answers = "\n".join(f"- {answer_line(answer)}" for answer in evaluation["answers"])
    chosen = "\n## Held-out sentences\n\nSentences and masked words were chosen by hash, not by result.\n\n"
    bigram = evaluation.get("bigram")
    text = _REPORT.format(
        **{
            **evaluation,
            "name": folder.name,
            "answers": f"{chosen}{answers}\n" if answers else "",
            "updates": max((int(curve.updates[-1]) for curve in curves.values()), default=0),
            "bigram": f"{bigram['perplexity']:.1f}" if bigram else "",
        },
        summary=summary(evaluation),
        command=shlex.join(command),
    )
    write_text(folder / "report.md", text)


def summary(evaluation: dict[str, Any]) -> str:
    """The outcome in two sentences."""
    model, unigram, bigram = evaluation["model"], evaluation["unigram"], evaluation.get("bigram")
    beside = f"unigram baseline {unigram['perplexity']:.1f}"
    beside += f", bigram baseline {bigram['perplexity']:.1f}" if bigram else ""
    return (
        f"On held-out text the model predicts {model['accuracy']:.1f} % of the masked tokens correctly; always "
        f"guessing the most frequent token: {unigram['accuracy']:.1f} %. Its perplexity is "
        f"{model['perplexity']:.1f} ({beside})."
    )


def answer_line(answer: dict[str, Any]) -> str:
    """A sentence with a mask, the model's five most probable tokens, and the right one."""
    pairs = zip(answer["words"], answer["probabilities"], strict=True)
    guesses = ", ".join(f"{word} {probability:.0%}" for word, probability in pairs)
    return f"{answer['text']}: {guesses} (true: {answer['word']})"
