"""How well a tokenizer suits a text: tokens and bytes per word, and how many words stay whole.

A word is text between white space. GPT-2's tokenizer needs about 1.3 tokens per English word; a language that
was missing from its text, such as Yoruba, needs several times as many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roberta_plugin.data.tokenizers.base import Tokenizer

_MOST_CHARACTERS = 2**20
_MOST_WORDS = 20_000  # different words, the most frequent ones


@dataclass(frozen=True)
class Figures:
    """The figures of a tokenizer on a text."""

    tokens_per_word: float
    bytes_per_token: float
    whole: float
    """Share of the words, as often as they occur, that are one token."""
    unknown: float
    """Share of the tokens that the tokenizer does not know."""

    def describe(self) -> str:
        """As in `1.31 tokens per word, 4.46 bytes per token, 78.2 % of the words are one token`."""
        text = (
            f"{self.tokens_per_word:.2f} tokens per word, {self.bytes_per_token:.2f} bytes per token, "
            f"{self.whole:.1%} of the words are one token"
        )
        return f"{text}, {self.unknown:.2%} of the tokens are unknown" if self.unknown else text


def measure(tokenizer: Tokenizer, lines: Iterable[str]) -> Figures | None:
    """The figures on the first million characters of some lines; None if these have no word."""
    sample = _first(lines)
    words = Counter(word for line in sample for word in line.split())
    if not words:
        return None
    ids, _ = tokenizer.encode_lines(list(sample))
    num_tokens, unknown_id = len(ids), getattr(tokenizer, "unknown_id", None)
    common = words.most_common(_MOST_WORDS)
    whole = sum(count for word, count in common if len(tokenizer.encode(f" {word}")) == 1)
    return Figures(
        tokens_per_word=num_tokens / words.total(),
        bytes_per_token=sum(len(line.encode()) for line in sample) / max(1, num_tokens),
        whole=whole / sum(count for _, count in common),
        unknown=sum(index == unknown_id for index in ids) / max(1, num_tokens) if unknown_id is not None else 0.0,
    )


def _first(lines: Iterable[str]) -> Sequence[str]:
    sample, size = [], 0
    for line in lines:
        if not line:
            continue
        sample.append(line)
        size += len(line)
        if size >= _MOST_CHARACTERS:
            break
    return sample
