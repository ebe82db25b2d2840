"""`roberta inspect`: show and check the contents of a data-bin or of a prepared folder."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_plugin.data.corpus_statistics import (
    BREAK_MODES,
    SplitStatistics,
    block_use,
    count_split,
    find_faults,
)
from roberta_plugin.data.count_baselines import baselines_of
from roberta_plugin.data.manifest import read_manifest
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.prepared import NAME as PREPARED
from roberta_plugin.settings import REQUIRED, Checked, add_options, from_arguments, setting

_FAULTY = 1


@dataclass(frozen=True, kw_only=True)
class InspectSettings(Checked):
    """What to show; the fields are options of `roberta inspect`."""

    folder: Path = setting(REQUIRED, "the data-bin", flag="folder")
    split: tuple[str, ...] = setting((), "splits to inspect", nargs="+", metavar="NAME", default_text="all")
    tokens_per_sample: tuple[int, ...] = setting(
        (128, 512), "block lengths to compare, <s> included", nargs="+", metavar="N", smallest=2
    )


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta inspect` and add its options."""
    parser.description = (
        "Counts documents and tokens, shows what unigrams and bigrams of train reach on the other splits and the "
        "blocks that each break mode makes, and checks sizes, offsets, ids and hashes. Exit code 1 if "
        "the files are damaged. Reads folders of `roberta binarize` and fairseq-preprocess; for folders of `roberta "
        "prepare`, it shows examples and labels."
    )
    add_options(parser, InspectSettings)


def run(args: argparse.Namespace) -> int:
    """Show and check all splits."""
    settings = from_arguments(InspectSettings, vars(args))
    folder = settings.folder
    if (folder / PREPARED).is_file():
        return inspect_prepared(settings)
    vocabulary = Vocabulary.load(folder / "dict.txt")
    manifest = read_manifest(folder)
    print(f"{folder}: vocabulary of {len(vocabulary):,} symbols, <mask> included; manifest: {made_by(manifest)}")
    has_train = False
    all_faults = tokenizer_faults(folder, manifest)
    for fault in all_faults:
        print(f"fault: {fault}")
    splits = settings.split or splits_in(folder, manifest)
    for split in sorted(splits, key=lambda name: name != "train"):  # the baselines of the others need it
        faults = find_faults(folder, split, vocabulary, manifest)
        print(f"\n{split}: {'sound' if not faults else 'NOT SOUND'}")
        for fault in faults:
            print(f"  fault: {fault}")
        all_faults += faults
        if faults:
            continue
        if manifest is not None and split not in manifest["splits"]:
            print("  not in manifest.json, so its hashes cannot be checked")
        tokens = MmapTokens(folder / split)
        show_counts(count_split(tokens, vocabulary), vocabulary)
        has_train = has_train or split == "train"
        if split != "train" and has_train:
            found = baselines_of([folder / "train"], {split: [folder / split]})[split]
            print(f"  counts of train reach: {found.described() if found else 'nothing to predict'}")
        show_blocks(tokens, settings.tokens_per_sample)
    return _FAULTY if all_faults else 0


def inspect_prepared(settings: InspectSettings) -> int:
    """Show and check the splits of a prepared folder."""
    from roberta_plugin.finetuning.inspection import describe, find_faults, settings_faults
    from roberta_plugin.finetuning.prepared import Prepared

    prepared = Prepared.open(settings.folder)
    print(f"{settings.folder}: prepared for {prepared.task}; vocabulary of {len(prepared.vocabulary):,} symbols")
    for name, value in prepared.settings.items():
        if value not in (None, []):
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            print(f"  {name.replace('_', ' ')}: {shown}")
    of_settings = settings_faults(prepared)
    for fault in of_settings:
        print(f"fault: {fault}")
    is_sound = not of_settings
    for name in settings.split or prepared.splits:
        split = prepared.split(name)
        faults = find_faults(prepared, split)
        is_sound = is_sound and not faults
        print(f"\n{name}: {'NOT SOUND' if faults else 'sound'}")
        for line in [f"fault: {fault}" for fault in faults] or describe(prepared, split):
            print(f"  {line}")
    return 0 if is_sound else _FAULTY


def splits_in(folder: Path, manifest: dict[str, Any] | None) -> list[str]:
    """Names of the splits that have a file in the folder or are listed in its manifest."""
    names = {path.stem for suffix in ("idx", "bin") for path in folder.glob(f"*.{suffix}")}
    if manifest is not None:
        names |= set(manifest["splits"])
    if not names:
        raise FileNotFoundError(f"No .idx file in {folder}: name the folder that `roberta binarize` wrote to.")
    return sorted(names)


def tokenizer_faults(folder: Path, manifest: dict[str, Any] | None) -> list[str]:
    """What is wrong with the tokenizer's files in the folder, compared with the manifest."""
    if manifest is None:
        return []
    try:
        found = load_tokenizer(folder).description()
    except (ValueError, OSError) as error:
        return [str(error)]
    if found != manifest["tokenizer"]:
        names = " or ".join(manifest["tokenizer"].get("sha256", {}))
        return [
            f"{folder}: {names} was replaced after the data were made: it is not what {folder / 'manifest.json'} says."
        ]
    return []


def made_by(manifest: dict[str, Any] | None) -> str:
    """Which program made the folder."""
    if manifest is None:
        return "none, so no hashes to check"
    version = manifest.get("made_by", {}).get("roberta_plugin", "of unknown version")
    return f"roberta_plugin {version}, {manifest['tokenizer']['kind']}"


def show_counts(counts: SplitStatistics, vocabulary: Vocabulary) -> None:
    """Print the numbers of documents, lines and tokens."""
    print(
        f"  {counts.num_documents:,} documents, {counts.num_items:,} lines ({counts.num_blank:,} blank), "
        f"{counts.num_tokens:,} tokens; {counts.num_unknown:,} unknown ({counts.unknown_rate:.4%}); "
        f"{counts.num_symbols_used:,} of {len(vocabulary):,} symbols occur"
    )


def show_blocks(tokens: MmapTokens, tokens_per_sample: tuple[int, ...]) -> None:
    """Print a table of the blocks that each break mode makes."""
    print("  break mode     tokens per sample       blocks   lines cut   lost by fairseq")
    for length in tokens_per_sample:
        for break_mode in BREAK_MODES:
            use = block_use(tokens, tokens_per_sample=length, break_mode=break_mode)
            if use is None:
                print(f"  {break_mode:<13} {length:>18}   not possible without blank lines")
                continue
            print(
                f"  {break_mode:<13} {length:>18} {use.num_blocks:>12,} {use.num_cut:>11,} {use.lost_by_fairseq:>17.2%}"
            )
