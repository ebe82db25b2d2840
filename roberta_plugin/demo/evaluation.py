"""The trained model on held-out text: scores beside a unigram baseline, filled masks, and a report with the curve.

The test split is cut into the same blocks as in training, but 15 % of the tokens are masked as in the paper, in several
passes with different masks. The baseline only knows how often each token occurs in the training split. Sentences and
words for filled masks are chosen by hash, independent of the result.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from roberta_plugin.data.blocks import make_blocks
from roberta_plugin.data.count_baselines import count_tokens, unigram_probs
from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.data.masked_lm_dataset import MaskedLMDataset, SplitFile
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.demo.pretraining import BREAK_MODE, TOKENS_PER_SAMPLE
from roberta_plugin.files import write_text
from roberta_plugin.hub import MASK, Filling, RobertaHub
from roberta_plugin.hub.scoring import MaskedScore, score_masked
from roberta_plugin.launch.report import curves_of, draw
from roberta_plugin.reports import markdown_table
from roberta_plugin.training.log import parse_line

NUM_PASSES = 4  # masks per block: more predictions from the same text
MASK_SEED = 20191107
TOKENS_IN_BATCH = 8192
NUM_EXAMPLES = 8  # sentences with a mask
MIN_WORDS, MAX_WORDS = 8, 20  # of such a sentence
MIN_LETTERS = 3  # of the masked word

_SENTENCE = re.compile(r"[A-Z][a-z]*(?: [A-Za-z',-]+)+\.")
_WORD = re.compile(rf"(?<= )[a-z]{{{MIN_LETTERS},}}(?=[ ,.])")


_REPORT = """\
# roberta demo: results

{summary}.

{table}

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


def unigram_log_probs(tokens: MmapTokens, vocabulary: Vocabulary) -> Tensor:
    """Natural logarithm of each token's share in a split (V,), smoothed, so that no token is impossible."""
    return torch.from_numpy(unigram_probs(count_tokens(tokens, vocabulary), vocabulary)).log()


def evaluate(hub: RobertaHub, data_bin: Path) -> dict[str, Any]:
    """Evaluate the model and the unigram baseline on the same masked positions of the test split.

    Returns:
        `accuracy` (percent) and `perplexity` of `model` and `unigram`, and `num_predictions`.

    Raises:
        ValueError: if the split is too short to mask a token.
    """
    split, vocabulary = data_bin / "test", hub.vocabulary
    batches = masked_batches(split, vocabulary)
    model = score_masked(hub.model, batches, pad_id=vocabulary.pad_id, device=str(hub.device), split=split)
    log_probs = unigram_log_probs(MmapTokens(data_bin / "train"), vocabulary)
    num_correct = int(model.targets.eq(log_probs.argmax()).sum())
    unigram = MaskedScore(model.targets, num_correct, float(log_probs[model.targets].sum()))
    scores: dict[str, Any] = {
        name: {"accuracy": score.accuracy, "perplexity": score.perplexity}
        for name, score in (("model", model), ("unigram", unigram))
    }
    return {**scores, "num_predictions": len(model.targets)}


def masked_batches(prefix: Path, vocabulary: Vocabulary) -> Iterator[dict[str, Any]]:
    """Every block of a split `NUM_PASSES` times, with the paper's masking."""
    tokens = MmapTokens(prefix)
    blocks = make_blocks(tokens.sizes, block_length=TOKENS_PER_SAMPLE - 1, break_mode=BREAK_MODE)
    dataset = MaskedLMDataset(
        [SplitFile(tokens, blocks)],
        Masker.of(vocabulary, MaskingRecipe()),
        bos_id=vocabulary.bos_id,
        pad_id=vocabulary.pad_id,
        vocab_size=len(vocabulary),
        seed=MASK_SEED,
    )
    for number in range(1, NUM_PASSES + 1):
        for batch in dataset.batches(number, max_tokens=TOKENS_IN_BATCH):
            yield dataset.__getitems__(batch)


class Cloze(NamedTuple):
    """A sentence with one masked word, and that word."""

    text: str
    word: str


def choose_clozes(lines: Iterable[str], is_one_token: set[str], *, count: int = NUM_EXAMPLES) -> list[Cloze]:
    """Mask one word that is a single token in each of `count` sentences; hashes decide which."""
    clozes = []
    for sentence in sorted({line.strip() for line in lines if _is_candidate(line)}, key=_hash):
        spans = [match.span() for match in _WORD.finditer(sentence) if match.group() in is_one_token]
        if spans:
            start, end = min(spans, key=lambda span: _hash(f"{span[0]} {sentence}"))
            clozes.append(Cloze(f"{sentence[:start]}{MASK}{sentence[end:]}", sentence[start:end]))
        if len(clozes) == count:
            break
    return clozes


def fill(hub: RobertaHub, test_file: Path, *, count: int = NUM_EXAMPLES) -> list[dict[str, Any]]:
    """Sentences of the held-out file with a mask, the masked word, and the model's five best `words`."""
    lines = [line for line in test_file.read_text(encoding="utf-8").splitlines() if _is_candidate(line)]
    lines = [line for line in lines if len(hub.encode(line)) <= hub.max_positions]
    words = {match.group() for line in lines for match in _WORD.finditer(line)}
    one_token = {word for word in words if len(hub.tokenizer.encode(f" {word}")) == 1}
    answers = []
    for cloze in choose_clozes(lines, one_token, count=count):
        fillings = cast(list[Filling], hub.fill_mask(cloze.text, topk=5))  # one mask: one list
        answers.append(
            cloze._asdict()
            | {
                "words": [filling.token.strip() for filling in fillings],
                "probabilities": [filling.probability for filling in fillings],
            }
        )
    return answers


def _is_candidate(line: str) -> bool:
    return MIN_WORDS <= len(line.split()) <= MAX_WORDS and _SENTENCE.fullmatch(line.strip()) is not None


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def write_report(folder: Path, *, evaluation: dict[str, Any], command: Sequence[str], log: Path) -> None:
    """Write report.md and loss.png into `folder`."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    curves = curves_of([record for line in lines if (record := parse_line(line))])
    draw(folder / "loss.png", curves, loss="loss in bits per masked token")
    answers = "\n".join(f"- {answer_line(answer)}" for answer in evaluation["answers"])
    scores = [evaluation[name] for name in ("model", "unigram")]
    table = markdown_table(
        ["on held-out documents", "model", "unigram baseline"],
        [
            ["masked-token accuracy", *(f"{score['accuracy']:.1f} %" for score in scores)],
            ["perplexity", *(f"{score['perplexity']:.1f}" for score in scores)],
        ],
    )
    text = _REPORT.format(
        table=table,
        num_predictions=evaluation["num_predictions"],
        answers=answers,
        summary=summary(evaluation),
        command=shlex.join(command),
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
