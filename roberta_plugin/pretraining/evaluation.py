"""The trained model on held-out text: scores beside the baselines, filled masks, report.md, loss.png.

A split is cut into blocks as long as the training's, and 15 % of the tokens are masked as in the paper, in
several passes with different masks. The baselines are predictions from counts of the training split: of tokens, of
the previous token, of both neighbors (`data/count_baselines.py`). Sentences and words for filled masks are chosen by
hash, independent of the result.

Shapes: B blocks of a batch, T tokens of a block, M masked tokens, V vocabulary.
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from roberta_plugin import reports
from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.conversion.pretrained import fairseq_dictionary
from roberta_plugin.data.blocks import BreakMode, make_blocks
from roberta_plugin.data.count_baselines import baselines_of, count_tokens, has_diverged, unigram_probs
from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.data.masked_lm_dataset import MaskedLMDataset, SplitFile
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.neighbor_baseline import see_neighbors
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.hub import MASK, Filling, RobertaHub
from roberta_plugin.hub.scoring import MaskedScore, score_masked
from roberta_plugin.launch.log import Record, parse_line
from roberta_plugin.launch.report import curves_of, draw
from roberta_plugin.models.checkpoints import build_model
from roberta_plugin.progress import progress_bar

NUM_PASSES = 4  # masks per block: more predictions from the same text
MASK_SEED = 20191107
TOKENS_IN_BATCH = 8192
MOST_PREDICTIONS = 100_000  # of a large split, part of a pass
NUM_EXAMPLES = 8  # sentences with a mask
MIN_WORDS, MAX_WORDS = 8, 20  # of such a sentence
MIN_LETTERS = 3  # of the masked word
MOST_LINES = 5_000  # of a split, among which sentences are looked for

_SENTENCE = re.compile(r"[^\W\d_]+(?: [^\W\d_]+(?:['-][^\W\d_]+)?,?)+[.!?]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_WORD = re.compile(rf"(?<= )[^\W\d_]{{{MIN_LETTERS},}}(?=[ ,.!?])")
_RESULTS = """\
{summary}

| on held-out text | model | unigram baseline | previous-token baseline | both-neighbors baseline |
| --- | ---: | ---: | ---: | ---: |
| masked-token accuracy | {model[accuracy]:.1f} % | {unigram[accuracy]:.1f} % | {bigram[accuracy]} | \
{neighbors[accuracy]} |
| perplexity | {perplexity} | {unigram[perplexity]:.1f} | {bigram[perplexity]} | {neighbors[perplexity]} |

The model and the unigram baseline predict the same {num_predictions:,} masked tokens of the split `{split}`. 15 % \
of the tokens are masked as in the paper, several times with different masks, and the {checkpoint} checkpoint, of \
{updates:,} updates, predicts them (`roberta_plugin/pretraining/evaluation.py`). The unigram baseline knows how \
often each token occurs in the training text. The last two count pairs of tokens: one reads the previous token \
alone, the other one both neighbors, as the masks leave them to the model \
(`roberta_plugin/data/neighbor_baseline.py`).{verdict}\
"""
_REPORT = """\
# {name}: results

{results}

![loss curve](loss.png)

The curves use the masks of the training. If these hide more than 15 % of the tokens, losses are higher than the \
perplexity in the table implies.
{answers}
## The training

```
{command}
```
"""


def unigram_log_probs(tokens: MmapTokens, vocabulary: Vocabulary) -> Tensor:
    """Natural logarithm of each token's share in a split (V,), smoothed, so that no token is impossible."""
    return torch.from_numpy(unigram_probs(count_tokens(tokens, vocabulary), vocabulary)).log()


def load_trained(path: Path, data_bin: Path, *, device: str) -> tuple[nn.Module, Vocabulary]:
    """The model of a checkpoint, in evaluation mode, and the vocabulary of its data; no tokenizer is needed."""
    vocabulary = Vocabulary.load(data_bin / "dict.txt")
    model = build_model(load_state(path, for_use=True), path, dictionary=fairseq_dictionary(vocabulary))
    return model.to(device).eval(), vocabulary


def evaluate(
    model: nn.Module,
    vocabulary: Vocabulary,
    data_bin: Path,
    *,
    split: str,
    break_mode: BreakMode,
    length: int,
    most: int = MOST_PREDICTIONS,
) -> dict[str, Any]:
    """Evaluate the model and the unigram baseline on the same masked positions of a split, in blocks of `length`.

    At most about `most` tokens are masked.

    Returns:
        `accuracy` (percent) and `perplexity` of `model` and `unigram`, of `bigram` and `neighbors` (counts of both
        neighbors) if they are known, and `num_predictions`.

    Raises:
        ValueError: if the split is too short to mask a token.
    """
    prefix, device = data_bin / split, str(next(model.parameters(), torch.empty(0)).device)
    batches = masked_batches(prefix, vocabulary, length=length, break_mode=break_mode, most=most)
    with progress_bar("evaluation", total=num_predictions(prefix, most), unit="token") as bar:
        of_model = score_masked(model, _shown_on(bar, batches), pad_id=vocabulary.pad_id, device=device, split=prefix)
    log_probs = unigram_log_probs(MmapTokens(data_bin / "train"), vocabulary)
    num_correct = int(of_model.targets.eq(log_probs.argmax()).sum())
    unigram = MaskedScore(of_model.targets, num_correct, float(log_probs[of_model.targets].sum()))
    scores: dict[str, Any] = {
        name: {"accuracy": score.accuracy, "perplexity": score.perplexity}
        for name, score in (("model", of_model), ("unigram", unigram))
    }
    baselines = baselines_of([data_bin / "train"], {split: [data_bin / split]})[split]
    if baselines is not None:
        masker = Masker.for_vocabulary(vocabulary, MaskingRecipe())
        both = baselines.neighbors.expect(see_neighbors(masker, MmapTokens(prefix), block_length=length))
        scores["bigram"] = {"accuracy": baselines.neighbors.left.accuracy, "perplexity": 2**baselines.bigram}
        scores["neighbors"] = {"accuracy": both.accuracy, "perplexity": 2**both.loss}
    return {**scores, "num_predictions": len(of_model.targets)}


def num_predictions(prefix: Path, most: int = MOST_PREDICTIONS) -> int:
    """About how many tokens of a split are masked, in all passes."""
    return min(most, round(NUM_PASSES * MaskingRecipe().mask_prob * MmapTokens(prefix).num_tokens))


def _shown_on(bar: Any, batches: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield batch
        bar.update(batch["predicted"]["number"])
    bar.total = bar.n  # before, an estimate: a bar that stops at 74 % looks broken off


def masked_batches(
    prefix: Path, vocabulary: Vocabulary, *, length: int, break_mode: BreakMode, most: int = MOST_PREDICTIONS
) -> Iterator[dict[str, Any]]:
    """The blocks of a split `NUM_PASSES` times, masked as in the paper, until `most` tokens are masked."""
    tokens = MmapTokens(prefix)
    blocks = make_blocks(tokens.sizes, block_length=length - 1, break_mode=break_mode)
    dataset = MaskedLMDataset(
        [SplitFile(tokens, blocks)],
        Masker.for_vocabulary(vocabulary, MaskingRecipe()),
        bos_id=vocabulary.bos_id,
        pad_id=vocabulary.pad_id,
        vocab_size=len(vocabulary),
        seed=MASK_SEED,
    )
    num_predicted = 0
    for number in range(1, NUM_PASSES + 1):
        for indices in dataset.batches(number, max_tokens=TOKENS_IN_BATCH):
            batch = dataset.__getitems__(indices)
            yield batch
            num_predicted += batch["predicted"]["number"]
            if num_predicted >= most:
                return


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


def fill(hub: RobertaHub, prefix: Path, *, count: int = NUM_EXAMPLES) -> list[dict[str, Any]]:
    """Sentences of a split with a mask, the masked word, and the model's five best `words`."""
    lines = [line for line in sentences(hub, prefix) if len(hub.encode(line)) <= hub.max_positions]
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


def sentences(hub: RobertaHub, prefix: Path) -> list[str]:
    """Sentences of some words in the first lines of a split."""
    tokens = MmapTokens(prefix)
    lines = (
        cast(str, hub.decode(torch.from_numpy(tokens[number].astype("int64"))))
        for number in range(min(len(tokens), MOST_LINES))
    )
    return [sentence for line in lines for sentence in _SENTENCE_END.split(line.strip()) if _is_candidate(sentence)]


def _is_candidate(line: str) -> bool:
    return MIN_WORDS <= len(line.split()) <= MAX_WORDS and _SENTENCE.fullmatch(line.strip()) is not None


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def write_report(folder: Path, *, evaluation: dict[str, Any], command: Sequence[str], logs: Sequence[Path]) -> None:
    """Write report.md, report.json and loss.png into `folder`; `logs` belong to one training, in their order."""
    curves = curves_of(_records(logs))
    draw(folder / "loss.png", curves, loss="loss in bits per masked token")
    answers = "\n".join(f"- {answer_line(answer)}" for answer in evaluation["answers"])
    heading = "\n## Held-out sentences\n\nSentences and masked words were chosen by hash, not by result.\n\n"
    updates = max((int(curve.updates[-1]) for curve in curves.values()), default=0)
    facts = {"checkpoint": "last", "updates": updates, **evaluation}
    shown = {**facts, "bigram": _cells(facts.get("bigram")), "neighbors": _cells(facts.get("neighbors"))}
    shown["perplexity"] = perplexity_text(evaluation["model"]["perplexity"])
    facts["results"] = _RESULTS.format(**shown, summary=summary(evaluation), verdict=_verdict(evaluation))
    text = _REPORT.format(
        name=folder.name,
        results=facts["results"],
        answers=f"{heading}{answers}\n" if answers else "",
        command=shlex.join(command),
    )
    reports.write_report(folder / "report", text, facts)


def _records(logs: Sequence[Path]) -> list[Record]:
    """The records of a training in several logs; what one has beyond the beginning of the next is left out."""
    records: list[Record] = []
    first = math.inf
    for log in reversed(logs):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        own = [record for line in lines if (record := parse_line(line)) and "num_updates" in record[1]]
        records = [record for record in own if record[1]["num_updates"] < first] + records
        first = min([first, *(record[1]["num_updates"] for record in own)])
    return records


def _cells(scores: dict[str, float] | None) -> dict[str, str]:
    """The cells of a baseline in the table, empty if it is not known."""
    if scores is None:
        return {"accuracy": "", "perplexity": ""}
    return {"accuracy": f"{scores['accuracy']:.1f} %", "perplexity": f"{scores['perplexity']:.1f}"}


def _verdict(evaluation: dict[str, Any]) -> str:
    """A paragraph for a model that is not better than counts."""
    model, neighbors = evaluation["model"], evaluation.get("neighbors")
    if neighbors is None or model["perplexity"] < neighbors["perplexity"]:
        return ""
    if has_diverged(math.log2(model["perplexity"])):
        return "\n\nThe training has diverged: give a lower `--lr` or a longer warm-up, in another folder."
    return (
        "\n\nThe model predicts worse than counts of both neighbors, which take seconds to make: "
        "train it longer (`roberta pretrain --hours`), or on more text."
    )


def summary(evaluation: dict[str, Any]) -> str:
    """The outcome in two or three sentences."""
    model, unigram, neighbors = evaluation["model"], evaluation["unigram"], evaluation.get("neighbors")
    beside = f"always guessing the most frequent token: {unigram['accuracy']:.1f} %"
    perplexities = f"baselines: unigram {unigram['perplexity']:.1f}"
    if neighbors is not None:
        beside += f", counts of both neighbors: {neighbors['accuracy']:.1f} %"
        previous = evaluation["bigram"]["perplexity"]
        perplexities += f", previous token {previous:.1f}, both neighbors {neighbors['perplexity']:.1f}"
    return (
        f"On held-out text the model predicts {model['accuracy']:.1f} % of the masked tokens correctly; {beside}. "
        f"Its perplexity is {perplexity_text(model['perplexity'])} ({perplexities})."
    )


def perplexity_text(perplexity: float) -> str:
    """As in `84.3`; if the model has diverged, as in `8.5e+270`."""
    return f"{perplexity:.1f}" if perplexity < 1e7 else f"{perplexity:.1e}"


def answer_line(answer: dict[str, Any]) -> str:
    """A sentence with a mask, the model's five most probable tokens, and the right one."""
    pairs = zip(answer["words"], answer["probabilities"], strict=True)
    guesses = ", ".join(f"{word} {probability:.0%}" for word, probability in pairs)
    return f"{answer['text']}: {guesses} (true: {answer['word']})"
