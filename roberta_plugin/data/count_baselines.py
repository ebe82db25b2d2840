"""What counting the training text predicts of held-out text: the losses of the unigram and of the bigram baseline.

A loss above the first means that a masked LM knows token frequencies at most; above the second, that a table of bigrams
(a token by the previous one) would be better. Computed once per held-out split and kept beside it in
baselines-SPLIT.json; shown by training, `roberta inspect` and the reports.

Scored are the tokens that masking can choose, those that `Vocabulary.never_masked` does not name: masks choose all of
them equally often, so the mean over all of them is what a masked LM's loss is compared with. With c() counted in the
training text, v the id before w in the file (</s> at the beginning of a line), and S symbols that masking can choose:

    unigram    p(w)     = (c(w) + 1) / (sum of c + S)
    bigram     p(w | v) = (c(v, w) + a p(w)) / (c(v) + a)

a is the power of sqrt(2) that is best on a twentieth of the training text, held out for this. Several corpora count as
one text, whatever their weights in a mixture. Of more than 2^28 training tokens, evenly spread windows are counted, and
of more than 2^21 held-out tokens in all splits such windows are scored. Of the pairs, only those are counted that occur
in the tokens to be predicted: memory stays below 300 MB.

Shapes: V ids, K different pairs v * V + w in ascending order.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.mmap_tokens import MmapTokens, bad_id_error
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.files import atomic_write
from roberta_plugin.json_files import read_json, sha256_of_json

logger = logging.getLogger(__name__)

_FORMAT = 1
_WINDOW = 2**21  # tokens
_MOST_COUNTED, _MOST_SCORED, _MOST_HELD_OUT = 2**28, 2**21, 2**20
_HELD_OUT_SHARE = 20  # a twentieth
_PSEUDO_COUNTS = 2.0 ** (np.arange(48, -9, -1) / 2)
_NOT_KEPT = object()
_SAMPLES, _SAMPLE = 64, 4096  # windows of a large file, and the tokens of one that identifies it


@dataclass(frozen=True, kw_only=True)
class CountBaselines:
    """The losses of counts on a held-out split, in bits per token that masking can choose."""

    unigram: float
    bigram: float
    pseudo_counts: float
    """a of the bigrams."""
    num_scored: int
    """Tokens that the losses are means over."""
    num_counted: int
    """Tokens of the training text that were counted."""
    num_train: int
    """Tokens of the training text."""

    def losses(self) -> dict[str, float]:
        """Loss by the name that logs and results give it."""
        return dict(zip(LOSSES, (self.unigram, self.bigram), strict=True))

    def described(self) -> str:
        """As in `unigram baseline 10.187 bits per token (ppl 1,166), bigram baseline 7.378 (ppl 166.3)`."""
        return (
            f"unigram baseline {self.unigram:.3f} bits per token (ppl {_shown(self.unigram)}), "
            f"bigram baseline {self.bigram:.3f} (ppl {_shown(self.bigram)})"
        )


LOSSES = {"unigram_loss": "unigram baseline", "bigram_loss": "bigram baseline"}
"""Names in logs and results -> names in plots and tables."""
_LEARNS_MORE = {  # options of a small fast_roberta
    "encoder_normalize_before": True,
    "init_std": "width",
    "init_attention": "neighbors",
    "zero_init_residual": True,
}


def remedy(model: Any = None) -> str:
    """What helps a model that is not below the unigram baseline, by its options: only what it does not have."""
    missing = {name: value for name, value in _LEARNS_MORE.items() if getattr(model, name, None) != value}
    if not missing:
        return "More updates help (`roberta pretrain --hours`), and smaller batches"
    options = (
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in missing.items()
    )
    whose = " (neighbors with learned positions)" if "init_attention" in missing else ""
    return (
        f"A small fast_roberta learns more by {' '.join(options)}, which `roberta pretrain` chooses by itself{whose}; "
        "more updates with smaller batches help, too"
    )


def comparison(loss: float, losses: Mapping[str, float], *, what: str) -> str:
    """A sentence that compares a masked LM's held-out loss with the baselines.

    Args:
        loss: in bits per token.
        losses: those of `CountBaselines.losses`.
        what: the subject, as in "the model".
    """
    unigram, bigram = (losses[name] for name in LOSSES)
    begin = f"{what} has a loss of {loss:.3f} bits per token (ppl {_shown(loss)})"
    if not loss < unigram:  # nan, too
        return (
            f"{begin}, not below the unigram baseline ({unigram:.3f}, ppl {_shown(unigram)}): so far it has learned "
            "token frequencies at most"
        )
    if loss >= bigram:
        return (
            f"{begin}: better than the unigram baseline ({unigram:.3f}), and worse than the bigram baseline "
            f"({bigram:.3f}, ppl {_shown(bigram)})"
        )
    return f"{begin}: better than the bigram baseline ({bigram:.3f}, ppl {_shown(bigram)})"


def _shown(bits: float) -> str:
    perplexity = 2.0 ** min(bits, 1000.0)
    return f"{perplexity:,.4g}" if perplexity < 1000 else f"{perplexity:,.0f}"


def count_tokens(tokens: MmapTokens, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """How often each id occurs (V,), for `unigram_probs`."""
    counts = np.zeros(len(vocabulary), dtype=np.int64)
    for start in range(0, tokens.num_tokens, _WINDOW):
        counts += np.bincount(tokens.tokens_on_disk[start : start + _WINDOW], minlength=len(vocabulary))
    return counts


def unigram_probs(counts: NDArray[np.int64], vocabulary: Vocabulary) -> NDArray[np.float64]:
    """Each id's share of the tokens that masking can choose (V,), with 1 added to each count; 0 for the others."""
    smoothed = np.where(vocabulary.never_masked(), 0.0, counts + 1.0)
    shares: NDArray[np.float64] = smoothed / smoothed.sum()
    return shares


def baselines_of(
    train: Sequence[str | Path], splits: Mapping[str, Sequence[str | Path]]
) -> dict[str, CountBaselines | None]:
    """The baselines of held-out splits, from the files beside them, or computed in one pass and kept there.

    A file of other data, or a damaged one, is replaced. A folder that cannot be written is a warning.

    Args:
        train: prefixes of the training text, PREFIX.bin and PREFIX.idx, all with the dict.txt of the first.
        splits: prefixes of each split.

    A split without a token that masking can choose has None.
    """
    vocabulary = Vocabulary.load(Path(train[0]).parent / "dict.txt")
    text = [MmapTokens(prefix) for prefix in train]
    held_out = {split: [MmapTokens(prefix) for prefix in prefixes] for split, prefixes in splits.items()}
    common = {"format": _FORMAT, "vocabulary": vocabulary.sha256, "train": [_identity(tokens) for tokens in text]}
    made_of = {
        split: common | {"held_out": [_identity(tokens) for tokens in files]} for split, files in held_out.items()
    }
    paths = {split: _path(train, prefixes, made_of[split]) for split, prefixes in splits.items()}
    kept = {split: value for split, path in paths.items() if (value := _kept(path, made_of[split])) is not _NOT_KEPT}
    missing = {split: files for split, files in held_out.items() if split not in kept}
    computed = count_baselines(text, missing, vocabulary) if missing else {}
    for split, baselines in computed.items():
        _keep(paths[split], made_of[split], baselines)
    return {split: (kept | computed)[split] for split in splits}


def _path(train: Sequence[str | Path], held_out: Sequence[str | Path], made_of: Mapping[str, Any]) -> Path:
    """Beside the first file of the split; with a hash in the name if the text is not just the same folder's."""
    prefix = Path(held_out[0]).absolute()
    is_mixture = len(train) + len(held_out) > 2 or Path(train[0]).absolute().parent != prefix.parent
    return prefix.with_name(f"baselines-{prefix.name}{f'-{sha256_of_json(made_of)[:8]}' if is_mixture else ''}.json")


def _kept(path: Path, made_of: Mapping[str, Any]) -> Any:
    try:
        content = read_json(path, keys=("made_of", "baselines"), remedy="it is made again") or {}
        if content.get("made_of") == made_of:
            return None if content["baselines"] is None else CountBaselines(**_checked(content["baselines"]))
    except (ValueError, TypeError, OSError) as error:
        logger.info(f"the kept baselines cannot be read: {error}")
    return _NOT_KEPT


def _keep(path: Path, made_of: Mapping[str, Any], baselines: CountBaselines | None) -> None:
    try:
        with atomic_write(path, "w") as file:
            json.dump({"made_of": made_of, "baselines": baselines and asdict(baselines)}, file, indent=1)
    except OSError as error:
        logger.warning(
            f"{path} cannot be written ({error.strerror or error}), so the baselines are computed at every start: make "
            "the folder writable, or train with --no-baselines."
        )


def _checked(baselines: Any) -> dict[str, Any]:
    if not isinstance(baselines, dict) or not all(
        isinstance(value, int | float) and math.isfinite(value) for value in baselines.values()
    ):
        raise ValueError(f"{baselines!r:.60} are not numbers by name")
    return baselines


def _identity(tokens: MmapTokens) -> dict[str, Any]:
    """Number of tokens and a hash of parts all over the file: the same for a copy, and quick for a large one."""
    digest = hashlib.sha256()
    last = max(0, tokens.num_tokens - _SAMPLE)
    for start in dict.fromkeys(int(place) for place in np.linspace(0, last, _SAMPLES)):
        digest.update(tokens.tokens_on_disk[start : start + _SAMPLE].tobytes())
    return {"tokens": tokens.num_tokens, "sample": digest.hexdigest()[:16]}


class _Window(NamedTuple):
    """Positions [start, stop) of a file."""

    tokens: MmapTokens
    start: int
    stop: int


class _Pairs(NamedTuple):
    """Pairs v * V + w (K,) in ascending order, without repetition, and how often each occurs (K,)."""

    keys: NDArray[np.int64]
    numbers: NDArray[np.int64]


@dataclass(frozen=True)
class _Counts:
    """Counts of a text; (V,) but for the pairs."""

    tokens: NDArray[np.int64]
    """How often each id occurs that masking can choose."""
    contexts: NDArray[np.int64]
    """How often each id stands before such a token."""
    pairs: _Pairs

    def without(self, other: _Counts) -> _Counts:
        """These counts less those of a part of the text, for the pairs that occur in the part."""
        numbers = self.pairs.numbers[np.searchsorted(self.pairs.keys, other.pairs.keys)]
        pairs = _Pairs(other.pairs.keys, numbers - other.pairs.numbers)
        return _Counts(self.tokens - other.tokens, self.contexts - other.contexts, pairs)


def count_baselines(
    train: Sequence[MmapTokens], splits: Mapping[str, Sequence[MmapTokens]], vocabulary: Vocabulary
) -> dict[str, CountBaselines | None]:
    """The losses of counts of `train` on each split; None for one without a token that masking can choose."""
    windows = _spread(train, _MOST_COUNTED)
    most = _MOST_HELD_OUT // max(1, len(windows))
    fitted_on = [
        _Window(tokens, stop - min((stop - start) // _HELD_OUT_SHARE, most), stop) for tokens, start, stop in windows
    ]
    fit = _count(fitted_on, vocabulary)
    most = _MOST_SCORED // len(splits)
    scored = {split: _count(_spread(files, most), vocabulary).pairs for split, files in splits.items()}
    keys = np.unique(np.concatenate([fit.pairs.keys, *(pairs.keys for pairs in scored.values())]))
    full = _count(windows, vocabulary, only=keys)
    rest = full.without(fit)
    losses = [_loss(fit.pairs, rest, pseudo_counts, vocabulary) for pseudo_counts in _PSEUDO_COUNTS]
    best = float(_PSEUDO_COUNTS[int(np.argmin(losses))])  # without such text the largest: the unigrams
    return {
        split: CountBaselines(
            unigram=_loss(pairs, full, math.inf, vocabulary),
            bigram=_loss(pairs, full, best, vocabulary),
            pseudo_counts=best,
            num_scored=int(pairs.numbers.sum()),
            num_counted=sum(stop - start for _, start, stop in windows),
            num_train=sum(tokens.num_tokens for tokens in train),
        )
        if len(pairs.keys)
        else None
        for split, pairs in scored.items()
    }


def _spread(files: Iterable[MmapTokens], most: int) -> list[_Window]:
    """Windows of all tokens; of more than `most`, evenly spread windows with about that many."""
    size = min(_WINDOW, max(1, most // _SAMPLES))
    windows = [
        _Window(tokens, start, min(start + size, tokens.num_tokens))
        for tokens in files
        for start in range(0, tokens.num_tokens, size)
    ]
    if sum(stop - start for _, start, stop in windows) > most:
        chosen = np.unique(np.linspace(0, len(windows) - 1, max(1, most // size)).astype(np.int64))
        windows = [windows[place] for place in chosen]
    return windows


def _count(windows: Iterable[_Window], vocabulary: Vocabulary, *, only: NDArray[np.int64] | None = None) -> _Counts:
    """Count tokens, contexts and pairs, or only those pairs that are `only` (K,), in ascending order."""
    size, is_scored = len(vocabulary), ~vocabulary.never_masked()
    tokens, contexts = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    parts = [_Pairs(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))]
    numbers = np.zeros(0 if only is None else len(only), dtype=np.int64)
    for window in windows:
        left, right = _neighbours(window, vocabulary)
        is_kept = is_scored[right]
        left, right = left[is_kept], right[is_kept]
        tokens += np.bincount(right, minlength=size)
        contexts += np.bincount(left, minlength=size)
        left *= size
        left += right
        left.sort()
        first = np.flatnonzero(np.diff(left, prepend=-1))
        pairs = _Pairs(left[first], np.diff(first, append=len(left)))
        if only is None:
            parts.append(pairs)
        elif len(only):
            at = np.minimum(np.searchsorted(only, pairs.keys), len(only) - 1)
            is_known = only[at] == pairs.keys
            numbers[at[is_known]] += pairs.numbers[is_known]
    return _Counts(tokens, contexts, _merged(parts) if only is None else _Pairs(only, numbers))


def _neighbours(window: _Window, vocabulary: Vocabulary) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ids of a window (n,), and the id before each: </s> before the first of a file."""
    tokens, start, stop = window
    ids = tokens.tokens_on_disk[max(0, start - 1) : stop].astype(np.int64)
    is_bad = (ids < 0) | (ids >= len(vocabulary))
    if is_bad.any():
        raise bad_id_error(tokens, max(0, start - 1) + int(np.argmax(is_bad)), len(vocabulary))
    if start == 0:
        ids = np.concatenate([[vocabulary.eos_id], ids])
    return ids[:-1].copy(), ids[1:]


def _merged(parts: Sequence[_Pairs]) -> _Pairs:
    keys, where = np.unique(np.concatenate([part.keys for part in parts]), return_inverse=True)
    numbers = np.bincount(where, np.concatenate([part.numbers for part in parts]), len(keys)).astype(np.int64)
    return _Pairs(keys, numbers)


def _loss(pairs: _Pairs, counts: _Counts, pseudo_counts: float, vocabulary: Vocabulary) -> float:
    """Mean loss of the pairs in bits by counts that hold them all; with infinitely many pseudo-counts, of unigrams."""
    before, token = np.divmod(pairs.keys, len(vocabulary))
    probs = unigram_probs(counts.tokens, vocabulary)[token]
    if math.isfinite(pseudo_counts):
        at = np.searchsorted(counts.pairs.keys, pairs.keys)
        probs = (counts.pairs.numbers[at] + pseudo_counts * probs) / (counts.contexts[before] + pseudo_counts)
    return float(-(pairs.numbers * np.log2(probs)).sum() / max(1, pairs.numbers.sum()))
