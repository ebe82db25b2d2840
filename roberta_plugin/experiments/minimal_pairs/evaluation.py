"""Models and a benchmark of minimal pairs -> scores of all sentences, and the pairs right in percent.

The scores of a paradigm are stored as soon as they are known, in OUTPUT_DIR/scores, by the weights of the model: a run
that was stopped resumes, and no checkpoint is scored twice, whatever its file is called.

Example:
    from roberta_plugin.experiments.minimal_pairs.evaluation import PairSettings, evaluate_pairs

    settings = PairSettings(
        benchmark="zorro", data=Path("zorro"), checkpoints=[Path("runs/base")], output_dir=Path("results")
    )
    print(evaluate_pairs(settings).models[0].numbers["all"])
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from roberta_plugin.conversion.model_files import format_of
from roberta_plugin.conversion.onnx_runner import OnnxModel
from roberta_plugin.data.manifest import sha256_of_file
from roberta_plugin.experiments.minimal_pairs.benchmarks import (
    BENCHMARKS,
    Numbers,
    PairBenchmark,
    Paradigm,
    percent_right,
)
from roberta_plugin.experiments.minimal_pairs.settings import PairSettings as PairSettings
from roberta_plugin.hub import RobertaHub
from roberta_plugin.json_files import read_json, sha256_of_json, write_json
from roberta_plugin.models.precision import set_precision
from roberta_plugin.prediction.opening import usable_device
from roberta_plugin.progress import progress_bar

_SHOWN = 3  # examples in a remark


@dataclass(frozen=True, kw_only=True)
class ModelResult:
    """The results of one model."""

    name: str
    """Its path."""
    num_updates: int
    """Updates of its training; 0: not known."""
    numbers: Numbers
    """Pairs right in percent, by paradigm, category, and "all"."""


@dataclass(frozen=True, kw_only=True)
class PairResults:
    """The results of a benchmark, as results.json holds them."""

    benchmark: str
    method: str
    num_pairs: int
    """Number of pairs in all paradigms."""
    limit: int | None
    models: Sequence[ModelResult]
    published: Mapping[str, Numbers]
    """Model -> its published numbers; those it has."""
    remarks: Sequence[str] = field(default_factory=list)
    precision: str = "fp32"
    """Of the models' products (`models/precision.py`)."""


def evaluate_pairs(settings: PairSettings) -> PairResults:
    """Score the sentences of a benchmark by each model, and count the right pairs.

    Raises:
        ValueError: if a file is not as it should be, or a model has no LM head.
    """
    benchmark = BENCHMARKS[settings.benchmark]
    paradigms = benchmark.paradigms(settings.data, limit=settings.limit)
    paths = list(_models(settings))
    with_own = [path for path in paths if format_of(path) in ("onnx", "huggingface")]  # a tokenizer, and no other
    settings.output_dir.mkdir(parents=True, exist_ok=True)
    remarks = _remarks(benchmark, paradigms, limit=settings.limit)
    models = []
    for path in paths:
        # A checkpoint is known by its weights in fp32, and gets its precision after that.
        of_graph = {"precision": settings.precision} if format_of(path) == "onnx" else {}
        tokenizer = None if path in with_own and len(with_own) < len(paths) else settings.tokenizer
        hub = RobertaHub.from_pretrained(path, data=tokenizer, tokenizer=tokenizer, **of_graph)
        hub.check_masked_lm()
        try:
            found, too_long = _evaluate_model(hub, benchmark, paradigms, settings, name=str(path))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        models.append(ModelResult(name=str(path), num_updates=hub.num_updates, numbers=benchmark.summarized(found)))
        if too_long:
            remarks.append(
                f"{path} reads at most {hub.max_positions} tokens: pairs with a longer sentence count as wrong: "
                f"{_listed(too_long)}."
            )
    return PairResults(
        benchmark=settings.benchmark,
        method=settings.method or benchmark.method,
        num_pairs=sum(len(paradigm.pairs) for paradigm in paradigms),
        limit=settings.limit,
        models=sorted(models, key=lambda model: model.num_updates),
        published=benchmark.published_numbers(settings.data),
        remarks=remarks,
        precision=settings.precision,
    )


def _models(settings: PairSettings) -> Iterator[Path]:
    """The models to evaluate: with `all_checkpoints`, a folder stands for its checkpoints."""
    for path in settings.checkpoints:
        if not path.exists():
            raise FileNotFoundError(f"--checkpoint {path} does not exist: name a checkpoint, or the folder of a model.")
        if not (settings.all_checkpoints and path.is_dir()):
            yield path
            continue
        found = sorted(path.glob("*.pt")) or sorted(path.glob("checkpoints/*.pt"))
        if not found:
            raise FileNotFoundError(f"--checkpoint {path} holds no checkpoint (*.pt): leave --all-checkpoints out.")
        yield from found


def _evaluate_model(
    hub: RobertaHub, benchmark: PairBenchmark, paradigms: Sequence[Paradigm], settings: PairSettings, *, name: str
) -> tuple[dict[str, float], list[str]]:
    """The percentage of each paradigm, and where the pairs are that are too long."""
    method = settings.method or benchmark.method
    known_by = identity_of(hub)[:16] + ("" if settings.precision == "fp32" else f"-{settings.precision}")
    device = torch.device(usable_device(settings.device))
    if not isinstance(hub.model, OnnxModel):
        set_precision(hub.to(device).model, settings.precision, device)
    folder = settings.output_dir / "scores" / benchmark.name / method / known_by
    folder.mkdir(parents=True, exist_ok=True)
    right, too_long = {}, []
    with progress_bar(
        Path(name).name, total=len(paradigms), unit="paradigm", disable=not settings.show_progress
    ) as bar:
        for paradigm in paradigms:
            path = folder / f"{paradigm.name}.json"
            sentences = [(pair.good, pair.bad) for pair in paradigm.pairs]
            scores = read_scores(path, sentences)
            if scores is None:
                scores = score_pairs(hub, sentences, settings)
                write_scores(path, sentences, scores)
            right[paradigm.name] = percent_right(scores[:, 0], scores[:, 1])
            is_long = np.flatnonzero(np.isnan(scores).any(axis=1))
            too_long += [paradigm.pairs[number].where for number in is_long.tolist()]
            bar.update()
    return right, too_long


def score_pairs(hub: RobertaHub, pairs: Sequence[tuple[str, str]], settings: PairSettings) -> NDArray[np.float64]:
    """The scores (N, 2) of the sentences of N pairs; NaN for those that are too long for the model."""
    method = settings.method or BENCHMARKS[settings.benchmark].method
    sequences = hub.codec.sequences([sentence for pair in pairs for sentence in pair])
    fits = np.array([len(sequence) <= hub.max_positions for sequence in sequences])
    fitting = [sequence for sequence, is_fit in zip(sequences, fits, strict=True) if is_fit]
    scores = np.full(len(sequences), np.nan)
    found = hub.score_sequences(fitting, method, max_tokens=settings.max_tokens)
    scores[fits] = [each.score for each in found]
    return scores.reshape(-1, 2)


def read_scores(path: Path, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64] | None:
    """The stored scores (N, 2) of N pairs, which may be the first of those in the file; None if it has others."""
    stored = read_json(path, keys=["crc32", "scores"], remedy="delete it, and run the same command again")
    if stored is None or stored["crc32"][: len(pairs)] != _checksums(pairs):
        return None
    return np.array(stored["scores"][: len(pairs)], dtype=np.float64).reshape(-1, 2)


def write_scores(path: Path, pairs: Sequence[tuple[str, str]], scores: NDArray[np.float64]) -> None:
    """Store the scores (N, 2) of N pairs."""
    write_json(path, {"crc32": _checksums(pairs), "scores": scores.tolist()}, indent=None)


def _checksums(pairs: Sequence[tuple[str, str]]) -> list[int]:
    return [zlib.crc32("\n".join(pair).encode()) for pair in pairs]


def identity_of(hub: RobertaHub) -> str:
    """SHA-256 of the weights, or of an exported graph, and of the tokenizer, without its place."""
    digest = hashlib.sha256()
    if isinstance(hub.model, OnnxModel):
        digest.update(sha256_of_file(hub.model.path).encode())
    for name, tensor in sorted(hub.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.float().cpu().numpy().tobytes())
    return sha256_of_json([digest.hexdigest(), hub.vocabulary.sha256, hub.tokenizer.description()])


def _remarks(benchmark: PairBenchmark, paradigms: Sequence[Paradigm], *, limit: int | None) -> list[str]:
    """What is odd about the pairs."""
    remarks = []
    wanted = min(limit or benchmark.num_pairs, benchmark.num_pairs)
    fewer = [f"{one.name} has {len(one.pairs):,}" for one in paradigms if len(one.pairs) != wanted]
    if fewer:
        remarks.append(f"A paradigm of {benchmark.title} has {benchmark.num_pairs:,} pairs, but {_listed(fewer)}.")
    same = [pair.where for one in paradigms for pair in one.pairs if pair.good == pair.bad]
    if same:
        remarks.append(f"{len(same)} pairs are twice the same sentence, and count as wrong: {_listed(same)}.")
    return remarks


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN:,} others" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more
