"""Dynamic masking: blocks of tokens -> (masked input, targets), in one pass for both.

Stage of the flow in `roberta_plugin/data/__init__.py`. A pure function of (seed, pass, block index) and the block's
tokens: any worker can make any block, a resumed run sees the same masks, and a block's mask depends neither on the
other blocks of its batch nor on padding. Paper sections 2.1 (replacement) and 4.1 (static and dynamic masking).

Example: in the block <s> the cat sat down </s>, "cat" and "down" are chosen (ids 0 11 12 13 14 2, <mask> M, pad 1):

    tokens     0 11  M 13 14  2     "cat" became <mask>; "down" stays as it is (10 % of the chosen)
    targets    1  1 12  1 14  1     the original id where a token is predicted
    positions  2  4                 gathered: positions ...
    labels    12 14                 ... and labels

Extensions have maskings of their own (`registry.MASKINGS`): subclasses of `Masker`, which override `share` and `rank`.

Shapes: B blocks, T positions, V vocabulary, M predicted positions in the batch, Q the most of one block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.counter_random import add_to_keys, bits32, bits64, finalize, make_keys
from roberta_plugin.data.vocabulary import Vocabulary

_CANNOT_BE_CHOSEN = np.uint32(2**32 - 1)
_HALF = np.uint64(32)
_CHOICE, _REPLACEMENT, _LENGTH = range(3)  # purpose of a key: part of it


@dataclass(frozen=True, kw_only=True)
class MaskingRecipe:
    """Choice of the predicted tokens and their replacements; defaults are the paper's."""

    mask_prob: float = 0.15
    """Share of the maskable tokens (or words) to predict."""
    leave_unmasked_prob: float = 0.1
    """Probability that a predicted token stays as it is in the input."""
    random_token_prob: float = 0.1
    """Probability that a predicted token is replaced by a random one; the others become <mask>."""
    whole_words: bool = False
    """Choose words instead of tokens, and predict all tokens of a chosen word."""
    multiple_length: int = 1
    """Tokens (or words) of a span: so many from a chosen one on are predicted."""
    stdev: float = 0.0
    """Standard deviation of the lengths of spans: normal, rounded, 0 at least."""
    num_static_masks: int = 0
    """0: a new mask in every pass. N: pass p uses mask (p - 1) mod N."""
    freq_weighted_replacement: bool = False
    """Draw random tokens by their counts instead of uniformly."""

    def mask_numbers(self, passes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of each pass's mask, counted from 1 (n,).

        Example: with 10 static masks, 40 passes use each of the masks 1 to 10 four times (paper section 4.1).
        """
        return (passes - 1) % self.num_static_masks + 1 if self.num_static_masks else passes

    @property
    def has_spans(self) -> bool:
        """True if spans are chosen instead of single tokens (or words)."""
        return self.multiple_length > 1 or self.stdev > 0

    def check(self) -> None:
        """Refuse shares that add up to more than 1. The task's options check the limits of each."""
        if self.leave_unmasked_prob + self.random_token_prob > 1.0:
            raise ValueError(
                f"--leave-unmasked-prob ({self.leave_unmasked_prob}) and --random-token-prob "
                f"({self.random_token_prob}) add up to more than 1: lower one of them."
            )


class MaskedBatch(NamedTuple):
    """A masked batch, with the predicted tokens in two forms: in place, and gathered block by block."""

    tokens: NDArray[np.int64]
    """The model's input (B, T)."""
    targets: NDArray[np.int64]
    """The original id where a token is predicted, pad elsewhere (B, T)."""
    positions: NDArray[np.int64]
    """The predicted positions of each block from left to right (B, Q), then 0."""
    labels: NDArray[np.int64]
    """The original ids at `positions` (B, Q), then pad."""
    num_predicted: int
    """M, the number of predicted positions in the batch."""

    def with_first(self, *, pad_id: int) -> MaskedBatch:
        """The batch with one more entry before the others: position 0, where <s> is, without a label."""
        before = np.zeros((len(self.positions), 1), dtype=np.int64)
        return self._replace(
            positions=np.concatenate([before, self.positions], axis=1),  # (B, Q) -> (B, Q + 1)
            labels=np.concatenate([before + pad_id, self.labels], axis=1),
        )


class Masker:
    """Masks blocks by a recipe, for one vocabulary.

    A subclass that chooses other tokens overrides `share` (how many), with `largest_share`, and `rank` (which).
    """

    def __init__(
        self,
        recipe: MaskingRecipe,
        *,
        mask_id: int,
        pad_id: int,
        never_masked: NDArray[np.bool_],
        never_drawn: NDArray[np.bool_],
        word_starts: NDArray[np.bool_] | None = None,
        word_ends: NDArray[np.bool_] | None = None,
        counts: NDArray[np.int64] | None = None,
        options: Any = None,
    ) -> None:
        """Prepare the tables.

        Args:
            recipe: choice and replacement of predicted tokens.
            mask_id: id of <mask>.
            pad_id: id of <pad>, which the targets hold where nothing is predicted.
            never_masked: ids that are never predicted (V,).
            never_drawn: ids that never replace another token (V,).
            word_starts: ids that begin a word (V,), for `whole_words`.
            word_ends: ids after which a word begins (V,), as after an added token; None: after special ones alone.
            counts: frequency of each id (V,), for `freq_weighted_replacement`.
            options: the options of an extension's masking, in its own dataclass.

        Raises:
            ValueError: if the recipe cannot work, needs a table that is not given, or leaves no token to draw.
        """
        recipe.check()
        if recipe.whole_words and word_starts is None:
            raise ValueError(
                "--mask-whole-words needs a tokenizer that knows where words begin: give its --tokenizer-folder."
            )
        self.recipe = recipe
        self.options = options
        self.mask_id = mask_id
        self.pad_id = pad_id
        self._never_masked = never_masked
        self._begins_word = None if word_starts is None or not recipe.whole_words else word_starts | never_masked
        self._ends_word = never_masked if word_ends is None else word_ends | never_masked
        self._drawable = np.flatnonzero(~never_drawn)
        self._cumulative: NDArray[np.float64] | None = None
        if recipe.freq_weighted_replacement:
            assert counts is not None
            cumulative = np.cumsum(counts[self._drawable], dtype=np.float64)
            if not len(cumulative) or cumulative[-1] == 0:
                raise ValueError("--freq-weighted-replacement needs counts, and those in dict.txt are all 0.")
            self._cumulative = cumulative / cumulative[-1]
        if recipe.random_token_prob > 0 and not len(self._drawable):
            raise ValueError("The vocabulary has no token to draw: use --random-token-prob 0.")

    @classmethod
    def for_vocabulary(
        cls,
        vocabulary: Vocabulary,
        recipe: MaskingRecipe,
        *,
        word_starts: NDArray[np.bool_] | None = None,
        word_ends: NDArray[np.bool_] | None = None,
        options: Any = None,
    ) -> Masker:
        """A masker with the tables of a vocabulary."""
        return cls(
            recipe,
            mask_id=vocabulary.mask_id,
            pad_id=vocabulary.pad_id,
            never_masked=vocabulary.never_masked(),
            never_drawn=vocabulary.never_drawn(),
            word_starts=word_starts,
            word_ends=word_ends,
            counts=vocabulary.counts,
            options=options,
        )

    @property
    def largest_share(self) -> float:
        """The largest share that `share` returns."""
        return self.recipe.mask_prob

    def share(self, updates: int | None) -> float:
        """The share of the maskable tokens (or words) to predict.

        `updates` are those that the training has begun before the update of this batch. It is None where nothing is
        trained: validations need the same share at all times, or their losses cannot be compared.
        """
        return self.recipe.mask_prob

    def rank(self, draws: NDArray[np.uint32], tokens: NDArray[np.int64]) -> NDArray[Any]:
        """Numbers (B, T), of which the smallest of each block are chosen.

        Args:
            draws: random numbers of 32 bits, uniform and independent (B, T).
            tokens: ids (B, T).
        """
        return draws

    def mask(
        self,
        tokens: NDArray[np.int64],
        *,
        seed: int,
        passes: NDArray[np.int64],
        indices: NDArray[np.int64],
        begins: NDArray[np.bool_] | None = None,
        updates: int | None = None,
    ) -> MaskedBatch:
        """Mask a batch of blocks.

        Of the n maskable tokens (or words) of a block, exactly floor(p * n + u) are chosen, without replacement, where
        p is `share` and u is uniform in [0, 1): p * n on average. With spans of L, they are the beginnings of
        floor(p * n / L + u) spans; as in fairseq, spans may overlap and end with the block, so the share predicted is
        somewhat below p.

        Example: of 10 tokens with mask_prob 0.15, one or two are chosen, each with probability 1/2.

        Args:
            tokens: ids (B, T), padded; not changed.
            seed: seed of the run.
            passes: number of times each block has been visited, including this time (B,).
            indices: number of each block in the data (B,).
            begins: for whole words: positions that always begin one (B, T), such as the first of a line.
            updates: see `share`.
        """
        keys = add_to_keys(make_keys(seed, _CHOICE, indices=indices), self.recipe.mask_numbers(passes))
        chosen = self._choose(tokens, keys, begins, self.share(updates))
        at = np.flatnonzero(chosen)
        targets = np.full_like(tokens, self.pad_id)
        original = tokens.ravel()[at]
        targets.ravel()[at] = original
        masked = tokens.copy()
        replacement_keys = add_to_keys(keys, np.full(len(keys), _REPLACEMENT))
        rows, positions = np.divmod(at, tokens.shape[1])
        masked.ravel()[at] = self._replace(original, bits64(replacement_keys[rows], positions))

        counts = np.bincount(rows, minlength=len(tokens))
        columns = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)
        shape = (len(tokens), self._room(tokens.shape[1], counts))
        gathered, labels = np.zeros(shape, dtype=np.int64), np.full(shape, self.pad_id, dtype=np.int64)
        gathered[rows, columns] = positions
        labels[rows, columns] = original
        return MaskedBatch(masked, targets, gathered, labels, len(at))

    def _room(self, num_positions: int, counts: NDArray[np.int64]) -> int:
        """Q: enough for any block of this many positions, so that batches of the same width have the same shape."""
        if self.recipe.whole_words or self.recipe.has_spans:
            return int(counts.max(initial=0))
        return max(int(self.largest_share * num_positions) + 1, int(counts.max(initial=0)))

    def _choose(
        self,
        tokens: NDArray[np.int64],
        keys: NDArray[np.uint64],
        more_begins: NDArray[np.bool_] | None,
        share: float,
    ) -> NDArray[np.bool_]:
        """The predicted positions (B, T), bool."""
        is_candidate = ~self._never_masked[tokens]
        if self._begins_word is None:
            return self._draw_candidates(is_candidate, keys, tokens, share)
        begins = self._begins_word[tokens]
        begins[:, 1:] |= self._ends_word[tokens[:, :-1]]
        begins[:, 0] = True
        if more_begins is not None:
            begins |= more_begins
        chosen_begins = self._draw_candidates(is_candidate & begins, keys, tokens, share)
        positions = np.arange(tokens.shape[1])
        word = np.maximum.accumulate(np.where(begins, positions, 0), axis=1)  # position of each token's word
        chosen: NDArray[np.bool_] = np.take_along_axis(chosen_begins, word, axis=1)
        return chosen

    def _draw_candidates(
        self, is_candidate: NDArray[np.bool_], keys: NDArray[np.uint64], tokens: NDArray[np.int64], share: float
    ) -> NDArray[np.bool_]:
        """Choose the candidates of the smallest rank in each block (B, T)."""
        draws = np.minimum(bits32(keys, is_candidate.shape[1]), _CANNOT_BE_CHOSEN - np.uint32(1))
        ranks = self.rank(draws, tokens)
        ranks = np.where(is_candidate, ranks, np.inf if ranks.dtype.kind == "f" else _CANNOT_BE_CHOSEN)
        uniform = (finalize(~keys) >> np.uint64(11)) * 2.0**-53
        share = share / self.recipe.multiple_length
        num_chosen = np.floor(share * is_candidate.sum(axis=1) + uniform).astype(np.int64)
        in_order = np.sort(ranks, axis=1)
        last = np.take_along_axis(in_order, np.maximum(num_chosen - 1, 0)[:, None], axis=1)
        chosen: NDArray[np.bool_] = (ranks <= last) & (num_chosen > 0)[:, None]
        for row in np.flatnonzero(chosen.sum(axis=1) != num_chosen):  # equal numbers at the limit: take the first ones
            chosen[row] = False
            chosen[row, np.argsort(ranks[row], kind="stable")[: num_chosen[row]]] = True
        return self._spans(chosen, is_candidate, keys) if self.recipe.has_spans else chosen

    def _spans(
        self, starts: NDArray[np.bool_], is_candidate: NDArray[np.bool_], keys: NDArray[np.uint64]
    ) -> NDArray[np.bool_]:
        """The candidates of the spans that begin at `starts` (B, T); candidates are counted, other tokens are not.

        Example: spans of 2 in a b </s> c d, beginning at b: b and c.
        """
        number = np.maximum(np.cumsum(is_candidate, axis=1) - 1, 0)  # of a candidate in its block (B, T)
        rows, positions = np.nonzero(starts)
        first = number[rows, positions]
        after = np.minimum(first + self._lengths(keys[rows], positions), starts.shape[1])
        change = np.zeros((len(starts), starts.shape[1] + 1), dtype=np.int32)
        np.add.at(change, (rows, first), 1)
        np.add.at(change, (rows, after), -1)
        is_within = np.cumsum(change, axis=1) > 0  # by number (B, T + 1)
        chosen: NDArray[np.bool_] = is_candidate & np.take_along_axis(is_within, number, axis=1)
        return chosen

    def _lengths(self, keys: NDArray[np.uint64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Lengths of the spans that begin at some positions (n,)."""
        if not self.recipe.stdev:
            return np.full(len(positions), self.recipe.multiple_length)
        bits = bits64(add_to_keys(keys, np.full(len(keys), _LENGTH)), positions)
        radius = np.sqrt(-2.0 * np.log(((bits >> _HALF) + 1.0) * 2.0**-32))
        normal = radius * np.cos(2.0 * np.pi * ((bits & np.uint64(2**32 - 1)) * 2.0**-32))  # Box and Muller
        lengths = np.maximum(np.rint(self.recipe.multiple_length + self.recipe.stdev * normal), 0)
        whole: NDArray[np.int64] = lengths.astype(np.int64)
        return whole

    def _replace(self, original: NDArray[np.int64], bits: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Replacements of the chosen tokens (M,), from 64 random bits for each (M,)."""
        recipe = self.recipe
        kind = bits >> _HALF
        leave_below = round(recipe.leave_unmasked_prob * 2**32)
        random_below = leave_below + round(recipe.random_token_prob * 2**32)
        replacements = np.full_like(original, self.mask_id)
        if random_below:
            is_random = kind < random_below
            replacements[is_random] = self._draw_tokens(bits[is_random] & np.uint64(2**32 - 1))
            is_left = kind < leave_below
            replacements[is_left] = original[is_left]
        return replacements

    def _draw_tokens(self, bits: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Map 32-bit numbers to tokens that may be drawn."""
        if self._cumulative is None:
            which = ((bits * np.uint64(len(self._drawable))) >> _HALF).astype(np.int64)
        else:
            which = np.searchsorted(self._cumulative, bits * 2.0**-32, side="right")
        drawn: NDArray[np.int64] = self._drawable[which]
        return drawn
