"""Pairs of texts as `<s> a </s></s> b </s>`, made from pretraining text or read from GLUE, for bench_comparing."""

from __future__ import annotations

import csv
import functools
import random
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.tasks.block_task import load_vocabulary

Pair = tuple[list[int], list[int], float]
Batch = tuple[Tensor, Tensor, Tensor]

BOS, PAD, EOS, SPECIAL, FREQUENT = 0, 1, 2, 4, 200
LENGTHS = (8, 14)
TOKENS_READ = 2_000_000
ROWS = {"STS-B": (7, 8, 9, 5.0, 1), "MRPC": (3, 4, 0, 1.0, 2)}
"""Columns of both texts and of the label, what a label is divided by, outputs."""


def is_word(token: int) -> bool:
    return token >= SPECIAL + FREQUENT


class Pairs:
    """Pairs from the text of one split, or from made-up text."""

    def __init__(self, prefix: Path, *, seed: int, uniform: int | None) -> None:
        tokens = MmapTokens(prefix)
        ids = np.concatenate([tokens[item] for item in range(min(len(tokens), TOKENS_READ // 20))])
        if uniform:
            ids = SPECIAL + FREQUENT + np.random.default_rng(seed).integers(uniform, size=len(ids))
        self.ids: list[int] = ids[ids != EOS].tolist()
        self.random = random.Random(seed)

    def text(self, length: int) -> list[int]:
        start = self.random.randrange(len(self.ids) - length)
        return self.ids[start : start + length]

    def other_word(self, taken: set[int]) -> int:
        while not is_word(token := self.random.choice(self.ids)) or token in taken:
            pass
        return token

    def pair(self, question: str) -> Pair:
        length = self.random.randint(*LENGTHS)
        a, b, answer = self.text(length), self.text(length), self.random.random() < 0.5
        if question in ("doubled", "shuffled"):
            return a, (a if question == "doubled" else self.random.sample(a, length)), 1.0
        if question == "equal":
            return a, (a if answer else b), float(answer)
        taken = set(a)
        b = [self.other_word(taken) if is_word(token) and token in taken else token for token in b]
        of_a = sorted(filter(is_word, taken))
        of_other = sorted(set(filter(is_word, self.text(length))) - taken)
        places = [place for place, token in enumerate(b) if is_word(token)]
        number = min(len(of_a), len(of_other), len(places), 1 if question == "word" else len(b))
        if not number:
            return self.pair(question)
        new = self.random.sample(of_a if answer else of_other, number)
        for place, token in zip(self.random.sample(places, number), new, strict=True):
            b[place] = token
        return a, b, float(answer)

    def batch(self, question: str, number: int) -> Batch:
        return joined([self.pair(question) for _ in range(number)])


def joined(pairs: list[Pair]) -> Batch:
    """Ids (B, T), segments (B, T) and answers (B,) of `<s> a </s></s> b </s>`."""
    rows = np.full((len(pairs), max(len(a) + len(b) for a, b, _ in pairs) + 4), PAD)
    segments = np.zeros_like(rows)
    for row, segment, (a, b, _) in zip(rows, segments, pairs, strict=True):
        end = len(a) + len(b) + 4
        row[:end] = [BOS, *a, EOS, EOS, *b, EOS]
        segment[len(a) + 2 : end] = 1
    return torch.from_numpy(rows), torch.from_numpy(segments), torch.tensor([answer for *_, answer in pairs])


@functools.cache
def official(name: str, split: str, raw: Path, tokenizer: Path, data: Path, longest: int) -> list[Pair]:
    """The rows of a task of GLUE, the longer text cut where both have no room."""
    first, second, label, scale, _ = ROWS[name]
    encoder = Encoder(load_tokenizer(tokenizer), load_vocabulary(data)[1])
    with open(raw / name / f"{split}.tsv", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    found = []
    for row in rows:
        a, b = encoder.ids(row[first]).tolist(), encoder.ids(row[second]).tolist()
        while len(a) + len(b) > longest - 4:
            (a if len(a) > len(b) else b).pop()
        found.append((a, b, float(row[label]) / scale))
    return found


def equals(ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
    """Which positions are tokens of b (B, T), and which tokens of a each of them equals (B, T, T)."""
    of_b = (segments == 1) & (ids >= SPECIAL)
    return of_b, (ids[:, :, None] == ids[:, None, :]) & of_b[:, :, None] & (segments == 0)[:, None, :]
