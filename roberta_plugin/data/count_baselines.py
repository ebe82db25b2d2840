"""The losses of three baselines that count the training text, on held-out text.

A loss above the unigram baseline means that a masked LM knows token frequencies at most. The previous-token baseline
reads the token before alone (bigrams). A masked LM reads both neighbors, and so does the both-neighbors baseline, with
the neighbors as the model sees them (`neighbor_baseline`). Computed once per held-out split and kept beside it in
baselines-SPLIT.json; shown by training, `roberta inspect` and the reports.

Scored are the tokens that masking can choose, those that `Vocabulary.never_masked` does not name: masks choose all of
them equally often, so the mean over all of them is what a masked LM's loss is compared with. With c() counted in the
training text, v the id before w in the file (</s> at the beginning of a line), and S symbols that masking can choose:

    unigram    p(w)     = (c(w) + 1) / (sum of c + S)
    bigram     p(w | v) = (c(v, w) + a p(w)) / (c(v) + a)

a is the power of sqrt(2) that is best on a twentieth of the training text, held out for this; so is b, for the token
after w. Several corpora count as one text, whatever their weights in a mixture. Of more than 2^26 training tokens,
evenly spread windows are counted, and of more than 2^21 held-out tokens in all splits such windows are scored. The
counts of pairs are a sparse matrix: 8 bytes for each different pair.

Shapes: V ids, K different pairs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.neighbor_baseline import NeighborCounts, NeighborScores, score_neighbors
from roberta_plugin.data.pair_counts import WINDOW, Window, count_pairs, spread_windows, window_ids
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.files import atomic_write
from roberta_plugin.json_files import read_json, sha256_of_json

logger = logging.getLogger(__name__)

_FORMAT = 2
_MOST_SYMBOLS = 2**20  # of any vocabulary
_MOST_COUNTED, _MOST_SCORED, _MOST_HELD_OUT = 2**26, 2**21, 2**20
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
    neighbors: NeighborScores
    """Counts of both neighbors, by what is known of them."""

    def losses(self, seen: NDArray[np.float64]) -> dict[str, float]:
        """Loss by the name that logs and results give it, for neighbors that look as in `see_neighbors`' `seen`."""
        return dict(zip(LOSSES, (self.unigram, self.bigram, self.neighbors.expect(seen).loss), strict=True))

    def describe(self, seen: NDArray[np.float64]) -> str:
        """As in `unigram baseline 10.187 bits per token (ppl 1,166), bigram baseline ... 7.378 (ppl 166.3), ...`."""
        first, *others = (
            f"{LOSSES[name]} {loss:.3f}{{}} (ppl {_shown(loss)})" for name, loss in self.losses(seen).items()
        )
        return ", ".join([first.format(" bits per token"), *(other.format("") for other in others)])


LOSSES = {
    "unigram_loss": "unigram baseline",
    "bigram_loss": "previous-token baseline",
    "neighbors_loss": "both-neighbors baseline",
}
"""Names in logs and results -> names in plots and tables, from the easiest to the hardest."""
_LEARNS_MORE = {  # options of a small fast_roberta
    "encoder_normalize_before": True,
    "init_std": "width",
    "init_attention": "counts",
    "zero_init_residual": True,
}


def remedy(model: Any = None) -> str:
    """Remedies for a model that is not below the unigram baseline: the options that it does not have yet."""
    missing = {name: value for name, value in _LEARNS_MORE.items() if getattr(model, name, None) != value}
    if not missing:
        return "More updates help (`roberta pretrain --hours`), and smaller batches"
    options = (
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in missing.items()
    )
    return (
        f"A small fast_roberta with new weights learns more by {' '.join(options)}, which `roberta pretrain` chooses "
        "by itself; more updates with smaller batches help, too"
    )


def has_diverged(loss: float, *, num_symbols: int = _MOST_SYMBOLS) -> bool:
    """True if a loss, in bits per token, is far above the loss of symbols drawn uniformly from the vocabulary."""
    return not loss < math.log2(num_symbols) + 2


def comparison(loss: float, losses: Mapping[str, float], *, what: str, num_symbols: int = _MOST_SYMBOLS) -> str:
    """A sentence that compares a masked LM's held-out loss with the baselines.

    Args:
        loss: in bits per token.
        losses: as from `CountBaselines.losses`.
        what: the subject, as in "the model".
        num_symbols: size of the vocabulary, if it is known.
    """
    begin = f"{what} has a loss of {loss:.3f} bits per token (ppl {_shown(loss)})"
    unigram = losses["unigram_loss"]
    if has_diverged(loss, num_symbols=num_symbols):
        return (
            f"{begin}, more than an even guess among all symbols would cost: the training has diverged. Give a lower "
            "--lr, a longer warm-up or --clip-norm"
        )
    if not loss < unigram:
        return (
            f"{begin}, not below the unigram baseline ({unigram:.3f}, ppl {_shown(unigram)}): so far it has learned "
            "token frequencies at most"
        )
    known = [name for name in LOSSES if name in losses]  # older logs do not have the last one
    beaten = [name for name in known if loss < losses[name]]
    text = f"{begin}: better than {_name(beaten[-1], losses)}"
    missed = [name for name in known if name not in beaten]
    return f"{text}, and worse than {_name(missed[0], losses)}" if missed else text


def _name(name: str, losses: Mapping[str, float]) -> str:
    """As in `the unigram baseline (10.187, ppl 1,166)`."""
    return f"the {LOSSES[name]} ({losses[name]:.3f}, ppl {_shown(losses[name])})"


def _shown(bits: float) -> str:
    perplexity = 2.0 ** min(bits, 1000.0)
    if not perplexity < 1e7:
        return f"{perplexity:.1e}" if bits < 1000 else "more than 1e+301" if bits > 0 else "nan"
    return f"{perplexity:,.4g}" if perplexity < 1000 else f"{perplexity:,.0f}"


def count_tokens(tokens: MmapTokens, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """How often each id occurs (V,), for `unigram_probs`."""
    counts = np.zeros(len(vocabulary), dtype=np.int64)
    for start in range(0, tokens.num_tokens, WINDOW):
        counts += np.bincount(tokens.tokens_on_disk[start : start + WINDOW], minlength=len(vocabulary))
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
            return None if content["baselines"] is None else _read(content["baselines"])
    except (ValueError, TypeError, AttributeError, OSError) as error:
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


def _read(content: Any) -> CountBaselines:
    numbers = {name: value for name, value in content.items() if name != "neighbors"}
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in numbers.values()):
        raise ValueError(f"{numbers!r:.60} are not numbers by name")
    return CountBaselines(**numbers, neighbors=NeighborScores.from_json(content.get("neighbors", {})))


def _identity(tokens: MmapTokens) -> dict[str, Any]:
    """Number of tokens and a hash of parts all over the file: the same for a copy, and quick for a large one."""
    digest = hashlib.sha256()
    last = max(0, tokens.num_tokens - _SAMPLE)
    for start in dict.fromkeys(int(place) for place in np.linspace(0, last, _SAMPLES)):
        digest.update(tokens.tokens_on_disk[start : start + _SAMPLE].tobytes())
    return {"tokens": tokens.num_tokens, "sample": digest.hexdigest()[:16]}


def count_baselines(
    train: Sequence[MmapTokens], splits: Mapping[str, Sequence[MmapTokens]], vocabulary: Vocabulary
) -> dict[str, CountBaselines | None]:
    """The losses of counts of `train` on each split; None for one without a token that masking can choose."""
    windows = spread_windows(train, _MOST_COUNTED)
    most = _MOST_HELD_OUT // max(1, len(windows))
    fitted_on = [
        Window(tokens, stop - min((stop - start) // _HELD_OUT_SHARE, most), stop) for tokens, start, stop in windows
    ]
    full, fit = count_pairs(windows, vocabulary), count_pairs(fitted_on, vocabulary)
    left, right = (_fit(fit, full - fit, vocabulary, by_right=by_right) for by_right in (False, True))
    counts = NeighborCounts(full, _probs(full, vocabulary), pseudo_counts=(left, right))
    result: dict[str, CountBaselines | None] = {}
    for split, files in splits.items():
        places = _places(spread_windows(files, _MOST_SCORED // len(splits)), vocabulary)
        result[split] = None
        if len(places[1]):
            unigram, bigram = _losses(places[:2], full, (math.inf, left), vocabulary)
            neighbors = score_neighbors(counts, *places, no_id=vocabulary.pad_id)
            result[split] = CountBaselines(
                unigram=unigram,
                bigram=bigram,
                pseudo_counts=left,
                num_scored=len(places[1]),
                num_counted=sum(stop - start for _, start, stop in windows),
                num_train=sum(tokens.num_tokens for tokens in train),
                neighbors=neighbors,
            )
    return result


def _places(windows: Iterable[Window], vocabulary: Vocabulary) -> tuple[NDArray[np.int64], ...]:
    """The tokens of some windows that masking can choose (n,), between the ids before and after them."""
    is_scored = ~vocabulary.never_masked()
    parts: list[tuple[NDArray[np.int64], ...]] = [(np.empty(0, dtype=np.int64),) * 3]
    for window in windows:
        ids = window_ids(window, vocabulary)
        is_kept = is_scored[ids[1:-1]]
        parts.append((ids[:-2][is_kept], ids[1:-1][is_kept], ids[2:][is_kept]))
    return tuple(np.concatenate(side) for side in zip(*parts, strict=True))


def _probs(pairs: Any, vocabulary: Vocabulary) -> NDArray[np.float64]:
    """The unigram probabilities (V,) by counts of pairs: each token is once the second of a pair."""
    return unigram_probs(np.asarray(pairs.sum(axis=0)).ravel(), vocabulary)


def _fit(fit: Any, rest: Any, vocabulary: Vocabulary, *, by_right: bool) -> float:
    """The pseudo-counts with which `rest` predicts `fit` best, by the token before or after.

    Without such text the largest: unigrams.
    """
    pairs = fit.tocoo()
    is_scored = ~vocabulary.never_masked()[pairs.row if by_right else pairs.col]
    ids = (pairs.row[is_scored], pairs.col[is_scored])
    weights = pairs.data[is_scored]
    losses = _losses(ids, rest, _PSEUDO_COUNTS, vocabulary, weights=weights, by_right=by_right)
    return float(_PSEUDO_COUNTS[int(np.argmin(losses))])


def _losses(
    pairs: Sequence[NDArray[np.int64]],
    counts: Any,
    pseudo_counts: Iterable[float],
    vocabulary: Vocabulary,
    *,
    weights: NDArray[np.int64] | None = None,
    by_right: bool = False,
) -> list[float]:
    """Mean loss in bits of the second ids (n,) of pairs by the first ones, or the other way round.

    One loss for each number of pseudo-counts; with infinitely many, of unigrams. `weights` (n,) repeat the pairs.
    """
    first, second = pairs
    word, neighbor = (first, second) if by_right else (second, first)
    is_scored = (~vocabulary.never_masked()).astype(np.int64)
    totals = np.asarray(counts.T @ is_scored if by_right else counts @ is_scored).ravel()[neighbor]
    numbers = np.asarray(counts[first, second]).ravel() if len(first) else np.empty(0)
    prior = _probs(counts, vocabulary)[word]
    weights = np.ones(len(first), dtype=np.int64) if weights is None else weights
    losses = []
    for value in pseudo_counts:
        probs = (numbers + value * prior) / (totals + value) if math.isfinite(value) else prior
        losses.append(float(-(weights * np.log2(probs)).sum() / max(1, weights.sum())))
    return losses
