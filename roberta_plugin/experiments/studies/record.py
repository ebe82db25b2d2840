"""study.json: settings and data that a study's folder was made with, part by part, so that a change is noticed.

New variants, seeds and probes extend a study. What exists and has changed, in the file or in the data, is named and
refused; with `redo` its results are deleted, with those that depend on them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from roberta_plugin.data.manifest import read_manifest
from roberta_plugin.experiments.studies.plan import VariantPlan
from roberta_plugin.experiments.studies.probes import MODEL_AXIS, block_length, data_of
from roberta_plugin.experiments.studies.settings import FINE_TUNING, PERPLEXITY, PRETRAINING, PerplexityProbe, Study
from roberta_plugin.experiments.sweeps.grid import VARIANT
from roberta_plugin.files import atomic_write
from roberta_plugin.json_files import read_json

NAME = "study.json"
_PROCESSES = "processes"
_DIGITS = 16  # of a hash
_NAMED = {"variants": "variant", "probes": "probe", "ranks": "pretraining of"}  # in messages
_NOT_RECORDED = ("name", "seeds")  # of a probe: more seeds extend it
Parts = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""variants, probes or ranks -> name -> settings."""


def settings_of(study: Study, plans: Sequence[VariantPlan]) -> dict[str, dict[str, dict[str, Any]]]:
    """The settings of every part that results depend on, as study.json holds them."""
    probes = {}
    for probe in study.probes:
        names = [item.name for item in fields(probe) if item.name not in _NOT_RECORDED]
        found = {name: str(getattr(probe, name)) for name in names}
        if isinstance(probe, PerplexityProbe):  # by the variants where they are not given
            folder = data_of(probe, plans)
            found |= {"data": str(folder), "tokens_per_sample": str(block_length(probe, plans))}
            found |= contents_of(folder, probe.split)
        probes[probe.name] = {"kind": probe.kind, **found}
    return {
        "variants": {
            plan.variant.name: {
                **{name: str(value) for name, value in sorted(plan.options.items())},
                **all_contents(replace(study, probes=()), [plan]),
            }
            for plan in plans
        },
        "probes": probes,
        "ranks": {plan.variant.name: {_PROCESSES: str(plan.num_ranks)} for plan in plans},
    }


def recorded_ranks(root: Path) -> int | None:
    """Processes of the pretrainings of an earlier start: its report may be asked for where there are no GPUs."""
    known = (_record(root) or {}).get("ranks", {})
    return max((int(found[_PROCESSES]) for found in known.values()), default=None)


def contents_of(folder: Path, split: str) -> dict[str, str]:
    """What a split of a data-bin holds: file -> hash by manifest.json, or its size in a folder without a manifest.

    Example:
        contents_of(Path("books"), "train")  ->  {"books/train.bin": "sha256 1f0c...", "books/train.idx": "sha256 ..."}
    """
    outputs = ((read_manifest(folder) or {"splits": {}})["splits"].get(split) or {"outputs": {}})["outputs"]
    paths = [folder / f"{split}.{ending}" for ending in ("bin", "idx")]
    return {
        str(path): f"sha256 {outputs[path.name]['sha256'][:_DIGITS]}"
        if path.name in outputs
        else f"{path.stat().st_size:,} bytes"
        for path in paths
    }


def all_contents(study: Study, plans: Sequence[VariantPlan]) -> dict[str, str]:
    """What the training data of all variants and the splits of all perplexities hold; see `contents_of`."""
    splits = [(folder, str(plan.parsed.train_subset)) for plan in plans for folder in plan.folders]
    splits += [(data_of(probe, plans), probe.split) for probe in study.probes if isinstance(probe, PerplexityProbe)]
    return {path: held for folder, split in splits for path, held in contents_of(folder, split).items()}


def check_record(root: Path, now: Parts, *, redo: bool = False, only_read: bool = False) -> list[str]:
    """Compare with study.json of an earlier start, and write it again.

    Args:
        root: folder of the study.
        now: what `settings_of` returned.
        redo: whether to delete the results of what has changed, instead of refusing.
        only_read: whether to write nothing, and to refuse a folder without a study.

    Returns:
        What was deleted, a line each.

    Raises:
        FileNotFoundError: with `only_read`, if no study was begun in the folder.
        ValueError: naming each difference, unless `redo`.
    """
    before = _record(root)
    if before is None and only_read:
        raise FileNotFoundError(f"{root / NAME} does not exist: no study was begun there. Give its --output-dir.")
    before = before or {}
    changed = {
        (kind, name): found
        for kind, parts in now.items()
        for name, settings in parts.items()
        if name in before.get(kind, {}) and (found := differences(before[kind][name], settings))
    }
    if changed and not redo:
        lines = [f"{_NAMED[kind]} {name}: {', '.join(found)}" for (kind, name), found in changed.items()]
        raise ValueError(
            f"{root} holds results of other settings or data. Changed since: {'; '.join(lines)}. Change it back, give "
            "another --output-dir, or give --redo-changed, which deletes the results of what has changed and makes "
            "them again."
        )
    folders = [folder for kind, name in changed for folder in _results(root, kind, name) if folder.exists()]
    for folder in dict.fromkeys(folders):
        shutil.rmtree(folder)
    if not only_read:
        with atomic_write(root / NAME, "w") as file:
            json.dump({kind: {**before.get(kind, {}), **parts} for kind, parts in now.items()}, file, indent=2)
    return [f"deleted, to be made again: {folder}" for folder in dict.fromkeys(folders)]


def _record(root: Path) -> dict[str, Any] | None:
    remedy = "give another --output-dir, or delete this folder"
    return read_json(root / NAME, keys=("variants", "probes"), remedy=remedy)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """How two settings differ.

    Example:
        differences({"lr": "1"}, {"lr": "2", "bf16": "true"})  ->  ["lr 1 is now 2", "bf16 true is new"]
    """
    found = [
        f"{name} {before[name]} is now {now[name]}" for name in before if now.get(name, before[name]) != before[name]
    ]
    found += [f"{name} {before[name]} is left out" for name in before if name not in now]
    return found + [f"{name} {now[name]} is new" for name in now if name not in before]


def _results(root: Path, kind: str, name: str) -> list[Path]:
    """The folders of what a probe has measured; or of a variant's pretrainings, and what was measured with them."""
    if kind == "probes":
        return [root / PERPLEXITY / name, root / FINE_TUNING / name]
    found = [root / PRETRAINING / f"{VARIANT}-{name}", *(root / PERPLEXITY).glob(f"*/{name}")]
    for probe in (root / FINE_TUNING).glob("*"):
        found += [*(probe / "runs").glob(f"{MODEL_AXIS}-{name}-seed-*"), probe / "results" / name]
    return found
