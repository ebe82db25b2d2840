"""study.json: settings and data that a study's folder was made with, part by part, so that a change is noticed.

New variants, seeds and probes extend a study. What exists and has changed, in the file or in the data, is named and
refused; with `redo` its results are deleted, and those that depend on them, and are made anew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.data.manifest import read_manifest
from roberta_plugin.experiments.studies.checks import block_length, data_of
from roberta_plugin.experiments.studies.plan import VariantPlan
from roberta_plugin.experiments.studies.settings import PerplexityProbe, Probe, Study
from roberta_plugin.files import atomic_write
from roberta_plugin.json_files import read_json
from roberta_plugin.training import arguments as train_arguments

NAME = "study.json"
PRETRAINING, PERPLEXITY, FINE_TUNING = "pretraining", "perplexity", "fine-tuning"
VARIANT_AXIS = "variant"
_DIGITS = 16  # of a hash
_PROCESSES = "processes"
_NAMED = {"variants": "variant", "probes": "probe", "ranks": "pretraining of"}  # in messages
_NOT_RECORDED = ("name", "seeds")  # of a probe: more seeds extend it


def settings_of(study: Study, plans: Sequence[VariantPlan]) -> dict[str, dict[str, dict[str, Any]]]:
    """The settings of every part that results depend on, as study.json holds them."""
    return {
        "variants": {plan.variant.name: _of_variant(plan) for plan in plans},
        "probes": {probe.name: _of_probe(probe, plans) for probe in study.probes},
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
    found: dict[str, str] = {}
    for plan in plans:
        found |= _training_data(plan)
    for probe in study.probes:
        if isinstance(probe, PerplexityProbe):
            found |= contents_of(data_of(probe, plans), probe.split)
    return found


def _training_data(plan: VariantPlan) -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in train_arguments.data_folders(plan.parsed):
        found |= contents_of(folder, plan.parsed.train_subset)
    return found


def _of_variant(plan: VariantPlan) -> dict[str, Any]:
    return {**{name: str(value) for name, value in sorted(plan.options.items())}, **_training_data(plan)}


def _of_probe(probe: Probe, plans: Sequence[VariantPlan]) -> dict[str, Any]:
    found = {name: str(value) for name, value in vars(probe).items() if name not in _NOT_RECORDED}
    if isinstance(probe, PerplexityProbe):  # by the base where they are not given
        folder = data_of(probe, plans)
        found |= {"data": str(folder), "tokens_per_sample": str(block_length(probe, plans))}
        found |= contents_of(folder, probe.split)
    return {"kind": PERPLEXITY if isinstance(probe, PerplexityProbe) else FINE_TUNING, **found}


def check_record(root: Path, now: Mapping[str, Mapping[str, Mapping[str, Any]]], *, redo: bool) -> list[str]:
    """Compare with study.json of an earlier start, and write it anew.

    Args:
        root: folder of the study.
        now: what `settings_of` returned.
        redo: whether to delete the results of what has changed, instead of refusing.

    Returns:
        What was deleted, a line each.

    Raises:
        ValueError: naming each difference, unless `redo`.
    """
    before = _record(root) or {"variants": {}, "probes": {}}
    changed = changes(before, now)
    if not redo:
        _refuse(root, changed)
    removed = []
    for kind, name in changed:
        removed += remove_probe(root, name) if kind == "probes" else remove_variant(root, name)
    kept = {kind: {**before.get(kind, {}), **parts} for kind, parts in now.items()}
    with atomic_write(root / NAME, "w") as file:
        json.dump(kept, file, indent=2)
    return removed


def check_unchanged(root: Path, now: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Refuse a folder without a study, or with one of other settings or data; write nothing.

    Raises:
        FileNotFoundError: if no study was begun in the folder.
        ValueError: naming each difference.
    """
    before = _record(root)
    if before is None:
        raise FileNotFoundError(f"{root / NAME} does not exist: no study was begun there. Give its --output-dir.")
    _refuse(root, changes(before, now))


def _record(root: Path) -> dict[str, Any] | None:
    remedy = "give another --output-dir, or delete this folder"
    return read_json(root / NAME, keys=("variants", "probes"), remedy=remedy)


def _refuse(root: Path, changed: Mapping[tuple[str, str], Sequence[str]]) -> None:
    if changed:
        lines = [f"{_NAMED[kind]} {name}: {', '.join(found)}" for (kind, name), found in changed.items()]
        raise ValueError(
            f"{root} holds results of other settings or data. Changed since: {'; '.join(lines)}. Change it back, give "
            "another --output-dir, or give --redo-changed, which deletes the results of what has changed and makes "
            "them anew."
        )


def changes(
    before: Mapping[str, Mapping[str, Mapping[str, Any]]], now: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> dict[tuple[str, str], list[str]]:
    """How the parts that are in both have changed: (variants, probes or ranks; name) -> differences."""
    return {
        (kind, name): found
        for kind, parts in now.items()
        for name, settings in parts.items()
        if name in before.get(kind, {}) and (found := differences(before[kind][name], settings))
    }


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


def remove_variant(root: Path, name: str) -> list[str]:
    """Delete a variant's pretrainings and all that was measured with them."""
    folders = [root / PRETRAINING / f"{VARIANT_AXIS}-{name}", *(root / PERPLEXITY).glob(f"*/{name}")]
    for probe in (root / FINE_TUNING).glob("*"):
        folders += [*(probe / "runs").glob(f"model-{name}-seed-*"), probe / "results" / name]
    return _remove(folders)


def remove_probe(root: Path, name: str) -> list[str]:
    """Delete all that a probe has measured."""
    return _remove([root / PERPLEXITY / name, root / FINE_TUNING / name])


def _remove(folders: Sequence[Path]) -> list[str]:
    found = [folder for folder in folders if folder.exists()]
    for folder in found:
        shutil.rmtree(folder)
    return [f"deleted, to be made anew: {folder}" for folder in found]
